"""A comparison for a terminal: what differs, a table for each quantity, and what only one campaign has."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scalewatt.comparison.compare import Comparison, summary
from scalewatt.comparison.ratios import (
    A_LOWER,
    B_LOWER,
    NO_INTERVAL,
    NOT_APART,
    NOT_COMPARED,
    QUANTITIES,
    SIDES,
)
from scalewatt.comparison.setting_differences import SECTIONS
from scalewatt.results.text.metric_labels import METRIC_LABELS
from scalewatt.results.text.number_format import MISSING, Unit, listed, number, unit_for

Row = Mapping[str, Any]
_WIDTH = 100
_MOST_ALONE = 20
_LONGEST_VALUE = 48
_SAME = "the same within 5 %"
_NEAR_ONE = 0.9, 1.1
_TALLIED = {
    A_LOWER: "A lower",
    B_LOWER: "B lower",
    NOT_APART: "not told apart",
    NO_INTERVAL: "without an interval",
    NOT_COMPARED: "not compared",
}
NOTE = (
    "B/A is the ratio of geometric means over repeats, with the 95 % interval of Welch's t on logarithms; "
    "means are arithmetic, as in the tables. Lower does not mean better."
)


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison for a terminal."""
    labels = _labels(comparison)
    same = comparison.same_runs
    sources = _source_lines(comparison)
    if same:
        sources.append(f"The same measurements in both, whose ratios say nothing: {same}.")
    blocks = ["\n".join(sources), *_difference_blocks(comparison)]
    if labels:
        blocks.append(f"Configurations in both: {len(labels)}")
        blocks += _quantity_blocks(comparison, labels)
    else:
        blocks.append("No configuration is in both.")
    blocks += _alone_blocks(comparison)
    if labels:
        blocks.append("\n".join(textwrap.wrap(NOTE, _WIDTH)))
    return "\n\n".join(blocks)


def _labels(comparison: Comparison) -> dict[str, str]:
    """Return what each pair is, by A's configuration; those of one label keep their ids."""
    labels = {}
    for a, b in comparison.matched.pairs:
        devices = a.device if a.device == b.device else f"A {a.device}, B {b.device}"
        labels[a.id] = f"{a.label(comparison.word)}, {devices}"
    several = Counter(labels.values())
    return {id_: id_ if several[label] > 1 else label for id_, label in labels.items()}


def _source_lines(comparison: Comparison) -> list[str]:
    lines = []
    for side, source in (("A", comparison.a), ("B", comparison.b)):
        facts = summary(source)
        counts = {name: facts[name] for name in ("runs", "configurations")}
        counts |= {"excluded": source.excluded, "not yet in the table": source.unlisted}
        shown = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
        origins = [f"{name} ({n})" for name, n in facts["energy_origins"].items()]
        lines.append(
            f"{side}: {facts['campaign']} ({facts['place']}) on {listed(facts['devices'])}: {shown}; "
            f"protocol {listed(facts['protocols'])}; energy {listed(origins)}, of "
            f"{listed(facts['energy_scopes']) or MISSING}"
        )
    return lines


def _difference_blocks(comparison: Comparison) -> list[str]:
    blocks = []
    for section in SECTIONS:
        table = [
            (d.name, _short(d.a), _short(d.b), "" if d.pairs is None else f"pairs: {d.pairs}")
            for d in comparison.differences
            if d.section == section
        ]
        if table:
            lines = _columns([("", "A", "B", ""), *table])
            blocks.append("\n".join([f"What differs in {section}", *lines]))
    return blocks or ["Nothing differs in settings, software, machines and cluster."]


def _short(text: str | None) -> str:
    if text is None:
        return MISSING
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _columns(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of equal length as lines, indented, without spaces at their ends."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        ("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True))).rstrip()
        for row in table
    ]


