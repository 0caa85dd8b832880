"""Rules on the points of one series: each takes a row of the table of checks and the points it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log

import pandas as pd

from scalewatt.claims.evidence.claim_types import Check, NotTestable, Outcome, Unresolved
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, is_full_size
from scalewatt.claims.numbers.points import (
    doublings,
    efficiency,
    logarithms,
    samples_of,
    value,
    values,
    whole_nodes,
)
from scalewatt.claims.numbers.tolerance import (
    all_of,
    band,
    combine,
    decided,
    knee,
    linear,
    monotone,
    onset,
    positive,
    ranked,
    sign,
    slope,
    steady,
)
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    mean_of,
    quantity,
    refuse_estimates,
    shown,
    weighted,
)

Points = Sequence[Point]
SeriesRule = Callable[[Check, Evidence, Line, Points], Outcome]
Labelled = tuple[str, Number]
"""A number, and what the detail calls it."""
Measure = Callable[[Check, Points], Labelled]
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


# --- one number of the points, compared with bounds, with 1 or with 0 ----------------------------


def _only(check: Check, points: Points) -> Labelled:
    """Return the quantity of the only point."""
    (point,) = points
    return check.label(n=point.gpus), value(point, check.quantity)


def _mean(check: Check, points: Points) -> Labelled:
    return check.label(count=len(points)), mean_of(values(points, check.quantity))


def _furthest(check: Check, points: Points) -> Labelled:
    """Return the value that is furthest from the middle of the bounds."""
    middle = (check.low + check.high) / 2
    own = values(points, check.quantity)
    return check.text, max(own, key=lambda one: abs(one.value - middle))


def _ratio(check: Check, points: Points) -> Labelled:
    """Return the ratio of two points, by default the last over the first."""
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
    return one / other


def _first_over_least(check: Check, points: Points) -> Labelled:
    """Return the quantity of the smallest n over the least of all others."""
    first, *others = points
    best = min(others, key=lambda point: point.mean(check.quantity) or 0.0)
    return check.label(first=first.gpus, best=best.gpus), _over(check, first, best)


def _ends(check: Check, points: Points) -> tuple[Number, Number]:
    """Return the largest and the smallest value."""
    own = values(points, check.quantity)
    return max(own, key=lambda one: one.value), min(own, key=lambda one: one.value)


def _span(check: Check, points: Points) -> Labelled:
    largest, smallest = _ends(check, points)
    return f"largest less smallest {check.text}", largest - smallest


def _constant(check: Check, points: Points) -> Labelled:
    largest, smallest = _ends(check, points)
    return f"largest over smallest {check.text}", largest / smallest


def _relative_span(check: Check, points: Points) -> Labelled:
    """Return the range of the values over their mean."""
    largest, smallest = _ends(check, points)
    return check.text, (largest - smallest) / mean_of(values(points, check.quantity))


def _slope(check: Check, points: Points) -> Labelled:
    """Return the slope against `against`."""
    return check.text, slope(_abscissa(check, points), values(points, check.quantity))


def _lowest_efficiency(check: Check, points: Points) -> Labelled:
    """Return the lowest efficiency up to SPLIT GPUs."""
    points = [point for point in points if point.gpus <= SPLIT]
    if len(points) < check.least:
        raise Unresolved(f"{len(points)} of {check.least} points up to {SPLIT} GPUs.")
    worst = min(points[1:], key=lambda point: efficiency(points[0], point).value)
    label = check.label(first=points[0].gpus, last=points[-1].gpus, n=worst.gpus)
    return label, efficiency(points[0], worst)


def _quadrupled(check: Check, points: Points) -> Labelled:
    """Return the efficiency from the smallest n that has a point at 4·n."""
    for first in points:
        fourth = next((p for p in points if p.gpus == 4 * first.gpus), None)
        if fourth is not None:
            what = f"Efficiency from {first.gpus} to {fourth.gpus} GPUs"
            return what, efficiency(first, fourth)
    raise NotTestable("No two points at n and 4·n have a known run time.")


def _within(measure: Measure) -> SeriesRule:
    """Return the rule that a number is within the bounds."""
    return lambda check, evidence, line, points: band(
        *measure(check, points), *check.bounds, check.unit
    )


def _beside_one(measure: Measure) -> SeriesRule:
    """Return the rule that a number is above or below 1, as the bounds say."""
    return lambda check, evidence, line, points: sign(*measure(check, points), check.rises)


def _above_zero(measure: Measure) -> SeriesRule:
    """Return the rule that a number is above 0."""
    return lambda check, evidence, line, points: positive(*measure(check, points), check.unit)


# --- what takes more than one number --------------------------------------------------------------


def _rank(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the points are ordered by `against`."""
    least = check.low if check.rises else -check.high
    own = values(points, check.quantity)
    return ranked(check.text, _abscissa(check, points), own, check.rises, least)


