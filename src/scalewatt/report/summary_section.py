"""The top of the page: what ran, on what origin of energy, how much of it, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scalewatt.figures.footnote_text import counted, origin_phrase
from scalewatt.recordings.series import SIMULATED
from scalewatt.report.report_request import Definition
from scalewatt.results.figures.footnotes import BY_HAND
from scalewatt.results.tables.comparisons import MOST_REPEATS
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES
from scalewatt.results.text.number_format import count, listed, number, with_unit

Row = dict[str, Any]
Fact = tuple[str, str, str]
"""What it is, how much, and what must be known of it (may be empty)."""
_OF_SUMS = (
    ("energy of the facility, with PUE", "facility_energy_kwh", "kWh"),
    ("CO₂e", "carbon_kg", "kg"),
)


def counting(runs: Iterable[Row]) -> list[Row]:
    """The runs that count: those that are not excluded."""
    return [run for run in runs if run["excluded"] is None]


def missing_runs(definition: Definition, runs: Iterable[Row]) -> list[str]:
    """`configuration/repeat` of the planned runs that have no row."""
    there = {(run["configuration"], run["repeat"]) for run in runs}
    return [
        f"{configuration}/{repeat}"
        for configuration, repeats in definition.planned.items()
        for repeat in range(1, repeats + 1)
        if (configuration, repeat) not in there
    ]


def facts(definition: Definition, runs: Sequence[Row], hours: str, replaced: int = 0) -> list[Fact]:
    """The campaign in numbers. Sums are over the runs that count; each says which runs it lacks.

    `replaced`: how many runs were measured again.
    """
    counted_runs = counting(runs)
    excluded = [run for run in runs if run["excluded"] is not None]
    missing = missing_runs(definition, runs)
    notes = [_named("missing", len(missing)), _named("measured again", replaced)]
    left = len({run["configuration"] for run in counted_runs})
    gone = len({run["configuration"] for run in runs}) - left
    found = [
        ("runs done", _done(definition, runs, missing), ", ".join(filter(None, notes))),
        ("configurations", number(left), _named("more with excluded runs alone", gone)),
    ]
    if excluded:
        beside = _total(excluded, "energy_kwh", "kWh")[0]
        found.append(("runs excluded", number(len(excluded)), f"{beside}, not in the sums"))
    found += _energies(counted_runs)
    if _known(counted_runs, "idle_energy_kwh"):
        found.append(_sum(counted_runs, "energy above idle", "net_energy_kwh", "kWh"))
    found += _hours(counted_runs, hours)
    columns = (*_OF_SUMS, ("cost", "cost", definition.currency))
    found += [_sum(counted_runs, *one) for one in columns if _known(counted_runs, one[1])]
    return found


def left_out_of_sums(runs: Sequence[Row], has_idle: bool) -> list[str]:
    """What a reader may miss in the sums: a cost without a price, and what `scalewatt status` adds."""
    said = []
    if runs and not _known(runs, "cost"):
        said.append("No cost is stated: no price of energy counts for these runs.")
    if runs:
        probes = ", idle probes" if has_idle else ""
        said.append(
            f"Sums are over the runs that count. scalewatt status adds what else was used{probes}: "
            "unfinished and excluded runs, measurements that were set aside, and data staging, which "
            "protocol paper does not count."
        )
    if any(run["energy_origin"] in ("estimated", "mixed") for run in runs):
        said.append(
            "An estimate takes the load of whole devices: what other programs did on them meanwhile "
            "is in it."
        )
    return said


def _done(definition: Definition, runs: Sequence[Row], missing: list[str]) -> str:
    planned = sum(definition.planned.values())
    return f"{len(runs)} of {planned}" if planned and missing else number(len(runs))


def _named(word: str, n: int) -> str:
    return f"{number(n)} {word}" if n else ""


def _energies(runs: Sequence[Row]) -> list[Fact]:
    """One sum for each origin and scope: different ones are never added up."""
    groups: dict[tuple[str, str], list[Row]] = {}
    without = [run for run in runs if run["energy_kwh"] is None]
    for run in runs:
        if run["energy_kwh"] is not None:
            groups.setdefault((run["energy_origin"], run["energy_scope"]), []).append(run)
    lacking = f"{count(len(without), 'run')} without" if without else ""
    if not groups:
        return [("energy", "–", lacking)]
    found = []
    for place, ((origin, scope), own) in enumerate(sorted(groups.items())):
        of = count(len(own), "run") if len(groups) > 1 else ""
        note = ", ".join(filter(None, [of, "" if place else lacking]))
        total = sum(run["energy_kwh"] for run in own)
        found.append((f"energy, {origin} ({scope})", with_unit(total, "kWh"), note))
    return found


def _hours(runs: Sequence[Row], hours: str) -> list[Fact]:
    """One sum for each device: an hour of one is not an hour of another."""
    devices = list(dict.fromkeys(run["device"] for run in runs))
    if len(devices) < 2:
        return [(hours, *_total(runs, "gpu_hours", "h"))]
    return [
        (f"{hours}, {one}", *_total([r for r in runs if r["device"] == one], "gpu_hours", "h"))
        for one in devices
    ]


def _sum(runs: Sequence[Row], words: str, column: str, unit: str) -> Fact:
    text, note = _total(runs, column, unit)
    scopes = {run["energy_scope"] for run in runs if run[column] is not None}
    origins = {run["energy_origin"] for run in runs if run[column] is not None}
    if len(scopes) > 1 or len(origins) > 1:
        note = ", ".join(filter(None, [note, "over unequal scopes or origins"]))
    return words, text, note


def _total(runs: Sequence[Row], column: str, unit: str) -> tuple[str, str]:
    values = _known(runs, column)
    if not values:
        return "–", ""
    partial = f"{len(values)} of {len(runs)} runs" if len(values) < len(runs) else ""
    return with_unit(float(sum(values)), unit), partial


def _known(runs: Sequence[Row], column: str) -> list[float]:
    return [run[column] for run in runs if run[column] is not None]


def origin_sentences(runs: Iterable[Row]) -> str:
    """Where the energies of runs come from, what they contain, and of how many runs there is none."""
    runs = list(runs)
    if not runs:
        return "No run counts, as all are excluded."
    groups: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run["energy_kwh"] is not None:
            devices = groups.setdefault((run["energy_origin"], run["energy_scope"]), [])
            if run["device"] not in devices:
                devices.append(run["device"])
    without = sum(run["energy_kwh"] is None for run in runs)
    parts = []
    for (origin, scope), devices in sorted(groups.items()):
        of = f" on {listed(devices)}" if len(groups) > 1 else ""
        parts.append(f"Energy{of} {origin_phrase(origin, scope)}; scope: {scope}.")
    if without:
        parts.append(f"The energy of {count(without, 'run')} of {len(runs)} is not known.")
    simulated = any(origin == SIMULATED for origin, _ in groups)
    return " ".join(filter(None, [*parts, scope_sentence(runs), BY_HAND if simulated else ""]))


def what_ran(runs: Sequence[Row], word: str) -> list[str]:
    """Each device: the hardware's name, the models, and the most GPUs and nodes."""
    lines = []
    for device in dict.fromkeys(run["device"] for run in runs):
        own = [run for run in runs if run["device"] == device]
        names = [str(n) for n in dict.fromkeys(run["device_name"] for run in own) if n]
        models = listed(dict.fromkeys(model_words(run) for run in own))
        nodes = max((run["nodes"] or 1) for run in own)
        lines.append(
            f"{models} on {device}"
            + (f" ({' / '.join(names)})" if names else "")
            + f": {count(len(own), 'run')}, on up to {counted(max(r['gpus'] for r in own), word)}"
            + f" and {count(nodes, 'node')}."
        )
    return lines


