"""Table 1 as Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from scalewatt.results.columns import SEVERAL, metric_label
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.table_schema import metadata

Row = dict[str, Any]

_COUNTS = ("gpus", "local_batch_size", "global_batch_size", "n_repeats")
UNKNOWN = "–"
UNEQUAL_SCOPES = "Totals of unequal scope are not comparable."


def markdown(table: pa.Table) -> str:
    """Return a Markdown table, with notes on its numbers and on what is missing."""
    columns = _columns(table)
    rules = ["---" if name in _WORDS else "--:" for name in columns]
    lines = [list(columns.values()), rules, *_cells(table, columns)]
    escaped = ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in lines]
    return "\n".join([*escaped, "", *("\n".join([s, ""]) for s in _sentences(table))])


def latex(table: pa.Table) -> str:
    """Return a booktabs table for a `table` environment, with its notes below in a box of the same width."""
    columns = _columns(table)
    align = "".join("l" if name in _WORDS else "r" for name in columns)
    rows = [[escaped_latex(cell) for cell in cells] for cells in _cells(table, columns)]
    heads = [_two_lines(head) for head in columns.values()]
    lines = [" & ".join(cells) + r" \\" for cells in (heads, *rows)]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begingroup\\setlength{\\tabcolsep}{3pt}",
            f"\\begin{{tabular}}{{{align}}}",
            "\\toprule",
            lines[0],
            "\\midrule",
            *lines[1:],
            "\\bottomrule",
            "\\end{tabular}\\endgroup",
            "",
            "\\smallskip",
            "\\begin{minipage}{\\linewidth}\\footnotesize",
            *(escaped_latex(sentence) for sentence in _sentences(table)),
            "\\end{minipage}",
            "",
        ]
    )


# --- columns and cells ----------------------------------------------------------------------------

_WORDS = ("device", "energy", "interval")
"""Columns of words; all others are of numbers."""


def _columns(table: pa.Table) -> dict[str, str]:
    """Return columns and their heads; runs and origin only where rows differ in them."""
    processes = metadata(table).get("gpu_word") == "processes"
    name = metadata(table).get("metric_name")
    rows = table.to_pylist()
    columns = {
        "device": "Device",
        "gpus": "Processes" if processes else "GPUs",
        "local_batch_size": "LBS",
        "global_batch_size": "GBS",
        "energy_kwh": "Energy (kWh)",
        "energy_per_node_kwh": "Energy per node (kWh)",
        "runtime_h": "Run time (h)",
        "gpu_hours": "Process hours (h)" if processes else "GPUh (h)",
        "metric_last": "Metric" if name == SEVERAL else metric_label("fourcastnet", name),
    }
    if len({row["n_repeats"] for row in rows}) > 1:
        columns["n_repeats"] = "Runs"
    if len({_pair(row) for row in rows}) > 1:
        columns["energy"] = "Energy origin"
    if any(row["energy_origin"] in ORIGINS for row in rows):
        columns["interval"] = "Estimated: truly within (kWh)"
    return columns


def _cells(table: pa.Table, columns: Mapping[str, str]) -> list[list[str]]:
    return [[_cell(row, name) for name in columns] for row in table.to_pylist()]


def _cell(row: Row, name: str) -> str:
    if name == "device":
        return str(row["device"])
    if name == "energy":
        return _origin_words(*_pair(row))
    if name in _COUNTS:
        return str(row[name])
    if name == "interval":
        return _interval(row)
    return _with_half(row[name], row[f"{name}_high"])


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
        found.append(f"No finished run of {_enumerated(shortened_ids(table_metadata['missing']))}.")
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
    sentences = [_spread_sentence(table.to_pylist())]
    if metadata(table).get("gpu_word") == "processes":
        sentences.append("n counts processes, and hours are those of processes.")
    sentences += metadata(table).get("notes", [])
    return [sentence for sentence in closing_sentences(table, *sentences) if sentence]


def _spread_sentence(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    repeats = {row["n_repeats"] for row in rows}
    if repeats == {1}:
        return "Single runs, so without a spread."
    single = " single runs have none." if 1 in repeats else ""
    count = f"{min(repeats)} " if len(repeats) == 1 else ""
    means = f"Means of {count}repeats ± half of the 95 % t interval"
    alike = " ± 0: all repeats gave this very number." if _without_spread(rows) else ""
    return (f"{means};{single}" if single else f"{means}.") + alike


def _without_spread(rows: Sequence[Row]) -> bool:
    """Return True if a column of the table is ± 0 in a row."""
    shown = ("energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours", "metric_last")
    pairs = [(row[name], row[f"{name}_high"]) for row in rows for name in shown]
    return any(None not in pair and pair[1] <= pair[0] for pair in pairs)


def _origin_words(origin: str | None, scope: str | None) -> str:
    return f"{origin or 'unknown'} ({scope or 'no sensor'})"


def _pair(row: Row) -> tuple[str | None, str | None]:
    return row["energy_origin"], row["energy_scope"]


def _enumerated(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


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
