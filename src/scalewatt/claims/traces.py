"""Rules on power against time (figure 5's table).

A sample of NVML's `power.draw` is instantaneous on A100 and a mean over 1 s on H100. So the two are
compared by means over equal windows of WINDOW_S. A mean of n instants still scatters about the mean
power of its window, by the variance of its samples over n at most: a verdict must hold with and without
that part of the A100's fluctuation. What is stated of A100 alone is stated of its samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from scalewatt.claims.evidence import Evidence, Trace
from scalewatt.claims.outcomes import (
    Outcome,
    Rule,
    Tests,
    all_of,
    attempt,
    combine,
    decide,
    exactly,
    ratios,
    rule_in,
)
from scalewatt.claims.quantities import log_contrast
from scalewatt.claims.reference_tables import UNDECIDED, Check, NotTestable
from scalewatt.statistics import Numbers, Source, estimate, exact, joined

TRACE_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
WINDOW_S = 10.0
LEAST_SAMPLES = 100
LEAST_WINDOWS = 10
SHOWN_S = 300.0
DRAWS = 400
"""Of traces made of windows drawn again, which tell how a percentile scatters."""
SEED = 5
ROUNDING = 1e-12
"""By which part of a percentile those drawn again differ by arithmetic alone."""
MEASURED = frozenset(["measured"])


def sampled(evidence: Evidence) -> tuple[Trace, ...]:
    """Panels of figure 5; NotTestable if it has means, which hide fluctuations, in place of samples."""
    window_s = (evidence.trace_metadata.get("options") or {}).get("power_window_s")
    if window_s:
        raise NotTestable(
            f"Figure 5 has means over {window_s:g} s: samples are needed (no power_window_s)."
        )
    return evidence.traces


def _measured(evidence: Evidence, model: str, phase: str, device: str | None = None) -> list[Trace]:
    """Measured GPU power of a model's phase, on a device; NotTestable if there is none."""
    points = evidence.points
    alike = points.index[(points["model"] == model) & (points["phase"] == phase)]
    traces = [
        trace
        for trace in sampled(evidence)
        if device in (None, trace.row["device"])
        and trace.row["configuration"] in alike
        and (trace.row["device_kind"], trace.row["energy_origin"]) == ("gpu", "measured")
        and trace.powers.notna().any()
    ]
    if not traces:
        on = "" if device is None else f" on {device}"
        raise NotTestable(f"Figure 5 has no measured GPU power of {model}{on}.")
    return traces


