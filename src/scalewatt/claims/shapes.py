"""Rules on the points of a series: each takes a row of the table of checks and the points it names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from scalewatt.claims.evidence import Evidence, Line, Points
from scalewatt.claims.outcomes import (
    Outcome,
    Tests,
    above,
    against,
    all_of,
    decide,
    exactly,
    ratios,
    rule_in,
    shown,
    shown_in_order,
)
from scalewatt.claims.quantities import (
    abscissa,
    log_contrast,
    mean_of,
    mean_of_runs,
    positive,
    published_source,
    quantities,
    refuse_estimates,
    samples_of,
    values,
)
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Check,
    NotTestable,
    tolerance_of,
)
from scalewatt.results.tables.published import FULL_SAMPLES, GPUS_PER_NODE, Spread, published_spread
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

SeriesRule = Callable[[Check, Evidence, Line, Points], Outcome]
SERIES_RULES: dict[str, SeriesRule] = {}
"""The rules by the name that the table calls them."""
PUBLISHED_RUNS = {"resnet50": 5, "fourcastnet": 1}
"""Runs that a number of the paper is of, but for the probe's PROBE_RUNS."""
PROBE_RUNS = 3


# --- a number of the paper ------------------------------------------------------------------------


def compared(check: Check, line: Line, label: str, number: Numbers) -> Tests:
    """Test of a number against the claimed one, by their ratio or difference.

    The paper's number has the interval of as many runs as it is of. Published points are of the same runs as
    the number in the text: there its spread does not count again.
    """
    target, room, is_relative = check.target
    paper = exact(target)
    spread = None if line.is_published else published_spread(check.model, check.quantity)
    if spread is not None:
        runs = PROBE_RUNS if check.scope == "probe" else PUBLISHED_RUNS[check.model]
        square = (spread.relative * target) ** 2 / runs
        source = published_source(check.model)
        paper = estimate(target, source, square, spread.freedom, 0.0, square)
    both, value = joined([number, paper]), float(number.values[0])
    label, stated = (
        f"{words} {check.unit}".rstrip() for words in (f"{label}, {shown(value)}", shown(target))
    )
    if is_relative and value > 0:
        label = f"{label}, over the paper's {stated}"
        return ratios(label, log_contrast(both), 1 - room, 1 + room, stated=value)
    room = room * target if is_relative else room
    less, label = both.contrast([1, -1]), f"{label}, less the paper's {stated},"
    return Tests(label, less, -room, room, unit=check.unit, stated=value)


def of_the_same_runs(check: Check, label: str, number: float, origins: frozenset[str]) -> Outcome:
    """No test: the published number is compared with itself."""
    sentence = f"{label} is {shown(number)} {check.unit}".rstrip()
    detail = f"{sentence}: the claimed number is of the same runs."
    return Outcome(BY_CONSTRUCTION, number, detail, origins=origins)


