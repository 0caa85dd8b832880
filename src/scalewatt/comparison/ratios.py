"""The ratio B/A of each quantity that both campaigns have of one training, with interval and verdict.

The statistics are those of the table `comparisons`: means of logarithms over repeats, by Welch's t interval
of 95 %. A ratio tells a difference where its whole interval is on one side of 1. No energy is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.comparison.compared_source import Row, Source
from scalewatt.comparison.matching import KEY, Pair, Training
from scalewatt.recordings.terms import ESTIMATED, MEASURED, SIMULATED
from scalewatt.results.tables.comparisons import MARGIN, equivalence
from scalewatt.results.tables.estimates import ORIGINS, relative_bounds
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.text.metric_labels import metric_label

A_LOWER, B_LOWER, NOT_APART = "a_lower", "b_lower", "not_apart"
NO_INTERVAL, NOT_COMPARED = "no_interval", "not_compared"
QUANTITIES = {
    "runtime_h": ("Run time", "h"),
    "throughput_samples_per_s": ("Throughput", "samples/s"),
    "energy_kwh": ("Energy", "kWh"),
    "gpu_energy_kwh": ("Energy of the GPUs", "kWh"),
    "energy_per_sample_j": ("Energy per sample", "J"),
    "p_gpuh_kw": ("Mean power per GPU", "kW"),
    "metric_last": ("Metric after the last epoch", ""),
}
"""Columns of RUNS that are compared, with words and unit."""
_GPU_ENERGY, _METRIC = "gpu_energy_kwh", "metric_last"
_OF_WHOLE = ("runtime_h", "energy_kwh", _GPU_ENERGY, _METRIC)
"""What grows with the work of the whole training."""
_NO_ENERGY = ("runtime_h", "throughput_samples_per_s", _METRIC)

SIDES = ("a", "b")
COMPARED = pa.schema(
    [
        *((name, pa.string()) for name in ("model", "phase")),
        *((name, pa.int32()) for name in KEY[2:7]),
        *((name, pa.string()) for name in ("dataset_fraction", "precision")),
        *((lever, pa.float64()) for lever in LEVERS),
        *(
            (f"{name}_{side}", pa.string())
            for name in ("configuration", "device")
            for side in SIDES
        ),
        ("quantity", pa.string()),
        *((f"{name}_{side}", pa.string()) for name in ("origin", "scope") for side in SIDES),
        *((f"n_repeats_{side}", pa.int32()) for side in SIDES),
        *((f"mean_{side}", pa.float64()) for side in SIDES),
        *((name, pa.float64()) for name in ("ratio", "ratio_low", "ratio_high")),
        ("verdict", pa.string()),
        ("equivalent", pa.bool_()),
        ("reason", pa.string()),
    ]
)
"""One row per pair and quantity (docs/compare.md)."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of one quantity of a pair, as the last columns of COMPARED."""

    verdict: str
    ratio: float | None = None
    """B/A, of the geometric means over repeats."""
    ratio_low: float | None = None
    """95 % interval by repeats; None without repeats of both."""
    ratio_high: float | None = None
    equivalent: bool = False
    """True if the interval is within 1/1.05 … 1.05."""
    reason: str | None = None
    """Why it has no verdict, or none by the repeats alone."""


def compared_rows(pair: Pair, a: Source, b: Source) -> list[Row]:
    """Return the rows of COMPARED of a pair."""
    rows = []
    for name in QUANTITIES:
        values = [_values(training, name) for training in pair]
        if not any(values) or (name == _GPU_ENERGY and not _adds_gpus(pair)):
            continue
        sided: dict[str, list[Any]] = {
            "configuration": [training.id for training in pair],
            "device": [training.device for training in pair],
            "origin": [_origin(training, name) for training in pair],
            "scope": [_scope(training, name) for training in pair],
            "n_repeats": [len(training.rows) for training in pair],
            "mean": [summarise(known).mean if known else None for known in values],
        }
        rows.append(
            {
                **dict(zip(KEY, pair.a.key, strict=True)),
                "quantity": name,
                **{
                    f"{column}_{side}": value
                    for column, both in sided.items()
                    for side, value in zip(SIDES, both, strict=True)
                },
                **vars(_ratio(pair, name, values, sided, (a, b))),
            }
        )
    return rows


def _values(training: Training, name: str) -> list[float]:
    """Return the values of all repeats; none where one is not known, or their energies are not alike."""
    values = [row[name] for row in training.rows]
    kinds = {(row["energy_origin"], row["energy_scope"]) for row in training.rows}
    unlike = name not in _NO_ENERGY and len(kinds - {(None, None)}) > 1
    return [] if None in values or unlike else values