def in_windows(trace: Trace) -> Any:
    """Powers in W grouped by windows of WINDOW_S that have any; NotTestable for too few."""
    powers = trace.powers.dropna()
    windows = powers.groupby(powers.index // WINDOW_S)
    if len(windows) < LEAST_WINDOWS:
        raise NotTestable(
            f"{len(windows)} windows of {WINDOW_S:g} s have power; {LEAST_WINDOWS} are needed."
        )
    return windows


def fifth_over_median(powers: npt.ArrayLike) -> float:
    """5 % percentile over the median; NotTestable for a median of 0."""
    fifth, median = np.percentile(np.asarray(powers, dtype=float), [5, 50])
    if not median:
        raise NotTestable("The median power is 0 W, or may be.")
    return float(fifth / median)


def percentile_of(trace: Trace) -> Numbers:
    """`fifth_over_median` of a trace's samples, with an interval by drawing its windows again.

    Whole windows of WINDOW_S are drawn with replacement, as many as there are (block bootstrap, Künsch 1989),
    DRAWS times by a fixed seed; the standard deviation of what they give is the error. Assumed: windows
    are independent, and like those of other times of this training; a percentile scatters normally. Falls
    that take longer than a window make it too narrow, and few windows somewhat: of 30 independent ones it
    held the truth in 90 to 94 % of 800 traces. Where all that is drawn gives the same percentile, but for
    rounding, it is exact: no interval. NotTestable for a median that is 0, or may be, and for too
    few samples or windows.
    """
    samples = trace.powers.dropna()
    if len(samples) < LEAST_SAMPLES:
        raise NotTestable(f"{len(samples)} samples of power; {LEAST_SAMPLES} are needed.")
    value = fifth_over_median(samples)
    blocks = [np.asarray(powers, dtype=float) for _, powers in in_windows(trace)]
    drawn = np.random.default_rng(SEED).integers(len(blocks), size=(DRAWS, len(blocks)))
    again = [fifth_over_median(np.concatenate([blocks[i] for i in draw])) for draw in drawn]
    is_exact = np.ptp(again) <= ROUNDING * abs(value)
    square = 0.0 if is_exact else float(np.var(again, ddof=1))
    number = estimate(value, Source(f"percentile of {_name(trace)}"), square, len(blocks) - 1)
    return replace(number, origins=MEASURED)


def fluctuation(trace: Trace, less: float = 0.0) -> Numbers:
    """Coefficient of variation of means over windows, as if these were independent.

    `less`: a part of the variance in W² that does not count. NotTestable for a mean of 0.
    """
    powers = in_windows(trace).mean().to_numpy()
    mean, whole = abs(float(np.mean(powers))), float(np.var(powers, ddof=1))
    if not mean:
        raise NotTestable("The mean power is 0 W.")
    kept = float(np.sqrt(max(whole - less, 0.0)))
    error = whole / (kept * mean * np.sqrt(2 * (len(powers) - 1))) if kept else 0.0
    source = Source(f"windows of {_name(trace)}")
    return replace(estimate(kept / mean, source, error**2, len(powers) - 1), origins=MEASURED)


@rule_in(TRACE_RULES)
def power_falls_back(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the 5 % percentile of samples on A100 is below `high` times the median."""

    def falls(trace: Trace) -> Outcome:
        label = "5 % percentile over median of the samples, instantaneous on A100,"
        return decide(Tests(label, percentile_of(trace), high=check.bounds[1]))

    traces = _measured(evidence, *check.series)
    return combine(attempt(_name(trace), falls, trace) for trace in traces)


def _pairs(
    firsts: Sequence[Trace], seconds: Sequence[Trace], is_pair: Callable[[Any, Any], bool]
) -> list[tuple[Trace, Trace]]:
    """Pairs of traces with the same GBS that fit by their rows; NotTestable without any."""
    pairs = [
        (a, b)
        for a, b in product(firsts, seconds)
        if a.row["global_batch_size"] == b.row["global_batch_size"] and is_pair(a.row, b.row)
    ]
    if not pairs:
        raise NotTestable("Figure 5 has no two such runs with the same GBS and measured GPU power.")
    return pairs


@rule_in(TRACE_RULES)
def power_narrower_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether power fluctuates less on H100 than on A100, and stays above `low` times the median.

    The fluctuation is compared with, and without what instants in place of means may make on A100.
    """

    def lower(h100: Trace, a100: Trace) -> Outcome:
        windows = in_windows(a100)
        instants = float((windows.var() / windows.size()).mean())
        if np.isnan(instants):
            raise NotTestable(f"Figure 5 has no two samples in any {WINDOW_S:g} s.")
        label = f"Coefficient of variation on a100 over h100, of means over {WINDOW_S:g} s on both,"
        whole, without = (
            decide(_higher(label, fluctuation(a100, less), fluctuation(h100)))
            for less in (0.0, instants)
        )
        if whole.verdict == UNDECIDED:
            return whole
        p = max(whole.p or 0.0, without.p or 0.0)
        whole = replace(whole, p=p, margin=None)
        if whole.verdict == without.verdict:
            return whole
        more = (
            f" Without what instants may make it is {without.verdict}: 10 samples a second on a100 "
            "would tell."
        )
        return replace(whole, verdict=UNDECIDED, detail=whole.detail + more)

    def stays_up(h100: Trace) -> Outcome:
        label = f"5 % percentile over median on {_name(h100)}"
        return decide(Tests(label, percentile_of(h100), check.bounds[0]))

    h100s, a100s = (_measured(evidence, check.model, check.phase, d) for d in ("h100", "a100"))
    pairs = _pairs(h100s, a100s, lambda h, a: bool(h["local_batch_size"] == a["local_batch_size"]))
    alone = {id(h100): h100 for h100, _ in pairs}.values()
    return all_of(
        [attempt(_name(h100), lower, h100, a100) for h100, a100 in pairs]
        + [attempt(_name(h100), stays_up, h100) for h100 in alone]
    )


def _higher(label: str, top: Numbers, bottom: Numbers) -> Tests:
    """Test that the ratio of two fluctuations is above 1."""
    if not bottom.values[0]:
        raise NotTestable("The power that is compared with does not fluctuate.")
    if not top.values[0]:
        return Tests(label, exact(0.0), 1.0, strict=True)
    return ratios(label, log_contrast(joined([top, bottom])), low=1.0, strict=True)


@rule_in(TRACE_RULES)
def power_narrower_with_lower_batch(evidence: Evidence, check: Check) -> Outcome:
    """Check whether of two pre-trainings with the same GBS power fluctuates less with the lower LBS."""

    def lower(small: Trace, large: Trace) -> Outcome:
        sizes = f"LBS {large.row['local_batch_size']} over LBS {small.row['local_batch_size']}"
        label = f"Coefficient of variation at {sizes}, means over {WINDOW_S:g} s,"
        return decide(_higher(label, fluctuation(large), fluctuation(small)))

    def is_pair(small: Any, large: Any) -> bool:
        is_smaller = small["local_batch_size"] < large["local_batch_size"]
        return bool(is_smaller and small["device"] == large["device"])

    traces = _measured(evidence, check.model, check.phase)
    pairs = _pairs(traces, traces, is_pair)
    return combine(attempt(small.row["device"], lower, small, large) for small, large in pairs)


@rule_in(TRACE_RULES)
def profiles(evidence: Evidence, check: Check) -> Outcome:
    """Check whether figure 5 has the first 300 s of two runs on each device."""
    if not evidence.traces:
        raise NotTestable("Figure 5 has no run.")
    counts = Counter(str(trace.row["device"]) for trace in evidence.traces)
    runs = ", ".join(f"{count} on {device}" for device, count in sorted(counts.items()))
    last = float(np.nanmax([trace.powers.index.max() for trace in evidence.traces]))
    if last < 0.9 * SHOWN_S:
        raise NotTestable(f"The runs of figure 5 trained for {last:.0f} s: {runs}.")
    sentence = (
        f"Figure 5 shows {last:.0f} s of runs: {runs}; claimed are 300 s of two on each device."
    )
    return exactly(last <= SHOWN_S and set(counts.values()) == {2}, f"{last:g}", sentence)


def _name(trace: Trace) -> str:
    row = trace.row
    return f"{row['device']}, GPUs {row['gpus']}, LBS {row['local_batch_size']}"
