"""Rules on energy per GPU hour P, over all trainings: intervals, what explains it, shares and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
    Outcome,
)
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.numbers.decisions import (
    LEVEL,
    against,
    all_of,
    attempt,
    band,
    combine,
    enough,
    positive,
    repeats_to_tell,
    told,
)
from scalewatt.claims.numbers.points import (
    PROBE_EPOCHS,
    grouped,
    known,
    values,
    whole_nodes,
)
from scalewatt.claims.numbers.trends import within_noise
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    mean_of,
    own_repeats,
    quantity,
    refuse_estimates,
    shown,
    text,
)
from scalewatt.claims.rules.series_rules import straight_in
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.t_tests import MOST_REPEATS

P = "p_gpuh_kw"
NAMED = 3
"""How many of the numbers outside of an interval are named one by one."""
POINTS_PER_COEFFICIENT = 2


# --- intervals ----------------------------------------------------------------------------------


def _points_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether P of all trainings as in the paper, from `n` GPUs on, is within bounds and room."""
    least = int(check.n or 1)
    points = _as_paper(evidence.points, check)
    counted = [point for point in points if point.gpus >= least]
    if not counted:
        raise NotTestable(_nothing(evidence, check, least))
    own = [(f"P of {point.id}", quantity(point, P)) for point in counted]
    return all_within("P", own, *_with_room(check), check.unit)


def _means_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean P of every series is; of series that are in others whole only these count."""
    least = int(check.n or 1)
    series = [
        (line, points)
        for line in evidence.find(check.model, None, check.device)
        if (points := [p for p in _as_paper(line.points, check) if p.gpus >= least])
    ]
    if not series:
        raise NotTestable(_nothing(evidence, check, least))
    # The longest first: what one has already had is no other mean.
    means, whole = [], list[set[str]]()
    for line, points in sorted(series, key=lambda one: -len(one[1])):
        ids = {point.id for point in points}
        if any(ids <= others for others in whole):
            continue
        whole.append(ids)
        count = f"{len(points)} points" if points[1:] else "one point"
        mean = mean_of([quantity(point, P) for point in points])
        means.append((f"Mean P of {line.title} ({count})", mean))
    return all_within("Mean P", means, *_with_room(check), check.unit)


def _with_room(check: Check) -> tuple[float, float]:
    return check.low * (1 - check.most), check.high * (1 + check.most)


def _as_paper(points: Sequence[Point], check: Check) -> list[Point]:
    """Return trainings as in the paper, the probe among them, with a known P."""
    return [
        point
        for point in points
        if (point.model, point.device) == (check.model, check.device)
        and not _unlike(point)
        and point.mean(P) is not None
    ]


def _unlike(point: Point) -> tuple[str, ...]:
    return unlike_paper(point, PROBE_EPOCHS if "probe" in point.modes else None)


def _nothing(evidence: Evidence, check: Check, least: int) -> str:
    at = f" at {least} GPUs or more" if least > 1 else ""
    kind = (check.model, check.device)
    there = [p for p in evidence.points if (p.model, p.device) == kind and _unlike(p)]
    other = f": {there[0].id} has {', '.join(_unlike(there[0]))}" if there else ""
    return (
        f"No finished run of {check.model} on {check.device}{at} as in the paper with a known "
        f"energy{other}."
    )


def all_within(
    what: str, numbers: Sequence[tuple[str, Number]], low: float, high: float, unit: str = ""
) -> Outcome:
    """Return whether all of several numbers lie in a band; those outside are named."""
    ends = sorted(one.value for _, one in numbers)
    widest = max(one.half for _, one in numbers)
    between = list(dict.fromkeys((shown(ends[0]), shown(ends[-1]))))
    span = (
        f"{what} ({len(numbers)} compared) lies at {' to '.join(between)} {unit}".rstrip()
        + f", each ± {shown(widest)} at most"
    )
    value = "-".join(between)
    parts = [attempt(name, band, name, one, low, high, unit) for name, one in numbers]
    found = combine(parts)
    beyond = [one for _, one in parts if one.verdict != SUPPORTED]
    if not beyond:
        sentence = f"{span}, expected {shown(low)} to {shown(high)}."
        return replace(found, value=value, detail=sentence)
    # Those that decide first; all would fill a page.
    ordered = sorted(beyond, key=lambda one: one.verdict != found.verdict)
    detail = " ".join(one.detail for one in ordered[:NAMED])
    left = len(beyond) - NAMED
    rest = f" Of {left} more the interval is not within." if left > 0 else ""
    return replace(found, value=value, detail=f"{span}. {detail}{rest}")


# --- all series ---------------------------------------------------------------------------------


def _linear_everywhere(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy is linear in GPU hours along every series with enough points of whole nodes."""
    lines = [line for line in evidence.find() if line.mode not in ("probe", "other")]
    there = {line.name: _whole_nodes_of(evidence, line, check.columns) for line in lines}
    long = [line for line in lines if len(there[line.name]) >= check.least]
    if not long:
        refuse_estimates([point for line in lines for point in line.having(check.quantity)])
        points = max(there.values(), key=len, default=())
        enough(points, "energy and GPU hours along one series, whole nodes")

    def of_line(line: Line) -> Outcome:
        refuse_estimates(line.having(check.quantity))
        points = known(line, *check.columns, at_least=whole_nodes(evidence, line))
        return straight_in(check, evidence, line, points)

    found = combine(attempt(line.title, of_line, line) for line in long)
    left = len(lines) - len(long)
    more = f" {left} series with fewer than {check.least} such points do not count." if left else ""
    return replace(found, detail=found.detail + more)


