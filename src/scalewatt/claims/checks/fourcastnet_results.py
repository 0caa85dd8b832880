"""Claims on FourCastNet's time, energy and error: section 3.3 without Table 1 and the onsets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from scalewatt.claims.evidence.claim_types import NotTestable, Outcome, check
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.rules.fourcastnet_points import (
    MODEL,
    NAMES,
    PROBE_EPOCHS,
    UNITS,
    energies_alike,
    in_paper,
)
from scalewatt.claims.rules.power_rules import each_line, efficiency_within
from scalewatt.claims.rules.series_queries import as_in_paper, doublings, like, numbers
from scalewatt.claims.rules.tolerance import (
    LINEAR_R2,
    MINIMUM_POINTS,
    all_of,
    attempt,
    band,
    combine,
    enough,
    linear,
    positive,
    sign,
    slope,
)
from scalewatt.claims.rules.uncertain_number import (
    Number,
    basis,
    mean_of,
    minus,
    over,
    quantity,
    refuse_estimates,
)

QUADRUPLED = 0.9
"""Below which efficiency after quadrupling the GPUs a speed-up clearly diverges (claim H03)."""
SUB_LINEAR = 0.95
PER_DOUBLING_R2 = 0.97
SAME_SLOPE = 0.15
STEEPER = 1.2
CONSTANT_ERROR = 0.05
"""Up to which range over mean an error counts as constant (claim H15)."""
PROBE = {
    "G08": ("runtime_h", 4.383),
    "G09": ("gpu_hours", 280.0),
    "G10": ("energy_kwh", 52.0),
}


def _probe(id_: str, evidence: Evidence) -> Outcome:
    name, value = PROBE[id_]
    points = evidence.line(MODEL, "pretrain", "a100", "probe").points
    probe = next((p for p in points if (p.gpus, p.lbs) == (64, 1)), None)
    if probe is None:
        raise NotTestable("No finished probe at 64 GPUs, LBS 1.")
    as_in_paper(probe, PROBE_EPOCHS)
    return band(NAMES[name], quantity(probe, name), 0.9 * value, 1.1 * value, UNITS[name])


for _id in PROBE:
    check(_id)(partial(_probe, _id))


@check("H03")
def diverges_early(evidence: Evidence) -> Outcome:
    """Efficiency at four times the smallest n of the LBS series is below 0.9."""
    lines = evidence.anywhere(MODEL, "pretrain", "a100", "fd_lbs")
    check_line = partial(efficiency_within, low=None, high=QUADRUPLED)
    return each_line(lines, ["gpu_hours"], check_line, least=2)


@check("H14")
def sub_linear(evidence: Evidence) -> Outcome:
    """Efficiency at four times the smallest n of every GBS series is below 0.95."""
    check_line = partial(efficiency_within, low=None, high=SUB_LINEAR)
    return each_line(_constant_gbs(evidence), ["gpu_hours"], check_line, least=2)


@check("H07")
def energy_per_doubling(evidence: Evidence) -> Outcome:
    """Energy of the LBS series of pre-training is a rising line of log2 n."""

    def check_line(line: Line, points: Sequence[Point]) -> Outcome:
        energies = numbers(points, "energy_kwh")
        found = linear("Energy (kWh) against log2 n", doublings(points), energies, PER_DOUBLING_R2)
        rises = positive("Its slope", slope(doublings(points), energies), "kWh per doubling")
        return all_of([("", found), ("", rises)])

    return each_line(
        evidence.anywhere(MODEL, "pretrain", "a100", "fd_lbs"), ["energy_kwh"], check_line
    )


@check("H08")
def convex_energy(evidence: Evidence) -> Outcome:
    """Energy of fine-tuning is convex in log2 n: every second difference is above 0."""

    def check_line(line: Line, points: Sequence[Point]) -> Outcome:
        triples = zip(points, points[1:], points[2:], strict=False)
        return combine(
            [
                (
                    f"n = {a.gpus}, {b.gpus}, {c.gpus}",
                    positive("Growth of the step per doubling", _bend(a, b, c), "kWh"),
                )
                for a, b, c in triples
            ]
        )

    return each_line(
        evidence.anywhere(MODEL, "finetune", "a100", "fd_lbs"), ["energy_kwh"], check_line
    )


def _bend(first: Point, middle: Point, last: Point) -> Number:
    """How much more energy per doubling the second step takes than the first."""
    one, two, three = (quantity(point, "energy_kwh") for point in (first, middle, last))
    a, b = math.log2(middle.gpus / first.gpus), math.log2(last.gpus / middle.gpus)
    weights = (1 / a, 1 / a + 1 / b, 1 / b)
    numbers = (one, two, three)
    return Number(
        (three.value - two.value) / b - (two.value - one.value) / a,
        math.hypot(*(w * n.half for w, n in zip(weights, numbers, strict=True))),
        math.hypot(*(w * n.spread for w, n in zip(weights, numbers, strict=True))),
        basis(*numbers),
    )


@check("H09")
def fine_tuning_energy(evidence: Evidence) -> Outcome:
    """Fine-tuning takes more energy than pre-training at every n that both have."""
    return _fine_over_pre(evidence, "energy_kwh", "Energy of fine-tuning over pre-training", False)


@check("H10")
def fine_tuning_epoch(evidence: Evidence) -> Outcome:
    """An epoch of fine-tuning takes longer than one of pre-training at every n that both have."""
    what = "Time per epoch of fine-tuning over pre-training"
    return _fine_over_pre(evidence, "runtime_h", what, True)


def _fine_over_pre(evidence: Evidence, name: str, what: str, by_epoch: bool) -> Outcome:
    def compare(point: Point, before: Point) -> Outcome:
        if not by_epoch:
            like([point, before])
        epochs = (before.epochs or 1) / (point.epochs or 1) if by_epoch else 1.0
        ratio = over(quantity(point, name), quantity(before, name), epochs)
        return sign(what, ratio, rises=True)

    parts = []
    for fine, pre in _phases(evidence):
        for point in fine.having(name):
            before = pre.at(point.gpus)
            if before is not None and before.mean(name) is not None:
                parts.append(attempt(f"{point.device}, n = {point.gpus}", compare, point, before))
    if not parts:
        raise NotTestable(f"{what}: no n has finished runs of both phases with a known {name}.")
    return combine(parts)


@check("H11")
def same_factor(evidence: Evidence) -> Outcome:
    """The slopes of energy against GPU hours of both phases are equal within 15 %."""

    def compare(fine: Line, pre: Line) -> Outcome:
        both = [_known_energies(line.points) for line in (pre, fine)]
        refuse_estimates([point for points in both for point in points])
        like([point for points in both for point in points])
        ratio = over(_slope(pre.title, both[0]), _slope(fine.title, both[1]))
        what = "Slope of pre-training over fine-tuning"
        return band(what, ratio, 1 - SAME_SLOPE, 1 + SAME_SLOPE)

    return combine([attempt(fine.device, compare, fine, pre) for fine, pre in _phases(evidence)])


@check("H16")
def steeper_on_h100(evidence: Evidence) -> Outcome:
    """Energy is linear in GPU hours at constant GBS, and the slopes on H100 are steeper.

    Where no series of a device has three points, all its points at constant GBS are one. The slopes are
    of the energy of the device kinds that both measured, where these are known apart.
    """
    groups = {device: _groups(evidence, device) for device in ("h100", "a100")}
    parts = [
        (
            "",
            linear(
                f"{name}, energy (kWh) against GPU hours",
                [one.value for one in numbers(points, "gpu_hours")],
                numbers(points, "energy_kwh"),
                LINEAR_R2,
            ),
        )
        for of_device in groups.values()
        for name, points in of_device.items()
    ]
    every = {p.id: p for own in groups.values() for points in own.values() for p in points}
    refuse_estimates(list(every.values()))
    energies, scope = energies_alike(list(every.values()))
    of_id = dict(zip(every, energies, strict=True))
    slopes = {
        device: mean_of([_slope(name, points, of_id) for name, points in of_device.items()])
        for device, of_device in groups.items()
    }
    ratio, what = over(slopes["h100"], slopes["a100"]), f"Slope of h100 over a100{scope}"
    steeper = [("", band(what, ratio, STEEPER, None)), ("", sign("That ratio", ratio, rises=True))]
    return all_of([*steeper, *parts])


def _groups(evidence: Evidence, device: str) -> dict[str, Sequence[Point]]:
    """Points with energy of each series at constant GBS that has three, else of all together."""
    found = evidence.series(MODEL, "pretrain", device, "fd_gbs", least=1)
    if not found:
        raise NotTestable(f"No finished pre-training at constant GBS on {device}.")
    own = [line for line in found if not all(map(unlike_paper, line.points))] or found
    lines = {line.title: _known_energies(in_paper(line).points) for line in own}
    long = {title: points for title, points in lines.items() if len(points) >= MINIMUM_POINTS}
    together = tuple({p.id: p for points in lines.values() for p in points}.values())
    groups = dict(long) or {f"{device}, all GBS": together}
    for name, points in groups.items():
        enough(points, f"{name}, energy against GPU hours")
        like(points)
    return groups


def _known_energies(points: Sequence[Point]) -> Sequence[Point]:
    return [p for p in points if p.mean("energy_kwh") is not None and p.mean("gpu_hours")]


def _slope(
    name: str, points: Sequence[Point], energies: Mapping[str, Number] | None = None
) -> Number:
    """Slope of the total energy, or of these of the points' ids, against GPU hours."""
    enough(points, f"{name}, energy against GPU hours")
    hours = [one.value for one in numbers(points, "gpu_hours")]
    kwh = [energies[p.id] for p in points] if energies else numbers(points, "energy_kwh")
    return slope(hours, kwh)


