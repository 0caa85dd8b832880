"""Write the manifest of a campaign's tables, figures and runs."""

from pathlib import Path

from scalewatt.reproduction.manifest import write_manifest
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    write_manifest(Path(snakemake.output[0]).parent)
