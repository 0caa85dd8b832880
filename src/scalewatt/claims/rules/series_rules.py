"""Rules on the points of one series: each takes a row of the table of checks and the points it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import BY_CONSTRUCTION, NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, is_full_size
from scalewatt.claims.numbers.batch_sizes import knee, onset
from scalewatt.claims.numbers.decisions import (
    all_of,
    band,
    combine,
    decided,
    in_one,
    positive,
    sign,
)
from scalewatt.claims.numbers.points import (
    all_positive,
    doublings,
    samples_of,
    value,
    values,
    whole_nodes,
)
from scalewatt.claims.numbers.trends import (
    constant,
    elasticity,
    monotone,
    ranked,
    slope,
    slope_change,
    straight,
)
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    mean_of,
    quantity,
    refuse_estimates,
    shown,
    weighted,
)
from scalewatt.claims.rules.efficiency_rules import (
    SPLIT,
    after_quadrupling,
    falls_beyond,
    lowest_efficiency,
)
from scalewatt.claims.rules.paper_numbers import compared, share_of_cpu
from scalewatt.results.text.number_format import count

Points = Sequence[Point]
SeriesRule = Callable[[Check, Evidence, Line, Points], Outcome]
Labelled = tuple[str, Number]
"""A number, and what the detail calls it."""
Measure = Callable[[Check, Points], Labelled]
PAPER_GPUS_PER_NODE = 4
BENDS = (4, 3)
"""Of how many points at the beginning and at the end the slopes are compared (F04)."""


def _abscissa(check: Check, points: Points) -> list[Number]:
    if check.against == "n":
        return [Number(float(point.gpus)) for point in points]
    if check.against == "log2 n":
        return [Number(one) for one in doublings(points)]
    if check.against == "samples":
        return [Number(float(samples_of(point))) for point in points]
    return values(points, check.against)


def _places(check: Check, points: Points) -> list[float]:
    return [one.value for one in _abscissa(check, points)]


# --- one number of the points, compared with bounds, with 1 or with 0 ----------------------------


def _only(check: Check, points: Points) -> Labelled:
    """Return the quantity of the only point."""
    (point,) = points
    return check.label(n=point.gpus), value(point, check.quantity)


def _mean(check: Check, points: Points) -> Labelled:
    return check.label(count=len(points)), mean_of(values(points, check.quantity))


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


def _slope(check: Check, points: Points) -> Labelled:
    """Return the slope against `against`."""
    return check.text, slope(_places(check, points), values(points, check.quantity))


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


# --- a number of the paper -------------------------------------------------------------------------


def _is_the(measure: Measure) -> SeriesRule:
    """Return the rule that a number is the paper's, within the tolerance.

    The paper's own has an interval as well: that of as many runs as it is of. It is no test where the
    published number is compared with itself.
    """

    def rule(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
        label, own = measure(check, points)
        if evidence.published and check.stated_in:
            same = f"{label} is {shown(own.value)} {check.unit}".rstrip()
            return Outcome(
                BY_CONSTRUCTION, own.value, f"{same}: the claimed number is of the same runs."
            )
        return compared(check, evidence, label, own)

    return rule


def _each_is_the(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether every value is the paper's; told is the one that decides."""
    own = [(p.gpus, one) for p, one in zip(points, values(points, check.quantity), strict=True)]
    own.sort(key=lambda one: -abs(one[1].value - check.target.value))
    parts = [compared(check, evidence, f"{check.text} at n = {n}", one) for n, one in own]
    return in_one(("", one) for one in parts)


# --- what takes more than one number --------------------------------------------------------------


