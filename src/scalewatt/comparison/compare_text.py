"""A comparison for a terminal: what differs, a table for each quantity, and what only one campaign has."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scalewatt.comparison.compare import Comparison
from scalewatt.results.columns import label, metric_label, unit
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.ratios import HIGHER, LOWER, NO_INTERVAL, NOT_APART
from scalewatt.results.text.number_format import MISSING, listed, number, with_unit

Row = Mapping[str, Any]
_WIDTH = 100
_MOST_ALONE = 20
_LONGEST_VALUE = 48
NOTE = (
    "B/A is the ratio of geometric means over repeats, with the 95 % interval of Welch's t on logarithms; "
    "means are arithmetic, as in the tables. Lower does not mean better."
)


def comparison_text(comparison: Comparison) -> str:
    """Text of the comparison for a terminal."""
    lines = [_source_line("A", comparison.a.summary()), _source_line("B", comparison.b.summary())]
    if comparison.same_runs:
        lines.append(
            f"The same measurements in both, whose ratios say nothing: {comparison.same_runs}."
        )
    blocks = ["\n".join(lines)]
    for section, rows in comparison.differences.groupby("section", sort=False):
        table = [("", "A", "B", "")]
        for row in records(rows):
            a, b = (
                textwrap.shorten(row[s] or MISSING, _LONGEST_VALUE, placeholder=" …") for s in "ab"
            )
            pairs = "" if row["pairs"] is None else f"pairs: {row['pairs']:.0f}"
            table.append((row["name"], a, b, pairs))
        blocks.append("\n".join([f"What differs in {section}", *_align(table)]))
    if comparison.differences.empty:
        blocks.append("Nothing differs in settings, seeds, software, machines and cluster.")
    blocks.append(f"Configurations in both: {len(comparison.pairs)}")
    quantities = comparison.table.groupby("quantity", sort=False)
    blocks += [_quantity_block(str(name), records(rows), comparison) for name, rows in quantities]
    for side in "ab":
        if only := comparison.only(side):
            ids = listed(only, _MOST_ALONE).replace(", ", "\n  ")
            blocks.append(f"Configurations only in {side.upper()}: {len(only)}\n  {ids}")
    return "\n\n".join([*blocks, textwrap.fill(NOTE, _WIDTH)])


def _source_line(side: str, facts: Row) -> str:
    counts = {name: facts[name] for name in ("runs", "configurations", "excluded") if facts[name]}
    origins = [f"{name} ({n})" for name, n in facts["energy_origins"].items()]
    return (
        f"{side}: {facts['campaign']} ({facts['folder']}) on {listed(facts['devices'])}: "
        f"{', '.join(f'{name} {n}' for name, n in counts.items())}; protocol "
        f"{listed(facts['protocols'])}; energy {listed(origins)}, of "
        f"{listed(facts['energy_scopes']) or MISSING}"
    )


def _align(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Indented lines of rows of equal length, without spaces at their ends."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        ("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True))).rstrip()
        for row in table
    ]


def _quantity_block(name: str, rows: Sequence[Row], comparison: Comparison) -> str:
    """Table of a quantity, under its name, the count of each verdict and where its values are from."""
    is_metric = name == "metric_last"
    metrics = {*comparison.a.runs["metric_name"], *comparison.b.runs["metric_name"]}
    words = label(name, comparison.a.gpu_word)
    if is_metric and len(metrics) == 1:
        words = metric_label(None, metrics.pop())
    verdicts = pd.Series([row["verdict"] for row in rows]).value_counts(sort=False)
    counts = [f"{str(verdict).replace('_', ' ')}: {n}" for verdict, n in verdicts.items()]
    table: list[tuple[str, ...]] = [("", "A", "B", "B/A", "")]
    for row in rows:
        means = (with_unit(row[f"mean_{side}"], "" if is_metric else unit(name)) for side in "ab")
        ids = dict.fromkeys((row["configuration_a"], row["configuration_b"]))
        table.append((" | ".join(ids), *means, _ratio_text(row), verdict_text(row)))
    return "\n".join([f"{words}: {', '.join(counts)}", *_origin_lines(rows), *_align(table)])


def _origin_lines(rows: Sequence[Row]) -> list[str]:
    """Where the values of a quantity are from, and of what its energies are; none without a ratio."""
    known = [row for row in rows if row["ratio"] is not None]
    pairs = dict.fromkeys((row["origin_a"], row["origin_b"]) for row in known)
    origins = "; ".join(f"both {a}" if a == b else f"A {a}, B {b}" for a, b in pairs)
    scopes = ", ".join(sorted({row["scope_a"] for row in known if row["scope_a"]}))
    energy = f" Energy of {scopes}." if scopes else ""
    return [f"  {origins[:1].upper()}{origins[1:]}.{energy}"] if origins else []


def _ratio_text(row: Row) -> str:
    """The ratio B/A with its interval: with four decimals near 1, where the side matters."""
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high") if row[name] is not None]
    texts = [f"{r:.4f}" if 0.9 < r < 1.1 else number(r, 3) for r in ratios]
    return texts[0] + f" ({' to '.join(texts[1:])})" * (len(texts) > 1) if texts else MISSING


def verdict_text(row: Row) -> str:
    """The verdict in a few words, such as "A is lower by 20 % (15 to 24 %)"."""
    verdict = row["verdict"]
    same = "; the same within 5 %" if row["equivalent"] else ""
    if verdict == NOT_APART:
        return f"cannot be told apart{same}"
    if verdict not in (LOWER, HIGHER):
        return f"{'no interval' if verdict == NO_INTERVAL else 'not compared'}: {row['reason']}"
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high")]
    # By how much the lower one is lower, relative to the higher one.
    share, *ends = (100 * (1 - (1 / ratio if verdict == HIGHER else ratio)) for ratio in ratios)
    low, high = (number(end, 3) for end in sorted(ends))
    side = "A" if verdict == HIGHER else "B"
    return f"{side} is lower by {number(share, 3)} % ({low} to {high} %){same}"