def model_words(row: Row) -> str:
    """The model of a run or configuration, with its phase where that is not plain training."""
    return row["model"] if row["phase"] == "train" else f"{row['model']} ({row['phase']})"


def scaling_sentences(rows: Sequence[Row], word: str) -> list[str]:
    """The speed-up over the widest span, and what more GPUs cost in energy; of fixed datasets."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(row["series"], []).append(row)
    fixed = [own for own in series.values() if len({row["dataset_samples"] for row in own}) == 1]
    ends = [max(own, key=lambda row: row["gpus"]) for own in fixed]
    ends = [row for row in ends if row["gpus"] > row["smallest_gpus"]]
    said: list[tuple[Row, str]] = []
    """The ratios of the sentences: row and quantity."""
    sentences = []
    if known := [row for row in ends if row["speedup"] is not None]:
        span = max(_span(row) for row in known)
        widest = sorted((r for r in known if _span(r) == span), key=lambda row: row["speedup"])
        sentences += [_speedups(widest, word)]
        said += [(row, "speedup") for row in _outer(widest)]
    if used := sorted((r for r in ends if r["energy_ratio"] is not None), key=_energy_ratio):
        several = f", over {len(used)} series" if len(used) > 1 else ""
        sentences.append(
            "The largest n of a series with a fixed dataset took "
            f"{_ends(used, 'energy_ratio')} times the energy of its smallest n{several}."
        )
        said += [(row, "energy_ratio") for row in _outer(used)]
    if any(row[f"{name}_low"] is None for row, name in said):
        sentences.append("A ratio without an interval rests on a single run.")
    return sentences


def _span(row: Row) -> float:
    return row["gpus"] / row["smallest_gpus"]


def _energy_ratio(row: Row) -> float:
    return row["energy_ratio"]


def _speedups(rows: Sequence[Row], word: str) -> str:
    """The least and the highest speed-up of the series with the widest span; `rows` by speed-up."""
    spans = {(row["smallest_gpus"], row["gpus"]) for row in rows}
    over = listed(f"{low} to {counted(high, word)}" for low, high in sorted(spans))
    shares = [f"{100 * row['efficiency']:.0f}" for row in _outer(rows)]
    return (
        f"The widest span of a series, {over}: speed-up {_ends(rows, 'speedup')}, "
        f"{' to '.join(dict.fromkeys(shares))} % of the ideal"
        + (f", over {len(rows)} series." if len(rows) > 1 else ".")
    )


def _outer(rows: Sequence[Row]) -> Sequence[Row]:
    return rows if len(rows) < 2 else (rows[0], rows[-1])


def _ends(rows: Sequence[Row], name: str) -> str:
    """The first and the last row's ratio, each with its interval and series."""
    return " to ".join(f"{_value(row, name)} ({row['series']})" for row in _outer(rows))


