"""Table 1 and the table of variants as Markdown or LaTeX, and texts escaped for both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.results.columns import label, metric_label, unit, with_unit_of
from scalewatt.results.figures.figure_schema import (
    RATIOS,
    SCHEMAS,
    TABLE1_QUANTITIES,
    VARIANT_QUANTITIES,
)
from scalewatt.results.tables.derived_quantities import is_estimated
from scalewatt.results.tables.frames import read_frame, values
from scalewatt.results.text.captions import caption
from scalewatt.results.text.number_format import MISSING, plus_minus, unit_for, with_interval

WORDS = ("Device", "Energy origin", "Estimated: truly within (kWh)", "Variant", "Computed in")
"""Heads of columns of words; all others are of numbers."""
_GOALS = {"min": "smaller", "max": "larger"}


def table_text(path: Path, suffix: str) -> str:
    """Text of the table in `path`, which its stem names, for a file that ends in `suffix`: .md or .tex."""
    return format_table(read_frame(path, SCHEMAS[path.stem]), path.stem, suffix)


def format_table(rows: pd.DataFrame, name: str, suffix: str = ".md") -> str:
    """Write the rows of table1 or variants, and the sentences below them, as Markdown or LaTeX."""
    sentences = caption(rows, name)
    if suffix == ".tex":
        return latex(table1_cells(rows), sentences)
    if name == "table1":
        parts = [markdown(table1_cells(rows))]
    else:
        parts = [variants_part(part) for _, part in rows.groupby(["model", "phase"], sort=False)]
    return "\n\n".join([*parts, *sentences]) + "\n"


# --- cells ----------------------------------------------------------------------------------------


def table1_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Table 1 as texts; runs and origin only where rows differ in them."""
    gpu_word = rows.attrs.get("gpu_word") or "GPUs"
    cells: dict[str, Any] = {"Device": rows["device"]}
    for name in ("gpus", "local_batch_size", "global_batch_size"):
        cells[label(name, gpu_word)] = rows[name].astype(str)
    for name in TABLE1_QUANTITIES:
        head = with_unit_of(name, gpu_word)
        if name == "metric_last":
            head = metric_label("fourcastnet", rows.attrs.get("metric_name"))
        cells[head] = list(map(plus_minus, values(rows[name]), values(rows[f"{name}_high"])))
    if rows["n_repeats"].nunique() > 1:
        cells["Runs"] = rows["n_repeats"].astype(str)
    origins = (
        rows["energy_origin"].fillna("unknown") + " (" + rows["energy_scope"].fillna("–") + ")"
    )
    if origins.nunique() > 1:
        cells["Energy origin"] = origins
    if is_estimated(rows).any():
        ends = zip(values(rows["energy_low_kwh"]), values(rows["energy_high_kwh"]), strict=True)
        texts = [MISSING if None in pair else f"{pair[0]:.3g} to {pair[1]:.3g}" for pair in ends]
        cells["Estimated: truly within (kWh)"] = pd.Series(texts).where(is_estimated(rows), "")
    return pd.DataFrame(cells)


def variants_part(rows: pd.DataFrame) -> str:
    """Variants of one model and phase as Markdown, under its name."""
    is_baseline = rows["configuration"] == rows["baseline"]
    cells: dict[str, Any] = {
        "Variant": rows["label"].where(~is_baseline, "baseline: " + rows["label"]),
        "Computed in": rows["precision_used"].fillna(MISSING),
        "Runs": rows["n_repeats"].astype(str),
    }
    for name in VARIANT_QUANTITIES:
        means, highs = values(rows[f"{name}_mean"]), values(rows[f"{name}_high"])
        suited = unit_for(means, "" if name.startswith("metric") else unit(name))
        head = label(name) + (f" ({suited.name})" if suited.name else "")
        pairs = zip(means, highs, strict=True)
        cells[head] = [plus_minus(*pair, suited.factor) for pair in pairs]
    for name, quantity in RATIOS.items():
        ends = (values(rows[f"{name}{end}"]) for end in ("", "_low", "_high"))
        cells[f"{label(quantity)} ÷ baseline"] = list(map(with_interval, *ends))
    table = pd.DataFrame(cells)
    table = table.loc[:, (table != MISSING).any()]  # nothing of what is known of no variant
    model, phase = rows[["model", "phase"]].iloc[0]
    known = rows[["metric_name", "metric_goal"]].dropna().drop_duplicates()
    metrics = "; ".join(
        f"{metric_label(None, name)}, {_GOALS[goal]} is better"
        for name, goal in known.itertuples(index=False, name=None)
    )
    title = f"**{model}{'' if phase == 'train' else f' {phase}'}**"
    return f"{title}{f' (metric: {metrics})' if metrics else ''}\n\n{markdown(table)}"


# --- Markdown and LaTeX ---------------------------------------------------------------------------


def markdown(cells: pd.DataFrame) -> str:
    """Markdown table of texts."""
    rules = ["---" if head in WORDS else "--:" for head in cells]
    rows = [map(str, cells), rules, *cells.itertuples(index=False, name=None)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def latex(cells: pd.DataFrame, sentences: Sequence[str]) -> str:
    """Booktabs table for a `table` environment, with sentences below in a box of the same width."""
    # Units below the words keep columns narrow.
    heads = [escaped_latex(str(head)).replace(" (", r"\\(") for head in cells]
    heads = [rf"\shortstack{{{head}}}" if r"\\" in head else head for head in heads]
    alignment = "".join("l" if name in WORDS else "r" for name in cells)
    table = cells.map(escaped_latex).set_axis(heads, axis=1)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begingroup\setlength{\tabcolsep}{3pt}",
            table.to_latex(index=False, escape=False, column_format=alignment) + r"\endgroup",
            *("", r"\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"),
            *map(escaped_latex, sentences),
            *(r"\end{minipage}", ""),
        ]
    )


_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{"–": "--", "…": r"\dots{}", "±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$"},
    **{"·": r"$\cdot$", "∝": r"$\propto$", "≥": r"$\geq$", "≤": r"$\leq$"},
    **{"°": r"\textdegree{}", "µ": r"\textmu{}", "μ": r"\textmu{}"},
    **{"\u00a0": "~", "\u2009": r"\,", "\u202f": r"\,"},
    **{raised: rf"\textsuperscript{{{n}}}" for n, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{lowered: rf"\textsubscript{{{n}}}" for n, lowered in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}
"""What LaTeX would take for a command, and the signs of our sentences that it has commands for."""


def escaped_latex(text: str) -> str:
    """Text escaped for LaTeX (of 2020 or later); line breaks become spaces."""
    special = "|".join(map(re.escape, _LATEX))
    return re.sub(special, lambda match: _LATEX[match[0]], " ".join(text.split("\n")))


def escaped_markdown(text: str) -> str:
    """Text in which Markdown finds no markup; line breaks become spaces."""
    text = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", " ".join(text.split("\n")))
    # A list would begin with these.
    return re.sub(r"^([-+]|\d+[.)])(?=\s|$)", lambda at: f"{at[1][:-1]}\\{at[1][-1]}", text)
