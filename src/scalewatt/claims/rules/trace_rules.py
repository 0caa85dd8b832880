"""Rules on power against time (figure 5's table).

A sample of NVML's `power.draw` is instantaneous on A100 and a mean over 1 s on H100. So the two are
compared by means over equal windows of WINDOW_S. A mean of n instants still scatters about the mean
power of its window, by the variance of its samples over n at most: a verdict must hold with and without
that part of the A100's fluctuation. What is stated of A100 alone is stated of its samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
    Outcome,
)
from scalewatt.claims.evidence.evidence import Evidence, Trace
from scalewatt.claims.numbers.decisions import all_of, attempt, band, combine, sign
from scalewatt.claims.numbers.uncertain_number import Number, quantity, text
from scalewatt.claims.numbers.variances import Variance
from scalewatt.results.text.number_format import count

WINDOW_S = 10.0
LEAST_SAMPLES = 100
LEAST_WINDOWS = 10
SMOOTHED = 2.0
"""By how much means over windows, taken between samples, may hide of their variance."""
NET = ("fourcastnet", "pretrain")
SHOWN_S = 300.0
DRAWS = 400
"""Of traces made of windows drawn again, which tell how a percentile scatters."""
SEED = 5
ROUNDING = 1e-12
"""By which part of a percentile those drawn again differ by arithmetic alone."""


def _measured(evidence: Evidence, model: str, phase: str, device: str | None = None) -> list[Trace]:
    """Return measured GPU power of a model's phase, on a device; NotTestable if there is none."""
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


def averaged_s(evidence: Evidence) -> Any:
    """Return the length of the windows that figure 5 has means over; null if it has samples."""
    return (evidence.trace_metadata.get("options") or {}).get("power_window_s")


def _samples(trace: Trace) -> list[float]:
    """Return known powers; NotTestable for too few."""
    known = [watts for watts in trace.power_w if watts is not None]
    if len(known) < LEAST_SAMPLES:
        raise NotTestable(
            f"{len(known)} samples of power; {LEAST_SAMPLES - len(known)} more are needed."
        )
    return known


