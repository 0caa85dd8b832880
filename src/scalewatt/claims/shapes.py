"""Rules on the points of a series: each takes a row of the table of checks and the points it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice, pairwise, takewhile
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from scalewatt.claims.evidence import Evidence, Line, Point
from scalewatt.claims.outcomes import (
    CHANGE,
    PART,
    PLAIN,
    RATIO,
    Outcome,
    Tests,
    above,
    against,
    all_of,
    beside_one,
    decide,
    exactly,
    rule_in,
    shown,
    shown_in_order,
    tests,
)
from scalewatt.claims.quantities import (
    doublings,
    log_contrast,
    log_ratio,
    logarithms,
    mean_of,
    mean_of_runs,
    positive,
    published_source,
    quantities,
    quantity,
    refuse_estimates,
    samples_of,
    values,
)
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    SPLIT,
    SUPPORTED,
    UNDECIDED,
    Check,
    NotTestable,
    tolerance_of,
)
from scalewatt.results.tables.published_spread import Spread, published_spread
from scalewatt.statistics import (
    LEVEL,
    Floats,
    Numbers,
    Source,
    estimate,
    exact,
    joined,
    least_squares,
    quotient,
    slope_weights,
)

Points = Sequence[Point]
SeriesRule = Callable[[Check, Evidence, Line, Points], Outcome]
SERIES_RULES: dict[str, SeriesRule] = {}
"""The rules by the name that the table calls them."""
PAPER_GPUS_PER_NODE = 4
BENDS = (4, 3)
"""Points at the beginning and at the end whose slopes are compared (F04)."""
PUBLISHED_RUNS = {"resnet50": 5, "fourcastnet": 1}
"""Runs that a number of the paper is of, but for the probe's PROBE_RUNS."""
PROBE_RUNS = 3
ROUNDING = 1e-12
"""Relative distance by which lines through exact points may miss them."""


def abscissa(check: Check, points: Points) -> Numbers:
    """What the quantity is held against; NotTestable for rated powers against GPU hours."""
    if check.against == "n":
        return exact([float(point.gpus) for point in points])
    if check.against == "log2 n":
        return exact(doublings(points))
    if check.against == "samples":
        return exact([float(samples_of(point)) for point in points])
    if check.against == "gpu_hours":
        refuse_estimates(points)
    return values(points, check.against)


def slope_along(x: Floats, numbers: Numbers) -> Numbers:
    """Slope of the line through independent numbers; NotTestable where x does not differ."""
    return numbers.contrast(_slope_weights(x))


def slope_with_errors_of(x: Numbers, numbers: Numbers) -> Numbers:
    """Slope with the errors of x too, as if independent of the numbers'."""
    steepness = float(slope_along(x.values, numbers).values[0])
    return slope_along(x.values, numbers.with_errors_of(x, steepness))


def slope_change(x: Floats, numbers: Numbers, first: slice, last: slice, times: float) -> Numbers:
    """Slope of the last numbers less `times` that of the first, which may share some of them."""
    weights = np.zeros(len(x))
    weights[last] += _slope_weights(x[last])
    weights[first] -= times * _slope_weights(x[first])
    return numbers.contrast(weights)


def _slope_weights(x: Floats) -> Floats:
    if len(x) < 2 or np.ptp(x) == 0:
        raise NotTestable("A line needs two points that differ in x.")
    return slope_weights(x)


def steps_of(count: int) -> Floats:
    """Weights of the steps from each of `count` numbers to the next."""
    return np.eye(count)[1:] - np.eye(count)[:-1]


# --- a number of the paper ------------------------------------------------------------------------


