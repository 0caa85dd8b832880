"""The notes of a figure as captions for LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scalewatt.common.files import write_text
from scalewatt.results.text.markdown_latex import escaped_latex, escaped_markdown


def write_captions(sentences: Sequence[str], stem: Path) -> list[Path]:
    """Write notes to `stem`.caption.tex and `stem`.caption.md, a line for each sentence.

    Neither has an empty line, so that both are one paragraph, as LaTeX's captions must be.
    """
    forms = {".caption.tex": escaped_latex, ".caption.md": escaped_markdown}
    paths = [Path(f"{stem}{ending}") for ending in forms]
    for path, escaped in zip(paths, forms.values(), strict=True):
        write_text(path, "".join(f"{escaped(sentence)}\n" for sentence in sentences))
    return paths
