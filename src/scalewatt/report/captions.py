"""Titles and captions of the figures, computed from the figures' tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from scalewatt.figures.figure_data import gpu_word, has_value, metadata, series_labels
from scalewatt.figures.footnote_text import KIND_WORDS, counted, no_value_sentence, singular
from scalewatt.report import captions_extra as more_captions
from scalewatt.report.captions_extra import by_kind, unequal
from scalewatt.results.text.markdown_latex import left_out_sentences
from scalewatt.results.text.number_format import count, number, unit_for, with_unit

Row = dict[str, Any]
Captions = Callable[[Sequence[Row], str], list[str]]

_TITLES = {
    "figure1": "The campaign's scaling procedures",
    "figure2": "ResNet50, full dataset",
    "figure3": "ResNet50, dataset growing with n",
    "figure4": "FourCastNet",
    "figure5": "Power against time",
    "figure6": "ResNet50: power and throughput",
    "figure7": "FourCastNet: power and throughput",
    "pareto": "What quality costs",
    "breakdown": "Where the energy went",
    "learning": "Learning against energy and time",
    "variants": "One training in several ways",
    "prediction": "Measured beside predicted",
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
    """What a figure is called: `Figure 2`, `Breakdown`."""
    number_ = name.removeprefix("figure")
    return f"Figure {number_}" if number_ != name else name.capitalize()


def title(name: str, table: pa.Table | None) -> str:
    """The figure's title; a campaign may show other models than the paper."""
    shows_model = name in _PAPERS_MODEL and table is not None and table.num_rows
    models = dict.fromkeys(table["model"].to_pylist()) if shows_model and table is not None else {}
    if not models or list(models) == [_PAPERS_MODEL[name]]:
        return _TITLES.get(name, label(name))
    return f"{', '.join(models)}: {_WITHOUT_MODEL[name]}"


def caption(name: str, table: pa.Table) -> str:
    """What the figure shows, its main numbers, and what it leaves out, in a few sentences."""
    rows = table.to_pylist()
    own = [row for row in rows if row.get("energy_origin") != "published"]
    said = metadata(table)
    parts = ["No run of this figure has finished."]
    if own:
        parts = _parts_of(name, said)(own, gpu_word(table))
    notes = [str(note) for note in said.get("notes") or []]
    return " ".join([*parts, *_published(rows), *notes, *left_out_sentences(table)])


def _parts_of(name: str, said: dict[str, Any]) -> Captions:
    known: dict[str, Captions] = {
        "figure1": _procedures,
        "figure5": _power,
        "breakdown": more_captions.breakdown,
        "learning": more_captions.learning,
        "pareto": more_captions.pareto,
        "variants": more_captions.variants,
        "prediction": more_captions.prediction,
    }
    return known.get(name, partial(_curves, metric_name=said.get("metric_name")))


def _published(rows: Sequence[Row]) -> list[str]:
    points = {
        (r["series"], r["configuration"]) for r in rows if r.get("energy_origin") == "published"
    }
    return [f"{count(len(points), 'point')} as published beside ours."] if points else []


def _procedures(rows: Sequence[Row], word: str) -> list[str]:
    names = {row["series"] for row in rows}
    counts = [row["gpus"] for row in rows]
    return [
        f"What happens to batch sizes, samples and updates as n grows, in {len(names)} series "
        f"from {counted(min(counts), word)} to {counted(max(counts), word)}. "
        "Drawn from the campaign's definitions; nothing in it is measured."
    ]


def _power(rows: Sequence[Row], word: str) -> list[str]:
    parts = []
    for panel in dict.fromkeys(row["panel"] for row in rows):
        first = next(row for row in rows if row["panel"] == panel)
        mean, of_all = first["mean_power_w"], first["mean_power_all_w"]
        # An estimate is of all sockets together.
        every = (first["device_kind"], first["energy_origin"]) == ("cpu", "estimated")
        kind = KIND_WORDS[first["device_kind"]]
        parts.append(
            f"{panel}: {'all ' + kind + 's' if every else 'one ' + kind} ({first['device']}) of a run "
            f"on {counted(first['gpus'], word)}, LBS {first['local_batch_size']}, GBS "
            f"{first['global_batch_size']}, mean {number(mean)} W"
            + (f", of all such devices {number(of_all)} W." if of_all != mean else ".")
        )
    return parts


def _curves(rows: Sequence[Row], word: str, metric_name: str | None) -> list[str]:
    labels = series_labels(rows)
    configurations = {row["configuration"] for row in rows}
    counts = [row["gpus"] for row in rows]
    parts = [
        f"{len(labels)} series ({'; '.join(labels.values())}), "
        f"{count(len(configurations), 'configuration')}, "
        f"{counted(min(counts), word)} to {counted(max(counts), word)}.",
        _best_speedup(rows, labels, word),
        *_ranges(rows, "energy_kwh", "Energy", "kWh"),
        *_ranges(rows, "p_gpuh_kw", f"Energy per hour of one {singular(word)}", "kW"),
    ]
    for panel in sorted({row["panel"] for row in rows}):
        inside = [row for row in rows if row["panel"] == panel]
        if not any(has_value(row) for row in inside):
            sentence = no_value_sentence(inside[0]["y_name"], word, inside[0]["model"], metric_name)
            parts.append(f"Panel {panel}: {sentence}")
    return [*(part for part in parts if part), *_singles(rows)]


def _singles(rows: Sequence[Row]) -> list[str]:
    repeats = {row["configuration"]: row["n_repeats"] for row in rows}
    single = sum(n == 1 for n in repeats.values())
    if not single:
        return []
    if single == len(repeats):
        return ["All are single runs, without an interval."]
    are = "is a single run" if single == 1 else "are single runs"
    return [f"{count(single, 'configuration')} {are}, without an interval."]


def _best_speedup(rows: Sequence[Row], labels: dict[str, str], word: str) -> str:
    """The greatest T(n0)/T(n), n0 being the smallest n of its series; that alone measures nothing."""
    points = [row for row in rows if row["y_name"] == "speedup" and has_value(row)]
    smallest: dict[str, int] = {}
    for row in points:
        smallest[row["series"]] = min(row["gpus"], smallest.get(row["series"], row["gpus"]))
    later = [row for row in points if row["gpus"] > smallest[row["series"]]]
    if not later:
        return "No speed-up was measured: each series has one n." if points else ""
    best = max(later, key=lambda row: row["y"] / smallest[row["series"]])
    first = smallest[best["series"]]
    share = 100 * best["y"] / best["gpus"]
    return (
        f"Highest speed-up: {number(best['y'] / first)} from {first} to "
        f"{counted(best['gpus'], word)} ({labels[best['series']]}), {share:.0f} % of the ideal."
    )


def _ranges(rows: Sequence[Row], y_name: str, words: str, unit: str) -> list[str]:
    """From which value to which, one sentence for each origin and scope."""
    groups = by_kind([row for row in rows if row["y_name"] == y_name and has_value(row)])
    said = []
    for kind, own in groups.items():
        values = [row["y"] for row in own]
        suited = unit_for(values, unit)
        least = f"{number(min(values) * suited.factor)} to " if len(set(values)) > 1 else ""
        of = f", {kind}" if len(groups) > 1 else ""
        said.append(f"{words}{of}: {least}{with_unit(max(values), unit)}.")
    return [*said, *(unequal(rows) if said else [])]
