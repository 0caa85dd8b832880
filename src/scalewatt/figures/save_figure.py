"""A drawing as PDF, SVG and PNG, the same bytes each time, and its notes as captions."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
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
FORMATS = tuple(_METADATA)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `stem`.pdf, .svg and .png, or those in `formats`, each whole or not at all."""
    paths = [Path(f"{stem}.{suffix}") for suffix in formats]
    with style.applied(style.preset_at(figure).width_mm):
        # Laid out once: less time, and the same geometry in all three.
        figure.draw_without_rendering()
        # None, not "none": of that matplotlib would draw twice for each file.
        figure.set_layout_engine(None)
        _round_positions(figure)
        for path, suffix in zip(paths, formats, strict=True):
            # Drawn in memory: on a full disk, matplotlib's PDF may end in an error of its own.
            drawn = BytesIO()
            figure.savefig(drawn, format=suffix, metadata=_METADATA[suffix])
            with atomic_path(path) as temporary:
                temporary.write_bytes(drawn.getvalue())
    return paths


def _round_positions(figure: Figure) -> None:
    """Cut off the last digits of where axes are: the layout's solver leaves others each time, and matplotlib
    names SVG's clip paths by all of them."""
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position().get_points().round(10)))


def write_captions(sentences: Sequence[str], stem: Path) -> list[Path]:
    """Write notes to `stem`.caption.tex and `stem`.caption.md, a line for each sentence.

    Neither has an empty line, so that both are one paragraph, as LaTeX's captions must be.
    """
    forms = {".caption.tex": escaped_latex, ".caption.md": escaped_markdown}
    paths = [Path(f"{stem}{ending}") for ending in forms]
    for path, escaped in zip(paths, forms.values(), strict=True):
        write_text(path, "".join(f"{escaped(sentence)}\n" for sentence in sentences))
    return paths
