"""Figures on small screens: the drawing whose panels are stacked, and the small print as text."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from scalewatt.figures.figure_data import options
from scalewatt.report.pictures.embed_fonts import with_fonts
from scalewatt.report.report_inputs import MOST_SVG_BYTES


@dataclass(frozen=True)
class SmallScreen:
    """What a figure has beside its drawing; results of an earlier version have neither."""

    stacked: str | None = None
    """The drawing with its panels one below the other, as a data URI."""
    small_print: tuple[str, ...] = ()
    """The sentences of the small print that the caption has not."""
    in_drawing: bool = True
    """True if the wide drawing has the small print, so that only small screens need the text."""


def small_screen(
    folder: Path, name: str, table: pd.DataFrame | None, caption: str = ""
) -> SmallScreen:
    """Return what a figure of the campaign's results in `folder` has for small screens."""
    sentences = _sentences(folder / "figures" / f"{name}.caption.md")
    stacked = folder / "figures" / f"{name}.stacked.svg"
    return SmallScreen(
        _data_uri(stacked) if stacked.is_file() else None,
        tuple(one for one in sentences if one not in caption),
        table is None or options(table).small_print,
    )


def _data_uri(path: Path) -> str | None:
    if path.stat().st_size > MOST_SVG_BYTES:  # so large a drawing is not embedded a second time
        return None
    return f"data:image/svg+xml;base64,{base64.b64encode(with_fonts(path)).decode()}"


def _sentences(path: Path) -> tuple[str, ...]:
    """Return the sentences of a caption file, of which Markdown's escapes are undone."""
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(re.sub(r"\\([!-/:-@[-`{-~])", r"\1", line) for line in lines)
