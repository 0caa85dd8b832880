"""Write the manifest of a campaign's tables, figures and runs."""

from scalewatt.reproduction.manifest import write_manifest
from scalewatt.targets.step import logged

with logged(snakemake) as sums:
    write_manifest(sums.parent)