def _rank(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the points are ordered by `against`."""
    least = check.low if check.rises else -check.high
    own = values(points, check.quantity)
    return ranked(check.text, _places(check, points), own, check.rises, least)


def _monotone(rises: bool) -> SeriesRule:
    """Return the rule that each step rises, or falls."""
    return lambda check, evidence, line, points: monotone(
        check.text, all_positive(values(points, check.quantity)), rises, check.most
    )


def _proportional(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the exponent of the quantity as a power of `against` is within the bounds."""
    x = _against(check, points)
    if len({one.value for one in x}) == 1:
        raise NotTestable(f"{line.title}: all points have the same {check.against}.")
    own = elasticity(all_positive(x), all_positive(values(points, check.quantity)))
    return band(check.text, own, *check.bounds)


def _against(check: Check, points: Points) -> list[Number]:
    """Return `against` of the points; NotTestable for energies from rated powers against GPU hours."""
    if check.against == "gpu_hours":
        refuse_estimates(points)
    return _abscissa(check, points)


def _constant(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity neither drifts along n nor scatters, by more than the bound."""
    own = values(points, check.quantity)
    if not check.unit:
        all_positive(own)
    return constant(check.text, doublings(points), own, check.high, check.unit)


def straight_in(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is on a straight line of `against`."""
    own = values(points, check.quantity)
    gpus = [point.gpus for point in points]
    return straight(check.text, _against(check, points), own, check.high, gpus)


def _first_is_least(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of the smallest n is below that of every other; told is what decides."""
    first, *others = points
    ratios = [(p.gpus, _over(check, first, p)) for p in others]
    ratios.sort(key=lambda one: one[1].value if check.rises else -one[1].value)
    return in_one(
        ("", sign(check.label(first=first.gpus, best=n), ratio, check.rises)) for n, ratio in ratios
    )


def _slope_change(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises faster per doubling from SPLIT GPUs on than before."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus >= SPLIT]
    if len(few) < 2 or len(many) < 2:
        raise NotTestable(
            f"{line.title}: slopes need two points each up to and from {SPLIT} GPUs; "
            f"{max(0, 2 - len(few))} and {max(0, 2 - len(many))} more needed."
        )
    before, after = slice(len(few)), slice(len(points) - len(many), None)
    x, numbers = doublings(points), values(points, check.quantity)
    slow, rapid = (slope(x[side], numbers[side]) for side in (before, after))
    label = check.label(after=shown(rapid.value), before=shown(slow.value))
    return positive(label, slope_change(x, numbers, before, after), check.unit)


def _least_at_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is least where a run holds all GPUs of one node."""
    whole = whole_nodes(evidence, line)
    if whole == 1:
        raise NotTestable(
            f"{line.device}: a node has one GPU, so that none of its CPUs is in excess."
        )
    node = line.at(whole)
    if node is None:
        raise NotTestable(
            f"{line.title}: no finished run with {count(whole, 'GPU')}; 1 more needed."
        )
    lowest = quantity(node, check.quantity)
    if points[0] is node or points[-1] is node:
        raise NotTestable(f"{line.title}: a point below and one above {whole} GPUs are needed.")
    least = min(points, key=lambda point: quantity(point, check.quantity).value)
    gaps = [quantity(p, check.quantity) - lowest for p in points if p is not node]
    nearest = min([gap for gap in gaps if gap.high < 0] or gaps, key=lambda gap: gap.low)
    tells = positive("the nearest other energy less that there", nearest, check.unit)
    where = f"the least energy is at {count(least.gpus, 'GPU')}, expected at {whole}"
    found = all_of(("", positive("", gap, check.unit)) for gap in gaps)
    return replace(found, value=float(least.gpus), detail=f"{where}; {tells.detail}")


def _fall_to_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether one GPU's value over a whole node's is within the bounds, given for four GPUs."""
    _, node = points
    if node.gpus == 1:
        raise NotTestable(f"{line.device}: a node has one GPU.")
    refuse_estimates(points)
    ratio = _over(check, *points)
    if evidence.published and check.stated_in:
        same = f"{check.label(node=node.gpus)} is {shown(ratio.value)}: of the very numbers that are claimed."
        return Outcome(BY_CONSTRUCTION, ratio.value, same)
    low, high = (bound / PAPER_GPUS_PER_NODE * node.gpus for bound in (check.low, check.high))
    return band(check.label(node=node.gpus), ratio, low, high)


def _stagnates(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the error falls in the first three doublings, in the last two by less than half that."""
    x, numbers = _doublings_of_samples(points), values(points, "metric_last")
    start, end = slice(BENDS[0]), slice(-BENDS[1], None)
    first, last = (slope(x[side], numbers[side]) for side in (start, end))
    what = (
        f"slope in the last two doublings ({shown(last.value)} pp) less {check.most:g} of the first"
    )
    less = slope_change(x, numbers, start, end, check.most)
    return all_of(
        [
            (
                "start",
                positive("fall of top-1 error in the first three doublings", -first, check.unit),
            ),
            ("end", positive(what, less, check.unit)),
        ]
    )


def error_slope(points: Points) -> Number:
    """Return the slope of the error per doubling of the dataset."""
    return slope(_doublings_of_samples(points), values(points, "metric_last"))


def _doublings_of_samples(points: Points) -> list[float]:
    return [math.log2(samples_of(point)) for point in points]


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
    margin, is_relative = check.room
    if is_relative:
        base = own[0]
        margin = max(margin * base.value, 0.0 if base.assumed else 2 * base.spread)
    sizes = [point.gbs for point in points]
    return onset(check.text, sizes, own, margin, int(check.low), int(check.high), check.unit)


def _knee(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises with log2 GBS, and faster from a knee within the bounds."""
    sizes = [point.gbs for point in points]
    return knee(sizes, values(points, check.quantity), check.low, check.high)


SERIES_RULES: dict[str, SeriesRule] = {
    "constant": _constant,
    "convex": _convex,
    "each": _each_is_the,
    "efficiency_after_quadrupling": after_quadrupling,
    "efficiency_falls_beyond": falls_beyond,
    "fall_to_node": _fall_to_node,
    "falls": _monotone(rises=False),
    "first_is_least": _first_is_least,
    "knee": _knee,
    "least_at_node": _least_at_node,
    "lowest_efficiency": lowest_efficiency,
    "mean": _is_the(_mean),
    "onset": _onset,
    "proportional": _proportional,
    "rank": _rank,
    "ratio": _within(_ratio),
    "rises": _monotone(rises=True),
    "share_of_cpu": share_of_cpu,
    "sign": _beside_one(_ratio),
    "slope_changes": _slope_change,
    "slope": _above_zero(_slope),
    "stagnates": _stagnates,
    "straight": straight_in,
    "updates_per_epoch": _updates,
    "value": _is_the(_only),
}
"""The rules by the name that the table calls them."""
