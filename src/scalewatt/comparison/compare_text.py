"""A comparison for a terminal: what differs, a table for each quantity, and what only one campaign has."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

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
from scalewatt.comparison.setting_differences import SECTIONS, Difference, summary
from scalewatt.results.text.number_format import MISSING, count, listed

_WIDTH = 100
_MOST_ALONE = 20
_LONGEST_VALUE = 48
NOTE = (
    "B/A is the ratio of geometric means over repeats, with the 95 % interval of Welch's t on logarithms; "
    "means are arithmetic, as in the tables. Lower does not mean better."
)


def comparison_text(found: Comparison) -> str:
    """Return the comparison for a terminal."""
    sources = [*_source_lines(found), same_sentence(found.same_runs)]
    blocks = ["\n".join(filter(None, sources)), *_difference_blocks(found.differences)]
    labels = labels_of(found)
    blocks += [f"In both: {count(len(labels), 'configuration')}"] if labels else []
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


def labels_of(found: Comparison) -> dict[str, str]:
    """Return what each pair is, by A's configuration; those of one label keep their ids."""
    labels = {}
    for pair in found.matched.pairs:
        a, b = pair.a.device, pair.b.device
        labels[pair.a.id] = f"{pair.a.label(found.word)}, {a if a == b else f'A {a}, B {b}'}"
    several = Counter(labels.values())
    return {id_: id_ if several[label] > 1 else label for id_, label in labels.items()}


def metric_of(found: Comparison) -> str | None:
    """Return the metric of all pairs; None where they have several, or none."""
    names = {one.rows[0]["metric_name"] for pair in found.matched.pairs for one in (pair.a, pair.b)}
    return names.pop() if len(names) == 1 else None


def _source_lines(found: Comparison) -> list[str]:
    lines = []
    for side, source in (("A", found.a), ("B", found.b)):
        facts = summary(source)
        origins = [f"{name} ({count(n, 'run')})" for name, n in facts["energy_origins"].items()]
        more = (("excluded", source.excluded), ("not yet in the table", source.unlisted))
        left_out = "".join(f", {count(n, 'more run')} {words}" for words, n in more if n)
        lines.append(
            f"{side}: {facts['campaign']} ({facts['place']}): {count(facts['runs'], 'run')} of "
            f"{count(facts['configurations'], 'configuration')} on {listed(facts['devices'])}"
            f"{left_out}; protocol {listed(facts['protocols'])}; energy {listed(origins)}, of "
            f"{listed(facts['energy_scopes']) or MISSING}"
        )
    return lines


def _difference_blocks(found: Sequence[Difference]) -> list[str]:
    blocks = []
    for section in SECTIONS:
        if own := [one for one in found if one.section == section]:
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
    return f"{one.training.label(word)}, {one.training.device}{why}"
