"""Claims on power against time (figure 5's table), and on what loading data does to it.

A sample of NVML's `power.draw` is instantaneous on A100 and a mean over 1 s on H100. So the two are
compared by means over equal windows of WINDOW_S. A mean of n instants still scatters about the mean
power of its window, by the variance of its samples over n at most: a verdict must hold with and without
that part of the A100's fluctuation. What is said of A100 alone is said of its samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median, variance
from typing import Any

from scalewatt.claims.evidence.claim_types import (
    CHECKS,
    UNRESOLVED,
    NotTestable,
    Outcome,
    Unresolved,
    check,
)
from scalewatt.claims.evidence.evidence import Evidence, Point, Trace
from scalewatt.claims.rules.tolerance import all_of, attempt, combine, decided
from scalewatt.claims.rules.tolerance import sign as above_one
from scalewatt.claims.rules.uncertain_number import Number, over, quantity, text
from scalewatt.results.tables.comparisons import same_training

WINDOW_S = 10.0
LEAST_SAMPLES = 100
LEAST_WINDOWS = 10
FALLS_BACK = 0.6
"""5 % percentile over median of power: below, it falls back to a baseline (claim J02)."""
STAYS_UP = 0.8
"""The same: above, it does not (claim J03)."""
LOADING = (
    "without loading GPUs draw more power and the run takes less energy (signs; the claim's share of "
    "low-power time, over 50 %, is not tested)"
)
SMOOTHED = 2.0
"""By how much means over windows, taken between samples, may hide of their variance."""


def _measured(evidence: Evidence, model: str, phase: str, device: str | None = None) -> list[Trace]:
    """Measured GPU power of a model's phase, on a device; NotTestable where there is none."""
    points = {point.id: point for point in evidence.points}
    found = [
        trace
        for trace in evidence.traces
        if device in (None, trace.row["device"])
        and (point := points.get(trace.row["configuration"])) is not None
        and (point.model, point.phase) == (model, phase)
        and trace.row["device_kind"] == "gpu"
        and trace.row["energy_origin"] == "measured"
        and any(watts is not None for watts in trace.power_w)
    ]
    if not found:
        on = "" if device is None else f" on {device}"
        raise NotTestable(f"Figure 5 has no measured GPU power of {model}{on}.")
    return found


def _averaged_s(evidence: Evidence) -> Any:
    """Length of the windows that figure 5 has means over; null where it has samples."""
    return (evidence.trace_metadata.get("options") or {}).get("power_window_s")


def _samples(trace: Trace) -> list[float]:
    """Known powers; Unresolved for too few."""
    known = [watts for watts in trace.power_w if watts is not None]
    if len(known) < LEAST_SAMPLES:
        raise Unresolved(
            f"{len(known)} samples of power; {LEAST_SAMPLES - len(known)} more are needed."
        )
    return known


