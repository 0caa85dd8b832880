"""Build tables: of all runs, of idle powers, or of one figure from its own runs."""

from scalewatt.results.build import write_figure_table, write_runs
from scalewatt.results.tables.idle import write_idle
from scalewatt.targets.step import logged

with logged(snakemake) as table:
    definition, results = snakemake.params.definition, table.parents[1]
    if table.stem == "runs":
        write_runs(definition, results, table.parent)
    else:
        write = write_idle if table.stem == "idle" else write_figure_table
        write(definition, results, table)
