"""From a figure's table to its files.

Which module draws which figure is data, so that a figure depends on the code that draws it alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path

MODULES = ("figure1", "figure5", "breakdown", "learning")
"""Figures with a module of their own; the others are drawn by `panels`. A module has the functions draw
and plotted, which take the table."""
SUFFIXES = (".pdf", ".svg", ".png", ".csv", ".caption.tex", ".caption.md")
"""What the names of a figure's files end in, in the order in which they are written."""


def module_of(figure: str) -> str:
    """Return the module that draws a figure (figure2, breakdown), dotted below the package."""
    return f"figures.{figure if figure in MODULES else 'panels'}"


def draw_figure(figure: int | str, table_path: Path, stem: Path) -> list[Path]:
    """Draw figure 1 to 7 or a named one and write its files: `stem` with each of SUFFIXES.

    The CSV holds exactly the plotted points, the captions the notes. InputError: no such figure, table or
    column.
    """
    import pyarrow.csv as pc

    from scalewatt.results.figures.figure_schema import POINTS, SCHEMAS
    from scalewatt.results.tables.frames import read_frame, to_table

    name = f"figure{figure}" if isinstance(figure, int) else figure
    drawn = [known for known in SCHEMAS if known not in ("table1", "variants")]
    if name not in drawn:
        raise InputError(f"there is no figure {figure}; allowed: {', '.join(sorted(drawn))}")
    table_path, stem = Path(table_path), Path(stem)
    # Imported here: matplotlib costs half a second, which other commands need not pay.
    module: Any = import_module(f"scalewatt.{module_of(name)}")
    frame = read_frame(table_path, SCHEMAS[name])
    frame.attrs["figure"] = name
    from scalewatt.figures.save_figure import save, write_captions

    drawing = module.draw(frame)
    paths = save(drawing, stem)
    csv_path = Path(f"{stem}.csv")
    points = module.plotted(frame)
    columns = SCHEMAS[name] if name in MODULES else POINTS
    with atomic_path(csv_path) as temporary:
        pc.write_csv(to_table(points, columns), temporary)
    return [*paths, csv_path, *write_captions(drawing.sentences, stem)]
