"""Draw a figure from its table."""

from pathlib import Path

from scalewatt.figures.draw_figure import draw_figure
from scalewatt.targets.step import logged

with logged(snakemake) as picture:
    table = Path(snakemake.input.table)
    draw_figure(snakemake.wildcards.figure, table, picture.with_suffix(""))