def _monotone(rises: bool) -> SeriesRule:
    """Return the rule that each step rises, or falls."""
    return lambda check, evidence, line, points: monotone(
        check.text, values(points, check.quantity), rises
    )


def _elasticity(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope of the logarithm against that of the samples is within the bounds."""
    x = [log(samples_of(point)) for point in points]
    if max(x) == min(x):
        raise NotTestable(f"{line.title}: all points have the same dataset.")
    return band(check.text, slope(x, logarithms(values(points, check.quantity))), *check.bounds)


def _steady(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the coefficient of variation is within the bound."""
    return steady(check.text, values(points, check.quantity), check.high)


def linear_in(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is a line of `against` with an R² of at least `low`.

    Raises NotTestable for energies from rated powers against GPU hours.
    """
    if check.against == "gpu_hours":
        refuse_estimates(points)
    own = values(points, check.quantity)
    return linear(check.text, _abscissa(check, points), own, check.low)


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
    falls = quantity(last, "gpu_hours") / quantity(few[-1], "gpu_hours")
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
        check.label(after=shown(rapid.value), before=shown(slow.value)), rapid - slow, check.unit
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
    gaps = [quantity(p, check.quantity) - lowest for p in points if p is not node]
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
    end = f"slope in the last two doublings ({shown(last.value)} pp) less half the first"
    return all_of(
        [
            (
                "start",
                positive("fall of top-1 error in the first three doublings", -first, check.unit),
            ),
            ("end", positive(end, last - first * 0.5, check.unit)),
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


def _convex(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether every step per doubling of n takes more than the one before."""

    def growth(*three: Point) -> Number:
        """Return how much more per doubling the second step takes than the first."""
        a, b = (math.log2(after.gpus / before.gpus) for before, after in pairwise(three))
        return weighted((1 / a, -1 / a - 1 / b, 1 / b), values(three, check.quantity))

    triples = zip(points, points[1:], points[2:], strict=False)
    return combine(
        (
            f"n = {a.gpus}, {b.gpus}, {c.gpus}",
            positive(check.text, growth(a, b, c), check.unit),
        )
        for a, b, c in triples
    )


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
    "constant": _within(_constant),
    "convex": _convex,
    "efficiency_after_quadrupling": _within(_quadrupled),
    "efficiency_falls_beyond": _efficiency_beyond,
    "elasticity": _elasticity,
    "fall_to_node": _fall_to_node,
    "falls": _monotone(rises=False),
    "first_is_least": _beside_one(_first_over_least),
    "furthest": _within(_furthest),
    "knee": _knee,
    "least_at_node": _least_at_node,
    "linear": linear_in,
    "lowest_efficiency": _within(_lowest_efficiency),
    "mean": _within(_mean),
    "onset": _onset,
    "rank": _rank,
    "ratio": _within(_ratio),
    "relative_span": _within(_relative_span),
    "rises": _monotone(rises=True),
    "sign": _beside_one(_ratio),
    "slope_changes": _slope_change,
    "slope": _above_zero(_slope),
    "span": _within(_span),
    "stagnates": _stagnates,
    "steady": _steady,
    "updates_per_epoch": _updates,
    "value": _within(_only),
}
"""The rules by the name that the table calls them."""
