"""A comparison for a terminal: what differs, a table for each quantity, and what only one campaign has."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from scalewatt.common.untrusted_text import printable
from scalewatt.comparison.compare import Comparison
from scalewatt.comparison.compare_words import (
    by_quantity,
    heading_of,
    origins_text,
    ratio_text,
    same_sentence,
    tally,
    unit_of,
    value_text,
    verdict_text,
)
from scalewatt.comparison.matching import Alone
from scalewatt.comparison.setting_differences import Difference, facts, left_out, ordered, summary
from scalewatt.results.text.number_format import count

_WIDTH = 100
_MOST_ALONE = 20
_LONGEST_VALUE = 48
_DEFAULT = "default"
"""Stands for clocks, a precision or a part of the data that a configuration does not ask for."""
NOTE = (
    "B/A is the ratio of geometric means over repeats, with the 95 % interval of Welch's t on logarithms; "
    "means are arithmetic, as in the tables. Lower does not mean better."
)


def comparison_text(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    sources = [*_source_lines(found), same_sentence(found.same_runs)]
    blocks = ["\n".join(filter(None, sources)), *_difference_blocks(found.differences)]
    labels = labels_of(found)
    if len(labels) > 1:
        blocks.append(f"In both: {count(len(labels), 'configuration')} of {common_words(found)}")
    for quantity, rows in by_quantity(found.rows):
        heading = heading_of(quantity, rows, found.word, metric_of(found))
        unit = unit_of(rows, quantity)
        table = [("", "A", "B", "B/A", "")]
        table += [
            (
                labels[row["configuration_a"]],
                value_text(row, "a", unit),
                value_text(row, "b", unit),
                ratio_text(row),
                verdict_text(row),
            )
            for row in rows
        ]
        lines = [f"{heading}: {tally(rows)}", *_columns(table)]
        if origins := origins_text(rows):
            lines.insert(1, f"  {origins}")
        blocks.append("\n".join(lines))
    if not found.matched.pairs:
        blocks.append("No configuration is in both.")
    blocks += _alone_blocks(found)
    if found.matched.pairs:
        blocks.append("\n".join(textwrap.wrap(NOTE, _WIDTH)))
    return "\n\n".join(blocks)


def _pair_words(found: Comparison) -> dict[str, tuple[str, ...]]:
    """Return what each pair is, part by part, by A's configuration; the last part is its device."""
    return {
        pair.a.id: (*pair.a.words(found.word), _devices(pair.a.device, pair.b.device))
        for pair in found.matched.pairs
    }


def _devices(a: str, b: str) -> str:
    return a if a == b else f"A {a}, B {b}"


def common_words(found: Comparison) -> str:
    """Return what all pairs have in common, as model and precision."""
    columns = zip(*_pair_words(found).values(), strict=True)
    shared = (own[0] for own in columns if len(set(own)) == 1)
    return ", ".join(filter(None, shared))


def labels_of(found: Comparison) -> dict[str, str]:
    """Return what tells each pair from the others, by A's configuration; of a single pair, all it is."""
    words = _pair_words(found)
    columns = list(zip(*words.values(), strict=True))
    kept = [len(words) == 1 or len(set(own)) > 1 for own in columns]
    labels = {
        id_: ", ".join(part for part, keep in zip(own, kept, strict=True) if part and keep)
        or _DEFAULT
        for id_, own in words.items()
    }
    # Variants of one training have the same label: then their ids tell them apart.
    several = Counter(labels.values())
    return {id_: id_ if several[one] > 1 else one for id_, one in labels.items()}


def metric_of(found: Comparison) -> str | None:
    """Return the metric of all pairs; None where they have several, or none."""
    names = {one.rows[0]["metric_name"] for pair in found.matched.pairs for one in (pair.a, pair.b)}
    return names.pop() if len(names) == 1 else None


def _source_lines(found: Comparison) -> list[str]:
    lines = []
    for side, source in (("A", found.a), ("B", found.b)):
        own, told = dict(facts(source)), summary(source)
        lines.append(
            printable(
                f"{side}: {own['campaign']} ({own['from']}): {count(told['runs'], 'run')} of "
                f"{count(told['configurations'], 'configuration')} on {own['devices']}{left_out(source)}; "
                f"protocol {own['protocol']}; energy {own['energy']}, of {own['energy of']}"
            )
        )
    return lines


def _difference_blocks(found: Sequence[Difference]) -> list[str]:
    blocks = []
    for section, own in ordered(found).items():
        if own:
            table = [("", "A", "B", "")]
            table += [
                (
                    one.name,
                    _short(one.a),
                    _short(one.b),
                    "" if one.pairs is None else f"in {count(one.pairs, 'pair')}",
                )
                for one in own
            ]
            blocks.append("\n".join([f"What differs in {section}", *_columns(table)]))
    return blocks or ["Nothing differs in settings, software, machines and cluster."]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _columns(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of equal length as lines, indented, without spaces at their ends."""
    table = [tuple(map(printable, row)) for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        ("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True))).rstrip()
        for row in table
    ]


def _alone_blocks(found: Comparison) -> list[str]:
    blocks = []
    for side, own in (("A", found.matched.only_a), ("B", found.matched.only_b)):
        if own:
            lines = [f"  {alone_text(one, found.word)}" for one in own[:_MOST_ALONE]]
            if len(own) > _MOST_ALONE:
                lines.append(f"  and {len(own) - _MOST_ALONE} more (--json)")
            blocks.append(
                "\n".join([f"Only in {side}: {count(len(own), 'configuration')}", *lines])
            )
    return blocks


def alone_text(one: Alone, word: str) -> str:
    """Return a training that one campaign has alone, and why."""
    why = f" ({one.why})" if one.why else ""
    return printable(f"{one.training.label(word)}, {one.training.device}{why}")
