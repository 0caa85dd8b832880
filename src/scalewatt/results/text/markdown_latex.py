"""Table 1 as Markdown and LaTeX, and sentences that stand under tables and figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from scalewatt.results.columns import label, metric_label, with_unit_of
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.table_schema import metadata

Row = dict[str, Any]

UNKNOWN = "–"
UNEQUAL_SCOPES = "Totals of unequal scope are not comparable."
_MEANS = ("energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours", "metric_last")


def markdown(table: pa.Table) -> str:
    """Return a Markdown table, with notes on its numbers and on what is missing."""
    heads, rows = _cells(table)
    rules = ["---" if head in _WORDS else "--:" for head in heads]
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in (heads, rules, *rows)
    ]
    return "\n".join([*lines, "", *(f"{sentence}\n" for sentence in _sentences(table))])


def latex(table: pa.Table) -> str:
    """Return a booktabs table for a `table` environment, with its notes below in a box of the same width."""
    heads, rows = _cells(table)
    head, *lines = (
        " & ".join(cells) + r" \\"
        for cells in (
            [_two_lines(head) for head in heads],
            *([escaped_latex(cell) for cell in cells] for cells in rows),
        )
    )
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begingroup\\setlength{\\tabcolsep}{3pt}",
            f"\\begin{{tabular}}{{{''.join('l' if head in _WORDS else 'r' for head in heads)}}}",
            *("\\toprule", head, "\\midrule", *lines, "\\bottomrule"),
            "\\end{tabular}\\endgroup",
            "",
            "\\smallskip",
            "\\begin{minipage}{\\linewidth}\\footnotesize",
            *map(escaped_latex, _sentences(table)),
            "\\end{minipage}",
            "",
        ]
    )


# --- columns and cells ----------------------------------------------------------------------------

_ORIGIN, _INTERVAL = "Energy origin", "Estimated: truly within (kWh)"
_WORDS = ("Device", _ORIGIN, _INTERVAL)
"""Heads of columns of words; all others are of numbers."""


def _cells(table: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of cells; runs and origin only where rows differ in them."""
    rows = table.to_pylist()
    gpu_word = metadata(table).get("gpu_word") or "GPUs"
    columns = {"Device": [row["device"] for row in rows]}
    for name in ("gpus", "local_batch_size", "global_batch_size"):
        columns[label(name, gpu_word)] = [str(row[name]) for row in rows]
    for name in _MEANS:
        head = with_unit_of(name, gpu_word)
        if name == "metric_last":
            head = metric_label("fourcastnet", metadata(table).get("metric_name"))
        columns[head] = [_with_half(row[name], row[f"{name}_high"]) for row in rows]
    if len({row["n_repeats"] for row in rows}) > 1:
        columns["Runs"] = [str(row["n_repeats"]) for row in rows]
    if len({_pair(row) for row in rows}) > 1:
        columns[_ORIGIN] = [_origin_words(*_pair(row)) for row in rows]
    if any(row["energy_origin"] in ORIGINS for row in rows):
        columns[_INTERVAL] = [_interval(row) for row in rows]
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def _interval(row: Row) -> str:
    """Return the interval of an estimated energy; of any other nothing."""
    if row["energy_origin"] not in ORIGINS:
        return ""
    ends = row["energy_low_kwh"], row["energy_high_kwh"]
    return UNKNOWN if None in ends else " to ".join(f"{end:.3g}" for end in ends)


def _with_half(mean: float | None, high: float | None) -> str:
    """Return `mean ± half the interval`, both to the second digit of that half."""
    if mean is None:
        return UNKNOWN
    if high is None:
        return _number(mean)
    half = high - mean
    if half <= 0:
        return f"{_number(mean)} ± 0"
    digits = min(max(1 - math.floor(math.log10(half)), 0), 9)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _number(value: float) -> str:
    """Return five digits, or all before the point, without zeros at the end."""
    return f"{value:.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.5g}"


# --- words under the table ------------------------------------------------------------------------


def origin_sentence(table: pa.Table) -> str:
    """Return a sentence on origin and scope of the energies."""
    pairs = {_pair(row) for row in table.to_pylist()}
    words = [_origin_words(*pair) for pair in sorted(pairs, key=str)]
    if not words:
        return "No finished run."
    unequal = len({scope for _, scope in pairs if scope}) > 1
    return f"Energy: {'; '.join(words)}.{f' {UNEQUAL_SCOPES}' if unequal else ''}"


