"""Drawings that bring their font: a reader's machine need not have the one they are laid out for."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from scalewatt.common.errors import InputError

FAMILY = "DejaVu Sans"
"""The font of all figures (figures/style.py), which comes with matplotlib."""
_FILES = {400: "DejaVuSans.ttf", 700: "DejaVuSans-Bold.ttf"}
_ALWAYS = frozenset(map(chr, range(0x20, 0x7F)))
_ROOT = re.compile(r"<svg\b[^>]*>")


def with_fonts(path: Path) -> bytes:
    """Return an SVG with the characters of its font embedded; unchanged where it names another font, or none.

    InputError: the file is no SVG.
    """
    try:
        content = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise InputError(f"report: {path}: is no SVG ({error}); draw the figure again") from error
    characters: dict[int, set[str]] = {}
    for weight, text in _texts(root):
        characters.setdefault(weight, set()).update(text)
    faces = "".join(_face(weight, frozenset(own)) for weight, own in sorted(characters.items()))
    if faces:
        style = f"<style>{faces}text{{text-rendering:geometricPrecision}}</style>"
        content = _ROOT.sub(lambda found: found[0] + style, content, count=1)
    return content.encode()


def _texts(root: ElementTree.Element) -> Iterator[tuple[int, str]]:
    """Yield weight and text of every text of the family."""
    for element in root.iter():
        style = element.get("style", "")
        if FAMILY in style and element.tag.endswith(("}text", "}tspan")):
            weight = 700 if re.search(r"\b(700|bold)\b", style) else 400
            yield weight, "".join(element.itertext())


def _face(weight: int, characters: frozenset[str]) -> str:
    font = base64.b64encode(_subset(weight, characters | _ALWAYS)).decode()
    source = f"url(data:font/woff;base64,{font})"
    return f"@font-face{{font-family:'{FAMILY}';font-weight:{weight};src:{source}}}"


@cache
def _subset(weight: int, characters: frozenset[str]) -> bytes:
    """Return the font as WOFF with these characters, as far as it has them; the same bytes each time."""
    import matplotlib
    from fontTools import subset
    from fontTools.ttLib import TTFont

    options = subset.Options(hinting=False)
    options.drop_tables += ["FFTM"]  # which fontTools would warn of
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", _FILES[weight])
    # No time of now in it: the same bytes each time.
    with TTFont(path, recalcTimestamp=False) as font:
        chosen = subset.Subsetter(options)
        chosen.populate(unicodes=map(ord, sorted(characters)))
        chosen.subset(font)
        font.flavor = "woff"
        written = io.BytesIO()
        font.save(written, reorderTables=False)
    return written.getvalue()
