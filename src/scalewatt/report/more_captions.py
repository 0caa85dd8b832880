"""Captions of the figures that the paper does not have: breakdown, learning, Pareto, variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scalewatt.figures.words import metric_label
from scalewatt.report.numbers import count, number, with_unit

Row = dict[str, Any]
_KINDS = {"gpu": "GPUs", "cpu": "CPUs", "ram": "memory"}


def breakdown(rows: Sequence[Row], _word: str) -> list[str]:
    """Which device kind and which stage took most, over all configurations with energy."""
    known = [row for row in rows if row["energy_kwh"] is not None]
    configurations = {row["configuration"] for row in rows}
    parts = [f"Energy of {count(len(configurations), 'configuration')} by device kind and stage."]
    total = sum(row["energy_kwh"] for row in known)
    if not total:
        return [*parts, "None of them has a known energy."]
    for column, words in (("device_kind", _KINDS), ("stage", {})):
        sums: dict[str, float] = {}
        for row in known:
            sums[row[column]] = sums.get(row[column], 0.0) + row["energy_kwh"]
        name, most = max(sums.items(), key=lambda one: one[1])
        kind = "device kind" if column == "device_kind" else "stage"
        of_bars = f"{100 * most / total:.0f} % of all bars together"
        parts.append(f"The largest {kind} is {words.get(name, name)}, {of_bars}.")
    return [*parts, _idle(known, total), *_discarded(known)]


def _idle(rows: Sequence[Row], total: float) -> str:
    if any(row["idle_energy_kwh"] is None for row in rows):
        return "The idle baseline is not known of all bars."
    idle = sum(row["idle_energy_kwh"] for row in rows)
    return f"Idle devices would have used {100 * idle / total:.0f} % of it in the same time."


def _discarded(rows: Sequence[Row]) -> list[str]:
    lost = sum(row["discarded_energy_kwh"] or 0.0 for row in rows)
    return [f"{with_unit(lost, 'kWh')} went into work that was done again."] if lost else []


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
            f"{_model(best)}: {metric_label(best['model'], best['metric_name'])} "
            f"{number(best['metric'])} at best after the last epoch{cost} ({best['configuration']})."
        )
    unknown = sum(all(row["energy_kwh"] is None for row in own) for own in runs.values())
    if unknown:
        parts.append(f"{count(unknown, 'run')} without energy by epoch.")
    return parts


def pareto(rows: Sequence[Row], _word: str) -> list[str]:
    """The front's ends against energy, for each model."""
    front = [row for row in rows if row["non_dominated"]]
    configurations = {row["configuration"] for row in rows}
    parts = [
        f"{count(len(configurations), 'configuration')}; joined are those that no other one "
        "beats in both."
    ]
    for panel in dict.fromkeys(row["panel"] for row in front):
        own = [row for row in front if row["panel"] == panel]
        cheap, good = min(own, key=lambda row: row["x"]), _best(own, "y")
        unit = "kWh" if own[0]["x_name"] == "energy_kwh" else "h"
        ends = f"{_end(cheap, unit)} ({cheap['configuration']})"
        if good is not cheap:
            ends += f" to {_end(good, unit)} ({good['configuration']})"
        points = count(len(own), "configuration")
        parts.append(f"{panel}, {_model(own[0])}: {points} on the front, from {ends}.")
    return parts


def _end(row: Row, unit: str) -> str:
    return f"{number(row['y'])} for {with_unit(row['x'], unit)}"


def _best(rows: Sequence[Row], name: str) -> Row:
    choose = max if rows[0]["metric_goal"] == "max" else min
    return choose(rows, key=lambda row: row[name])


def _model(row: Row) -> str:
    return row["model"] if row["phase"] == "train" else f"{row['model']} ({row['phase']})"


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
