"""Claims on power against time (figure 5's table), and on what loading data does to it.

A sample of NVML's `power.draw` is instantaneous on A100 and a mean over 1 s on H100. So the two are
compared by means over equal windows of WINDOW_S, in which the difference in averaging is small; what
is said of A100 alone is said of its samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from statistics import median

from scalewatt.claims.evidence import Evidence, Point, Trace
from scalewatt.claims.model import CHECKS, NotTestable, Outcome, Unresolved, check
from scalewatt.claims.power_rules import all_of
from scalewatt.claims.rules import Number, attempt, combine, decided, over, quantity, shown
from scalewatt.claims.rules import sign as above_one

WINDOW_S = 10.0
LEAST_SAMPLES = 100
LEAST_WINDOWS = 10
FALLS_BACK = 0.6
"""5 % percentile over median of power: below, it falls back to a baseline (claim J02)."""
STAYS_UP = 0.8
"""The same: above, it does not (claim J03)."""


def _of_device(evidence: Evidence, model: str, device: str) -> list[Trace]:
    """Measured GPU power of a model on a device; NotTestable where there is none."""
    models = {point.id: point.model for point in evidence.points}
    found = [
        trace
        for trace in evidence.traces
        if trace.row["device"] == device
        and models.get(trace.row["configuration"]) == model
        and trace.row["device_kind"] == "gpu"
        and trace.row["energy_origin"] == "measured"
        and any(watts is not None for watts in trace.power_w)
    ]
    if not found:
        raise NotTestable(f"Figure 5 has no measured GPU power of {model} on {device}.")
    return found


def _samples(trace: Trace) -> list[float]:
    """Known powers; Unresolved for too few."""
    known = [watts for watts in trace.power_w if watts is not None]
    if len(known) < LEAST_SAMPLES:
        raise Unresolved(
            f"{len(known)} samples of power; {LEAST_SAMPLES - len(known)} more are needed."
        )
    return known


def windows(trace: Trace, width_s: float = WINDOW_S) -> list[float]:
    """Mean power in W over windows of equal width that samples fall in; Unresolved for too few."""
    sums: dict[int, list[float]] = {}
    for seconds, watts in zip(trace.time_s, trace.power_w, strict=True):
        if watts is not None:
            sums.setdefault(int(seconds // width_s), []).append(watts)
    if len(sums) < LEAST_WINDOWS:
        raise Unresolved(
            f"{len(sums)} windows of {width_s:g} s have power; {LEAST_WINDOWS - len(sums)} more are needed."
        )
    return [math.fsum(one) / len(one) for _, one in sorted(sums.items())]


def fifth(values: Sequence[float]) -> float:
    """The 5 % percentile over the median."""
    ordered = sorted(values)
    place = 0.05 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    value = ordered[below] + (place - below) * (ordered[above] - ordered[below])
    return value / median(ordered)


def fluctuation(values: Sequence[float]) -> Number:
    """Coefficient of variation, with an interval as if windows were independent."""
    mean = math.fsum(values) / len(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    own = sd / mean
    error = own / math.sqrt(2 * (len(values) - 1))
    return Number(own, 2 * error, error)


def _falls_back(model: str, evidence: Evidence) -> Outcome:
    def one(trace: Trace) -> Outcome:
        low = fifth(_samples(trace))
        return decided(
            low < FALLS_BACK,
            low,
            f"5 % percentile over median of the samples, instantaneous on A100, is {low:.2f}, expected "
            f"below {FALLS_BACK}.",
        )

    traces = _of_device(evidence, model, "a100")
    if (evidence.trace_metadata.get("options") or {}).get("power_window_s"):
        raise NotTestable(
            "Figure 5 has means over windows; samples are needed (no power_window_s)."
        )
    return combine([attempt(_name(trace), one, trace) for trace in traces])


check("J02")(partial(_falls_back, "fourcastnet"))
check("J05")(partial(_falls_back, "resnet50"))


@check("J03")
def narrower_on_h100(evidence: Evidence) -> Outcome:
    """Windows of power fluctuate less on H100 than on A100, and do not fall to a baseline there."""

    def lower(h100: Trace, a100: Trace) -> Outcome:
        ratio = over(fluctuation(windows(a100)), fluctuation(windows(h100)))
        what = f"Coefficient of variation on a100 over h100, of means over {WINDOW_S:g} s on both,"
        return above_one(what, ratio, rises=True)

    def stays_up(h100: Trace) -> Outcome:
        low = fifth(windows(h100))
        said = (
            f"5 % percentile over median on {_name(h100)} is {low:.2f}, expected above {STAYS_UP}."
        )
        return decided(low > STAYS_UP, low, said)

    ones = _of_device(evidence, "fourcastnet", "h100")
    others = _of_device(evidence, "fourcastnet", "a100")
    pairs = [(one, other) for one, other in product(ones, others) if _batch(one) == _batch(other)]
    if not pairs:
        raise NotTestable("Figure 5 has no two runs with the same LBS and GBS on a100 and h100.")
    return all_of(
        [attempt(_name(h100), lower, h100, a100) for h100, a100 in pairs]
        + [attempt(_name(h100), stays_up, h100) for h100 in ones]
    )


@check("L06")
def less_fluctuation(evidence: Evidence) -> Outcome:
    """Claim J03, and the higher mean power of the GPUs on H100."""
    ones = _of_device(evidence, "fourcastnet", "h100")
    others = _of_device(evidence, "fourcastnet", "a100")
    powers = [
        (one.row["mean_power_all_w"], other.row["mean_power_all_w"])
        for one, other in product(ones, others)
        if _batch(one) == _batch(other)
    ]
    known = [(h100, a100) for h100, a100 in powers if h100 is not None and a100 is not None]
    higher = [
        decided(h100 > a100, h100, f"Mean GPU power is {shown(h100)} W, on a100 {shown(a100)} W.")
        for h100, a100 in known
    ]
    return all_of([("J03", CHECKS["J03"](evidence)), *[("power", one) for one in higher]])


@check("J04")
def lower_batch_is_narrower(evidence: Evidence) -> Outcome:
    """Of two runs on a device with the same GBS, power fluctuates less with the lower LBS."""

    def lower(small: Trace, large: Trace) -> Outcome:
        ratio = over(fluctuation(windows(large)), fluctuation(windows(small)))
        sizes = f"LBS {large.row['local_batch_size']} over LBS {small.row['local_batch_size']}"
        what = f"Coefficient of variation at {sizes}, means over {WINDOW_S:g} s,"
        return above_one(what, ratio, rises=True)

    pairs = [
        (one, other)
        for one, other in product(evidence.traces, evidence.traces)
        if one.row["local_batch_size"] < other.row["local_batch_size"]
        and all(
            one.row[name] == other.row[name]
            for name in ("device", "global_batch_size", "device_kind")
        )
        and one.row["device_kind"] == "gpu"
        and one.row["energy_origin"] == other.row["energy_origin"] == "measured"
    ]
    if not pairs:
        raise NotTestable(
            "Figure 5 has no two runs on a device with the same GBS, two LBS and measured GPU power."
        )
    return combine(
        [attempt(one.row["device"], lower, one, other) for one, other in pairs],
    )


@check("J06")
def loading_is_the_factor(evidence: Evidence) -> Outcome:
    """Without loading (`loader: synthetic`) GPUs draw more power and the run takes less energy."""
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
    return combine([attempt(real.id, _without_loading, real, twin) for real, twin in twins])


def _without_loading(real: Point, twin: Point) -> Outcome:
    share = real.mean("step_data_share")
    waits = "" if share is None else f" Waiting for data takes {share:.0%} of a step with loading."
    power = over(quantity(twin, "mean_gpu_power_w"), quantity(real, "mean_gpu_power_w"))
    energy = over(quantity(twin, "energy_kwh"), quantity(real, "energy_kwh"))
    found = all_of(
        [
            ("power", above_one("GPU power without loading over that with", power, rises=True)),
            ("energy", above_one("Energy without loading over that with", energy, rises=False)),
        ]
    )
    return Outcome(found.verdict, found.value, found.detail + waits)


def _setting(point: Point) -> tuple[object, ...]:
    names = ("model", "phase", "device", "gpus", "local_batch_size", "global_batch_size", "epochs")
    more = ("dataset_samples", "protocol", "precision", "channels_last", "compile", "energy_origin")
    return tuple(point.row[name] for name in (*names, *more))


def _batch(trace: Trace) -> tuple[int, int]:
    return trace.row["local_batch_size"], trace.row["global_batch_size"]


def _name(trace: Trace) -> str:
    row = trace.row
    return f"{row['device']} {row['gpus']} GPUs, LBS {row['local_batch_size']}"