def _quantity_blocks(comparison: Comparison, labels: Mapping[str, str]) -> list[str]:
    """Return a table for each quantity that has rows, under its name and its tally of verdicts."""
    metrics = {t.rows[0]["metric_name"] for pair in comparison.matched.pairs for t in pair}
    blocks, all_rows = [], comparison.rows
    for name, (words, unit_name) in QUANTITIES.items():
        rows = [row for row in all_rows if row["quantity"] == name]
        if not rows:
            continue
        if name == "metric_last" and len(metrics) == 1:
            metric = metrics.copy().pop()
            words = METRIC_LABELS.get(metric, f"{words} ({metric})")
        if name == "p_gpuh_kw" and comparison.word != "GPUs":
            words = "Mean power per process"
        unit = unit_for((row[f"mean_{side}"] for row in rows for side in SIDES), unit_name)
        table = [("", "A", "B", "B/A", "")]
        table += [
            (
                labels[row["configuration_a"]],
                _mean_text(row, "a", unit),
                _mean_text(row, "b", unit),
                _ratio_text(row),
                verdict_text(row),
            )
            for row in rows
        ]
        tally = Counter(row["verdict"] for row in rows)
        counts = [
            f"{text}: {tally[verdict]}" for verdict, text in _TALLIED.items() if tally[verdict]
        ]
        origins = _origins_text(rows)
        lines = [f"{words}: {', '.join(counts)}", *([f"  {origins}"] if origins else [])]
        blocks.append("\n".join(lines + _columns(table)))
    return blocks


def _mean_text(row: Row, side: str, unit: Unit) -> str:
    """Return the mean of one campaign with its unit."""
    value = row[f"mean_{side}"]
    return MISSING if value is None else f"{number(value * unit.factor)} {unit.name}".strip()


def _alone_blocks(comparison: Comparison) -> list[str]:
    blocks = []
    for side, only in (("A", comparison.matched.only_a), ("B", comparison.matched.only_b)):
        lines = [
            f"  {t.label(comparison.word)}, {t.device}{f' ({why})' if why else ''}"
            for t, why in only[:_MOST_ALONE]
        ]
        if len(only) > _MOST_ALONE:
            lines.append(f"  and {len(only) - _MOST_ALONE} more (--json)")
        if only:
            blocks.append("\n".join([f"Configurations only in {side}: {len(only)}", *lines]))
    return blocks


# --- ratios in words ------------------------------------------------------------------------------


def _ratio_text(row: Row) -> str:
    """Return the ratio B/A with its interval."""
    if row["ratio"] is None:
        return MISSING
    text = _ratio(row["ratio"])
    if row["ratio_low"] is not None:
        text += f" ({_ratio(row['ratio_low'])} to {_ratio(row['ratio_high'])})"
    return text


def _ratio(value: float) -> str:
    """Return a ratio with four decimals near 1, where the side of 1 matters; else three digits."""
    near = _NEAR_ONE[0] < value < _NEAR_ONE[1]
    return f"{value:.4f}" if near else f"{value:.2f}" if 0.1 < value < 10 else number(value, 3)


def verdict_text(row: Row) -> str:
    """Return the verdict in a few words, such as "A is lower by 20 % (15 to 24 %)"."""
    verdict, reason = row["verdict"], row["reason"]
    same = f"; {_SAME}" if row["equivalent"] else ""
    if verdict == NOT_APART:
        return f"cannot be told apart{same}"
    if verdict not in (A_LOWER, B_LOWER):
        return f"{'no interval' if verdict == NO_INTERVAL else 'not compared'}: {reason}"
    is_a = verdict == A_LOWER
    # By how much the lower one is lower, of the higher one.
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high")]
    share, *ends = (100 * (1 - (1 / ratio if is_a else ratio)) for ratio in ratios)
    low, high = (number(end, 3) for end in sorted(ends))
    return f"{'A' if is_a else 'B'} is lower by {number(share, 3)} % ({low} to {high} %){same}"


def _origins_text(rows: Sequence[Row]) -> str:
    """Return where the values of a quantity are from, and of what its energies are."""
    compared = [row for row in rows if row["ratio"] is not None]
    pairs = dict.fromkeys((row["origin_a"], row["origin_b"]) for row in compared)
    origins = "; ".join(f"both {a}" if a == b else f"A {a}, B {b}" for a, b in pairs)
    scopes = sorted({row["scope_a"] for row in compared if row["scope_a"]})
    of = f" Energy of {', '.join(scopes)}." if scopes else ""
    return f"{origins[:1].upper()}{origins[1:]}.{of}" if origins else ""
