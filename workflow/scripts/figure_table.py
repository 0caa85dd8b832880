"""Build the table of a figure, or Table 1, from its own runs."""

from pathlib import Path

from scalewatt.results.build import write_figure_table
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    table = Path(snakemake.output.table)
    write_figure_table(snakemake.params.definition, table.parents[1], table)