def compared(check: Check, evidence: Evidence, label: str, number: Numbers) -> Tests:
    """Test of a number against the claimed one, by their ratio or difference.

    The paper's number has the interval of as many runs as it is of. Published points are of the same runs as
    the number in the text: there its spread does not count again.
    """
    target, room, is_relative = check.target
    paper = exact(target)
    spread = None if evidence.published else published_spread(check.model, check.quantity)
    if spread is not None:
        runs = PROBE_RUNS if check.scope == "probe" else PUBLISHED_RUNS[check.model]
        square = (spread.relative * target) ** 2 / runs
        source = published_source(check.model)
        paper = estimate(target, source, square, spread.freedom, 0.0, square)
    both, value = joined([number, paper]), float(number.values[0])
    label = f"{label}, {shown(value)} {check.unit}".rstrip()
    stated = f"{shown(target)} {check.unit}".rstrip()
    if is_relative and value > 0:
        label = f"{label}, over the paper's {stated}"
        return tests(label, log_contrast(both), 1 - room, 1 + room, RATIO, stated=[value])
    room = room * target if is_relative else room
    label = f"{label}, less the paper's {stated},"
    return tests(label, both.contrast([1, -1]), -room, room, unit=check.unit, stated=[value])


def of_the_same_runs(label: str, number: float, unit: str, origins: frozenset[str]) -> Outcome:
    """No test: the published number is compared with itself."""
    sentence = f"{label} is {shown(number)} {unit}".rstrip()
    detail = f"{sentence}: the claimed number is of the same runs."
    return Outcome(BY_CONSTRUCTION, number, detail, origins=origins)


def _claimed(check: Check, evidence: Evidence, label: str, number: Numbers) -> Outcome:
    if evidence.published and check.stated_in:
        return of_the_same_runs(label, float(number.values[0]), check.unit, number.origins)
    return decide(compared(check, evidence, label, number))