def left_out_sentences(table_metadata: Mapping[str, Any]) -> list[str]:
    """Return, from a table's metadata, configurations without a finished run and excluded runs with why."""
    found = []
    if table_metadata.get("missing"):
        found.append(f"No finished run of {', '.join(shortened_ids(table_metadata['missing']))}.")
    if table_metadata.get("excluded"):
        found.append(excluded_sentence(table_metadata["excluded"]))
    return found


def excluded_sentence(excluded: Sequence[Mapping[str, Any]]) -> str:
    """Return the excluded runs and why (keys configuration, repeat, reason); runs that share a
    reason share an entry."""
    reasons: dict[str, list[str]] = {}
    for one in excluded:
        reasons.setdefault(one["reason"], []).append(f"{one['configuration']}/{one['repeat']}")
    parts = [f"{', '.join(runs)} ({why.rstrip('.')})" for why, runs in reasons.items()]
    return f"Excluded: {'; '.join(parts)}." if parts else ""


def shortened_ids(configurations: Sequence[str]) -> list[str]:
    """Return ids of configurations; those that differ only in n share one: `…-n{004,008}-…`."""
    counts: dict[tuple[str, str], list[str]] = {}
    for id_ in configurations:
        match = re.fullmatch(r"(.*-n)(\d{3,})(-.*)", id_)
        before, count, after = match.groups() if match else (id_, "", "")
        counts.setdefault((before, after), []).append(count)
    return [
        before + (found[0] if len(found) == 1 else "{" + ",".join(found) + "}") + after
        for (before, after), found in counts.items()
    ]


def closing_sentences(table: pa.Table, *sentences: str) -> list[str]:
    """Return the origin of the energies, what else is `sentences`, and what is left out."""
    if not len(table) and (left_out := left_out_sentences(metadata(table))):
        return left_out
    return [origin_sentence(table), *sentences, *left_out_sentences(metadata(table))]


def _sentences(table: pa.Table) -> list[str]:
    stored = metadata(table)
    processes = stored.get("gpu_word") == "processes"
    sentences = [
        _spread_sentence(table.to_pylist()),
        "n counts processes, and hours are those of processes." if processes else "",
        *stored.get("notes", []),
    ]
    return [sentence for sentence in closing_sentences(table, *sentences) if sentence]


def _spread_sentence(rows: Sequence[Row]) -> str:
    """Say what the numbers behind ± are."""
    repeats = {row["n_repeats"] for row in rows}
    if len(repeats - {1}) == 0:
        return "Single runs, so without a spread." if rows else ""
    count = f"{min(repeats)} " if len(repeats) == 1 else ""
    end = "; single runs have none." if 1 in repeats else "."
    pairs = [(row[name], row[f"{name}_high"]) for row in rows for name in _MEANS]
    exact = any(None not in pair and pair[1] <= pair[0] for pair in pairs)
    alike = " ± 0: all repeats gave this very number." if exact else ""
    return f"Means of {count}repeats ± half of the 95 % t interval{end}{alike}"


def _origin_words(origin: str | None, scope: str | None) -> str:
    return f"{origin or 'unknown'} ({scope or 'no sensor'})"


def _pair(row: Row) -> tuple[str | None, str | None]:
    return row["energy_origin"], row["energy_scope"]


_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "∝": r"$\propto$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "°": r"\textdegree{}",
    "µ": r"\textmu{}",
    "μ": r"\textmu{}",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
    **{raised: rf"\textsuperscript{{{n}}}" for n, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{lowered: rf"\textsubscript{{{n}}}" for n, lowered in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}
"""What LaTeX would take for a command, and the signs of our sentences that it has commands for."""


def escaped_latex(text: str) -> str:
    """Return a text escaped for LaTeX (of 2020 or later); line breaks become spaces."""
    return re.sub(
        "|".join(map(re.escape, _LATEX)), lambda m: _LATEX[m[0]], " ".join(text.split("\n"))
    )


def escaped_markdown(text: str) -> str:
    """Return a text in which Markdown finds no markup; line breaks become spaces."""
    one = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", " ".join(text.split("\n")))
    # A list would begin with these.
    return re.sub(r"^([-+]|\d+[.)])(?=\s|$)", lambda found: f"{found[1][:-1]}\\{found[1][-1]}", one)


def _two_lines(head: str) -> str:
    """Return a head split into two lines of about the same length, to keep columns narrow."""
    words = head.split()
    if len(words) < 2:
        return escaped_latex(head)
    cut = min(range(1, len(words)), key=lambda i: abs(2 * len(" ".join(words[:i])) - len(head)))
    over, under = (escaped_latex(" ".join(part)) for part in (words[:cut], words[cut:]))
    return rf"\shortstack{{{over}\\{under}}}"