def _value(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None:
        return number(row[name], 3)
    return f"{number(row[name], 3)} [95 % interval {number(low, 3)} to {number(high, 3)}]"


_VERDICTS = {
    "equivalent": "equivalent within {margin} %",
    "different": "different",
    "unresolved": "cannot be resolved",
}


def comparison_sentences(rows: Sequence[Row]) -> list[str]:
    """For each pair of devices: how their energies and times for the same training compare."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["quantity"] in _COMPARED:
            key = tuple(row[name] for name in _ALIKE)
            groups.setdefault(key, []).append(row)
    return [_compared(own) for own in groups.values()]


_COMPARED = {"energy_kwh": "energy", "runtime_h": "run time"}
_ALIKE = ("device", "baseline_device", "quantity", "energy_scope", "energy_origin")
"""What ratios have in common that stand in one sentence."""


def _compared(rows: Sequence[Row]) -> str:
    device, baseline, quantity, scope, origin = (rows[0][name] for name in _ALIKE)
    ratios = sorted(row["ratio"] for row in rows)
    span = " to ".join(dict.fromkeys(number(one, 3) for one in (ratios[0], ratios[-1])))
    over = f" ({origin}, {scope})" if scope else ""
    return (
        f"The same training on {device} and on {baseline} ({count(len(rows), 'pair')}): "
        f"{_COMPARED[quantity]}{over} on {device} {span} times that on {baseline}; {_tally(rows)}."
    )


def _tally(rows: Sequence[Row]) -> str:
    margin = number(100 * rows[0]["margin"])
    parts = []
    for verdict, words in _VERDICTS.items():
        own = [row for row in rows if row["verdict"] == verdict]
        if own:
            parts.append(f"{words.format(margin=margin)}: {len(own)}{_needed(verdict, own)}")
    return ", ".join(parts)


def _needed(verdict: str, rows: Sequence[Row]) -> str:
    """How many repeats would give the unresolved pairs a verdict, were their ratios the true ones."""
    if verdict != "unresolved":
        return ""
    needed = [row["repeats_needed"] for row in rows if row["spread"] is not None]
    least = sorted({min(row["n_repeats"], row["baseline_n_repeats"]) for row in rows})
    runs = f"{least[0]} to {least[-1]} runs" if len(least) > 1 else count(least[0], "run")
    if not needed:
        return f" (from {runs} of each; no spread is known, so neither how many would do)"
    enough = f"over {MOST_REPEATS}" if None in needed else f"{max(needed)}"
    if len(needed) < len(rows):
        enough += f" for {len(needed)} of them"
    return f" (from {runs} of each; were these ratios the true ones, {enough} would do)"


def scope_sentence(runs: Iterable[Row]) -> str:
    """That totals of unequal scope are not comparable, where there are such."""
    return UNEQUAL_SCOPES if len({r["energy_scope"] for r in runs if r["energy_scope"]}) > 1 else ""
