"""Draw a figure from its table."""

from pathlib import Path

from scalewatt.figures.draw_figure import draw_figure
from scalewatt.targets.step import logged

with logged(snakemake.log[0]):
    stem = Path(snakemake.output[0]).with_suffix("")
    draw_figure(snakemake.wildcards.figure, Path(snakemake.input.table), stem)