@check("H15")
def constant_error(evidence: Evidence) -> Outcome:
    """The range of the error over its mean is at most 5 % in every GBS series."""

    def check_line(line: Line, points: Sequence[Point]) -> Outcome:
        errors = numbers(points, "metric_last")
        ordered = sorted(errors, key=lambda one: one.value)
        spread = over(minus(ordered[-1], ordered[0]), mean_of(errors))
        return band("Range over mean of the Z500 RMSE", spread, None, CONSTANT_ERROR)

    return each_line(_constant_gbs(evidence), ["metric_last"], check_line)


@check("H19")
def few_gpus_are_best(evidence: Evidence) -> Outcome:
    """The smallest n of every series of pre-training takes the least energy."""

    def check_line(line: Line, points: Sequence[Point]) -> Outcome:
        first, *others = points
        best = min(others, key=lambda point: point.mean("energy_kwh") or 0.0)
        ratio = over(quantity(first, "energy_kwh"), quantity(best, "energy_kwh"))
        what = f"Energy at n = {first.gpus} over that at n = {best.gpus}"
        return sign(what, ratio, rises=False)

    return each_line(evidence.series(MODEL, "pretrain", mode="fd"), ["energy_kwh"], check_line)


def _constant_gbs(evidence: Evidence) -> tuple[Line, ...]:
    """Series of pre-training at constant GBS, on all devices."""
    lines = evidence.series(MODEL, "pretrain", mode="fd_gbs")
    if not lines:
        raise NotTestable("No finished pre-training of a series at constant GBS.")
    return lines


def _phases(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Fine-tuning and pre-training with constant LBS on each device that has both.

    NotTestable where none has.
    """
    found = [
        (fine, evidence.line(MODEL, "pretrain", fine.device, "fd_lbs"))
        for fine in evidence.series(MODEL, "finetune", mode="fd_lbs", least=1)
        if evidence.find(MODEL, "pretrain", fine.device, "fd_lbs")
    ]
    if not found:
        raise NotTestable("No device has finished runs of both pre-training and fine-tuning.")
    return found
