"""Build the tables of all runs."""

from pathlib import Path

from scalewatt.results.build import write_runs
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    tables = Path(snakemake.output[0]).parent
    write_runs(snakemake.params.definition, tables.parent, tables)
