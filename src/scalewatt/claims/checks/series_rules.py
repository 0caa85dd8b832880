"""Rules on the points of one series: each takes a row of the table of checks and the points it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import log

import pandas as pd

from scalewatt.claims.checks.check_table import Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome, Unresolved
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, is_full_size
from scalewatt.claims.rules.knees import knee
from scalewatt.claims.rules.points import (
    doublings,
    efficiency,
    logarithms,
    samples_of,
    value,
    values,
    whole_nodes,
)
from scalewatt.claims.rules.tolerance import (
    all_of,
    band,
    combine,
    constant,
    decided,
    linear,
    monotone,
    onset,
    positive,
    ranked,
    sign,
    slope,
    span,
    steady,
)
from scalewatt.claims.rules.uncertain_number import (
    Number,
    basis,
    mean_of,
    minus,
    over,
    quantity,
    refuse_estimates,
    shown,
)

Points = Sequence[Point]
SeriesRule = Callable[[Check, Evidence, Line, Points], Outcome]
SPLIT = 32
"""GPUs up to which the paper calls a speed-up near-optimal, and a rise of energy slow (D03, D04, D06)."""
PAPER_GPUS_PER_NODE = 4
BENDS = (4, 3)
"""Of how many points at the beginning and at the end the slopes are compared (F04)."""


def _abscissa(check: Check, points: Points) -> list[float]:
    if check.against == "n":
        return [float(point.gpus) for point in points]
    if check.against == "log2 n":
        return doublings(points)
    if check.against == "samples":
        return [float(samples_of(point)) for point in points]
    return [one.value for one in values(points, check.against)]


def _value(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of the only point is within the bounds."""
    (point,) = points
    own = value(point, check.quantity)
    return band(check.label(n=point.gpus), own, *check.bounds, check.unit)


