"""Titles and captions of the figures, computed from the figures' tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose
from scalewatt.report.captions.breakdown_captions import uses_of_energy
from scalewatt.report.captions.cost_captions import cost, operating_points
from scalewatt.report.summary_section import model_words
from scalewatt.results.tables.frames import records
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES, left_out_sentences
from scalewatt.results.text.metric_labels import metric_label
from scalewatt.results.text.number_format import count, number, unit_for, with_unit

_MOST_NAMED, _MOST_LABELS, _MOST_FRONTS = 2, 6, 4
"""Configurations or runs, series, and fronts that a caption names; of more it tells the number."""
Captions = Callable[[pd.DataFrame, str], list[str]]

_TITLES = {
    "figure1": "The campaign's scaling procedures",
    "figure2": "ResNet50, full dataset",
    "figure3": "ResNet50, dataset growing with n",
    "figure4": "FourCastNet",
    "figure5": "Power against time",
    "figure6": "ResNet50: power and throughput",
    "figure7": "FourCastNet: power and throughput",
    "pareto": "Quality against energy and run time",
    "breakdown": "Where the energy went",
    "learning": "Learning against energy and time",
    "cost_per_sample": "What a sample costs",
    "operating_points": "What clocks and power limits cost and save",
    "prediction": "Measured and predicted",
}
_PAPERS_MODEL = {
    "figure2": "resnet50",
    "figure3": "resnet50",
    "figure4": "fourcastnet",
    "figure6": "resnet50",
    "figure7": "fourcastnet",
}
_WITHOUT_MODEL = {
    "figure2": "speed-up, metric and energy",
    "figure3": "dataset growing with n",
    "figure4": "speed-up, metric and energy",
    "figure6": "power and throughput",
    "figure7": "power and throughput",
}


def label(name: str) -> str:
    """Return the name of a figure: `Figure 2`, `Breakdown`."""
    number_ = name.removeprefix("figure")
    return f"Figure {number_}" if number_ != name else name.capitalize().replace("_", " ")


def title(name: str, frame: pd.DataFrame | None) -> str:
    """Return the figure's title; a campaign may show other models than the paper."""
    shows_model = name in _PAPERS_MODEL and frame is not None
    models = list(frame["model"].unique()) if shows_model and frame is not None else []
    if not models or models == [_PAPERS_MODEL[name]]:
        return _TITLES.get(name, label(name))
    return f"{', '.join(models)}: {_WITHOUT_MODEL[name]}"


def caption(name: str, frame: pd.DataFrame) -> str:
    """Return what the figure shows, its main numbers, and what it leaves out, in a few sentences."""
    rows = data.drawable(frame)
    theirs = data.is_published(rows) if "energy_origin" in rows else pd.Series(False, rows.index)
    own, published = rows[~theirs], rows[theirs]
    table = data.stored(frame)
    parts = ["No run of this figure has finished."]
    if len(own):
        parts = _parts_of(name, table)(own, data.gpu_word(frame))
    if len(published):
        points = len(published.drop_duplicates(["series", "configuration"]))
        parts = [*parts, f"{count(points, 'published point')} beside ours."]
    notes = [str(note) for note in table.get("notes") or []]
    return " ".join([*parts, *notes, *_left_out(table)])


def _left_out(table: dict[str, Any]) -> list[str]:
    """Return how much is missing or excluded; section Data quality names long lists."""
    parts = []
    for key, start, what in (
        ("missing", "No finished run of", "configuration"),
        ("excluded", "Excluded:", "run"),
    ):
        found = table.get(key) or []
        if len(found) > _MOST_NAMED:
            parts.append(f"{start} {count(len(found), what)} (named under Data quality).")
        else:
            parts += left_out_sentences({key: found})
    return parts


def _span_of(gpus: pd.Series, word: str) -> str:
    """Return `1 to 8 GPUs`, or `2 GPUs` where all have as many."""
    least, most = gpus.min(), gpus.max()
    return f"{least} to {prose.counted(most, word)}" if least < most else prose.counted(most, word)


def _parts_of(name: str, table: dict[str, Any]) -> Captions:
    known: dict[str, Captions] = {
        "figure1": _procedures,
        "figure5": _power,
        "breakdown": _breakdown,
        "learning": _learning,
        "pareto": _pareto,
        "cost_per_sample": cost,
        "operating_points": operating_points,
        "prediction": _prediction,
    }
    return known.get(name, partial(_curves, metric_name=table.get("metric_name")))


