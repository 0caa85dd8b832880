"""From a figure's table to its files."""

from __future__ import annotations

import importlib
from pathlib import Path

from scalewatt.errors import InputError
from scalewatt.files import atomic_path

FIGURES = range(1, 8)


def draw_figure(number: int, table_path: Path, stem: Path) -> list[Path]:
    """Draw figure `number` (1 to 7) and write stem.pdf, stem.svg, stem.png and stem.csv.

    The CSV holds exactly the plotted points. InputError: no such figure, table or column.
    """
    import pyarrow.csv as pc

    from scalewatt.figures.points import plotted, read_figure_table

    if number not in FIGURES:
        raise InputError(f"there is no figure {number}: the figures are 1 to {FIGURES[-1]}")
    table_path, stem = Path(table_path), Path(stem)
    table = read_figure_table(number, table_path)
    # Imported here: matplotlib costs half a second, which other commands need not pay.
    from scalewatt.figures import style

    module = importlib.import_module(f"scalewatt.figures.figure{number}")
    paths = style.save(module.draw(table), stem)
    csv_path = stem.with_name(f"{stem.name}.csv")
    with atomic_path(csv_path) as temporary:
        pc.write_csv(plotted(number, table), temporary)
    return [*paths, csv_path]