def _mean(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the mean of all points is within the bounds."""
    mean = mean_of(values(points, check.quantity))
    return band(check.label(count=len(points)), mean, *check.bounds, check.unit)


def _furthest(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the value that is furthest from the middle of the bounds is within them."""
    middle = (check.low + check.high) / 2
    worst = max(values(points, check.quantity), key=lambda one: abs(one.value - middle))
    return band(check.text, worst, *check.bounds, check.unit)


def _pair(check: Check, points: Points) -> tuple[str, Number]:
    """Return the label and the ratio of two points, by default the last over the first."""
    top, bottom = points[-1], points[0]
    if check.n == "first/last":
        top, bottom = bottom, top
    elif "/" in check.n and check.n != "last/first":
        top, bottom = points
    label = check.label(first=points[0].gpus, last=points[-1].gpus)
    return label, _over(check, top, bottom)


def _over(check: Check, top: Point, bottom: Point) -> Number:
    """Return the quantity of one point over that of another."""
    one, other = values([top, bottom], check.quantity)
    return over(one, other)


def _ratio(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the ratio of two points is within the bounds."""
    label, ratio = _pair(check, points)
    return band(label, ratio, *check.bounds)


def _ratio_sign(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the ratio of two points is above or below 1."""
    return sign(*_pair(check, points), check.rises)


def _rank(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the points are ordered by `against`."""
    least = check.low if check.rises else -check.high
    own = values(points, check.quantity)
    return ranked(check.text, _abscissa(check, points), own, check.rises, least)


def _rises(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    return monotone(check.text, values(points, check.quantity), rises=True)


def _falls(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    return monotone(check.text, values(points, check.quantity), rises=False)


def _span(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the largest value less the smallest is within the bound."""
    return span(check.text, values(points, check.quantity), check.high, check.unit)


def _steady(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the coefficient of variation is within the bound."""
    return steady(check.text, values(points, check.quantity), check.high)


def _constant(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the largest value over the smallest is within the bound."""
    return constant(check.text, values(points, check.quantity), check.high)


def _relative_span(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the range of the values over their mean is within the bound."""
    own = sorted(values(points, check.quantity), key=lambda one: one.value)
    return band(check.text, over(minus(own[-1], own[0]), mean_of(own)), *check.bounds)


def linear_in(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is a line of `against` with an R² of at least `low`.

    Raises NotTestable for energies from rated powers against GPU hours.
    """
    if check.against == "gpu_hours":
        refuse_estimates(points)
    own = values(points, check.quantity)
    return linear(check.text, _abscissa(check, points), own, check.low)


def _slope(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope against `against` is above 0."""
    own = slope(_abscissa(check, points), values(points, check.quantity))
    return positive(check.text, own, check.unit)


def _elasticity(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope of the logarithm against that of the samples is within the bounds."""
    x = [log(samples_of(point)) for point in points]
    if max(x) == min(x):
        raise NotTestable(f"{line.title}: all points have the same dataset.")
    return band(check.text, slope(x, logarithms(values(points, check.quantity))), *check.bounds)


def _lowest_efficiency(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the efficiency up to SPLIT GPUs is at least `low`."""
    points = [point for point in points if point.gpus <= SPLIT]
    if len(points) < check.least:
        raise Unresolved(f"{len(points)} of {check.least} points up to {SPLIT} GPUs.")
    worst = min(points[1:], key=lambda point: efficiency(points[0], point).value)
    label = check.label(first=points[0].gpus, last=points[-1].gpus, n=worst.gpus)
    return band(label, efficiency(points[0], worst), *check.bounds)


def _efficiency_beyond(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the efficiency falls beyond SPLIT GPUs, and is within the bounds at the last point."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus > SPLIT]
    if not many or len(few) < 2:
        raise Unresolved(
            f"{line.title}: two points up to {SPLIT} GPUs and one beyond are compared; there are n = "
            f"{', '.join(str(p.gpus) for p in points)}; {max(0, 2 - len(few)) + (not many)} more needed."
        )
    last = many[-1]
    falls = over(quantity(last, "gpu_hours"), quantity(few[-1], "gpu_hours"))
    what = f"efficiency at n = {last.gpus}"
    beside = f"efficiency at n = {few[-1].gpus} over n = {last.gpus}"
    return all_of(
        [
            ("bound", band(what, efficiency(few[0], last), *check.bounds)),
            ("fall", sign(beside, falls, True)),
        ]
    )


def _slope_change(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises faster per doubling from SPLIT GPUs on than before."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus >= SPLIT]
    if len(few) < 2 or len(many) < 2:
        raise Unresolved(
            f"{line.title}: slopes need two points each up to and from {SPLIT} GPUs; "
            f"{max(0, 2 - len(few))} and {max(0, 2 - len(many))} more needed."
        )
    slow, rapid = (slope(doublings(side), values(side, check.quantity)) for side in (few, many))
    return positive(
        check.label(after=shown(rapid.value), before=shown(slow.value)),
        minus(rapid, slow),
        check.unit,
    )


def _least_at_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is least where a run holds all GPUs of one node."""
    whole = whole_nodes(evidence, line)
    if whole == 1:
        raise NotTestable(
            f"{line.device}: a node has one GPU, so that none of its CPUs is in excess."
        )
    node = line.at(whole)
    if node is None:
        raise Unresolved(f"{line.title}: no finished run with {whole} GPUs; 1 more needed.")
    lowest = quantity(node, check.quantity)
    if points[0] is node or points[-1] is node:
        raise Unresolved(f"{line.title}: a point below and one above {whole} GPUs are needed.")
    least = min(points, key=lambda point: quantity(point, check.quantity).value)
    gaps = [minus(quantity(p, check.quantity), lowest) for p in points if p is not node]
    nearest = min([gap for gap in gaps if gap.high < 0] or gaps, key=lambda gap: gap.low)
    found = positive("the nearest other energy less that there", nearest, check.unit)
    where = f"the least energy is at {least.gpus} GPUs, expected at {whole}"
    return Outcome(found.verdict, float(least.gpus), f"{where}; {found.detail}")


def _fall_to_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether one GPU's value over a whole node's is within the bounds, given for four GPUs."""
    _, node = points
    if node.gpus == 1:
        raise NotTestable(f"{line.device}: a node has one GPU.")
    refuse_estimates(points)
    ratio = _over(check, *points)
    low, high = (bound / PAPER_GPUS_PER_NODE * node.gpus for bound in (check.low, check.high))
    return band(check.label(node=node.gpus), ratio, low, high)


def _stagnates(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the error falls in the first three doublings, in the last two by less than half that."""
    first, last = error_slope(points[: BENDS[0]]), error_slope(points[-BENDS[1] :])
    half = Number(0.5 * first.value, 0.5 * first.half, 0.5 * first.spread, first.assumed)
    start = Number(-first.value, first.half, first.spread, first.assumed)
    end = f"slope in the last two doublings ({shown(last.value)} pp) less half the first"
    return all_of(
        [
            (
                "start",
                positive("fall of top-1 error in the first three doublings", start, check.unit),
            ),
            ("end", positive(end, minus(last, half), check.unit)),
        ]
    )


def error_slope(points: Points) -> Number:
    """Return the slope of the error per doubling of the dataset."""
    return slope([math.log2(samples_of(p)) for p in points], values(points, "metric_last"))


def _updates(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the updates per GPU and epoch are the paper's, with a smaller dataset all the same."""
    runs = evidence.runs[["configuration", "updates", "epochs"]].dropna()
    updates = [_updates_per_epoch(runs, point) for point in points]
    wanted = check.value if all(map(is_full_size, points)) else updates[0]
    return decided(
        set(updates) == {wanted},
        max(updates, key=lambda one: abs(one - wanted)),
        f"updates per GPU and epoch are {', '.join(f'{u:g}' for u in updates)} at n = "
        f"{', '.join(str(p.gpus) for p in points)}; expected {wanted:g} everywhere.",
    )


def _updates_per_epoch(runs: pd.DataFrame, point: Point) -> float:
    """Return what the runs counted; for published points, what their batches and samples give."""
    for _, updates, epochs in runs[runs["configuration"] == point.id].itertuples(index=False):
        if updates and epochs:
            return float(updates / epochs)
    return float(-(-(samples_of(point) // point.gpus) // point.lbs))


def _quadrupled(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the efficiency is within the bounds from the smallest n that has a point at 4·n."""
    for first in points:
        fourth = next((p for p in points if p.gpus == 4 * first.gpus), None)
        if fourth is not None:
            what = f"Efficiency from {first.gpus} to {fourth.gpus} GPUs"
            return band(what, efficiency(first, fourth), *check.bounds)
    raise NotTestable("No two points at n and 4·n have a known run time.")


def _convex(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether every step per doubling of n takes more than the one before."""
    triples = zip(points, points[1:], points[2:], strict=False)
    return combine(
        [
            (
                f"n = {a.gpus}, {b.gpus}, {c.gpus}",
                positive(check.text, _step_growth(check, (a, b, c)), check.unit),
            )
            for a, b, c in triples
        ]
    )


def _step_growth(check: Check, points: Points) -> Number:
    """Return how much more per doubling the second step takes than the first."""
    one, two, three = own = values(points, check.quantity)
    a, b = (math.log2(points[i + 1].gpus / points[i].gpus) for i in (0, 1))
    weights = (1 / a, 1 / a + 1 / b, 1 / b)
    half, spread = (
        math.hypot(*(w * getattr(n, part) for w, n in zip(weights, own, strict=True)))
        for part in ("half", "spread")
    )
    growth = (three.value - two.value) / b - (two.value - one.value) / a
    return Number(growth, half, spread, basis(*own))


def _first_least(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the smallest n has less of the quantity than every other."""
    first, *others = points
    best = min(others, key=lambda point: point.mean(check.quantity) or 0.0)
    ratio = _over(check, first, best)
    return sign(check.label(first=first.gpus, best=best.gpus), ratio, rises=False)


def _onset(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity leaves that of the smallest GBS above `low`, up to `high`.

    By more than `margin`; a relative one is at least two standard deviations of the smallest GBS's.
    """
    own = values(points, check.quantity)
    if check.margin.endswith("%"):
        base = own[0]
        relative = float(check.margin.removesuffix("%")) / 100 * base.value
        margin = max(relative, 0.0 if base.assumed else 2 * base.spread)
    else:
        margin = float(check.margin)
    sizes = [point.gbs for point in points]
    return onset(check.text, sizes, own, margin, int(check.low), int(check.high), check.unit)


def _knee(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises with log2 GBS, and faster from a knee within the bounds."""
    sizes = [point.gbs for point in points]
    return knee(sizes, values(points, check.quantity), check.low, check.high)


SERIES_RULES: dict[str, SeriesRule] = {
    "constant": _constant,
    "convex": _convex,
    "efficiency_after_quadrupling": _quadrupled,
    "efficiency_falls_beyond": _efficiency_beyond,
    "elasticity": _elasticity,
    "fall_to_node": _fall_to_node,
    "falls": _falls,
    "first_is_least": _first_least,
    "furthest": _furthest,
    "knee": _knee,
    "least_at_node": _least_at_node,
    "linear": linear_in,
    "lowest_efficiency": _lowest_efficiency,
    "mean": _mean,
    "onset": _onset,
    "rank": _rank,
    "ratio": _ratio,
    "relative_span": _relative_span,
    "rises": _rises,
    "sign": _ratio_sign,
    "slope_changes": _slope_change,
    "slope": _slope,
    "span": _span,
    "stagnates": _stagnates,
    "steady": _steady,
    "updates_per_epoch": _updates,
    "value": _value,
}
"""The rules by the name that the table calls them."""
