"""From a figure's table to its files."""

from __future__ import annotations

import importlib
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path

FIGURES = range(1, 8)
NAMED = ("variants", "breakdown", "learning", "pareto", "prediction")
"""Figures that are none of the paper's; each has a module of its name with draw and plotted."""


def module_of(figure: str) -> str:
    """Return the module that draws a figure (figure2, breakdown), dotted below the package."""
    return f"figures.{figure}"


def draw_figure(figure: int | str, table_path: Path, stem: Path) -> list[Path]:
    """Draw figure 1 to 7 or a named one and write stem.pdf, stem.svg, stem.png and stem.csv.

    The CSV holds exactly the plotted points. InputError: no such figure, table or column.
    """
    import pyarrow.csv as pc

    from scalewatt.figures.figure_data import read_figure_table

    if figure not in NAMED and figure not in FIGURES:
        raise InputError(
            f"there is no figure {figure}: the figures are 1 to {FIGURES[-1]}, {', '.join(NAMED)}"
        )
    table_path, stem = Path(table_path), Path(stem)
    table = read_figure_table(figure, table_path)
    # Imported here: matplotlib costs half a second, which other commands need not pay.
    from scalewatt.figures import style

    name = figure if isinstance(figure, str) else f"figure{figure}"
    module = importlib.import_module(f"scalewatt.{module_of(name)}")
    paths = style.save(module.draw(table), stem)
    csv_path = stem.with_name(f"{stem.name}.csv")
    with atomic_path(csv_path) as temporary:
        pc.write_csv(module.plotted(table), temporary)
    return [*paths, csv_path]