@rule_in(SERIES_RULES)
def value(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of the only point is the paper's."""
    (point,) = points
    number = values(points, check.quantity)
    return _claimed(check, evidence, check.label(n=point.gpus), number)


@rule_in(SERIES_RULES)
def mean(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the mean over the points is the paper's."""
    number = mean_of(values(points, check.quantity))
    return _claimed(check, evidence, check.label(count=len(points)), number)


@rule_in(SERIES_RULES)
def each(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of every point is the paper's."""
    numbers = values(points, check.quantity)
    return decide(
        *(
            compared(check, evidence, f"{check.text} at n = {point.gpus}", numbers[[index]])
            for index, point in enumerate(points)
        )
    )


@rule_in(SERIES_RULES)
def share_of_cpu(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the share of CPU energy is the paper's; if RAM is unknown with 0 and `margin` of it."""
    (point,) = points
    label = check.label(n=point.gpus)
    if point.mean(check.quantity) is not None:
        return decide(compared(check, evidence, label, values(points, check.quantity)))
    cpu, gpu = (positive(quantity(point, name)) for name in ("cpu_energy_kwh", "gpu_energy_kwh"))
    share = float(cpu.values[0] / (cpu.values[0] + gpu.values[0]))
    spread = math.hypot(*(float(kind.spreads[0] / kind.values[0]) for kind in (cpu, gpu)))
    relative = Spread((1 - share) * spread, max(round(float(cpu.freedom[0])), 1))
    source = Source("share", words=cpu.words(0))

    def with_ram(ram: float) -> Tests:
        number = mean_of_runs(share * (1 - ram), relative, source, point.n_repeats)
        return compared(check, evidence, f"{label}, were that of RAM {100 * ram:g} %", number)

    return replace(decide(with_ram(0.0), with_ram(check.most)), origins=cpu.origins)


# --- ratios and slopes against bounds -------------------------------------------------------------


def _ends(check: Check, points: Points) -> tuple[str, Numbers]:
    """Logarithm of the ratio of two points, by default the last over the first."""
    top, bottom = points[-1], points[0]
    if check.n == "first/last":
        top, bottom = bottom, top
    elif "/" in check.n and check.n != "last/first":
        top, bottom = points
    label = check.label(first=points[0].gpus, last=points[-1].gpus)
    return label, logarithms([top, bottom], check.quantity).contrast([1, -1])


@rule_in(SERIES_RULES)
def ratio(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the ratio of two points is within the bounds."""
    return decide(tests(*_ends(check, points), *check.bounds, RATIO, check.unit))


@rule_in(SERIES_RULES)
def sign(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the ratio of two points is above or below 1."""
    return decide(beside_one(*_ends(check, points), check.rises))


@rule_in(SERIES_RULES)
def first_is_least(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of the smallest n is below (or above) that of every other."""
    first, *others = points
    weights = np.eye(len(points))[0] - np.eye(len(points))[1:]
    ratios = logarithms(points, check.quantity).contrast(weights)
    labels = [check.label(first=first.gpus, best=point.gpus) for point in others]
    return decide(beside_one(labels, ratios, check.rises))


@rule_in(SERIES_RULES)
def fall_to_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether one GPU's value over a whole node's is within the bounds, given for four GPUs."""
    single, node = points
    if node.gpus == 1:
        raise NotTestable(f"{line.device}: a node has one GPU.")
    refuse_estimates(points)
    fall = logarithms([node, single], check.quantity).contrast([-1, 1])
    label = check.label(node=node.gpus)
    if evidence.published and check.stated_in:
        return of_the_same_runs(label, math.exp(float(fall.values[0])), "", fall.origins)
    low, high = (bound / PAPER_GPUS_PER_NODE * node.gpus for bound in check.bounds)
    return decide(tests(label, fall, low, high, RATIO))


@rule_in(SERIES_RULES)
def least_at_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is least where a run holds all GPUs of one node."""
    whole = evidence.gpus_per_node(line.device)
    if whole == 1:
        raise NotTestable(
            f"{line.device}: a node has one GPU, so that none of its CPUs is in excess."
        )
    node = line.point_at(whole)
    if node is None:
        raise NotTestable(f"{line.title}: no finished run with {whole} GPUs; 1 more needed.")
    quantity(node, check.quantity)
    if points[0] is node or points[-1] is node:
        raise NotTestable(f"{line.title}: a point below and one above {whole} GPUs are needed.")
    others = [point for point in points if point is not node]
    numbers = quantities([*others, node], check.quantity)
    gaps = numbers.contrast(np.hstack([np.eye(len(others)), -np.ones((len(others), 1))]))
    labels = [f"the energy at n = {point.gpus} less that at {whole}" for point in others]
    least = [*others, node][int(np.argmin(numbers.values))]
    return decide(above(labels, gaps, check.unit), value=float(least.gpus))


# --- efficiency -----------------------------------------------------------------------------------


def efficiencies(first: Point, points: Points) -> Numbers:
    """Logarithms of GPU hours at n₀ over those at n; exactly 0 for n₀ itself."""
    return joined([exact(0.0) if p is first else log_ratio(first, p, "gpu_hours") for p in points])


@rule_in(SERIES_RULES)
def lowest_efficiency(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the efficiency is within the bounds at every point up to 32 GPUs."""
    points = [point for point in points if point.gpus <= SPLIT]
    if len(points) < check.min_points:
        raise NotTestable(f"{len(points)} of {check.min_points} points up to {SPLIT} GPUs.")
    first, *others = points
    labels = [check.label(first=first.gpus, n=point.gpus) for point in others]
    return decide(tests(labels, efficiencies(first, others), *check.bounds, RATIO))


@rule_in(SERIES_RULES)
def efficiency_after_quadrupling(
    check: Check, evidence: Evidence, line: Line, points: Points
) -> Outcome:
    """Check whether the efficiency is within the bounds at four times the fewest GPUs of the series."""
    first = line.planned[0]
    by_n = {point.gpus: point for point in points}
    if missing := [str(n) for n in (first, 4 * first) if n not in by_n]:
        raise NotTestable(
            f"The sentence is about going from {first} to {4 * first} GPUs; no run time is known with "
            f"{' and '.join(missing)}."
        )
    label = f"Efficiency from {first} to {4 * first} GPUs"
    efficiency = efficiencies(by_n[first], [by_n[4 * first]])
    return decide(tests(label, efficiency, *check.bounds, RATIO))


@rule_in(SERIES_RULES)
def efficiency_falls_beyond(
    check: Check, evidence: Evidence, line: Line, points: Points
) -> Outcome:
    """Check whether the efficiency falls beyond 32 GPUs, and is within the bounds at the last point."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus > SPLIT]
    if not many or len(few) < 2:
        counts = ", ".join(str(point.gpus) for point in points)
        raise NotTestable(
            f"{line.title}: two points up to {SPLIT} GPUs and one beyond are compared; there are n = "
            f"{counts}; {max(0, 2 - len(few)) + (not many)} more needed."
        )
    last = many[-1]
    at_last = efficiencies(few[0], [last])
    fall = log_ratio(last, few[-1], "gpu_hours")
    return decide(
        tests(f"efficiency at n = {last.gpus}", at_last, *check.bounds, RATIO),
        beside_one(f"efficiency at n = {few[-1].gpus} over n = {last.gpus}", fall, rises=True),
    )


# --- lines and steps ------------------------------------------------------------------------------


@rule_in(SERIES_RULES)
def constant(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity neither drifts along log2 n, nor lies off its mean, by more than the bound.

    By logarithms, the bound a part (upwards; downwards by the same factor) and the mean the geometric one;
    where a `unit` is given by differences in that. The value is the drift from the first n to the last,
    by the slope.
    """
    numbers, most = values(points, check.quantity), check.high
    low, scale, mean = -most, PLAIN, "mean"
    if not check.unit:
        numbers = positive(numbers).logarithms()
        low, scale, mean = 1 / (1 + most) - 1, CHANGE, "geometric mean"
    x = doublings(points)
    drift = slope_along(x, numbers).times(np.ptp(x))
    distances = numbers.contrast(np.eye(len(points)) - 1 / len(points))
    labels = [f"the distance of {check.text} at n = {p.gpus} from the {mean}" for p in points]
    return decide(
        tests(f"the drift of {check.text}", drift, low, most, scale, check.unit),
        tests(labels, distances, low, most, scale, check.unit),
        value=scale.back(float(drift.values[0])),
    )


@rule_in(SERIES_RULES)
def proportional(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the exponent of the quantity as a power of `against` is within the bounds."""
    x = abscissa(check, points)
    if np.ptp(x.values) == 0:
        raise NotTestable(f"{line.title}: all points have the same {check.against}.")
    logs = positive(x).logarithms()
    exponent = slope_with_errors_of(logs, logarithms(points, check.quantity))
    return decide(tests(check.text, exponent, *check.bounds))


@rule_in(SERIES_RULES)
def straight(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is on a straight line of `against` that rises."""
    x, numbers = abscissa(check, points), values(points, check.quantity)
    counts = [point.gpus for point in points]
    straight_tests, bow = straightness(check.text, x, numbers, check.high, counts)
    return decide(*straight_tests, value=bow)


def straightness(
    what: str, x: Numbers, numbers: Numbers, most: float, gpus: Sequence[int]
) -> tuple[list[Tests], float]:
    """Tests that numbers lie on a straight line of x that rises, and the value that is stated.

    The bow is that of a parabola, half-way, from the chord of its ends, as a part of the rise between
    these; below 0 where they flatten. It and the distance of each point from a line must be at most `most`
    of the rise; the line is that of least squares of distances as parts of each positive number. Where the
    rise is within its interval, that alone is tested.
    """
    numbers = numbers.with_errors_of(x, float(slope_along(x.values, numbers).values[0]))
    z = (x.values - x.values.min()) / np.ptp(x.values)
    # Not by errors: those of few repeats would make another line of each campaign.
    weights = 1 / numbers.values**2 if np.all(numbers.values > 0) else np.ones(len(z))
    powers = np.stack([np.ones_like(z), z, z**2], axis=1)
    parabola, line = (least_squares(weights, powers[:, :terms]) for terms in (3, 2))
    ends = parabola[1] + parabola[2]
    rise = numbers.contrast(ends)
    if not rise.values[0] - rise.halves[0] > 0:
        return [above(f"{what}: the rise", rise)], float(rise.values[0])
    bow = quotient(numbers, parabola[2] / 4, ends)
    off = quotient(numbers, np.eye(len(z)) - powers[:, :2] @ line, ends)
    labels = [
        f"{what}: the distance from the line at n = {n}, as a part of the rise," for n in gpus
    ]
    return [
        tests(f"{what}: the bow, as a part of the rise,", bow, -most, most, PART),
        tests(labels, off, -most, most, PART),
    ], float(bow.values[0])


@rule_in(SERIES_RULES)
def rises(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises as a whole, and goes back by `margin` at no step.

    The whole is the slope along the points' order, a step the ratio to the number before. The value is the
    step furthest back.
    """
    return _monotone(check, points, 1, "rising")


@rule_in(SERIES_RULES)
def falls(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity falls as a whole, and goes back by `margin` at no step."""
    return _monotone(check, points, -1, "falling")


def _monotone(check: Check, points: Points, sense: int, way: str) -> Outcome:
    numbers = positive(values(points, check.quantity))
    steps = sense * steps_of(len(points))
    whole = slope_along(np.arange(float(len(points))), numbers).times(sense)
    ratios = numbers.logarithms().contrast(steps)
    labels = [f"{check.text}, {a.gpus} to {b.gpus} GPUs: the step" for a, b in pairwise(points)]
    return decide(
        above(f"{check.text}, {shown_in_order(numbers.values)}: the slope, {way},", whole),
        tests(labels, ratios, 1 / (1 + check.most), scale=RATIO),
        value=float(np.min(steps @ numbers.values)),
    )


@rule_in(SERIES_RULES)
def convex(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether every step per doubling of n takes more than the one before."""
    per_doubling = steps_of(len(points)) / np.diff(doublings(points))[:, None]
    growth = values(points, check.quantity).contrast(np.diff(per_doubling, axis=0))
    labels = [
        f"{check.text}, n = {a.gpus}, {b.gpus}, {c.gpus},"
        for a, b, c in zip(points, points[1:], points[2:], strict=False)
    ]
    return decide(above(labels, growth, check.unit))


@rule_in(SERIES_RULES)
def slope(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope against `against` is above 0."""
    steepness = slope_along(abscissa(check, points).values, values(points, check.quantity))
    return decide(above(check.text, steepness, check.unit))


@rule_in(SERIES_RULES)
def slope_changes(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises faster per doubling from 32 GPUs on than before."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus >= SPLIT]
    if len(few) < 2 or len(many) < 2:
        raise NotTestable(
            f"{line.title}: slopes need two points each up to and from {SPLIT} GPUs; "
            f"{max(0, 2 - len(few))} and {max(0, 2 - len(many))} more needed."
        )
    before, after = slice(len(few)), slice(len(points) - len(many), None)
    x, numbers = doublings(points), values(points, check.quantity)
    slow, rapid = (float(slope_along(x[s], numbers[s]).values[0]) for s in (before, after))
    label = check.label(after=shown(rapid), before=shown(slow))
    return decide(above(label, slope_change(x, numbers, before, after, 1.0), check.unit))


def doublings_of_samples(points: Points) -> Floats:
    """Values of log2 of the samples of points' datasets."""
    return np.log2([float(samples_of(point)) for point in points])


@rule_in(SERIES_RULES)
def stagnates(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the error falls in the first three doublings, in the last two by less than half that."""
    x, numbers = doublings_of_samples(points), values(points, "metric_last")
    start, end = slice(BENDS[0]), slice(-BENDS[1], None)
    fall = slope_along(x[start], numbers[start]).times(-1.0)
    less = slope_change(x, numbers, start, end, check.most)
    label = f"slope in the last two doublings less {check.most:g} of the first"
    return decide(
        above("fall of top-1 error in the first three doublings", fall, check.unit),
        above(label, less, check.unit),
    )


@rule_in(SERIES_RULES)
def updates_per_epoch(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the updates per GPU and epoch are the paper's, with a smaller dataset all the same.

    By what the runs counted; for published points, what their batches and samples give.
    """
    runs = evidence.runs[["configuration", "updates", "epochs"]].dropna()
    runs = runs[(runs["updates"] > 0) & (runs["epochs"] > 0)].drop_duplicates("configuration")
    counted = (runs["updates"] / runs["epochs"]).set_axis(runs["configuration"]).to_dict()
    updates = [float(counted.get(p.id) or -(-(samples_of(p) // p.gpus) // p.lbs)) for p in points]
    is_full_size = all(point.is_full_size for point in points)
    wanted = check.exact_value if is_full_size else updates[0]
    return exactly(
        set(updates) == {wanted},
        max(updates, key=lambda count: abs(count - wanted)),
        f"updates per GPU and epoch are {shown_in_order(updates)} at n = "
        f"{', '.join(str(p.gpus) for p in points)}; expected {wanted:g} everywhere.",
    )


# --- ranks ------------------------------------------------------------------------------------------


@rule_in(SERIES_RULES)
def rank(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the points are ordered by `against`."""
    return ranked(check, abscissa(check, points).values, values(points, check.quantity))


def ranked(check: Check, x: Floats, numbers: Numbers) -> Outcome:
    """Check whether Spearman's correlation with x is at least the bound, or at most its negative.

    Its interval is that of all numbers within their intervals, which hold all of them together with
    95 %: from the most reversed to the most ordered that these allow. Numbers of unknown spread are no test.
    """
    sense, least = (1, check.low) if check.rises else (-1, -check.high)
    rho = round(spearman(x, numbers.values), 9)
    order = np.argsort(x, kind="stable")
    pairs = [(a, b) for a, b in combinations(order, 2) if x[a] != x[b]]
    if not pairs:
        raise NotTestable("A line needs two points that differ in x.")
    unit = np.eye(len(x))
    gaps = numbers.contrast(sense * (unit[[b for _, b in pairs]] - unit[[a for a, _ in pairs]]))
    low, high = _ranks_within(x, pairs, gaps, 2 * LEVEL)
    first, last = sorted((sense * low, sense * high))
    bound = f"at least {least:g}" if check.rises else f"at most {-least:g}"
    interval = f"{first:.2f} to {last:.2f}"
    sentence = f"Spearman's correlation of {check.text} is {rho:.2f} ({interval}), expected {bound}"
    origins = numbers.origins
    if low >= least:
        return Outcome(SUPPORTED, rho, f"{sentence}.", p=1.0, origins=origins)
    if high < least:
        p = _rank_p(x, pairs, gaps, least)
        return Outcome(CONTRADICTED, rho, f"{sentence}.", p=p, origins=origins)
    is_test = bool(np.isfinite(gaps.errors).any())
    lowest = int(np.argmin(gaps.values - gaps.halves))
    detail = f"{sentence}; {needed_to_tell_from_zero(gaps[[lowest]])}."
    return Outcome(UNDECIDED, rho, detail, p=1.0 if is_test else None, origins=origins)


def needed_to_tell_from_zero(number: Numbers) -> str:
    """The repeats that would tell whether a number is above 0, as a phrase."""
    low, high = (-math.inf, 0.0) if number.values[0] > 0 else (0.0, math.inf)
    return tests("", number, low, high).needed(0)


def _ranks_within(
    x: Floats, pairs: Sequence[tuple[int, int]], gaps: Numbers, level: float
) -> tuple[float, float]:
    """The least and the largest rank correlation that the pairs allow, all with 1 − `level`.

    A pair whose difference is within its interval counts as reversed, and as ordered.
    """
    halves = gaps.halves_at(1 - level / len(pairs))
    correlations = []
    for is_ordered in (gaps.values - halves > 0, gaps.values + halves > 0):
        ranks = np.ones(len(x))
        np.add.at(ranks, [b if o else a for (a, b), o in zip(pairs, is_ordered, strict=True)], 1)
        correlations.append(round(spearman(x, ranks), 9))
    return correlations[0], correlations[1]


def _rank_p(x: Floats, pairs: Sequence[tuple[int, int]], gaps: Numbers, least: float) -> float:
    """The level, halved, from which on intervals leave out a correlation of `least`."""
    low, high = -30.0, math.log10(2 * LEVEL)
    for _ in range(40):
        middle = (low + high) / 2
        _, most = _ranks_within(x, pairs, gaps, 10.0**middle)
        low, high = (low, middle) if most < least else (middle, high)
    return 10.0**high / 2


def spearman(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation, ties by mean ranks; 0 where x or y is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    # scipy.stats has this too, and takes longer to import than all claims to check.
    return float(np.corrcoef(pd.Series(x).rank(), pd.Series(y).rank())[0, 1])


# --- where errors change along the batch sizes ------------------------------------------------------


@rule_in(SERIES_RULES)
def onset(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity leaves that of the smallest GBS above the GBS `low`, up to `high`.

    By more than `margin`; a relative one is at least two standard deviations of the smallest GBS's. The onset
    is between the last size that is at base and the first beyond, both with their whole intervals. Undecided
    if that step is not inside or outside of the range, and where the first size is not below it: then
    nothing says what the base is. Numbers of unknown spread make no test.
    """
    numbers, sizes = values(points, check.quantity), [point.gbs for point in points]
    low, high, unit = int(check.low), int(check.high), check.unit
    if sizes[0] >= low:
        raise NotTestable(
            f"{check.text} is known from GBS {sizes[0]} on, which need not be its base; 1 more needed, at a "
            f"GBS below {low}."
        )
    base = float(numbers.values[0])
    margin, is_relative = tolerance_of(check.margin)
    if is_relative:
        margin = max(margin * base, 0.0 if numbers.words(0) else 2 * float(numbers.spreads[0]))

    # The last size whose whole interval is at base, and the first whose whole interval is beyond.
    away = numbers.contrast(np.eye(len(sizes))[1:] - np.eye(len(sizes))[0])
    later = sizes[1:]
    at_base = takewhile(lambda i: away.values[i] + away.halves[i] <= margin, range(len(later)))
    last = max([sizes[0], *(later[i] for i in at_base)])
    beyond = (
        size
        for size, is_beyond in zip(later, away.values - away.halves > margin, strict=True)
        if is_beyond
    )
    first = next(beyond, None)

    where = f"beyond GBS {last}, if at all" if first is None else f"between GBS {last} and {first}"
    apart = f"{shown(margin)} {'pp' if unit == '%' else unit}".rstrip()
    at_smallest = f"{shown(base)} {unit}".rstrip()
    sentence = (
        f"{check.text} leaves {at_smallest} (at GBS {sizes[0]}) by more than {apart} {where}; expected above "
        f"{low}, up to {high}"
    )
    value = None if first is None else float(first)
    early = [against(away, i, -math.inf, margin) for i, size in enumerate(later) if size <= low]
    late = [against(away, i, margin, math.inf) for i, size in enumerate(later) if size >= high]
    chances = early + late[:1]
    p = min(1.0, len(chances) * min(chances, default=1.0))
    if first is not None and last >= low and first <= high:
        return Outcome(SUPPORTED, value, f"{sentence}.", p=p)
    if p <= LEVEL:
        return Outcome(CONTRADICTED, value, f"{sentence}.", p=p)

    end = math.inf if first is None else first
    absent = [str(size) for size in (low, high) if last < size < end and size not in sizes]
    more = [f"points at GBS {' and '.join(absent)} are needed"] if absent else []
    between = (i for i, size in enumerate(later) if last < size < end)
    for i in islice(between, 1):
        more.append(f"at GBS {later[i]} {tests('', away, high=margin).needed(i)}")
    is_test = bool(np.isfinite(away.errors).any())
    return Outcome(UNDECIDED, value, f"{sentence}; {'; '.join(more)}.", p=p if is_test else None)


class TwoLines(NamedTuple):
    """Two lines that are joined at a batch size, fitted to numbers."""

    slopes: Numbers
    """Before the knee, and its change there."""
    squares: float
    misfit: float
    """Mean square of the points' distances over their standard errors, for the lines' freedom. Exact points
    add nothing to it; where all are exact, the distances are parts of the largest number."""
    furthest: Numbers
    """Distance of the point that is furthest by its interval."""


@rule_in(SERIES_RULES)
def knee(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises with log2 GBS, and faster from a knee within the bounds on.

    The knee is the inner point where two joined lines fit best; any other whose lines the points fit, by
    the F test of their distances, is possible too. Where all points are exact, these are compared with those
    of the best lines, so that no verdict depends on the unit. The second slope must be above the first by
    more than the points' intervals. NotTestable where no inner point is within the range, or none outside
    of it. Numbers of unknown spread make no test.
    """
    sizes, numbers = [point.gbs for point in points], values(points, check.quantity)
    return knee_between(sizes, numbers, check.low, check.high)


def knee_between(sizes: Sequence[int], numbers: Numbers, low: float, high: float) -> Outcome:
    """Decide whether the knee of numbers along batch sizes is within bounds, and bends upwards."""
    fits = {size: _fit_two_lines(sizes, numbers, size) for size in sizes[1:-1]}
    inside = [size for size in fits if low <= size <= high]
    outside = [size for size in fits if not low <= size <= high]
    for where, compared in (
        (f"from {low:g} to {high:g}", inside),
        (f"below {low:g} or above {high:g}", outside),
    ):
        if not compared:
            raise NotTestable(
                f"No knee at a GBS {where} can be compared: 1 more needed there, between other points."
            )
    best = min(fits, key=lambda size: fits[size].squares)
    slopes = decide(
        tests("The slope per doubling before it", fits[best].slopes[:1], low=0.0),
        above("Its change there", fits[best].slopes[1:]),
    )

    # The probability of points so far from the lines at each size, were these the truth.
    chances = {size: _chance_of_misfit(fits[size], fits[best], numbers) for size in fits}
    p = min(1.0, max(chances[size] for size in inside) * len(inside))
    sentence = (
        f"Two joined lines fit best with a knee at GBS {best}, expected at {low:g} to {high:g}"
    )
    if best in inside and max(chances[size] for size in outside) <= LEVEL:
        position = Outcome(SUPPORTED, best, f"{sentence}.", p=1.0)
    elif best in outside and p <= LEVEL:
        position = Outcome(CONTRADICTED, best, f"{sentence}.", p=p)
    else:
        other = max(outside if best in inside else inside, key=lambda size: chances[size])
        needed = (
            needed_to_tell_from_zero(fits[other].furthest)
            if numbers.errors.any()
            else "1 more GBS or several would tell"
        )
        detail = f"{sentence}; one at GBS {other} fits too (p = {chances[other]:.2g}); {needed}."
        position = Outcome(UNDECIDED, best, detail, p=max(p, 2 * LEVEL))
    if np.isinf(numbers.errors).all():
        position = replace(position, p=None)
    return all_of([("", position), ("", slopes)])


def _fit_two_lines(sizes: Sequence[int], numbers: Numbers, knee: int) -> TwoLines:
    x = np.log2(sizes)
    design = np.stack([np.ones_like(x), x, np.maximum(x - math.log2(knee), 0.0)], axis=1)
    inverse = np.linalg.pinv(design)
    distances = np.abs(numbers.values - design @ (inverse @ numbers.values))
    known = numbers.errors > 0
    largest = float(np.max(np.abs(numbers.values))) or 1.0
    parts = distances[known] / numbers.errors[known] if known.any() else distances / largest
    # More repeats tell nothing of an exact point: it is the furthest only where all are.
    reach = distances / np.where(known, numbers.halves, 1.0)
    furthest = int(np.argmax(np.where(known | ~known.any(), reach, -1.0)))
    return TwoLines(
        numbers.contrast(inverse[1:]),
        float(np.sum(distances**2)),
        float(np.sum(parts**2)) / max(len(sizes) - 3, 1),
        replace(numbers[[furthest]], values=distances[[furthest]]),
    )


def _chance_of_misfit(fit: TwoLines, best: TwoLines, numbers: Numbers) -> float:
    """Probability of points so far from two lines, were these the truth (F test).

    Where even the best lines do not fit, or nothing else tells what a point scatters, curves are no two
    lines, and others are compared with these.
    """
    freedom, is_exact = len(numbers) - 3, not numbers.errors.any()
    if freedom < 1:
        return 1.0
    expected = ROUNDING**2 if is_exact else 1.0
    scatter = min(float(numbers.freedom.min()), 1e6)
    if is_exact or best.misfit > expected:
        scatter = min(scatter, freedom)
    return float(fdtrc(freedom, scatter, fit.misfit / max(best.misfit, expected)))