def _whole_nodes_of(evidence: Evidence, line: Line, names: Iterable[str]) -> Sequence[Point]:
    return line.having(*names, at_least=whole_nodes(evidence, line))


def of_whole_nodes(evidence: Evidence, *names: str) -> dict[str, list[Point]]:
    """Return points of whole nodes that know these quantities, by model, device, scope and origin.

    Without probes. Only those of the most frequent origin: energies of several are not compared.
    NotTestable if all are estimated; these do not count.
    """
    there = {
        point.id: point
        for line in evidence.find()
        if line.mode != "probe"
        for point in _whole_nodes_of(evidence, line, names)
    }
    sensed = [point for point in there.values() if point.origin != "estimated"]
    if not sensed:
        refuse_estimates(list(there.values()))
    origins = [point.origin for point in sensed]
    most = max(set(origins), key=lambda one: (origins.count(one), str(one)), default=None)
    alike = [point for point in sensed if point.origin == most]
    return grouped(alike, lambda point: f"{point.model} {point.device} ({point.scope})")


def _factors_differ(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of mean P between two models or devices is at least `low` for any pair.

    Supported by one that is so rarely that far above, times the number of pairs; contradicted where all
    are below, with the probability of the one that is least so.
    """
    groups = list(of_whole_nodes(evidence, P).values())
    pairs = [
        max(both, key=lambda one: one[0].value)
        for one, other in combinations(groups, 2)
        if (both := [f for f in (_factor_over(one, other), _factor_over(other, one)) if f])
    ]
    if not pairs:
        kinds = {f"{points[0].model} {points[0].device} ({points[0].scope})" for points in groups}
        raise NotTestable(
            "Two pairs of model and device with P_GPUh over the same kinds of device are needed; there "
            f"are {', '.join(sorted(kinds)) or 'none'}."
        )
    return one_at_least([(what, ratio) for ratio, what in pairs], check.low)


def one_at_least(numbers: Sequence[tuple[str, Number]], low: float) -> Outcome:
    """Return whether one of several named numbers is at least `low`; told is the one that decides."""
    count = len(numbers)
    parts = [(band(what, own, low, None), _above(own, low)) for what, own in numbers]
    nearest, least = min(parts, key=lambda part: (part[1], -(part[0].p or 0.0)))
    p = max(1.0 if one.p is None else one.p for one, _ in parts)
    found = replace(nearest, p=p)
    if nearest.verdict == SUPPORTED and least * count <= LEVEL:
        return found
    if all(one.verdict == CONTRADICTED for one, _ in parts):
        return found
    note = ""
    if nearest.verdict == SUPPORTED:
        note = (
            f"Of {count} comparisons one may lie so far above by chance (p = {count * least:.2g})."
        )
    return replace(found, verdict=UNDECIDED, note=note)


def _above(own: Number, low: float) -> float:
    """Return the probability of a number as far above `low`, were the truth there; beyond 1/2 below it."""
    return 1 - against(own, low, math.inf) if own.value < low else against(own, -math.inf, low)


def _factor_over(own: Sequence[Point], other: Sequence[Point]) -> tuple[Number, str] | None:
    """Return mean P over that of another model or device, by the device kinds that both have, and its label.

    Null if there are none, or the parts of these are not known.
    """
    names = [f"{points[0].model} {points[0].device}" for points in (own, other)]
    scopes = [(points[0].scope or "").split("+") for points in (own, other)]
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope for scope in scopes)]
    if names[0] == names[1] or not kinds:
        return None
    try:
        top, bottom = (mean_of([_power(p, kinds) for p in points]) for points in (own, other))
        ratio = top / bottom
    except NotTestable:
        return None
    of_both = f"{'+'.join(kinds)} of both, {len(own)} and {len(other)} points"
    return ratio, f"mean P_GPUh of {names[0]} over that of {names[1]} ({of_both})"


def _power(point: Point, kinds: Sequence[str]) -> Number:
    """Return P by some device kinds; NotTestable if their part of it is not known."""
    own = quantity(point, P)
    if point.scope == "+".join(kinds):
        return own
    share = sum(quantity(point, f"{kind}_energy_share").value for kind in kinds)
    return own * share


def _rates_explain(evidence: Evidence, check: Check) -> Outcome:
    """Check whether each rate lowers the error of P when one point is left out."""
    names = (P, "samples_per_gpuh", "passes_per_gpuh")
    needed = POINTS_PER_COEFFICIENT * len(names)
    groups = of_whole_nodes(evidence, *names)
    if not groups:
        raise NotTestable("There is no point with P_GPUh and rates.")
    large = {key: points for key, points in groups.items() if len(points) >= needed}
    if not large:
        most = max(map(len, groups.values()))
        raise NotTestable(
            f"{most} of the {needed} points that leaving one out needs; {needed - most} more needed."
        )
    found = combine(attempt(key, _left_out, points, names) for key, points in large.items())
    alone = f"{next(iter(large))}: " if len(large) == 1 else ""
    return replace(found, detail=alone + found.detail)


def _left_out(points: Sequence[Point], names: Sequence[str]) -> Outcome:
    own = values(points, names[0])
    rates = [[one.value for one in values(points, name)] for name in names[1:]]
    if within_noise(own):
        ordered = sorted(own, key=lambda one: one.value)
        apart = ordered[-1] - ordered[0]
        sentence = f"all {len(own)} P_GPUh are within their spread; {told(apart)}."
        return Outcome(UNDECIDED, None, sentence, p=1.0)
    powers = [one.value for one in own]
    if not all(powers):
        raise NotTestable("An energy per GPU hour is 0.")
    bent = [[rate, [one**2 for one in rate]] for rate in rates]
    both, of_passes, of_samples = (
        leave_one_out(powers, terms) for terms in (rates, bent[1], bent[0])
    )
    sentence = (
        f"leaving one of {len(points)} points out, the mean error of P_GPUh is "
        f"{100 * math.fsum(both) / len(both):.1f} % with both rates"
    )
    # Each is dropped from both, for a bend of the other: a curve in one rate is no effect of two.
    parts = [
        (f"without {name}", error_fall(without, both))
        for name, without in (("samples", of_passes), ("passes", of_samples))
    ]
    found = all_of(parts)
    return replace(found, detail=f"{sentence}; {found.detail}")


def error_fall(before: Sequence[float], after: Sequence[float]) -> Outcome:
    """Return whether errors of the same points fall, in percentage points, by a paired t interval."""
    falls = summarise([100 * (a - b) for a, b in zip(before, after, strict=True)])
    assert falls.mean is not None and falls.sd is not None
    own = own_repeats("points", falls.mean, falls.sd, falls.n)
    what = "the rise of the mean error"
    found = positive(what, own, "pp")
    if found.verdict != UNDECIDED:
        return found
    points = repeats_to_tell(own, *((-math.inf, 0.0) if own.value > 0 else (0.0, math.inf)))
    more = f"more than {MOST_REPEATS}" if points is None else f"about {points}"
    sentence = f"{what} is {text(own, 'pp')}, expected above 0; {more} points are needed."
    return replace(found, detail=sentence)


def leave_one_out(y: Sequence[float], terms: Sequence[Sequence[float]]) -> list[float]:
    """Return the relative error of each y (not 0) predicted by least squares on the others."""
    import numpy as np

    scales = [max(map(abs, term)) or 1.0 for term in terms]
    columns = [np.array(term) / scale for term, scale in zip(terms, scales, strict=True)]
    design = np.column_stack([np.ones(len(y)), *columns])
    observed = np.array(y)
    errors = []
    for index in range(len(y)):
        others = np.arange(len(y)) != index
        found, *_ = np.linalg.lstsq(design[others], observed[others], rcond=None)
        errors.append(abs(float(design[index] @ found) / y[index] - 1))
    return errors


POWER_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "factors_differ": _factors_differ,
    "linear_everywhere": _linear_everywhere,
    "means_within": _means_within,
    "points_within": _points_within,
    "rates_explain": _rates_explain,
}
"""The rules by the name that the table calls them."""
