"""Captions of the figures that the paper does not have: breakdown, learning, Pareto, variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalewatt.figures.footnote_text import KIND_WORDS, judged_sentence, metric_label
from scalewatt.report.summary_section import model_words
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES
from scalewatt.results.text.number_format import count, number, with_unit

Row = dict[str, Any]


def by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by the kind of their energies, in words: `measured, gpu+cpu`."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row['energy_origin']}, {row['energy_scope']}", []).append(row)
    return groups


def unequal(rows: Sequence[Row]) -> list[str]:
    """That totals are not comparable, where the rows' scopes differ."""
    scopes = {row["energy_scope"] for row in rows if row["energy_scope"]}
    return [UNEQUAL_SCOPES] if len(scopes) > 1 else []


def breakdown(rows: Sequence[Row], _word: str) -> list[str]:
    """Which device kind and which stage took most, for each origin and scope of energy."""
    known = [row for row in rows if row["energy_kwh"] is not None]
    configurations = {row["configuration"] for row in rows}
    parts = [f"Energy of {count(len(configurations), 'configuration')} by device kind and stage."]
    if not known:
        return [*parts, "None of them has a known energy."]
    groups = by_kind(known)
    for kind, own in groups.items():
        most = f"most by {_largest(own, 'device_kind')} and in stage {_largest(own, 'stage')}"
        said = [most, *_idle(own), *_discarded(own)]
        parts.append(f"{kind[:1].upper()}{kind[1:]}: {'; '.join(said)}.")
    return [*parts, *unequal(known)]


def _largest(rows: Sequence[Row], column: str) -> str:
    """The device kind or stage with the largest mean share, and its shares of configurations."""
    names = dict.fromkeys(row[column] for row in rows)
    shares = {name: _shares([r for r in rows if r[column] == name], rows) for name in names}
    name = max(shares, key=lambda one: sum(shares[one]))
    return f"{KIND_WORDS.get(name, name)} ({_span(shares[name])} of a configuration)"


def _shares(part: Sequence[Row], rows: Sequence[Row], column: str = "energy_kwh") -> list[float]:
    """What the rows in `part` are of the energy of each configuration."""
    found = []
    for configuration in dict.fromkeys(row["configuration"] for row in rows):
        total = sum(r["energy_kwh"] for r in rows if r["configuration"] == configuration)
        own = sum(r[column] for r in part if r["configuration"] == configuration)
        found += [own / total] if total else []
    return found or [0.0]


def _span(shares: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{100 * one:.0f}" for one in (min(shares), max(shares)))
    return f"{' to '.join(ends)} %"


def _idle(rows: Sequence[Row]) -> list[str]:
    """What idle devices would have used, of the configurations of which that is known."""
    unknown = {row["configuration"] for row in rows if row["idle_energy_kwh"] is None}
    known = [row for row in rows if row["configuration"] not in unknown]
    if not known:
        return ["what idle devices would have used is not known"]
    shares = _span(_shares(known, known, "idle_energy_kwh"))
    some = f" (not known of {count(len(unknown), 'configuration')})" if unknown else ""
    return [f"idle devices would have used {shares} as much in the same time{some}"]


def _discarded(rows: Sequence[Row]) -> list[str]:
    lost = sum(row["discarded_energy_kwh"] or 0.0 for row in rows)
    return [f"{with_unit(lost, 'kWh')} in all went into work that was done again"] if lost else []


def learning(rows: Sequence[Row], _word: str) -> list[str]:
    """How many runs and epochs, and the best end of each metric."""
    runs: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["configuration"], row["repeat"]), []).append(row)
    parts = [f"The metric after each epoch of {count(len(runs), 'run')}."]
    ends = [own[-1] for own in runs.values() if own[-1]["metric"] is not None]
    for kind in dict.fromkeys((r["model"], r["phase"], r["metric_name"]) for r in ends):
        of_kind = [r for r in ends if (r["model"], r["phase"], r["metric_name"]) == kind]
        best = _best(of_kind, "metric")
        cost = (
            f" for {with_unit(best['energy_kwh'], 'kWh')}" if best["energy_kwh"] is not None else ""
        )
        parts.append(
            f"{model_words(best)}: {metric_label(best['model'], best['metric_name'])} "
            f"{number(best['metric'])} at best after the last epoch{cost} ({best['configuration']})."
        )
    unknown = sum(all(row["energy_kwh"] is None for row in own) for own in runs.values())
    if unknown:
        parts.append(f"{count(unknown, 'run')} without energy by epoch.")
    return [*parts, *unequal(rows)]


def pareto(rows: Sequence[Row], _word: str) -> list[str]:
    """The ends of each front: of energies one for each origin and scope, as others do not compare."""
    front = [row for row in rows if row["non_dominated"]]
    configurations = {row["configuration"] for row in rows}
    parts = [
        f"{count(len(configurations), 'configuration')}; joined are those than which no comparable "
        "one is at least as good in both and better in one, by their means."
    ]
    for panel in dict.fromkeys(row["panel"] for row in front):
        own = [row for row in front if row["panel"] == panel]
        of_energy = own[0]["x_name"] == "energy_kwh"
        groups = by_kind(own) if of_energy else {"": own}
        for kind, points in groups.items():
            of = f", {kind}" if len(groups) > 1 else ""
            parts.append(
                f"{panel}, {model_words(own[0])}{of}: {count(len(points), 'configuration')} on the "
                f"front, from {_front_ends(points, 'kWh' if of_energy else 'h')}."
            )
    return [*parts, *unequal(rows)]


def prediction(rows: Sequence[Row], _word: str) -> list[str]:
    """How far the scaling model was off, and how many of its intervals held."""
    lines = "Dashed: found as predicted; bars: 90 % intervals of the predictions."
    judged = judged_sentence(rows, {"runtime_h": "run time", "energy_kwh": "energy"})
    return [lines, judged] if judged else [lines]


def _front_ends(points: Sequence[Row], unit: str) -> str:
    cheap, good = min(points, key=lambda row: row["x"]), _best(points, "y")
    ends = [cheap] if cheap is good else [cheap, good]
    return " to ".join(f"{_end(row, unit)} ({row['configuration']})" for row in ends)


def _end(row: Row, unit: str) -> str:
    return f"{number(row['y'])} for {with_unit(row['x'], unit)}"


def _best(rows: Sequence[Row], name: str) -> Row:
    choose = max if rows[0]["metric_goal"] == "max" else min
    return choose(rows, key=lambda row: row[name])


def variants(rows: Sequence[Row], _word: str) -> list[str]:
    """How many variants there are, and which cost least and most against their baseline."""
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [r for r in rows if r["model"] == model and r["configuration"] != r["baseline"]]
        known = sorted(
            (row for row in own if row["energy_per_sample_ratio"] is not None),
            key=lambda row: row["energy_per_sample_ratio"],
        )
        parts.append(f"{model}: {count(len(own), 'variant')}.")
        if known:
            ends = (known[0], known[-1]) if len(known) > 1 else known
            said = "; ".join(
                f"{number(row['energy_per_sample_ratio'], 3)} times the baseline's ({row['differs']})"
                for row in ends
            )
            parts.append(f"Energy per sample, least and most: {said}.")
    return parts
