"""Labels of quantities and sentences of notes: energy origin, error bars, what is missing."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.recordings.terms import INSTANTANEOUS, MEAN, MEASURED, MOVING_MEAN, NODE, SIMULATED
from scalewatt.results.columns import SEVERAL, metric_label
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.markdown_latex import (
    UNEQUAL_SCOPES,
    excluded_sentence,
    shortened_ids,
)
from scalewatt.results.text.number_format import with_unit

FILL_WORDS = {
    "measured": "filled markers",
    "estimated": "open markers",
    "simulated": "half-filled markers",
    "published": "crossed markers",
    "mixed": "markers filled below",
}

BAR_WORDS = {
    "interval": "95 % t interval of the mean over repeats",
    "sd": "sample standard deviation over repeats",
    "population_sd": "population standard deviation over repeats, as the paper prints",
}
"""What error bars may be, by the campaign's word for it; `none` is the fourth."""
KIND_WORDS = {"gpu": "GPU", "cpu": "CPU", "ram": "memory", "node": "node"}
"""Device kinds."""


@dataclass(frozen=True)
class Quantity:
    """The axis of a quantity: label (with its unit), scale, whether it starts at zero.

    Values are multiplied by `factor`. `smaller` are the labels and factors in smaller units, and
    `at_least` the number from which on a unit is large enough. Points are `joined` along the x axis.
    """

    label: str
    scale: str = "linear"
    from_zero: bool = False
    factor: float = 1.0
    smaller: tuple[tuple[str, float], ...] = ()
    at_least: float = 1.0
    joined: bool = False
    name: str = ""

    def fitting(self, values: Sequence[float]) -> Quantity:
        """Return the quantity in the largest unit in which the values are not tiny."""
        sizes = sorted(abs(value) for value in values if value)
        if not sizes:
            return self
        label, factor = self.label, self.factor
        for smaller_label, smaller_factor in self.smaller:
            large, middle = sizes[-1] * factor, sizes[len(sizes) // 2] * factor
            if large >= self.at_least and middle >= 0.1 * self.at_least:
                break
            label, factor = smaller_label, smaller_factor
        return replace(self, label=label, factor=factor, smaller=())


_FACTORS = {"Wh": 1e3, "mWh": 1e6, "min": 60.0, "s": 3600.0, "W": 1e3, "mJ": 1e3, "ms": 1e3}
"""Of units that are smaller than a table's kWh, h, kW, J and s."""


@cache
def _axes() -> dict[str, dict[str, str]]:
    with Path(__file__).with_name("axes.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def quantity(name: str, gpu_word: str, label: str | None = None) -> Quantity:
    """Return the axis of a quantity by axes.csv; what is not there has `label` or its own name."""
    row = _axes().get(name)
    if row is None:
        return Quantity(label or name, name=name)
    gpu = singular(gpu_word)
    words = {"gpu": gpu, "gpus": gpu_word, "Gpu": f"{gpu[0].upper()}{gpu[1:]}"}
    unit = f" ({row['unit']})" if row["unit"] else ""
    smaller = [
        (f"{row['smaller_label'].format(**words)} ({unit})", _FACTORS[unit])
        for unit in row["smaller"].split()
    ]
    return Quantity(
        row["label"].format(**words) + unit,
        row["scale"],
        bool(row["from_zero"]),
        smaller=tuple(smaller),
        at_least=float(row["at_least"] or 1),
        joined=bool(row["joined"]),
        name=name,
    )


def metric_words(points: pd.DataFrame) -> str:
    """Return the metric's axis label for rows of one model (columns model, metric_name)."""
    named = points["metric_name"].dropna().unique()
    return metric_label(
        points["model"].iloc[0], SEVERAL if len(named) > 1 else next(iter(named), None)
    )


def goal_sentence(points: pd.DataFrame) -> str:
    """Return which metrics are better the larger they are, for each model and phase."""
    larger = [own for own in data.blocks_of(points) if own["metric_goal"].eq("max").any()]
    named = dict.fromkeys(f"{metric_words(own)} of {own['model'].iloc[0]}" for own in larger)
    return f"Larger is better: {', '.join(named)}." if named else ""


def panel_sentences(points: pd.DataFrame, text: str) -> list[str]:
    """Return the caption of a figure of panels: the facts of its points, after them what it shows."""
    shown = points[points["valued"]]
    if points["n_repeats"].isna().all():
        return table_notes(points)
    return [
        opening(points[points["n_repeats"].notna()]),
        text,
        bar_sentence(data.options(points).error_bars, shown["single"]),
        goal_sentence(shown[shown["y_name"] == "metric_last"]),
        empty_sentence(points),
        null_sentence(points),
        no_energy_sentence(points),
        *table_notes(points),
    ]


def empty_sentence(points: pd.DataFrame) -> str:
    """Return the quantities of panels that are left out, as none of their points has a value."""
    empty = points[~points["panel"].isin(points.loc[points["valued"], "panel"])]
    names = zip(empty["panel"], empty["y_name"], strict=True)
    word = data.gpu_word(points)
    parts = [
        f"{letter} ({quantity(name, word, 'metric').label})"
        for letter, name in dict.fromkeys(names)
    ]
    return f"Panels without values are left out: {', '.join(parts)}." if parts else ""


def prediction_sentences(rows: pd.DataFrame, text: str) -> list[str]:
    """Return the caption of the figure `prediction`, from the rows of its table."""
    table = rows.attrs
    quantities = {"runtime_h": "run time", "energy_kwh": "energy"}
    rows = rows[rows["quantity"].isin(list(quantities))]
    reasons = rows.loc[rows["reason"].fillna("") != "", "reason"].value_counts(sort=False)
    lacking = "; ".join(f"{reason} (points: {number})" for reason, number in reasons.items())
    warnings = (warning for warning in rows["warnings"].dropna().unique() if warning)
    return [
        *([origin_sentence(rows), text] if len(rows) else []),
        f"Predicted by {table.get('scaling_model')}, calibrated on {', '.join(table.get('sources', []))}.",
        accuracy_sentence(rows, quantities),
        f"Not predicted: {lacking}." if lacking else "",
        *(f"{warning[:1].upper()}{warning[1:]}." for warning in warnings),
        *table_notes(rows),
    ]


def origin_phrase(origin: str | None, scope: str | None) -> str:
    """Return an energy origin as a phrase that follows the word `energy`."""
    if origin == "estimated":
        source = "utilisation" if "gpu" in (scope or "") else "CPU utilisation"
        return f"estimated from {source} and rated powers"
    if (origin, scope) == ("measured", NODE):
        return "measured by the nodes' own meters"
    return {
        "measured": "measured by the devices' sensors",
        "simulated": "simulated with the scaling model",
        "published": "as published by Huber et al. (2025)",
        "mixed": "partly measured and partly estimated",
    }.get(origin or "", "not known")


def true_value(low_kwh: float | None, high_kwh: float | None) -> str:
    """Return between what an energy in kWh lies, or that this is not known of an estimate."""
    if low_kwh is None or high_kwh is None or low_kwh != low_kwh or high_kwh != high_kwh:
        return "no interval of the estimate is known"
    return (
        f"the true value lies between {with_unit(low_kwh, 'kWh')} and {with_unit(high_kwh, 'kWh')}"
    )


def open_interval(origin: str | None, low_kwh: float | None, high_kwh: float | None) -> str:
    """Return `true_value` of an energy that is estimated, or whose uncovered time shows; else nothing."""
    shows = with_unit(low_kwh, "kWh") != with_unit(high_kwh, "kWh")
    return true_value(low_kwh, high_kwh) if origin in ORIGINS or shows else ""


def opening(points: pd.DataFrame) -> str:
    """Return where the energy of points comes from, what n counts, and the hardware."""
    counts = f"n counts {data.gpu_word(points)}."
    return f"{origin_sentence(points)} {counts} {device_sentence(points)}"


def origin_sentence(points: pd.DataFrame) -> str:
    """Return origin and scope of the energies (columns energy_origin, energy_scope, device)."""
    if points.empty:
        return "No run, so no energy."
    kinds = points[["energy_origin", "energy_scope", "device"]].drop_duplicates()
    several = kinds["energy_origin"].nunique(dropna=False) > 1
    by_origin = data.groups(kinds, "energy_origin")
    parts = [_one_origin(origin, own, several) for origin, own in by_origin]
    if kinds["energy_origin"].isna().any():
        parts.append(
            "Some points have no energy." if several else "No energy is known for these runs."
        )
    if kinds["energy_scope"].nunique() > 1:
        parts.append(UNEQUAL_SCOPES)
    return " ".join(parts)


def origin_sentences(parts: pd.DataFrame) -> str:
    """Return origin and scope of the energies that are known, of bars, whose looks do not show them."""
    known = parts[parts["energy_kwh"].notna()]
    keys = ["energy_origin", "energy_scope", "device"]
    by_origin = known[keys].drop_duplicates().groupby("energy_origin", sort=False)
    sentences = [origin_sentence(own) for _, own in by_origin]
    return " ".join(sentences) or "No energy is known for these runs."


def _one_origin(origin: str, kinds: pd.DataFrame, several: bool) -> str:
    scopes = {
        scope: ", ".join(own["device"].unique())
        for scope, own in data.groups(kinds, "energy_scope")
    }
    first = next(iter(scopes), None)
    start = f"{FILL_WORDS.get(origin, origin).capitalize()}: energy" if several else "Energy"
    scope = first or "not known"
    if len(scopes) > 1:
        scope = ", ".join(f"{name} ({devices})" for name, devices in scopes.items())
    return f"{start} {origin_phrase(origin, first)}; scope: {scope}."


def device_sentence(points: pd.DataFrame) -> str:
    """Return the hardware behind each device name; empty when none is recorded."""
    by_device = data.groups(points[points["device_name"].fillna("") != ""], "device")
    named = [f"{device} is {' / '.join(own['device_name'].unique())}" for device, own in by_device]
    return f"Device: {'; '.join(named)}." if named else ""


MOST_NAMED = 4
"""Entries of a list of configurations in small print; the others are counted."""


def named(configurations: Sequence[str]) -> str:
    """Return configurations by id, those that differ only in n in one entry; of many the first ones and
    how many more there are."""
    ids = sorted(dict.fromkeys(configurations), key=_count_of)
    entries = shortened_ids(ids)
    if len(entries) <= MOST_NAMED + 1:
        return ", ".join(entries)
    first = entries[:MOST_NAMED]
    shown = sum(entry.count(",") + 1 for entry in first)
    return f"{', '.join(first)} and {len(ids) - shown} more"


def _count_of(configuration: str) -> int:
    match = re.search(r"-n(\d{3,})-", configuration)
    return int(match[1]) if match else 0


def missing_sentence(missing: Sequence[str]) -> str:
    """Return the configurations without a finished run; ids that differ only in n share one entry."""
    return f"No finished run, so no point: {named(missing)}." if missing else ""


def table_notes(points: pd.DataFrame) -> list[str]:
    """Return what a table's metadata say below a figure: missing and excluded runs, and its own notes."""
    table = points.attrs
    return [
        missing_sentence(table.get("missing", [])),
        excluded_sentence(table.get("excluded", [])),
        *table.get("notes", []),
    ]


def nothing_sentence(stored: Mapping[str, Any], what: str = "these series") -> str:
    """Return why a panel has no run at all, from the table's metadata (keys missing, excluded)."""
    if stored.get("missing"):
        # Without results_only a table waits for all of its configurations.
        return f"No run of {what} has finished; with results_only none is started."
    if stored.get("excluded"):
        return f"All finished runs of {what} are excluded."
    return f"No run of {what} has finished."


def accuracy_sentence(rows: pd.DataFrame, quantities: Mapping[str, str]) -> str:
    """Return the errors of predictions and how many intervals contain what was found, by quantity.

    Only for configurations that the model was not calibrated on. `rows`: of table `prediction`. Empty
    without any.
    """
    parts = []
    known = rows["calibrated_on"].astype(bool)
    for name, word in quantities.items():
        compared = rows[(rows["quantity"] == name) & rows["error"].notna() & ~known]
        if len(compared):
            inside, mean = int(compared["in_interval"].sum()), 100 * compared["error"].abs().mean()
            parts.append(
                f"{word}: {inside} of {len(compared)} in their nominal interval, mean error {mean:.1f} %"
            )
    if known.any():
        of = rows["configuration"]
        parts.append(
            f"not judged: {of[known].nunique()} of {of.nunique()} configurations, which the model was "
            "calibrated on"
        )
    return f"{(text := '; '.join(parts))[0].upper()}{text[1:]}." if parts else ""


def bar_sentence(kind: str, single: pd.Series) -> str:
    """Return which error bars are drawn; `single` is true of points that are single runs."""
    if single.empty:
        return ""
    if single.all():
        return "Single runs: no error bars."
    if kind == "none":
        return "Error bars are not drawn."
    return f"Error bars: {BAR_WORDS[kind]}.{' Single runs have none.' * bool(single.any())}"


def null_sentence(points: pd.DataFrame) -> str:
    """Return the configurations without a value in panels where others have one (columns panel, valued)."""
    lacking = data.groups(data.without_value(points), "panel")
    parts = [f"{panel}: {named(list(own['configuration']))}" for panel, own in lacking]
    return f"Runs without a value – {'; '.join(parts)}." if parts else ""


def no_energy_sentence(points: pd.DataFrame) -> str:
    """Return why the energy of configurations is unknown, by the table's metadata (no_energy)."""
    reasons: dict[str, list[str]] = {}
    for configuration in points["configuration"].unique():
        if why := points.attrs.get("no_energy", {}).get(configuration):
            reasons.setdefault(why, []).append(configuration)
    parts = [f"{named(ids)} ({why})" for why, ids in reasons.items()]
    return f"Energy not known: {'; '.join(parts)}." if parts else ""


_SAMPLES = {
    INSTANTANEOUS: "instantaneous power",
    MEAN: "the mean since the sample before",
    MOVING_MEAN: "the mean over the second before",
}


def sensor_sentence(
    device_name: str | None, device_kind: str, origin: str | None, sample: str | None
) -> str:
    """Return what a sample of a device's power stands for; `sample` is the trace's `quantity`."""
    if origin not in (MEASURED, SIMULATED):
        return ""
    if device_kind != "gpu" and sample == MEAN:
        return "Power of CPU and memory is the mean between two readings of an energy counter."
    shown = (device_name if device_kind == "gpu" else None) or f"the {KIND_WORDS[device_kind]}"
    if sample is None:
        return f"Whether the sensor of {shown} reports instantaneous power or a mean is not known."
    return f"The sensor of {shown} reports {_SAMPLES[sample]}."


def counted(count: int, gpu_word: str) -> str:
    """Return `1 GPU`, `4 GPUs`, `1 process`, `2 processes`."""
    return f"{count} {singular(gpu_word) if count == 1 else gpu_word}"


def singular(gpu_word: str) -> str:
    """Return the singular of what n counts: `GPU` of `GPUs`, `process`, `rank`."""
    return {"processes": "process"}.get(gpu_word, gpu_word.removesuffix("s"))


def abbreviated(value: float) -> str:
    """Return a count in at most five characters: 64, 5004, 80.1k, 1.28M."""
    for limit, unit, letter in ((1e4, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if abs(value) < limit:
            return f"{value / unit:.0f}" if not letter else f"{value / unit:.3g}{letter}"
    return f"{value:.2g}"


def trend(values: Sequence[tuple[int, float]]) -> str:
    """Return how a quantity changes with n, from (n, value) pairs: constant, ∝ n, ∝ 1/n, grows, shrinks.

    A few per cent of rounding (of a dataset that does not divide) are ignored.
    """
    (first_n, first), (last_n, last) = values[0], values[-1]
    if first <= 0 or last <= 0 or first_n == last_n:
        return "one point" if first_n == last_n else "–"
    growth, scale = last / first, last_n / first_n
    for word, expected in (("constant", 1.0), ("∝ n", scale), ("∝ 1/n", 1 / scale)):
        if abs(growth / expected - 1) < 0.05:
            return word
    return "grows" if growth > 1 else "shrinks"
