"""Captions and alternative texts of the figures, computed from the figures' tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from scalewatt.figures.points import Row, gpu_word, has_value, metadata, series_labels
from scalewatt.figures.words import counted, no_value_sentence
from scalewatt.report.numbers import number

TITLES = {
    1: "The campaign's scaling procedures",
    2: "ResNet50, full dataset",
    3: "ResNet50, dataset growing with n",
    4: "FourCastNet",
    5: "Power against time",
    6: "ResNet50: power and throughput",
    7: "FourCastNet: power and throughput",
}


_PAPERS_MODEL = {2: "resnet50", 3: "resnet50", 4: "fourcastnet", 6: "resnet50", 7: "fourcastnet"}
_WITHOUT_MODEL = {
    2: "speed-up, metric and energy",
    3: "dataset growing with n",
    4: "speed-up, metric and energy",
    6: "power and throughput",
    7: "power and throughput",
}


def title(figure: int, table: pa.Table | None) -> str:
    """The figure's title; a campaign may show other models than the paper."""
    models = {} if table is None else dict.fromkeys(row["model"] for row in _points(figure, table))
    if not models or list(models) == [_PAPERS_MODEL[figure]]:
        return TITLES[figure]
    return f"{', '.join(models)}: {_WITHOUT_MODEL[figure]}"


def _points(figure: int, table: pa.Table) -> list[Row]:
    return table.select(["model"]).to_pylist() if figure in _PAPERS_MODEL else []


def caption(figure: int, table: pa.Table) -> str:
    """What the figure shows and its main numbers, in two to five sentences."""
    rows = table.to_pylist()
    if not rows:
        return "No run of this figure has finished."
    stored = metadata(table)
    curves = partial(_curves, metric_name=stored.get("metric_name"))
    parts = {1: _procedures, 5: _power}.get(figure, curves)(rows, gpu_word(table))
    missing = len(stored.get("missing", []))
    if missing:
        parts.append(f"{missing} configuration{'s' * (missing > 1)} without a finished run.")
    return " ".join(parts)


def variants_caption(table: pa.Table) -> str:
    """How many variants there are, and which cost least and most against their baseline."""
    rows = table.to_pylist()
    if not rows:
        return "No run of these variants has finished."
    parts = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [r for r in rows if r["model"] == model and r["configuration"] != r["baseline"]]
        known = sorted(
            (row for row in own if row["energy_per_sample_ratio"] is not None),
            key=lambda row: row["energy_per_sample_ratio"],
        )
        parts.append(f"{model}: {len(own)} variant{'s' * (len(own) != 1)}.")
        if known:
            ends = (known[0], known[-1]) if len(known) > 1 else known
            said = "; ".join(
                f"{number(row['energy_per_sample_ratio'], 3)} times the baseline's ({row['differs']})"
                for row in ends
            )
            parts.append(f"Energy per sample, least and most: {said}.")
    missing = len(metadata(table).get("missing", []))
    if missing:
        parts.append(f"{missing} configuration{'s' * (missing > 1)} without a finished run.")
    return " ".join(parts)


def _procedures(rows: Sequence[Row], word: str) -> list[str]:
    names = {row["series"] for row in rows}
    counts = [row["gpus"] for row in rows]
    return [
        f"What happens to batch sizes, samples and updates as n grows, in {len(names)} series "
        f"from {counted(min(counts), word)} to {counted(max(counts), word)}."
    ]


def _power(rows: Sequence[Row], word: str) -> list[str]:
    parts = []
    for panel in sorted({row["panel"] for row in rows}):
        first = next(row for row in rows if row["panel"] == panel)
        kind = first["device_kind"].upper()
        parts.append(
            f"{panel}: one {kind} ({first['device']}) of a run on {counted(first['gpus'], word)}, "
            f"LBS {first['local_batch_size']}, mean {number(first['mean_power_w'])} W."
        )
    return parts


def _curves(rows: Sequence[Row], word: str, metric_name: str | None) -> list[str]:
    labels = series_labels(rows)
    configurations = {row["configuration"] for row in rows}
    counts = [row["gpus"] for row in rows]
    parts = [
        f"{len(labels)} series ({'; '.join(labels.values())}), {len(configurations)} "
        f"configurations, {counted(min(counts), word)} to {counted(max(counts), word)}."
    ]
    parts += [
        _best_speedup(rows, labels, word),
        _range(rows, "C", "energy_kwh", "Energy", "kWh"),
        _range(rows, "A", "p_gpuh_kw", "Energy per hour of one " + _one(word), "kW"),
    ]
    for panel in sorted({row["panel"] for row in rows}):
        inside = [row for row in rows if row["panel"] == panel]
        if not any(has_value(row) for row in inside):
            sentence = no_value_sentence(inside[0]["y_name"], word, inside[0]["model"], metric_name)
            parts.append(f"Panel {panel}: {sentence}")
    return [part for part in parts if part]


def _one(word: str) -> str:
    return counted(1, word).removeprefix("1 ")


def _best_speedup(rows: Sequence[Row], labels: dict[str, str], word: str) -> str:
    points = [row for row in rows if row["y_name"] == "speedup" and has_value(row)]
    # A series' smallest n has its ideal speed-up by definition.
    smallest: dict[str, int] = {}
    for row in points:
        smallest[row["series"]] = min(row["gpus"], smallest.get(row["series"], row["gpus"]))
    points = [row for row in points if row["gpus"] > smallest[row["series"]]]
    if not points:
        return ""
    best = max(points, key=lambda row: row["y"])
    share = 100 * best["y"] / best["gpus"]
    return (
        f"Highest speed-up: {number(best['y'])} at {counted(best['gpus'], word)} "
        f"({labels[best['series']]}), {share:.0f} % of the ideal."
    )


def _range(rows: Sequence[Row], panel: str, y_name: str, words: str, unit: str) -> str:
    values = [
        row["y"]
        for row in rows
        if (row["panel"], row["y_name"]) == (panel, y_name) and has_value(row)
    ]
    if not values:
        return ""
    return f"{words}: {number(min(values))} to {number(max(values))} {unit}."