def _adds_gpus(pair: Pair) -> bool:
    """Return True if the GPUs' energy is a part of both energies, and not all of either."""
    scopes = [_scope(training, "energy_kwh") or "" for training in pair]
    return all("gpu" in scope.split("+") for scope in scopes) and set(scopes) != {"gpu"}


def _origin(training: Training, name: str) -> str | None:
    """Return where a quantity is from: measured, estimated, mixed or simulated; None if it is not known."""
    if training.simulated:
        return SIMULATED
    if name in _NO_ENERGY:
        return MEASURED
    if name == _GPU_ENERGY:
        if not _values(training, name):
            return None
        bounds = {relative_bounds(row, _GPU_ENERGY, "") for row in training.rows}
        return MEASURED if bounds == {(1.0, 1.0)} else ESTIMATED
    return _first(training, "energy_origin")


def _scope(training: Training, name: str) -> str | None:
    """Return which parts of the nodes an energy is of, as gpu+cpu; None if it is no energy."""
    if name in _NO_ENERGY:
        return None
    return "gpu" if name == _GPU_ENERGY else _first(training, "energy_scope")


def _first(training: Training, column: str) -> str | None:
    return next((row[column] for row in training.rows if row[column] is not None), None)


# --- ratio and verdict ----------------------------------------------------------------------------


def _ratio(
    pair: Pair,
    name: str,
    values: Sequence[list[float]],
    sided: dict[str, list[Any]],
    sources: tuple[Source, Source],
) -> Ratio:
    """Return the ratio of one quantity, or why there is none."""
    reason = _obstacle(pair, name, values, sided, sources)
    if reason:
        return Ratio(NOT_COMPARED, reason=reason)
    ratio = judged(*values)
    # Repeats of one seed do not tell what another would give.
    seeds = [len(set(training.seeds.values())) < min(2, len(training.rows)) for training in pair]
    if ratio.verdict != NO_INTERVAL and name == _METRIC and any(seeds):
        return Ratio(NO_INTERVAL, ratio.ratio, reason="repeats share one seed")
    return ratio


def _obstacle(
    pair: Pair,
    name: str,
    values: Sequence[list[float]],
    sided: dict[str, list[Any]],
    sources: tuple[Source, Source],
) -> str:
    """Return why a quantity is not compared; empty if it is."""
    for side, training, known, source in zip("AB", pair, values, sources, strict=True):
        if not known:
            why = None if name in _NO_ENERGY else source.no_energy.get(training.id)
            return f"not known of {side}{f' ({why})' if why else ''}"
    scope_a, scope_b = sided["scope"]
    if scope_a != scope_b:
        return f"A is the energy of {scope_a}, B of {scope_b}"
    if name not in _NO_ENERGY and set(sided["origin"]) & set(ORIGINS):
        return ESTIMATED
    if name in _OF_WHOLE and (work := _other_work(pair)):
        return work
    metric_a, metric_b = (training.rows[0]["metric_name"] for training in pair)
    if name == _METRIC and metric_a != metric_b:
        return f"A's is {metric_label(None, metric_a)}, B's {metric_label(None, metric_b)}"
    lowest = dict(zip("AB", map(min, values), strict=True))
    return next((f"{s} has a value that is not above 0" for s in "AB" if lowest[s] <= 0), "")


def _other_work(pair: Pair) -> str:
    """Return in what the work of two trainings differs; empty if in nothing."""
    a, b = pair.a.spec, pair.b.spec
    targets = [spec.protocol == TARGET_PROTOCOL for spec in (a, b)]
    if any(targets):
        return "" if all(targets) else "one trains to a target, the other for its epochs"
    parts = [
        f"{getattr(a, name)} and {getattr(b, name)} {words}"
        for name, words in (("epochs", "epochs"), ("dataset_samples", "samples an epoch"))
        if getattr(a, name) != getattr(b, name)
    ]
    return f"unlike work: {', '.join(parts)}" if parts else ""


def judged(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Return the ratio B/A of positive values over repeats, with its interval and the verdict."""
    test = equivalence(b, a, MARGIN)
    if test.low is None or test.high is None:
        singles = [side for side, values in zip("AB", (a, b), strict=True) if len(values) == 1]
        whose = "each" if len(singles) == 2 else singles[0]
        return Ratio(NO_INTERVAL, test.ratio, reason=f"a single run of {whose}")
    if test.low == test.high:
        return Ratio(NO_INTERVAL, test.ratio, reason="repeats do not differ at all")
    verdict = A_LOWER if test.low > 1 else B_LOWER if test.high < 1 else NOT_APART
    return Ratio(verdict, test.ratio, test.low, test.high, test.verdict == "equivalent")
