"""Build the table of idle powers from finished probes."""

from pathlib import Path

from scalewatt.results.tables.idle import write_idle
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    table = Path(snakemake.output.table)
    write_idle(snakemake.params.definition, table.parents[1], table)
