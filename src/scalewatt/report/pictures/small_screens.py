"""Figures on small screens: the drawing whose panels are stacked."""

from __future__ import annotations

import base64
from pathlib import Path

from scalewatt.report.pictures.embed_fonts import with_fonts
from scalewatt.report.report_inputs import MOST_SVG_BYTES


def stacked_drawing(folder: Path, name: str) -> str | None:
    """Return the stacked drawing of a figure of the results in `folder` as a data URI; None without one."""
    path = folder / "figures" / f"{name}.stacked.svg"
    if not path.is_file() or path.stat().st_size > MOST_SVG_BYTES:
        return None
    return f"data:image/svg+xml;base64,{base64.b64encode(with_fonts(path)).decode()}"
