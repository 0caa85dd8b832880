"""Claims of sections A and B: energy against GPU hours, over all series; the share of RAM."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations

from scalewatt.claims.evidence.claim_types import (
    UNRESOLVED,
    NotTestable,
    Outcome,
    Unresolved,
    check,
)
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.rules.series_queries import each, known, numbers, whole_nodes, with_ram
from scalewatt.claims.rules.tolerance import (
    MINIMUM_POINTS,
    all_of,
    attempt,
    band,
    combine,
    enough,
    linear,
    positive,
    within_noise,
)
from scalewatt.claims.rules.uncertain_number import (
    Number,
    mean_of,
    minus,
    over,
    quantity,
    refuse_estimates,
    repeats_to_tell,
    shown,
    text,
    told,
)
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.results.tables.comparisons import MOST_REPEATS
from scalewatt.results.tables.repeat_statistics import summarise

RESNET = ("resnet50", "train", "a100")
FACTOR = 1.2
B03_RAM_SHARE = 0.06
B03_TOLERANCE = 0.01
POINTS_PER_COEFFICIENT = 2


def linear_in_gpu_hours(evidence: Evidence) -> Callable[[Line], Outcome]:
    """Claim A01's check for one line: E against GPU hours, from whole nodes up."""

    def of_line(line: Line) -> Outcome:
        refuse_estimates(line.having("energy_kwh"))
        points = known(line, "energy_kwh", "gpu_hours", at_least=whole_nodes(evidence, line))
        hours = [one.value for one in numbers(points, "gpu_hours")]
        return linear("energy (kWh) against GPUh", hours, numbers(points, "energy_kwh"))

    return of_line


@check("A01")
def _linear(evidence: Evidence) -> Outcome:
    lines = [line for line in evidence.find() if line.mode not in ("probe", "other")]
    long = [line for line in lines if len(_whole(evidence, line)) >= MINIMUM_POINTS]
    if not long:
        refuse_estimates([point for line in lines for point in line.having("energy_kwh")])
        points = max((_whole(evidence, line) for line in lines), key=len, default=())
        enough(points, "energy and GPU hours along one series, whole nodes")
    outcome = combine([attempt(ln.title, linear_in_gpu_hours(evidence), ln) for ln in long])
    left = len(lines) - len(long)
    more = (
        f" {left} series with fewer than {MINIMUM_POINTS} such points do not count." if left else ""
    )
    return Outcome(outcome.verdict, outcome.value, outcome.detail + more)


def _whole(evidence: Evidence, line: Line) -> Sequence[Point]:
    return line.having("energy_kwh", "gpu_hours", at_least=whole_nodes(evidence, line))


@check("D16")
def _linear_fixed(evidence: Evidence) -> Outcome:
    return each(evidence, *RESNET, ["fd_lbs"], linear_in_gpu_hours(evidence))


@check("E08")
def _linear_constant_gbs(evidence: Evidence) -> Outcome:
    return each(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], linear_in_gpu_hours(evidence))


@check("F19")
def _linear_scaled(evidence: Evidence) -> Outcome:
    return each(evidence, *RESNET, ["sd_gbs_s", "sd_gbs_l"], linear_in_gpu_hours(evidence))


@check("A02")
def _factors_differ(evidence: Evidence) -> Outcome:
    groups = list(_groups(evidence, "p_gpuh_kw").values())
    ratios = [
        found for pair in permutations(groups, 2) if (found := _factor_over(*pair)) is not None
    ]
    if not ratios:
        kinds = {f"{points[0].model} {points[0].device} ({points[0].scope})" for points in groups}
        raise NotTestable(
            "Two pairs of model and device with P_GPUh over the same kinds of device are needed; there "
            f"are {', '.join(sorted(kinds)) or 'none'}."
        )
    ratio, what = max(ratios, key=lambda one: one[0].value)
    return band(what, ratio, FACTOR, None)


def _factor_over(own: Sequence[Point], other: Sequence[Point]) -> tuple[Number, str] | None:
    """Mean P_GPUh over that of another model or device, by the device kinds that both have, and words.

    Null where there are none, or the parts of these are not known.
    """
    names = [f"{points[0].model} {points[0].device}" for points in (own, other)]
    scopes = [(points[0].scope or "").split("+") for points in (own, other)]
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope for scope in scopes)]
    if names[0] == names[1] or not kinds:
        return None
    try:
        top, bottom = (mean_of([_power(p, kinds) for p in points]) for points in (own, other))
        ratio = over(top, bottom)
    except NotTestable:
        return None
    return ratio, f"mean P_GPUh of {names[0]} over that of {names[1]} ({'+'.join(kinds)} of both)"


def _power(point: Point, kinds: Sequence[str]) -> Number:
    """P_GPUh by some device kinds; NotTestable where their part of it is not known."""
    own = quantity(point, "p_gpuh_kw")
    if point.scope == "+".join(kinds):
        return own
    share = sum(quantity(point, f"{kind}_energy_share").value for kind in kinds)
    return over(own, Number(1.0, 0.0, 0.0), share)


