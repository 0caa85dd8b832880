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


_ONE_SEED = "repeats share one seed"
_NO_SPREAD = "repeats do not differ at all"


@dataclass(frozen=True)
class Quantity:
    """A column of RUNS that is compared."""

    name: str
    words: str
    unit: str
    of_whole: bool = False
    """True if it grows with the work of the whole training."""
    energy: str | None = None
    """The energy whose origin and scope it has; None if it is no energy."""


QUANTITIES = (
    Quantity("runtime_h", "Run time", "h", of_whole=True),
    Quantity("throughput_samples_per_s", "Throughput", "samples/s"),
    Quantity("energy_kwh", "Energy", "kWh", True, "energy_kwh"),
    Quantity("gpu_energy_kwh", "Energy of the GPUs", "kWh", True, "gpu_energy_kwh"),
    Quantity("energy_per_sample_j", "Energy per sample", "J", energy="energy_kwh"),
    Quantity("p_gpuh_kw", "Mean power per GPU", "kW", energy="energy_kwh"),
    Quantity("metric_last", "Metric after the last epoch", "", of_whole=True),
)
_GPU_ENERGY, _METRIC = "gpu_energy_kwh", "metric_last"

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
    """What is found of one quantity of a pair."""

    verdict: str
    ratio: float | None = None
    """B/A, of the geometric means over repeats."""
    low: float | None = None
    """95 % interval by repeats; None without repeats of both."""
    high: float | None = None
    equivalent: bool = False
    """True if the interval is within 1/1.05 … 1.05."""
    reason: str | None = None
    """Why it has no verdict, or none by the repeats alone."""


def compared_rows(pair: Pair, a: Source, b: Source) -> list[Row]:
    """Return the rows of COMPARED of a pair."""
    rows = []
    for quantity in QUANTITIES:
        values = tuple(_values(one, quantity) for one in (pair.a, pair.b))
        if not any(values) or (quantity.name == _GPU_ENERGY and not _adds_gpus(pair)):
            continue
        found = _ratio(pair, quantity, values, (a, b))
        means = [summarise(own).mean if own else None for own in values]
        origins, scopes = ([f(one, quantity) for one in (pair.a, pair.b)] for f in (origin, scope))
        rows.append(
            {
                **dict(zip(KEY, pair.a.key, strict=True)),
                **_sided("configuration", [pair.a.id, pair.b.id]),
                **_sided("device", [pair.a.device, pair.b.device]),
                "quantity": quantity.name,
                **_sided("origin", origins),
                **_sided("scope", scopes),
                **_sided("n_repeats", [len(pair.a.rows), len(pair.b.rows)]),
                **_sided("mean", means),
                "ratio": found.ratio,
                "ratio_low": found.low,
                "ratio_high": found.high,
                "verdict": found.verdict,
                "equivalent": found.equivalent,
                "reason": found.reason,
            }
        )
    return rows


def _sided(name: str, both: Sequence[Any]) -> Row:
    return {f"{name}_{side}": value for side, value in zip(SIDES, both, strict=True)}


def _values(one: Training, quantity: Quantity) -> list[float]:
    """Return the values of all repeats; none where one is not known, or their energies are not alike."""
    found = [row[quantity.name] for row in one.rows]
    kinds = {(row["energy_origin"], row["energy_scope"]) for row in one.rows if quantity.energy}
    return [] if None in found or len(kinds - {(None, None)}) > 1 else found


def _adds_gpus(pair: Pair) -> bool:
    """Return True if the GPUs' energy is a part of both energies, and not all of either."""
    scopes = [_whole_scope(one) for one in (pair.a, pair.b)]
    return all("gpu" in scope.split("+") for scope in scopes) and set(scopes) != {"gpu"}


# --- origin and scope -----------------------------------------------------------------------------


