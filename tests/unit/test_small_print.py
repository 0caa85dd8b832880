"""The notes of figures: what they say, and as captions for LaTeX and Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cost_rows import frame, h100_rows
from figure_tables import any_table, draw
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from syrupy.assertion import SnapshotAssertion

from scalewatt.figures.save_figure import write_captions
from scalewatt.results.figures.figure_schema import POINTS
from scalewatt.results.tables.frames import metadata, to_table
from scalewatt.results.text.text_tables import escaped_latex, escaped_markdown

NAMES = (*(f"figure{n}" for n in range(1, 8)), "breakdown", "learning", "pareto")
SPECIAL = "100 % & a_b, 3 × 2 ± 1, CO₂ in m²/s², #1 of {x, y}, $5 ~ ^ \\ < > | – … n·T ÷ 2 ∝ n"
TYPESET = {
    **{f"\\{each}": each for each in "&%$#_{}"},
    "\\textasciitilde{}": "~",
    "\\textasciicircum{}": "^",
    "\\textbackslash{}": "\\",
    "\\textless{}": "<",
    "\\textgreater{}": ">",
    "\\textbar{}": "|",
    "\\dots{}": "…",
    "\\textmu{}": "µ",
    "\\textdegree{}": "°",
    "$\\pm$": "±",
    "$\\times$": "×",
    "$\\div$": "÷",
    "$\\cdot$": "·",
    "$\\propto$": "∝",
    "$\\geq$": "≥",
    "$\\leq$": "≤",
    "\\,": "\u2009",
    "~": "\u00a0",
    "--": "–",
    **{f"\\textsubscript{{{n}}}": each for n, each in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{f"\\textsuperscript{{{n}}}": each for n, each in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}
"""What LaTeX prints of each command: all that captions may have."""


def latex_text(source: str) -> str:
    """What LaTeX prints; fails at whatever would stop it, or would be no character of the text."""
    commands = "|".join(map(re.escape, sorted(TYPESET, key=len, reverse=True)))
    rest = re.sub(commands, "", source)
    assert not set(rest) & set("\\{}$&%#_^~"), rest
    return re.sub(commands, lambda result: TYPESET[result[0]], source)


def markdown_text(source: str) -> str:
    """What Markdown prints: one paragraph without any markup in it."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    assert [token.type for token in tokens] in (
        [],
        ["paragraph_open", "inline", "paragraph_close"],
    )
    inside = [each for token in tokens for each in token.children or ()]
    assert {each.type for each in inside} <= {"text", "softbreak", "text_special"}
    return "".join("\n" if each.type == "softbreak" else each.content for each in inside)


@pytest.mark.parametrize("name", NAMES)
def test_the_captions_are_the_notes_and_the_drawing_has_their_first_lines(
    name: str, tmp_path: Path
) -> None:
    figure = draw(name, any_table(name), again=True)
    sentences = list(figure.sentences)
    assert len(sentences) >= 1
    write_captions(sentences, tmp_path / name)
    latex = (tmp_path / f"{name}.caption.tex").read_text()
    markdown = (tmp_path / f"{name}.caption.md").read_text()
    assert latex.isascii()
    assert latex_text(latex).splitlines() == markdown_text(markdown).splitlines() == sentences
    printed = figure._supxlabel.get_text()
    assert sentences[0].startswith(" ".join(printed.removesuffix(" …").split()))
    assert printed and printed.count("\n") < 2


LEFT_OUT = {
    "missing": ["resnet50-a100-n004-lbs0064-full", "resnet50-a100-n008-lbs0064-full"],
    "excluded": [
        {"configuration": "resnet50-a100-n016-lbs0016-full", "repeat": 2, "reason": "a fan"}
    ],
    "notes": ["Repeats share one seed."],
}


@pytest.mark.parametrize("name", NAMES)
def test_captions_of_figures(name: str, snapshot: SnapshotAssertion) -> None:
    table = any_table(name)
    stored = json.dumps({**metadata(table), **LEFT_OUT}).encode()
    figure = draw(name, table.replace_schema_metadata({b"scalewatt": stored}))
    assert "\n".join(figure.sentences) == snapshot


def test_the_caption_of_what_a_sample_costs(snapshot: SnapshotAssertion) -> None:
    table = to_table(frame(h100_rows()), POINTS)
    assert "\n".join(draw("cost_per_sample", table).sentences) == snapshot


def test_signs_are_escaped_in_both_forms() -> None:
    assert escaped_latex("a_b & 5 % × ± CO₂") == (
        r"a\_b \& 5 \% $\times$ $\pm$ CO\textsubscript{2}"
    )
    assert latex_text(escaped_latex(SPECIAL)) == SPECIAL
    assert markdown_text(escaped_markdown(SPECIAL)) == SPECIAL
    assert escaped_markdown("a_b * c") == r"a\_b \* c"


@given(st.text(alphabet="ab1 _*`[]()<>#|~&$%{}^\\.-+!\"'×±₂²–…\u00a0", min_size=1, max_size=20))
def test_no_text_becomes_markup(text: str) -> None:
    text = f"Runs: {text}x"
    assert markdown_text(escaped_markdown(text)) == text
    if not re.search("[-–—]{2}", text):  # which LaTeX prints as one longer dash
        assert latex_text(escaped_latex(text)) == text


@pytest.mark.parametrize("start", ["1. a", "2) a", "- a", "+ a", "# a", "> a", "* a", "1.", "-"])
def test_no_sentence_becomes_a_list_or_a_heading(start: str) -> None:
    assert markdown_text(escaped_markdown(start)) == start


def test_a_caption_is_one_paragraph_as_latex_demands(tmp_path: Path) -> None:
    write_captions(["One\ntwo.", "Three."], tmp_path / "it")
    for suffix in ("tex", "md"):
        assert (tmp_path / f"it.caption.{suffix}").read_text() == "One two.\nThree.\n"
