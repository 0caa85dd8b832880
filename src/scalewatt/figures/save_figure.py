"""A drawing as PDF, SVG and PNG, the same bytes each time, and its caption as text."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.transforms import Bbox

from scalewatt.common.files import atomic_path, write_text
from scalewatt.figures import style
from scalewatt.results.text.text_tables import escaped_latex, escaped_markdown

# No dates and no tool versions: the same table gives the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def save(figure: style.Drawing, stem: Path, formats: Sequence[str] = tuple(_METADATA)) -> None:
    """Write `stem`.pdf, .svg and .png, or those in `formats`, each whole or not at all."""
    with style.applied(style.preset_at(figure).width_mm, figure.font):
        # Laid out once: less time, and the same geometry in all three.
        engine: Any = figure.get_layout_engine()
        engine.execute(figure)
        # None, not "none": of that matplotlib would draw twice for each file.
        figure.set_layout_engine(None)
        # The layout's solver leaves other last digits each time, and SVG's clip paths are named by all.
        for axes in figure.axes:
            axes.set_position(Bbox(axes.get_position().get_points().round(10)))
        for suffix in formats:
            # Drawn in memory: on a full disk, matplotlib's PDF may end in an error of its own.
            drawn = BytesIO()
            figure.savefig(drawn, format=suffix, metadata=_METADATA[suffix])
            with atomic_path(Path(f"{stem}.{suffix}")) as temporary:
                temporary.write_bytes(drawn.getvalue())


def write_captions(sentences: Sequence[str], stem: Path) -> None:
    """Write a caption to `stem`.caption.tex and `stem`.caption.md, a line for each sentence.

    Neither has an empty line, so that both are one paragraph, as LaTeX's captions must be.
    """
    for suffix, escaped in ((".tex", escaped_latex), (".md", escaped_markdown)):
        text = "".join(f"{escaped(sentence)}\n" for sentence in sentences)
        write_text(Path(f"{stem}.caption{suffix}"), text)