@rule_in(SERIES_RULES)
def value(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the mean over the points, which may be a single one, is the paper's."""
    number = mean_of(values(points, check.quantity))
    label = check.text.format(n=points["gpus"].iloc[0], count=len(points))
    if line.is_published and check.stated_in:
        return of_the_same_runs(check, label, float(number.values[0]), number.origins)
    return decide(compared(check, line, label, number))


@rule_in(SERIES_RULES)
def each(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of every point is the paper's."""
    numbers = values(points, check.quantity)
    labels = [f"{check.text} at n = {n}" for n in points["gpus"]]
    return decide(
        *(compared(check, line, label, numbers[[row]]) for row, label in enumerate(labels))
    )


@rule_in(SERIES_RULES)
def share_of_cpu(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the share of CPU energy is the paper's; if RAM is unknown with 0 and `margin` of it."""
    label = check.text.format(n=points["gpus"].iloc[0])
    has_ram = points["energy_scope"].str.contains("ram").all()
    if has_ram and points[f"{check.quantity}_mean"].notna().all():
        return decide(compared(check, line, label, values(points, check.quantity)))
    cpu, gpu = (positive(quantities(points, name)) for name in ("cpu_energy_kwh", "gpu_energy_kwh"))
    share = float(cpu.values[0] / (cpu.values[0] + gpu.values[0]))
    spread = math.hypot(*(float(kind.spreads[0] / kind.values[0]) for kind in (cpu, gpu)))
    relative = Spread((1 - share) * spread, max(round(float(cpu.freedom[0])), 1))
    source, runs = Source("share", words=cpu.words(0)), int(points["n_repeats"].iloc[0])

    def with_ram(ram: float) -> Tests:
        number = mean_of_runs(share * (1 - ram), relative, source, runs)
        return compared(check, line, f"{label}, were that of RAM {100 * ram:g} %", number)

    return replace(decide(with_ram(0.0), with_ram(check.most)), origins=cpu.origins)


# --- ratios and slopes against bounds -------------------------------------------------------------


@rule_in(SERIES_RULES)
def within(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity of every point is within bounds and margin."""
    labels = [f"{check.text} of {id_}" for id_ in points.index]
    return all_within(labels, quantities(points, check.quantity), check)


def all_within(labels: Sequence[str], numbers: Numbers, check: Check) -> Outcome:
    """Decide whether all numbers lie within bounds and margin; of two bounds their range is the value."""
    margin = check.most if check.margin else 0.0
    low, high = check.bounds
    tests = Tests(labels, numbers, low * (1 - margin), high * (1 + margin), unit=check.unit)
    if math.isinf(low):
        return decide(tests)
    ends = dict.fromkeys(shown(float(end)) for end in (numbers.values.min(), numbers.values.max()))
    return decide(tests, value="-".join(ends))


@rule_in(SERIES_RULES)
def varies_more(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity has a larger range than `against`."""
    ranges = []
    for name in check.columns:
        numbers = quantities(points, name)
        order = np.argsort(numbers.values, kind="stable")
        ranges.append(numbers[order[[-1, 0]]].contrast([1, -1]))
    label = (
        f"{check.text} ({shown(float(ranges[0].values[0]))} {check.unit}) less that of the other"
    )
    return decide(above(label, joined(ranges).contrast([1, -1]), check.unit))


@rule_in(SERIES_RULES)
def ratio(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the ratios of the points that `against` names are within the bounds."""
    counts = [int(n) for n in points["gpus"]]
    tops, bottoms = (_counts(word, line, counts) for word in check.against.split("/"))
    if missing := [str(n) for n in dict.fromkeys([*tops, *bottoms]) if n not in counts]:
        raise NotTestable(
            f"{line.title}: no finished run with {' or '.join(missing)} GPUs; {len(missing)} more needed."
        )
    points = points[points["gpus"].isin([*tops, *bottoms])]
    if "node" in check.against:
        if line.node != GPUS_PER_NODE:
            raise NotTestable(
                f"{line.device}: the bounds are for nodes of {GPUS_PER_NODE} GPUs; they have {line.node}."
            )
        refuse_estimates(points)
    pairs = [(top, bottom) for top in tops for bottom in bottoms]
    rows = dict(zip(points["gpus"], np.eye(len(points)), strict=True))
    numbers = positive(values(points, check.quantity)).logarithms()
    logarithms = numbers.contrast([rows[top] - rows[bottom] for top, bottom in pairs])
    labels = [check.text.format(top=top, bottom=bottom) for top, bottom in pairs]
    if line.is_published and check.stated_in:
        number = math.exp(float(logarithms.values[0]))
        return of_the_same_runs(check, labels[0], number, logarithms.origins)
    return decide(ratios(labels, logarithms, *check.bounds, strict=check.is_sign))


def _counts(word: str, line: Line, counts: Sequence[int]) -> list[int]:
    """The GPU counts that a word means: 16, node, planned, 4planned, others, first, last, last<=32, …

    `planned` is the smallest of the series, with results or without.
    """
    if word == "others":
        return list(counts[1:])
    if parts := re.fullmatch(r"(\d*)(planned|node)", word):
        times, what = parts.groups()
        return [int(times or 1) * (line.node if what == "node" else min(line.ids))]
    if word.isdigit():
        return [int(word)]
    end, sign, bound = re.fullmatch(r"(first|last)(<=|>)?(\d*)", word).groups()  # type: ignore[union-attr]
    fitting = [n for n in counts if not sign or (n <= int(bound)) == (sign == "<=")]
    if not fitting:
        raise NotTestable(f"{line.title}: no point with n {sign} {bound}; 1 more needed.")
    return [fitting[0 if end == "first" else -1]]


@rule_in(SERIES_RULES)
def least_at_node(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is least where a run holds all GPUs of one node."""
    counts, node = points["gpus"], line.node
    if node == 1:
        raise NotTestable(f"{line.device}: a node has one GPU, so that no CPU of it is in excess.")
    if not (counts.eq(node).any() and counts.lt(node).any() and counts.gt(node).any()):
        raise NotTestable(
            f"{line.title}: points with {node} GPUs, with fewer and with more are needed; there are n = "
            f"{', '.join(map(str, counts))}."
        )
    numbers, is_node = quantities(points, check.quantity), counts.eq(node).to_numpy()
    gaps = numbers.contrast((np.eye(len(points)) - is_node)[~is_node])
    labels = [f"the energy at n = {n} less that at {node}" for n in counts[~is_node]]
    least = float(counts.iloc[int(np.argmin(numbers.values))])
    return decide(above(labels, gaps, check.unit), value=least)


# --- lines and steps ------------------------------------------------------------------------------


def slope_along(x: Floats, numbers: Numbers) -> Numbers:
    """Slope of the line through independent numbers; NotTestable where x does not differ."""
    if len(x) < 2 or np.ptp(x) == 0:
        raise NotTestable("A line needs two points that differ in x.")
    return numbers.contrast(slope_weights(x))


def slope_with_errors_of(x: Numbers, numbers: Numbers) -> Numbers:
    """Slope with the errors of x too, as if independent of the numbers'."""
    steepness = float(slope_along(x.values, numbers).values[0])
    return slope_along(x.values, numbers.with_errors_of(x, steepness))


def slope_change(x: Floats, numbers: Numbers, first: slice, last: slice, times: float) -> Numbers:
    """Slope of the last numbers less `times` that of the first, which may share some of them."""
    weights = np.zeros(len(x))
    weights[last] += slope_weights(x[last])
    weights[first] -= times * slope_weights(x[first])
    return numbers.contrast(weights)


@rule_in(SERIES_RULES)
def constant(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity neither drifts along log2 n, nor lies off its mean, by more than the bound.

    By logarithms, the bound a part (upwards; downwards by the same factor) and the mean the geometric one;
    where a `unit` is given by differences in that. The value is the drift from the first n to the last,
    by the slope.
    """
    numbers, (_, most) = values(points, check.quantity), check.bounds
    show: Callable[[float], float] = float
    unit, mean = check.unit, "mean"
    if not unit:
        numbers, most = positive(numbers).logarithms(), math.log1p(most)
        show, unit, mean = _change, "%", "geometric mean"
    x = np.log2(points["gpus"].to_numpy(float))
    drift = slope_along(x, numbers).times(np.ptp(x))
    distances = numbers.contrast(np.eye(len(points)) - 1 / len(points))
    labels = [f"the distance of {check.text} at n = {n} from the {mean}" for n in points["gpus"]]
    whole = float(drift.values[0])
    return decide(
        Tests(f"the drift of {check.text}", drift, -most, most, show, unit),
        Tests(labels, distances, -most, most, show, unit),
        value=whole if check.unit else math.expm1(whole),
    )


def _change(logarithm: float) -> float:
    return 100 * math.expm1(logarithm)


@rule_in(SERIES_RULES)
def proportional(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the exponent of the quantity as a power of `against` is within the bounds."""
    x = positive(abscissa(points, check.against)).logarithms()
    exponent = slope_with_errors_of(x, positive(values(points, check.quantity)).logarithms())
    return decide(Tests(check.text, exponent, *check.bounds))


@rule_in(SERIES_RULES)
def straight(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity is on a straight line of `against` that rises."""
    x, numbers = abscissa(points, check.against), values(points, check.quantity)
    return straightness(check.text, x, numbers, check.bounds[1], list(points["gpus"]))


def straightness(
    what: str, x: Numbers, numbers: Numbers, most: float, gpus: Sequence[int]
) -> Outcome:
    """Decide whether numbers lie on a straight line of x that rises.

    The bow, which is stated, is that of a parabola, half-way, from the chord of its ends, as a part of the
    rise between these; below 0 where they flatten. It and the distance of each point from a line must be at
    most `most` of the rise; the line is that of least squares of distances as parts of each positive number.
    Where the rise is within its interval, that alone is tested.
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
        return decide(above(f"{what}: the rise", rise))
    bow = quotient(numbers, parabola[2] / 4, ends)
    off = quotient(numbers, np.eye(len(z)) - powers[:, :2] @ line, ends)
    labels = [
        f"{what}: the distance from the line at n = {n}, as a part of the rise," for n in gpus
    ]
    return decide(
        Tests(f"{what}: the bow, as a part of the rise,", bow, -most, most, _percent, "%"),
        Tests(labels, off, -most, most, _percent, "%"),
        value=float(bow.values[0]),
    )


def _percent(part: float) -> float:
    return 100 * part


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
    steps = sense * np.diff(np.eye(len(points)), axis=0)
    whole = slope_along(np.arange(float(len(points))), numbers).times(sense)
    labels = [f"{check.text}, {a} to {b} GPUs: the step" for a, b in pairwise(points["gpus"])]
    return decide(
        above(f"{check.text}, {shown_in_order(numbers.values)}: the slope, {way},", whole),
        ratios(labels, numbers.logarithms().contrast(steps), 1 / (1 + check.most)),
        value=float(np.min(steps @ numbers.values)),
    )


@rule_in(SERIES_RULES)
def convex(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether every step per doubling of n takes more than the one before."""
    doublings = np.diff(np.log2(points["gpus"].to_numpy(float)))
    per_doubling = np.diff(np.eye(len(points)), axis=0) / doublings[:, None]
    growth = values(points, check.quantity).contrast(np.diff(per_doubling, axis=0))
    counts = list(map(str, points["gpus"]))
    labels = [
        f"{check.text}, n = {', '.join(counts[row : row + 3])}," for row in range(len(growth))
    ]
    return decide(above(labels, growth, check.unit))


@rule_in(SERIES_RULES)
def slope(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope against `against` is above 0, or below it."""
    steepness = slope_along(abscissa(points, check.against).values, values(points, check.quantity))
    return decide(Tests(check.text, steepness, *check.bounds, unit=check.unit, strict=True))


@rule_in(SERIES_RULES)
def slope_changes(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the slope against `against` is larger from one GPU count on than up to another.

    `n` ends in both, such as 8/64. With a `margin`, it must be larger than so much of the first slope.
    """
    x, numbers = abscissa(points, check.against).values, values(points, check.quantity)
    counts, (up_to, from_on) = points["gpus"], map(int, check.n.split()[-1].split("/"))
    before = slice(int((counts <= up_to).sum()))
    after = slice(int((counts < from_on).sum()), None)
    few = [max(0, 2 - len(x[part])) for part in (before, after)]
    if any(few):
        raise NotTestable(
            f"{line.title}: slopes need two points each up to {up_to} GPUs and from {from_on} on; {few[0]} "
            f"and {few[1]} more needed."
        )
    slow, rapid = (float(slope_along(x[part], numbers[part]).values[0]) for part in (before, after))
    label = check.text.format(after=shown(rapid), before=shown(slow))
    times = check.most if check.margin else 1.0
    return decide(above(label, slope_change(x, numbers, before, after, times), check.unit))


@rule_in(SERIES_RULES)
def updates_per_epoch(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the updates per GPU and epoch are the paper's, with a smaller dataset all the same.

    By what the runs counted; for published points, what their batches and samples give.
    """
    runs = evidence.runs[["configuration", "updates", "epochs"]].dropna()
    runs = runs[(runs["updates"] > 0) & (runs["epochs"] > 0)].drop_duplicates("configuration")
    counted = (runs["updates"] / runs["epochs"]).set_axis(runs["configuration"])
    planned = np.ceil(samples_of(points) // points["gpus"] / points["local_batch_size"])
    updates = points["configuration"].map(counted.to_dict()).astype(float).fillna(planned)
    is_full_size = points["dataset_total"].eq(FULL_SAMPLES.get(line.model, -1)).all()
    wanted = float(check.exact_value if is_full_size else updates.iloc[0])
    return exactly(
        bool((updates == wanted).all()),
        float(updates.iloc[int(np.argmax(abs(updates - wanted)))]),
        f"updates per GPU and epoch are {shown_in_order(updates)} at n = "
        f"{', '.join(map(str, points['gpus']))}; expected {wanted:g} everywhere.",
    )


# --- ranks ------------------------------------------------------------------------------------------


@rule_in(SERIES_RULES)
def rank(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the points are ordered by `against`."""
    x = abscissa(points, check.against).values
    return ranked(check.text, x, values(points, check.quantity), *check.bounds)


def ranked(what: str, x: Floats, numbers: Numbers, low: float, high: float) -> Outcome:
    """Decide whether Spearman's correlation with x is at least `low`, or at most `high`.

    Its interval is that of all numbers within their intervals, which hold all of them together with
    95 %: from the most reversed to the most ordered that these allow. Numbers of unknown spread are no test.
    """
    sense, least = (1, low) if math.isfinite(low) else (-1, -high)
    order = np.argsort(x, kind="stable")
    pairs = [(a, b) for a, b in combinations(order, 2) if x[a] != x[b]]
    if not pairs:
        raise NotTestable("A line needs two points that differ in x.")
    unit = np.eye(len(x))
    gaps = numbers.contrast([sense * (unit[b] - unit[a]) for a, b in pairs])

    def ranks_within(level: float) -> list[float]:
        """The least and the largest correlation that the pairs allow, all with 1 − `level`.

        A pair whose difference is within its interval counts as reversed, and as ordered.
        """
        halves, correlations = gaps.halves_at(1 - level / len(pairs)), []
        for is_ordered in (gaps.values - halves > 0, gaps.values + halves > 0):
            ranks = np.ones(len(x))
            above_other = [b if o else a for (a, b), o in zip(pairs, is_ordered, strict=True)]
            np.add.at(ranks, above_other, 1)
            correlations.append(spearman(x, ranks))
        return correlations

    rho, (lowest, highest) = spearman(x, numbers.values), ranks_within(2 * LEVEL)
    first, last = sorted((sense * lowest, sense * highest))
    bound = f"at least {least:g}" if sense > 0 else f"at most {-least:g}"
    sentence = f"Spearman's correlation of {what} is {rho:.2f} ({first:.2f} to {last:.2f}), expected {bound}"
    outcome = Outcome(SUPPORTED, rho, f"{sentence}.", p=1.0, origins=numbers.origins)
    if lowest >= least:
        return outcome
    if highest < least:
        # p is half the level from which on intervals leave out a correlation of `least`.
        low, high = -30.0, math.log10(2 * LEVEL)
        for _ in range(40):
            middle = (low + high) / 2
            is_out = ranks_within(10.0**middle)[1] < least
            low, high = (low, middle) if is_out else (middle, high)
        return replace(outcome, verdict=CONTRADICTED, p=10.0**high / 2)
    is_test = bool(np.isfinite(gaps.errors).any())
    nearest = int(np.argmin(gaps.values - gaps.halves))
    detail = f"{sentence}; {needed_to_tell_from_zero(gaps[[nearest]])}."
    return replace(outcome, verdict=UNDECIDED, detail=detail, p=1.0 if is_test else None)


def needed_to_tell_from_zero(number: Numbers) -> str:
    """The repeats that would tell whether a number is above 0, as a phrase."""
    low, high = (-math.inf, 0.0) if number.values[0] > 0 else (0.0, math.inf)
    return Tests("", number, low, high).needed(0)


def spearman(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation, ties by mean ranks; 0 where x or y is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    # scipy.stats has this too, and takes longer to import than all claims to check.
    return round(float(np.corrcoef(pd.Series(x).rank(), pd.Series(y).rank())[0, 1]), 9)


# --- where errors change along the batch sizes ------------------------------------------------------


@rule_in(SERIES_RULES)
def onset(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity leaves that of the smallest GBS above the GBS `low`, up to `high`.

    By more than `margin`; a relative one is at least two standard deviations of the smallest GBS's. The onset
    is between the last size that is at base and the first beyond, both with their whole intervals. Undecided
    if that step is not inside or outside of the range, and where the first size is not below it: then
    nothing says what the base is. Numbers of unknown spread make no test.
    """
    numbers, sizes = values(points, check.quantity), list(points["global_batch_size"])
    (low, high), unit, later = check.bounds, check.unit, sizes[1:]
    if sizes[0] >= low:
        raise NotTestable(
            f"{check.text} is known from GBS {sizes[0]} on, which need not be its base; 1 more needed, at a "
            f"GBS below {low:g}."
        )
    base = float(numbers.values[0])
    margin, is_relative = tolerance_of(check.margin)
    if is_relative:
        margin = max(margin * base, 0.0 if numbers.words(0) else 2 * float(numbers.spreads[0]))

    # The last size whose whole interval is at base, and the first whose whole interval is beyond.
    away = numbers.contrast(np.eye(len(sizes))[1:] - np.eye(len(sizes))[0])
    is_at_base = away.values + away.halves <= margin
    last = sizes[int(np.argmin([*is_at_base, False]))]
    is_beyond = zip(later, away.values - away.halves > margin, strict=True)
    first = min((size for size, is_first in is_beyond if is_first), default=math.inf)

    early = [against(away, row, -math.inf, margin) for row, size in enumerate(later) if size <= low]
    late = [against(away, row, margin, math.inf) for row, size in enumerate(later) if size >= high]
    chances = early + late[:1]
    p = min(1.0, len(chances) * min(chances, default=1.0))
    where = (
        f"between GBS {last} and {first}" if first < math.inf else f"beyond GBS {last}, if at all"
    )
    apart = f"{shown(margin)} {'pp' if unit == '%' else unit}".rstrip()
    sentence = (
        f"{check.text} leaves {f'{shown(base)} {unit}'.rstrip()} (at GBS {sizes[0]}) by more than {apart} "
        f"{where}; expected above {low:g}, up to {high:g}"
    )
    value = float(first) if first < math.inf else None
    if last >= low and first <= high:
        return Outcome(SUPPORTED, value, f"{sentence}.", p=p)
    if p <= LEVEL:
        return Outcome(CONTRADICTED, value, f"{sentence}.", p=p)

    absent = [f"{size:g}" for size in (low, high) if last < size < first and size not in sizes]
    more = [f"points at GBS {' and '.join(absent)} are needed"] if absent else []
    for row in [row for row, size in enumerate(later) if last < size < first][:1]:
        more.append(f"at GBS {later[row]} {Tests('', away, high=margin).needed(row)}")
    is_test = bool(np.isfinite(away.errors).any())
    detail = f"{sentence}; {'; '.join(more)}."
    return Outcome(UNDECIDED, value, detail, p=p if is_test else None)


@rule_in(SERIES_RULES)
def knee(check: Check, evidence: Evidence, line: Line, points: Points) -> Outcome:
    """Check whether the quantity rises with log2 GBS, and faster from a knee within the bounds on.

    The knee is the inner point where two joined lines fit best; any other whose lines the points fit, by
    the F test of their distances, is possible too. The second slope must be above the first by more than the
    points' intervals. NotTestable where no inner point is within the range, or none outside of it. Numbers
    of unknown spread make no test.
    """
    sizes = list(points["global_batch_size"])
    return knee_between(sizes, values(points, check.quantity), *check.bounds)


def knee_between(sizes: Sequence[int], numbers: Numbers, low: float, high: float) -> Outcome:
    """Decide whether the knee of numbers along five or more sizes is within bounds, and bends upwards."""
    inside = [size for size in sizes[1:-1] if low <= size <= high]
    outside = [size for size in sizes[1:-1] if not low <= size <= high]
    if not inside or not outside:
        where = f"below {low:g} or above {high:g}" if inside else f"from {low:g} to {high:g}"
        raise NotTestable(
            f"No knee at a GBS {where} can be compared: 1 more needed there, between other points."
        )

    # Two lines joined at each inner point: the slope before it, its change there, the points' distances.
    x, slopes, distances = np.log2(sizes), {}, {}
    for size in sizes[1:-1]:
        design = np.stack([np.ones_like(x), x, np.maximum(x - math.log2(size), 0.0)], axis=1)
        inverse = np.linalg.pinv(design)
        slopes[size] = numbers.contrast(inverse[1:])
        distances[size] = np.abs(numbers.values - design @ (inverse @ numbers.values))
    best = min(distances, key=lambda size: float(np.sum(distances[size] ** 2)))

    # The probability of points so far from the lines at each size, were these the truth (F test). Where even
    # the best lines do not fit, curves are no two lines, and others are compared with these.
    freedom = len(sizes) - 3
    squares = {size: np.sum((off / numbers.errors) ** 2) for size, off in distances.items()}
    expected = max(squares[best] / freedom, 1.0)
    scatter = min(float(numbers.freedom.min()), 1e6 if expected == 1 else freedom)
    chances = {
        size: float(fdtrc(freedom, scatter, square / freedom / expected))
        for size, square in squares.items()
    }
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
        furthest = [int(np.argmax(distances[other] / numbers.halves))]
        needed = needed_to_tell_from_zero(
            replace(numbers[furthest], values=distances[other][furthest])
        )
        detail = f"{sentence}; one at GBS {other} fits too (p = {chances[other]:.2g}); {needed}."
        position = Outcome(UNDECIDED, best, detail, p=max(p, 2 * LEVEL))
    if np.isinf(numbers.errors).all():
        position = replace(position, p=None)
    rises = decide(
        Tests("The slope per doubling before it", slopes[best][:1], low=0.0),
        above("Its change there", slopes[best][1:]),
    )
    return all_of([("", position), ("", rises)])
