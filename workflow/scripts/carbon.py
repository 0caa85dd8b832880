"""Find the carbon intensity that a run met."""

from pathlib import Path

from scalewatt.results.carbon import write_carbon
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    write_carbon(
        Path(snakemake.input.spec).parent,
        Path(snakemake.input.traces),
        Path(snakemake.input.energy),
        Path(snakemake.input.file),
        snakemake.params.source,
        Path(snakemake.output[0]),
    )
