"""Rules that compare two series of a device: batch regimes, and fine-tuning with pre-training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.numbers.decisions import (
    all_of,
    attempt,
    band,
    combine,
    enough,
    in_one,
    positive,
    sign,
)
from scalewatt.claims.numbers.points import MODEL, known, like, samples_of, values
from scalewatt.claims.numbers.trends import slope, with_errors_of
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    mean_of,
    quantity,
    refuse_estimates,
    shown,
    text,
)
from scalewatt.claims.rules.series_rules import error_slope

# --- batch regimes ------------------------------------------------------------------------------


def _regimes(evidence: Evidence, check: Check, compare: Callable[[Line, Line], Outcome]) -> Outcome:
    """Compare the series of two modes of one device: its own where that has both, else every other's."""
    model, phase, own = check.series

    def has(device: str) -> bool:
        return all(evidence.find(model, phase, device, mode) for mode in check.modes)

    def on(device: str) -> Outcome:
        small, large = (evidence.line(model, phase, device, mode) for mode in check.modes)
        return compare(small, large)

    others = sorted({line.device for line in evidence.find(model, phase)} - {own})
    devices = [own] if has(own) else [device for device in others if has(device)]
    return combine(attempt(device, on, device) for device in devices or [own])


def _large_is_worse(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean of the second regime is above that of the first, by at most `high`."""

    def compare(small: Line, large: Line) -> Outcome:
        means = [
            mean_of(values(known(ln, check.quantity), check.quantity)) for ln in (large, small)
        ]
        what = f"mean top-1 error of {large.title} less that of {small.title}"
        more = means[0] - means[1]
        within = band(what, more, *check.bounds, check.unit)
        return all_of([("sign", positive(what, more, check.unit)), ("bound", within)])

    return _regimes(evidence, check, compare)


def _large_is_shorter(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every time of the second regime is below every one of the first.

    Told are the pair that decides, and that of the longest and the shortest.
    """

    def times(line: Line) -> list[Point]:
        points = known(line, check.quantity, least=check.least)
        return sorted(points, key=lambda p: p.mean(check.quantity) or 0.0)

    def compare(small: Line, large: Line) -> Outcome:
        pairs = [(one, other) for one in reversed(times(large)) for other in times(small)]
        ratios = [
            quantity(one, check.quantity) / quantity(other, check.quantity) for one, other in pairs
        ]
        parts = []
        for (one, other), ratio in zip(pairs, ratios, strict=True):
            what = f"time of {large.title} at n = {one.gpus} over that of {small.title} at n = {other.gpus}"
            parts.append(("", sign(what, ratio, check.rises)))
        found = in_one(parts)
        longest = f" The longest over the shortest is {text(ratios[0])}, of {len(pairs)} pairs."
        return replace(found, detail=found.detail + longest)

    return _regimes(evidence, check, compare)


def _steeper_with_data(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the second regime is worse at the smallest common dataset, and improves faster."""
    return _regimes(evidence, check, partial(_at_equal_data, check.most))


def _at_equal_data(same: float, small: Line, large: Line) -> Outcome:
    """Compare at datasets that differ by at most `same`, a part."""
    pairs = [
        (one, other)
        for one in known(small, "metric_last", least=1)
        for other in known(large, "metric_last", least=1)
        if abs(samples_of(one) / samples_of(other) - 1) <= same
    ]
    if len(pairs) < 2:
        raise NotTestable(
            f"{len(pairs)} dataset sizes that both regimes trained on; {2 - len(pairs)} more needed."
        )
    one, other = pairs[0]
    worse = quantity(other, "metric_last") / quantity(one, "metric_last")
    slopes = [error_slope([pair[side] for pair in pairs]) for side in (0, 1)]
    falls = [-one for one in slopes]
    steeper = (
        f"fall per doubling in the large regime ({shown(falls[1].value)} pp) less that in "
        f"the small ({shown(falls[0].value)})"
    )
    return all_of(
        [
            (
                f"at {samples_of(one)} samples",
                sign("top-1 error of the large regime over the small", worse, True),
            ),
            (f"over {len(pairs)} common sizes", positive(steeper, falls[1] - falls[0], "pp")),
        ]
    )


# --- phases -------------------------------------------------------------------------------------


def _phases(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Return fine-tuning and pre-training with constant LBS on each device that has both.

    NotTestable if none has.
    """
    found = [
        (fine, evidence.line(MODEL, "pretrain", fine.device, "fd_lbs"))
        for fine in evidence.series(MODEL, "finetune", mode="fd_lbs", least=1)
        if evidence.find(MODEL, "pretrain", fine.device, "fd_lbs")
    ]
    if not found:
        raise NotTestable("No device has finished runs of both pre-training and fine-tuning.")
    return found


def _fine_over_pre(evidence: Evidence, check: Check, by_epoch: bool = False) -> Outcome:
    """Check whether fine-tuning, or an epoch of it, takes more than pre-training at every n of both."""
    name = check.quantity

    def compare(point: Point, before: Point) -> Outcome:
        if not by_epoch:
            like([point, before])
        epochs = (before.epochs or 1) / (point.epochs or 1) if by_epoch else 1.0
        ratio = quantity(point, name) / quantity(before, name) * epochs
        return sign(check.text, ratio, check.rises)

    parts = []
    for fine, pre in _phases(evidence):
        for point in fine.having(name):
            before = pre.at(point.gpus)
            if before is not None and before.mean(name) is not None:
                parts.append(attempt(f"{point.device}, n = {point.gpus}", compare, point, before))
    if not parts:
        raise NotTestable(
            f"{check.text}: no n has finished runs of both phases with a known {name}."
        )
    return combine(parts)


def _same_slope(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the slopes of energy against GPU hours of both phases have a ratio within the bounds."""

    def compare(fine: Line, pre: Line) -> Outcome:
        both = [known_energies(line.points) for line in (pre, fine)]
        every = [point for points in both for point in points]
        refuse_estimates(every)
        like(every)
        ratio = energy_slope(pre.title, both[0]) / energy_slope(fine.title, both[1])
        return band(check.text, ratio, *check.bounds)

    return combine(attempt(fine.device, compare, fine, pre) for fine, pre in _phases(evidence))


def known_energies(points: Sequence[Point]) -> Sequence[Point]:
    """Return the points that know their energy and GPU hours."""
    return [p for p in points if p.mean("energy_kwh") is not None and p.mean("gpu_hours")]


def energy_slope(
    name: str, points: Sequence[Point], energies: Mapping[str, Number] | None = None
) -> Number:
    """Return the slope of the total energy, or of these of the points' ids, against GPU hours.

    The errors of the GPU hours count too, as if independent of the energies'.
    """
    enough(points, f"{name}, energy against GPU hours")
    hours = values(points, "gpu_hours")
    kwh = [energies[p.id] for p in points] if energies else values(points, "energy_kwh")
    x = [one.value for one in hours]
    return slope(x, with_errors_of(kwh, hours, slope(x, kwh).value))


REGIME_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "epoch_of_finetuning_over_pretraining": partial(_fine_over_pre, by_epoch=True),
    "finetuning_over_pretraining": _fine_over_pre,
    "large_regime_is_shorter": _large_is_shorter,
    "large_regime_is_worse": _large_is_worse,
    "large_regime_steeper_with_data": _steeper_with_data,
    "same_slope_in_both_phases": _same_slope,
}
"""The rules by the name that the table calls them."""