def origin(one: Training, quantity: Quantity) -> str | None:
    """Return where a quantity is from: measured, estimated, mixed or simulated; None if it is not known."""
    if one.simulated:
        return SIMULATED
    if quantity.energy is None:
        return MEASURED
    if quantity.name == _GPU_ENERGY:
        if not _values(one, quantity):
            return None
        bounds = [relative_bounds(row, _GPU_ENERGY, "") for row in one.rows]
        return MEASURED if set(bounds) == {(1.0, 1.0)} else ESTIMATED
    known = [row["energy_origin"] for row in one.rows if row["energy_origin"] is not None]
    return known[0] if known else None


def scope(one: Training, quantity: Quantity) -> str | None:
    """Return which parts of the nodes an energy is of, as gpu+cpu; None if it is no energy."""
    if quantity.energy is None:
        return None
    return "gpu" if quantity.name == _GPU_ENERGY else _whole_scope(one) or None


def _whole_scope(one: Training) -> str:
    known = [row["energy_scope"] for row in one.rows if row["energy_scope"] is not None]
    return known[0] if known else ""


# --- ratio and verdict ----------------------------------------------------------------------------


def _ratio(
    pair: Pair,
    quantity: Quantity,
    values: tuple[list[float], ...],
    sources: tuple[Source, Source],
) -> Ratio:
    """Return the ratio of one quantity, or why there is none."""
    reason = _obstacle(pair, quantity, values, sources)
    if reason:
        return Ratio(NOT_COMPARED, reason=reason)
    found = judged(values[0], values[1])
    if found.verdict != NO_INTERVAL and _shares_seeds(pair, quantity):
        found = Ratio(NO_INTERVAL, found.ratio, reason=_ONE_SEED)
    return found


def _shares_seeds(pair: Pair, quantity: Quantity) -> bool:
    """Return True for an error whose repeats have one seed: they do not tell what another would give."""
    return quantity.name == _METRIC and any(
        len(set(one.seeds.values())) < min(2, len(one.rows)) for one in (pair.a, pair.b)
    )


def _obstacle(
    pair: Pair,
    quantity: Quantity,
    values: tuple[list[float], ...],
    sources: tuple[Source, Source],
) -> str:
    """Return why a quantity is not compared; empty if it is."""
    both = list(zip("AB", (pair.a, pair.b), values, sources, strict=True))
    for side, one, known, source in both:
        if not known:
            why = source.no_energy.get(one.id) if quantity.energy else None
            return f"not known of {side}{f' ({why})' if why else ''}"
    scopes = [scope(one, quantity) for one in (pair.a, pair.b)]
    if scopes[0] != scopes[1]:
        return f"A is the energy of {scopes[0]}, B of {scopes[1]}"
    if quantity.energy and any(origin(one, quantity) in ORIGINS for one in (pair.a, pair.b)):
        return ESTIMATED
    if quantity.of_whole and (work := _other_work(pair)):
        return work
    names = [one.rows[0]["metric_name"] for one in (pair.a, pair.b)]
    if quantity.name == _METRIC and names[0] != names[1]:
        return f"A's is {metric_label(None, names[0])}, B's {metric_label(None, names[1])}"
    for side, _, known, _ in both:
        if min(known) <= 0:
            return f"{side} has a value that is not above 0"
    return ""


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
    found = equivalence(b, a, MARGIN)
    if found.low is None or found.high is None:
        singles = [side for side, own in zip("AB", (a, b), strict=True) if len(own) == 1]
        of = "a single run of each" if len(singles) == 2 else f"a single run of {singles[0]}"
        return Ratio(NO_INTERVAL, found.ratio, reason=of)
    if found.low == found.high:
        return Ratio(NO_INTERVAL, found.ratio, reason=_NO_SPREAD)
    same = found.verdict == "equivalent"
    verdict = _verdict(found.low, found.high)
    return Ratio(verdict, found.ratio, found.low, found.high, equivalent=same)


def _verdict(low: float, high: float) -> str:
    return A_LOWER if low > 1 else B_LOWER if high < 1 else NOT_APART
