"""The small print of a figure: taken off the drawing, and as captions for LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scalewatt.common.files import with_ending, write_text
from scalewatt.figures import style
from scalewatt.results.text.markdown_latex import escaped_latex, escaped_markdown


def without_small_print(figure: style.Drawing) -> style.Drawing:
    """Take the small print off a figure, which gets lower by its height; its `sentences` stay."""
    if figure.small_print is not None:
        preset = style.preset_of(figure)
        lines = style.note_lines(figure.sentences, preset.width_mm)
        height_mm = style.lines_mm(len(lines), preset.note_size)
        figure.set_figheight(figure.get_figheight() - height_mm / style.MM_PER_INCH)
        figure.small_print.set_text("")
        figure.small_print.set_in_layout(False)
        figure.small_print = None
    return figure


def write_captions(sentences: Sequence[str], stem: Path) -> list[Path]:
    """Write small print to `stem`.caption.tex and `stem`.caption.md, a line for each sentence.

    Neither has an empty line, so that both are one paragraph, as LaTeX's captions must be.
    """
    forms = {".caption.tex": escaped_latex, ".caption.md": escaped_markdown}
    paths = [with_ending(stem, ending) for ending in forms]
    for path, escaped in zip(paths, forms.values(), strict=True):
        write_text(path, "".join(f"{escaped(sentence)}\n" for sentence in sentences))
    return paths