def in_windows(trace: Trace, width_s: float = WINDOW_S) -> Any:
    """Return powers in W grouped by windows of equal width that have any; NotTestable for too few."""
    powers = pd.Series(
        trace.power_w, index=pd.Index(trace.time_s, dtype="float64"), dtype="float64"
    )
    powers = powers.dropna()
    windows = powers.groupby(powers.index // width_s)
    if len(windows) < LEAST_WINDOWS:
        raise NotTestable(
            f"{len(windows)} windows of {width_s:g} s have power; {LEAST_WINDOWS - len(windows)} more are "
            "needed."
        )
    return windows


def window_means(trace: Trace) -> list[float]:
    """Return mean power in W over windows of equal width."""
    return [float(mean) for mean in in_windows(trace).mean()]


def variance_of_instants(trace: Trace) -> float:
    """Return the variance in W² that means over windows may have as their samples are instants.

    NotTestable if windows have one sample at most.
    """
    windows = in_windows(trace)
    parts = (windows.var() / windows.size()).dropna()
    if parts.empty:
        raise NotTestable(
            f"Figure 5 has means over more than half of {WINDOW_S:g} s: samples, or means over less "
            "(power_window_s), are needed."
        )
    return float(parts.mean())


def fifth_over_median(powers: npt.ArrayLike) -> float:
    """Return the 5 % percentile over the median; NotTestable for a median of 0."""
    fifth, median = np.percentile(np.asarray(powers, dtype=float), [5, 50])
    if not median:
        raise NotTestable("The median power is 0 W, or may be.")
    return float(fifth / median)


def percentile_of(trace: Trace) -> Number:
    """Return `fifth_over_median` of a trace's samples, with an interval by drawing its windows again.

    Whole windows of WINDOW_S are drawn with replacement, as many as there are (block bootstrap, Künsch 1989),
    DRAWS times by a fixed seed; the standard deviation of what they give is the error. Assumed: windows
    are independent, and like those of other times of this training; a percentile scatters normally. Falls
    that take longer than a window make it too narrow, and few windows somewhat: of 30 independent ones it
    held the truth in 90 to 94 % of 800 traces. Where all that is drawn gives the same percentile, but for
    rounding, it is exact: no interval. NotTestable for a median that is 0, or may be, and for too
    few samples or windows.
    """
    value = fifth_over_median(_samples(trace))
    blocks = [np.asarray(own, dtype=float) for _, own in in_windows(trace)]
    drawn = np.random.default_rng(SEED).integers(len(blocks), size=(DRAWS, len(blocks)))
    again = [fifth_over_median(np.concatenate([blocks[i] for i in draw])) for draw in drawn]
    is_exact = np.ptp(again) <= ROUNDING * abs(value)
    square = 0.0 if is_exact else float(np.var(again, ddof=1))
    return Number(
        value, {f"percentile of {_name(trace)}": Variance(square, len(blocks) - 1, square)}
    )


def fluctuation(powers: Sequence[float], less: float = 0.0, source: str = "windows") -> Number:
    """Return the coefficient of variation, with an interval as if windows (of `source`) were independent.

    `less`: a part of the variance that does not count. NotTestable for a mean of 0.
    """
    mean = math.fsum(powers) / len(powers)
    if not mean:
        raise NotTestable("The mean power is 0 W.")
    whole = float(np.var(powers, ddof=1))
    kept = math.sqrt(max(whole - less, 0.0))
    error = whole / (kept * abs(mean) * math.sqrt(2 * (len(powers) - 1))) if kept else 0.0
    return Number(kept / abs(mean), {source: Variance(error**2, len(powers) - 1, error**2)})


def _fluctuation(trace: Trace, less: float = 0.0) -> Number:
    return fluctuation(window_means(trace), less, f"windows of {_name(trace)}")


def _falls_back(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the 5 % percentile of samples on A100 is below `high` times the median."""
    averaged = averaged_s(evidence)

    def of_trace(trace: Trace) -> Outcome:
        low = percentile_of(trace)
        if averaged and low.value >= check.high:
            raise NotTestable(
                f"Figure 5 has means over {averaged:g} s, which may hide falls ({text(low)} of the "
                "median): samples are needed (no power_window_s)."
            )
        kind = f"means over {averaged:g} s" if averaged else "samples"
        what = f"5 % percentile over median of the {kind}, instantaneous on A100,"
        shows = f"{what} is {text(low)}, expected below {check.high}"
        return band(what, low, None, check.high, shows=shows)

    traces = _measured(evidence, *check.series)
    return combine(attempt(_name(trace), of_trace, trace) for trace in traces)


def _on_both(evidence: Evidence) -> list[tuple[Trace, Trace]]:
    """Return FourCastNet's pre-trainings on H100 and A100 with the same batches."""
    sizes = ("local_batch_size", "global_batch_size")
    on_h100, on_a100 = (_measured(evidence, *NET, device) for device in ("h100", "a100"))
    pairs = [
        (one, other)
        for one, other in product(on_h100, on_a100)
        if all(one.row[name] == other.row[name] for name in sizes)
    ]
    if not pairs:
        raise NotTestable("Figure 5 has no two runs with the same LBS and GBS on a100 and h100.")
    return pairs


def _narrower_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether power fluctuates less on H100 than on A100, and stays above `low` times the median."""

    def lower(h100: Trace, a100: Trace) -> Outcome:
        instants = variance_of_instants(a100) * (SMOOTHED if averaged_s(evidence) else 1.0)
        own = _fluctuation(h100)
        whole, without = (_fluctuation(a100, less) / own for less in (0, instants))
        what = f"Coefficient of variation on a100 over h100, of means over {WINDOW_S:g} s on both,"
        found, at_least = (sign(what, one, rises=True) for one in (whole, without))
        sentence = (
            f"{what} is {text(whole)}, and {text(without)} without what instants in place of means may "
            "make, expected above 1"
        )
        if found.verdict == at_least.verdict != UNDECIDED:
            p = max(found.p or 0.0, at_least.p or 0.0)
            return Outcome(found.verdict, whole.value, f"{sentence}.", p=p)
        if found.verdict == UNDECIDED:
            return found
        return Outcome(
            UNDECIDED,
            whole.value,
            f"{sentence}; 10 samples a second on a100 would tell.",
            p=max(found.p or 0.0, at_least.p or 0.0),
        )

    def stays_up(h100: Trace) -> Outcome:
        low = percentile_of(h100)
        what = f"5 % percentile over median on {_name(h100)}"
        shows = f"{what} is {text(low)}, expected above {check.low}"
        return band(what, low, check.low, None, shows=shows)

    pairs = _on_both(evidence)
    alone = {id(h100): h100 for h100, _ in pairs}.values()
    return all_of(
        [attempt(_name(h100), lower, h100, a100) for h100, a100 in pairs]
        + [attempt(_name(h100), stays_up, h100) for h100 in alone]
    )


def _narrower_and_higher(evidence: Evidence, check: Check) -> Outcome:
    """Return the same, and whether the mean power of the GPUs is higher on H100."""
    points = {point.id: point for point in evidence.points}

    def higher(h100: Trace, a100: Trace) -> Outcome:
        own, other = (
            quantity(points[trace.row["configuration"]], "mean_gpu_power_w")
            for trace in (h100, a100)
        )
        what = f"Mean GPU power of {_name(h100)} over that of {_name(a100)}"
        return sign(what, own / other, rises=True)

    powers = [attempt("", higher, h100, a100) for h100, a100 in _on_both(evidence)]
    return all_of([attempt("J03", _narrower_on_h100, evidence, check), *powers])


def _narrower_with_lower_batch(evidence: Evidence, check: Check) -> Outcome:
    """Check whether of two pre-trainings with the same GBS power fluctuates less with the lower LBS."""

    def lower(small: Trace, large: Trace) -> Outcome:
        ratio = _fluctuation(large) / _fluctuation(small)
        sizes = f"LBS {large.row['local_batch_size']} over LBS {small.row['local_batch_size']}"
        what = f"Coefficient of variation at {sizes}, means over {WINDOW_S:g} s,"
        return sign(what, ratio, rises=True)

    traces = _measured(evidence, *NET)
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
    return combine(attempt(one.row["device"], lower, one, other) for one, other in pairs)


def _profiles(evidence: Evidence, check: Check) -> Outcome:
    """Check whether figure 5 has the first 300 s of two runs on each device."""
    if not evidence.traces:
        raise NotTestable("Figure 5 has no run.")
    counts = pd.Series([str(trace.row["device"]) for trace in evidence.traces]).value_counts()
    runs = ", ".join(f"{count} on {device}" for device, count in counts.sort_index().items())
    last = max((t for trace in evidence.traces for t in trace.time_s if t is not None), default=0.0)
    if last < 0.9 * SHOWN_S:
        raise NotTestable(f"The runs of figure 5 trained for {last:.0f} s: {runs}.")
    holds = last <= SHOWN_S and set(counts) == {2}
    return Outcome(
        SUPPORTED if holds else CONTRADICTED,
        f"{last:g}",
        f"Figure 5 shows {last:.0f} s of runs: {runs}; claimed are 300 s of two on each device.",
    )


def _name(trace: Trace) -> str:
    row = trace.row
    return f"{row['device']} {count(row['gpus'], 'GPU')}, LBS {row['local_batch_size']}"


TRACE_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "power_falls_back": _falls_back,
    "power_narrower_and_higher_on_h100": _narrower_and_higher,
    "power_narrower_on_h100": _narrower_on_h100,
    "power_narrower_with_lower_batch": _narrower_with_lower_batch,
    "profiles": _profiles,
}
"""The rules by the name that the table calls them."""
