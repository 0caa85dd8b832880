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
and plotted, which take the table with numpy columns (`figure_data.drawable`)."""
SUFFIXES = (".pdf", ".svg", ".png", ".csv", ".caption.tex", ".caption.md")
"""What the names of a figure's files end in."""


def module_of(figure: str) -> str:
    """Name of the module that draws a figure, dotted below the package."""
    return f"figures.{figure if figure in MODULES else 'panels'}"


def draw_figure(name: str, table_path: Path, stem: Path) -> None:
    """Draw a figure and write its files: `stem` with each of SUFFIXES.

    The CSV holds exactly the plotted points, in the table's units. InputError: no such figure, table or
    column.
    """
    # Imported here: matplotlib costs half a second, which other commands need not pay.
    import pyarrow.csv as pc

    from scalewatt.figures.figure_data import drawable
    from scalewatt.figures.save_figure import save, write_captions
    from scalewatt.results.figures.figure_schema import POINTS, SCHEMAS
    from scalewatt.results.tables.frames import read_frame, to_table

    drawn = sorted({*SCHEMAS} - {"table1", "variants"})
    if name not in drawn:
        raise InputError(f"there is no figure named {name}; allowed: {', '.join(drawn)}")
    module: Any = import_module(f"scalewatt.{module_of(name)}")
    frame = drawable(read_frame(table_path, SCHEMAS[name]))
    frame.attrs["figure"] = name
    drawing = module.draw(frame)
    save(drawing, stem)
    columns = SCHEMAS[name] if name in MODULES else POINTS
    with atomic_path(Path(f"{stem}.csv")) as temporary:
        pc.write_csv(to_table(module.plotted(frame), columns), temporary)
    write_captions(drawing.sentences, stem)