@check("A03")
def _rates_explain(evidence: Evidence) -> Outcome:
    names = ("p_gpuh_kw", "samples_per_gpuh", "passes_per_gpuh")
    needed = POINTS_PER_COEFFICIENT * len(names)
    groups = _groups(evidence, *names)
    if not groups:
        raise NotTestable("There is no point with P_GPUh and rates.")
    large = {key: points for key, points in groups.items() if len(points) >= needed}
    if not large:
        most = max(map(len, groups.values()))
        raise Unresolved(
            f"{most} of the {needed} points that leaving one out needs; {needed - most} more needed."
        )
    return combine([attempt(key, _left_out, points, names) for key, points in large.items()])


def _left_out(points: Sequence[Point], names: Sequence[str]) -> Outcome:
    known = numbers(points, names[0])
    rates = [[one.value for one in numbers(points, name)] for name in names[1:]]
    if within_noise(known):
        ordered = sorted(known, key=lambda one: one.value)
        apart = minus(ordered[-1], ordered[0])
        said = f"all {len(known)} P_GPUh are within their spread; {told(apart)}."
        return Outcome(UNRESOLVED, None, said)
    powers = [one.value for one in known]
    if not all(powers):
        raise NotTestable("An energy per GPU hour is 0.")
    errors = [leave_one_out(powers, rates[:count]) for count in range(3)]
    means = [math.fsum(each) / len(each) for each in errors]
    said = (
        f"leaving one of {len(points)} points out, the mean error of P_GPUh is "
        f"{100 * means[0]:.1f} % by a constant, {100 * means[1]:.1f} % with samples per GPUh, "
        f"{100 * means[2]:.1f} % with passes per GPUh too"
    )
    parts = [
        (f"fall with {name}", _fall(before, after))
        for name, (before, after) in zip(("samples", "passes"), pairwise(errors), strict=True)
    ]
    found = all_of(parts)
    return Outcome(found.verdict, means[2] / means[0], f"{said}; {found.detail}")


def _fall(before: Sequence[float], after: Sequence[float]) -> Outcome:
    """Whether errors of the same points fall, in percentage points, by a paired t interval."""
    falls = summarise([100 * (a - b) for a, b in zip(before, after, strict=True)])
    assert falls.mean is not None and falls.high is not None and falls.sd is not None
    own = Number(falls.mean, falls.high - falls.mean, falls.sd)
    what = "the mean fall"
    if abs(own.value) > own.half:
        return positive(what, own, "pp")
    points = repeats_to_tell(abs(own.value), own.spread)
    more = f"more than {MOST_REPEATS}" if points is None else f"about {points}"
    said = f"{what} is {text(own, 'pp')}, expected above 0; {more} points are needed."
    return Outcome(UNRESOLVED, own.value, said)


def leave_one_out(y: Sequence[float], terms: Sequence[Sequence[float]]) -> list[float]:
    """Relative error of each y (not 0) predicted by least squares on the others, with an intercept."""
    import numpy as np

    scales = [max(map(abs, term)) or 1.0 for term in terms]
    columns = [np.array(term) / scale for term, scale in zip(terms, scales, strict=True)]
    design = np.column_stack([np.ones(len(y)), *columns])
    values = np.array(y)
    errors = []
    for index in range(len(y)):
        others = np.arange(len(y)) != index
        found, *_ = np.linalg.lstsq(design[others], values[others], rcond=None)
        errors.append(abs(float(design[index] @ found) / y[index] - 1))
    return errors


def _groups(evidence: Evidence, *names: str) -> dict[str, list[Point]]:
    """Points of whole nodes that know these quantities, by model, device, scope and origin.

    Only those of the most frequent origin: energies of several are not compared. NotTestable where all
    are estimated; these do not count.
    """
    found: dict[str, list[Point]] = {}
    there = {
        point.id: point
        for line in evidence.find()
        if line.mode != "probe"
        for point in line.having(*names, at_least=whole_nodes(evidence, line))
    }
    sensed = {id_: point for id_, point in there.items() if point.origin != "estimated"}
    if not sensed:
        refuse_estimates(list(there.values()))
    there = sensed
    origins = [point.origin for point in there.values()]
    for point in there.values():
        if point.origin == max(set(origins), key=lambda one: (origins.count(one), str(one))):
            found.setdefault(f"{point.model} {point.device} ({point.scope})", []).append(point)
    return found


@check("B03")
def _ram_share(evidence: Evidence) -> Outcome:
    own = with_ram(evidence)
    worst = max(own, key=lambda p: p.mean("ram_energy_share") or 0)
    outcome = band(
        f"the largest share of RAM in {len(own)} configurations ({worst.id})",
        quantity(worst, "ram_energy_share"),
        None,
        B03_RAM_SHARE + B03_TOLERANCE,
    )
    share = shown(B03_RAM_SHARE)
    return Outcome(outcome.verdict, outcome.value, f"{outcome.detail} The claim says {share}.")