def in_windows(trace: Trace, width_s: float = WINDOW_S) -> list[list[float]]:
    """Powers in W by windows of equal width, those that have any; Unresolved for too few."""
    found: dict[int, list[float]] = {}
    for seconds, watts in zip(trace.time_s, trace.power_w, strict=True):
        if watts is not None:
            found.setdefault(int(seconds // width_s), []).append(watts)
    if len(found) < LEAST_WINDOWS:
        raise Unresolved(
            f"{len(found)} windows of {width_s:g} s have power; {LEAST_WINDOWS - len(found)} more are needed."
        )
    return [powers for _, powers in sorted(found.items())]


def windows(trace: Trace) -> list[float]:
    """Mean power in W over windows of equal width."""
    return [math.fsum(powers) / len(powers) for powers in in_windows(trace)]


def of_instants(trace: Trace) -> float:
    """Variance in W² that means over windows may have as their samples are instants.

    NotTestable where windows have one sample at most.
    """
    parts = [variance(one) / len(one) for one in in_windows(trace) if len(one) > 1]
    if not parts:
        raise NotTestable(
            f"Figure 5 has means over more than half of {WINDOW_S:g} s: samples, or means over less "
            "(power_window_s), are needed."
        )
    return math.fsum(parts) / len(parts)


def fifth(values: Sequence[float]) -> float:
    """The 5 % percentile over the median; NotTestable for a median of 0."""
    ordered = sorted(values)
    if not median(ordered):
        raise NotTestable("The median power is 0 W.")
    place = 0.05 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    value = ordered[below] + (place - below) * (ordered[above] - ordered[below])
    return value / median(ordered)


def fluctuation(values: Sequence[float], less: float = 0.0) -> Number:
    """Coefficient of variation, with an interval as if windows were independent.

    `less`: a part of the variance that does not count. NotTestable for a mean of 0.
    """
    mean = math.fsum(values) / len(values)
    if not mean:
        raise NotTestable("The mean power is 0 W.")
    whole = variance(values)
    kept = math.sqrt(max(whole - less, 0.0))
    error = whole / (kept * abs(mean) * math.sqrt(2 * (len(values) - 1))) if kept else 0.0
    return Number(kept / abs(mean), 2 * error, error)


def _falls_back(model: str, phase: str, evidence: Evidence) -> Outcome:
    averaged = _averaged_s(evidence)

    def one(trace: Trace) -> Outcome:
        low = fifth(_samples(trace))
        if averaged and low >= FALLS_BACK:
            raise NotTestable(
                f"Figure 5 has means over {averaged:g} s, which may hide falls ({low:.2f} of the median): "
                "samples are needed (no power_window_s)."
            )
        kind = f"means over {averaged:g} s" if averaged else "samples"
        return decided(
            low < FALLS_BACK,
            low,
            f"5 % percentile over median of the {kind}, instantaneous on A100, is {low:.2f}, expected "
            f"below {FALLS_BACK}.",
        )

    traces = _measured(evidence, model, phase, "a100")
    return combine([attempt(_name(trace), one, trace) for trace in traces])


check("J02")(partial(_falls_back, "fourcastnet", "pretrain"))
check("J05")(partial(_falls_back, "resnet50", "train"))


def _on_both(evidence: Evidence) -> list[tuple[Trace, Trace]]:
    """FourCastNet's pre-trainings on H100 and A100 with the same batches."""
    ones, others = (
        _measured(evidence, "fourcastnet", "pretrain", device) for device in ("h100", "a100")
    )
    pairs = [(one, other) for one, other in product(ones, others) if _batch(one) == _batch(other)]
    if not pairs:
        raise NotTestable("Figure 5 has no two runs with the same LBS and GBS on a100 and h100.")
    return pairs


@check("J03")
def narrower_on_h100(evidence: Evidence) -> Outcome:
    """Windows of power fluctuate less on H100 than on A100, and do not fall to a baseline there."""

    def lower(h100: Trace, a100: Trace) -> Outcome:
        instants = of_instants(a100) * (SMOOTHED if _averaged_s(evidence) else 1.0)
        own = fluctuation(windows(h100))
        with_, without = (over(fluctuation(windows(a100), less), own) for less in (0.0, instants))
        what = f"Coefficient of variation on a100 over h100, of means over {WINDOW_S:g} s on both,"
        found, at_least = (above_one(what, one, rises=True) for one in (with_, without))
        said = (
            f"{what} is {text(with_)}, and {text(without)} without what instants in place of means may "
            "make, expected above 1"
        )
        if found.verdict == at_least.verdict != UNRESOLVED:
            return Outcome(found.verdict, with_.value, f"{said}.")
        if found.verdict == UNRESOLVED:
            return found
        return Outcome(UNRESOLVED, with_.value, f"{said}; 10 samples a second on a100 would tell.")

    def stays_up(h100: Trace) -> Outcome:
        low = fifth(_samples(h100))
        said = (
            f"5 % percentile over median on {_name(h100)} is {low:.2f}, expected above {STAYS_UP}."
        )
        return decided(low > STAYS_UP, low, said)

    pairs = _on_both(evidence)
    alone = {id(h100): h100 for h100, _ in pairs}.values()
    return all_of(
        [attempt(_name(h100), lower, h100, a100) for h100, a100 in pairs]
        + [attempt(_name(h100), stays_up, h100) for h100 in alone]
    )


@check("L06")
def less_fluctuation(evidence: Evidence) -> Outcome:
    """Claim J03, and the higher mean power of the GPUs on H100."""
    points = {point.id: point for point in evidence.points}

    def higher(h100: Trace, a100: Trace) -> Outcome:
        own, other = (
            quantity(points[trace.row["configuration"]], "mean_gpu_power_w")
            for trace in (h100, a100)
        )
        what = f"Mean GPU power of {_name(h100)} over that of {_name(a100)}"
        return above_one(what, over(own, other), rises=True)

    powers = [attempt("", higher, h100, a100) for h100, a100 in _on_both(evidence)]
    return all_of([attempt("J03", CHECKS["J03"], evidence), *powers])


@check("J04")
def lower_batch_is_narrower(evidence: Evidence) -> Outcome:
    """Of two pre-trainings on a device with the same GBS, power fluctuates less with the lower LBS."""

    def lower(small: Trace, large: Trace) -> Outcome:
        ratio = over(fluctuation(windows(large)), fluctuation(windows(small)))
        sizes = f"LBS {large.row['local_batch_size']} over LBS {small.row['local_batch_size']}"
        what = f"Coefficient of variation at {sizes}, means over {WINDOW_S:g} s,"
        return above_one(what, ratio, rises=True)

    traces = _measured(evidence, "fourcastnet", "pretrain")
    pairs = [
        (one, other)
        for one, other in product(traces, traces)
        if one.row["local_batch_size"] < other.row["local_batch_size"]
        and all(one.row[name] == other.row[name] for name in ("device", "global_batch_size"))
    ]
    if not pairs:
        raise NotTestable(
            "Figure 5 has no two pre-trainings of FourCastNet on a device with the same GBS, two LBS and "
            "measured GPU power."
        )
    return combine(
        [attempt(one.row["device"], lower, one, other) for one, other in pairs],
    )


@check("J06")
def loading_is_the_factor(evidence: Evidence) -> Outcome:
    """Without loading (`loader: synthetic`) GPUs draw more power and the run takes less energy.

    The claimed share of low-power time is in no table, so that `expected` names what is tested.
    """
    twins = [
        (real, twin)
        for twin in evidence.points
        if twin.row["loader"] == "synthetic"
        for real in evidence.points
        if real.row["loader"] not in (None, "synthetic") and _setting(real) == _setting(twin)
    ]
    if not twins:
        raise NotTestable(
            "No configuration has finished runs both with and without loading (loader synthetic): "
            "campaigns/variants.yaml asks for them."
        )
    found = combine([attempt(real.id, _without_loading, real, twin) for real, twin in twins])
    return replace(found, expected=LOADING)


def _without_loading(real: Point, twin: Point) -> Outcome:
    share = real.mean("step_data_share")
    waits = "" if share is None else f" Waiting for data takes {share:.0%} of a step with loading."
    power = over(quantity(twin, "mean_gpu_power_w"), quantity(real, "mean_gpu_power_w"))
    energy = over(quantity(twin, "energy_kwh"), quantity(real, "energy_kwh"))
    found = all_of(
        [
            ("", above_one("GPU power without loading over that with", power, rises=True)),
            ("", above_one("Energy without loading over that with", energy, rises=False)),
        ]
    )
    return Outcome(found.verdict, found.value, found.detail + waits)


def _setting(point: Point) -> tuple[object, ...]:
    """What two trainings share that differ in loading alone."""
    row = {**point.row, "loader": None}
    row["configuration"] = re.sub(r"-loader(?!_)[\w.]+", "", str(row["configuration"]))
    return (*same_training(row), point.device, point.origin, point.scope)


def _batch(trace: Trace) -> tuple[int, int]:
    return trace.row["local_batch_size"], trace.row["global_batch_size"]


def _name(trace: Trace) -> str:
    row = trace.row
    return f"{row['device']} {row['gpus']} GPUs, LBS {row['local_batch_size']}"