def _by_kind(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return rows by the kind of their energies: `measured, gpu+cpu`."""
    kinds = rows["energy_origin"].map(str) + ", " + rows["energy_scope"].map(str)
    return list(data.groups(rows.assign(kind=kinds), "kind"))


def _unequal(rows: pd.DataFrame) -> list[str]:
    """Return that totals are not comparable, where the rows' scopes differ."""
    return [UNEQUAL_SCOPES] if rows["energy_scope"].nunique() > 1 else []


# --- the paper's figures --------------------------------------------------------------------------


def _procedures(rows: pd.DataFrame, word: str) -> list[str]:
    return [
        "How batch sizes, samples and updates change as n grows, in "
        f"{rows['series'].nunique()} series, {_span_of(rows['gpus'], word)}. "
        "Drawn from the campaign's definitions; nothing in it is measured."
    ]


def _power(rows: pd.DataFrame, word: str) -> list[str]:
    parts = []
    for first in data.each(rows.drop_duplicates("panel")):
        mean, of_all = first.mean_power_w, first.mean_power_all_w
        # An estimate is of all sockets together.
        every = (first.device_kind, first.energy_origin) == ("cpu", "estimated")
        kind = prose.KIND_WORDS[first.device_kind]
        one = mean == of_all or (mean != mean and of_all != of_all)
        parts.append(
            f"{first.panel}: {'all ' + kind + 's' if every else 'one ' + kind} ({first.device}) of a "
            f"run on {prose.counted(first.gpus, word)}, LBS {first.local_batch_size}, GBS "
            f"{first.global_batch_size}, mean {number(mean)} W"
            + ("." if one else f", of all such devices {number(of_all)} W.")
        )
    return parts


def _curves(rows: pd.DataFrame, word: str, metric_name: str | None) -> list[str]:
    labels = data.series_labels(rows)
    points = rows[data.has_value(rows)]
    named = f" ({'; '.join(labels.values())})" if len(labels) <= _MOST_LABELS else ""
    parts = [
        f"{len(labels)} series{named}, "
        f"{count(rows['configuration'].nunique(), 'configuration')}, {_span_of(rows['gpus'], word)}.",
        _best_speedup(points, labels, word),
        *_ranges(points, "energy_kwh", "Energy", "kWh"),
        *_ranges(points, "p_gpuh_kw", f"Energy per {prose.singular(word)} hour", "kW"),
    ]
    empty = rows[~rows["panel"].isin(points["panel"])].drop_duplicates("panel")
    for first in data.each(empty.sort_values("panel")):
        sentence = prose.no_value_sentence(first.y_name, word, first.model, metric_name)
        parts.append(f"Panel {first.panel}: {sentence}")
    return [*(part for part in parts if part), *_singles(rows)]


def _singles(rows: pd.DataFrame) -> list[str]:
    repeats = rows.drop_duplicates("configuration", keep="last")["n_repeats"]
    single = int((repeats == 1).sum())
    if not single:
        return []
    if single == len(repeats):
        return ["All are single runs, without an interval."]
    are = "is a single run" if single == 1 else "are single runs"
    return [f"{count(single, 'configuration')} {are}, without an interval."]


def _best_speedup(points: pd.DataFrame, labels: dict[str, str], word: str) -> str:
    """Return the greatest T(n₀)/T(n), n₀ being the smallest n of its series; that alone measures nothing."""
    points = points[points["y_name"] == "speedup"]
    smallest = points.groupby("series")["gpus"].transform("min")
    later = points.assign(smallest=smallest, ratio=points["y"] / smallest)[
        points["gpus"] > smallest
    ]
    if later.empty:
        return ""
    best = records(later.nlargest(1, "ratio"))[0]
    share = 100 * best["y"] / best["gpus"]
    return (
        f"Highest speed-up: {number(best['ratio'])} from {best['smallest']} to "
        f"{prose.counted(best['gpus'], word)} ({labels[best['series']]}), {share:.0f} % of the ideal."
    )


def _ranges(points: pd.DataFrame, y_name: str, words: str, unit: str) -> list[str]:
    """Return from which value to which, one sentence for each origin and scope."""
    own = points[points["y_name"] == y_name]
    kinds = _by_kind(own)
    sentences = []
    for kind, inside in kinds:
        low, high = inside["y"].min(), inside["y"].max()
        least = f"{number(low * unit_for([high], unit).factor)} to " if low < high else ""
        of = f", {kind}" if len(kinds) > 1 else ""
        sentences.append(f"{words}{of}: {least}{with_unit(high, unit)}.")
    return [*sentences, *(_unequal(points) if sentences else [])]


# --- the other figures ----------------------------------------------------------------------------


def _breakdown(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return which device kind and which stage took most, for each origin and scope of energy."""
    known = rows[rows["energy_kwh"].notna()]
    configurations = count(rows["configuration"].nunique(), "configuration")
    parts = [f"Energy of {configurations} by device kind and stage."]
    if known.empty:
        return [*parts, "None of them has a known energy."]
    for kind, own in _by_kind(known):
        text = "; ".join(uses_of_energy(own))
        parts.append(f"{kind[:1].upper()}{kind[1:]}: {text}.")
    return [*parts, *_unequal(known)]


def _learning(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return how many runs and epochs, and the best end of each metric."""
    runs = rows.groupby(["configuration", "repeat"], sort=False)
    parts = [f"The metric after each epoch of {count(runs.ngroups, 'run')}."]
    ends = runs.tail(1)
    ends = ends[ends["metric"].notna()]
    for _, own in ends.groupby(["model", "phase", "metric_name"], sort=False, dropna=False):
        best = _best(own, "metric")
        cost = best["energy_kwh"]
        spent = "" if cost is None else f" for {with_unit(cost, 'kWh')}"
        parts.append(
            f"{model_words(best)}: {metric_label(best['model'], best['metric_name'])} "
            f"{number(best['metric'])} at best after the last epoch{spent} ({best['configuration']})."
        )
    unknown = int((runs["energy_kwh"].count() == 0).sum())
    if unknown:
        parts.append(f"{count(unknown, 'run')} without energy by epoch.")
    return [*parts, *_unequal(rows)]


def _pareto(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return the ends of each front: of energies one for each origin and scope, as others do not compare."""
    parts = [
        f"{count(rows['configuration'].nunique(), 'configuration')}; Pareto-optimal points are joined: "
        "by their means, no comparable point is at least as good in both and better in one."
    ]
    fronts = []
    for panel, own in data.groups(rows[rows["non_dominated"].eq(True)], "panel"):
        of_energy = own["x_name"].iloc[0] == "energy_kwh"
        kinds = _by_kind(own) if of_energy else [("", own)]
        for kind, points in kinds:
            of = f", {kind}" if len(kinds) > 1 else ""
            model = model_words(records(own.head(1))[0])
            on_front = count(len(points), "configuration")
            ends = _front_ends(points, "kWh" if of_energy else "h")
            fronts.append(f"{panel}, {model}{of}: {on_front} on the front, from {ends}.")
    more = len(fronts) - _MOST_FRONTS
    told = [f"{count(more, 'further front')}: in the table."] if more > 0 else []
    return [*parts, *fronts[:_MOST_FRONTS], *told, *_unequal(rows)]


def _front_ends(points: pd.DataFrame, unit: str) -> str:
    cheap, good = records(points.nsmallest(1, "x"))[0], _best(points, "y")
    ends = [cheap] if cheap == good else [cheap, good]
    return " to ".join(
        f"{number(row['y'])} for {with_unit(row['x'], unit)} (n = {row['gpus']}, LBS "
        f"{row['local_batch_size']})"
        for row in ends
    )


def _best(rows: pd.DataFrame, name: str) -> dict[str, Any]:
    largest = rows["metric_goal"].iloc[0] == "max"
    return records(rows.nlargest(1, name) if largest else rows.nsmallest(1, name))[0]


def _prediction(rows: pd.DataFrame, _word: str) -> list[str]:
    """Return how far the scaling model was off, and how many of its intervals contain what was found."""
    lines = "Dashed: found as predicted; bars: nominal 90 % intervals of the predictions."
    accuracy = prose.accuracy_sentence(rows, {"runtime_h": "run time", "energy_kwh": "energy"})
    return [lines, accuracy] if accuracy else [lines]
