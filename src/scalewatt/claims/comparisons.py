"""Rules on several series: batch regimes, phases, devices, with and without loading, all trainings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from scalewatt.claims.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.outcomes import (
    RATIO,
    SAVED,
    Outcome,
    Rule,
    Tests,
    above,
    against,
    all_of,
    attempt,
    beside_one,
    combine,
    decide,
    rule_in,
    shown,
    tests,
)
from scalewatt.claims.quantities import (
    MINIMUM_POINTS,
    MODEL,
    PROBE_EPOCHS,
    SENSED,
    P,
    energies_alike,
    enough,
    grouped,
    in_paper,
    known,
    log_contrast,
    log_ratio,
    mean_of,
    positive,
    pretrainings,
    quantities,
    refuse_estimates,
    refuse_unlike,
    samples_of,
    share_of_kinds,
    values,
)
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Check,
    NotTestable,
)
from scalewatt.claims.shapes import (
    doublings_of_samples,
    ranked,
    slope_along,
    slope_with_errors_of,
    straight,
    straightness,
)
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.comparisons import same_training
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.statistics import LEVEL, Numbers, Source, estimate, joined

COMPARISON_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
POINTS_PER_COEFFICIENT = 2


# --- batch regimes ------------------------------------------------------------------------------


def _regimes(evidence: Evidence, check: Check, compare: Callable[[Line, Line], Outcome]) -> Outcome:
    """Compare the series of two modes on the claim's device if that has both, else on every other."""
    model, phase, device = check.series

    def has(device: str) -> bool:
        return all(evidence.find(model, phase, device, mode) for mode in check.modes)

    def on(device: str) -> Outcome:
        small, large = (evidence.line(model, phase, device, mode) for mode in check.modes)
        return compare(small, large)

    others = sorted({line.device for line in evidence.find(model, phase)} - {device})
    devices = [device] if has(device) else [other for other in others if has(other)]
    return combine(attempt(other, on, other) for other in devices or [device])


@rule_in(COMPARISON_RULES)
def large_regime_is_worse(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean of the second regime is above that of the first, by at most `high`."""

    def compare(small: Line, large: Line) -> Outcome:
        small_mean, large_mean = (
            mean_of(values(known(line, check.quantity), check.quantity)) for line in (small, large)
        )
        more = joined([large_mean, small_mean]).contrast([1, -1])
        label = f"mean top-1 error of {large.title} less that of {small.title}"
        within = tests(label, more, *check.bounds, unit=check.unit)
        return decide(above(label, more, check.unit), within)

    return _regimes(evidence, check, compare)


@rule_in(COMPARISON_RULES)
def large_regime_is_shorter(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every time of the second regime is below every one of the first."""

    def compare(small: Line, large: Line) -> Outcome:
        smalls, larges = (
            known(line, check.quantity, min_points=check.min_points) for line in (small, large)
        )
        pairs = [(a, b) for a in larges for b in smalls]
        labels = [
            f"time of {large.title} at n = {a.gpus} over that of {small.title} at n = {b.gpus}"
            for a, b in pairs
        ]
        ratios = joined([log_ratio(a, b, check.quantity) for a, b in pairs])
        return decide(beside_one(labels, ratios, check.rises))

    return _regimes(evidence, check, compare)


@rule_in(COMPARISON_RULES)
def large_regime_steeper_with_data(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the second regime is worse at the smallest common dataset, and improves faster.

    Datasets are common that differ by at most the part `margin`.
    """

    def error_slope(points: Sequence[Point]) -> Numbers:
        return slope_along(doublings_of_samples(points), values(points, "metric_last"))

    def compare(small: Line, large: Line) -> Outcome:
        pairs = [
            (a, b)
            for a in known(small, "metric_last", min_points=1)
            for b in known(large, "metric_last", min_points=1)
            if abs(samples_of(a) / samples_of(b) - 1) <= check.most
        ]
        if len(pairs) < 2:
            raise NotTestable(
                f"{len(pairs)} dataset sizes that both regimes trained on; {2 - len(pairs)} more needed."
            )
        first, other = pairs[0]
        worse = log_ratio(other, first, "metric_last")
        of_small, of_large = zip(*pairs, strict=True)
        slopes = joined([error_slope(of_small), error_slope(of_large)])
        at = f"at {samples_of(first)} samples"
        return decide(
            beside_one(f"top-1 error of the large regime over the small {at}", worse, rises=True),
            above(
                "fall of the error per doubling in the large regime less that in the small",
                slopes.contrast([1, -1]),
                "pp",
            ),
        )

    return _regimes(evidence, check, compare)


# --- phases -------------------------------------------------------------------------------------


def _phases(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Fine-tuning and pre-training at constant LBS on each device that has both; else NotTestable."""
    both = [
        (fine, evidence.line(MODEL, "pretrain", fine.device, "fd_lbs"))
        for fine in evidence.series(MODEL, "finetune", mode="fd_lbs", least=1)
        if evidence.find(MODEL, "pretrain", fine.device, "fd_lbs")
    ]
    if not both:
        raise NotTestable("No device has finished runs of both pre-training and fine-tuning.")
    return both


@rule_in(COMPARISON_RULES)
def finetuning_over_pretraining(evidence: Evidence, check: Check) -> Outcome:
    """Check whether fine-tuning takes more than pre-training at every n of both."""

    def compare(fine: Point, pre: Point) -> Outcome:
        refuse_unlike([fine, pre])
        return decide(beside_one(check.text, log_ratio(fine, pre, check.quantity), check.rises))

    return _each_n_of_both_phases(evidence, check, compare)


@rule_in(COMPARISON_RULES)
def epoch_of_finetuning_over_pretraining(evidence: Evidence, check: Check) -> Outcome:
    """Check whether an epoch of fine-tuning takes more than one of pre-training at every n of both."""

    def compare(fine: Point, pre: Point) -> Outcome:
        whole = log_ratio(fine, pre, check.quantity)
        epochs = math.log((pre.epochs or 1) / (fine.epochs or 1))
        ratio = replace(whole, values=whole.values + epochs)
        return decide(beside_one(check.text, ratio, check.rises))

    return _each_n_of_both_phases(evidence, check, compare)


def _each_n_of_both_phases(
    evidence: Evidence, check: Check, compare: Callable[[Point, Point], Outcome]
) -> Outcome:
    parts = []
    for fine, pre in _phases(evidence):
        for point in fine.having(check.quantity):
            before = pre.point_at(point.gpus)
            if before is not None and before.mean(check.quantity) is not None:
                parts.append(attempt(f"{point.device}, n = {point.gpus}", compare, point, before))
    if not parts:
        raise NotTestable(
            f"{check.text}: no n has finished runs of both phases with a known {check.quantity}."
        )
    return combine(parts)


@rule_in(COMPARISON_RULES)
def same_slope_in_both_phases(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the slopes of energy against GPU hours of both phases have a ratio within the bounds."""

    def compare(fine: Line, pre: Line) -> Outcome:
        both = [(line, _with_energy(line.points)) for line in (pre, fine)]
        every = [point for _, points in both for point in points]
        refuse_estimates(every)
        refuse_unlike(every)
        slopes = [_energy_slope(line.title, points) for line, points in both]
        return decide(_ratio_within(check.text, joined(slopes), *check.bounds))

    return combine(attempt(fine.device, compare, fine, pre) for fine, pre in _phases(evidence))


def _with_energy(points: Iterable[Point]) -> list[Point]:
    """Points that know their energy and GPU hours."""
    return [p for p in points if p.mean("energy_kwh") is not None and p.mean("gpu_hours")]


def _energy_slope(name: str, points: Sequence[Point], kwh: Numbers | None = None) -> Numbers:
    """Slope of energy, by default the total, against GPU hours."""
    enough(points, f"{name}, energy against GPU hours")
    energies = values(points, "energy_kwh") if kwh is None else kwh
    return slope_with_errors_of(values(points, "gpu_hours"), energies)


def _ratio_within(label: str, two: Numbers, low: float, high: float, strict: bool = False) -> Tests:
    """Test of the ratio of two numbers; by logarithms if both are positive."""
    if np.all(two.values > 0):
        return tests(label, log_contrast(two), low, high, RATIO, strict=strict)
    top, bottom = two.values
    if not bottom:
        raise NotTestable("A quantity that is divided by is 0.")
    ratio = two.contrast([1 / bottom, -top / bottom**2])
    return tests(label, replace(ratio, values=np.array([top / bottom])), low, high, strict=strict)


# --- devices ------------------------------------------------------------------------------------


@rule_in(COMPARISON_RULES)
def steeper_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy is linear in GPU hours at constant GBS, and steeper on H100.

    Where no series of a device has three points, all its trainings with a GBS that is constant in a series
    of either device are one: so those of Table 1 count on both. The slopes are of the energy of the
    device kinds that both measured, where these are known apart.
    """
    lines = evidence.series(MODEL, "pretrain", None, "fd_gbs", least=1)
    sizes = {line.constant for line in lines if line.device in ("h100", "a100")}
    groups = {device: _constant_gbs(evidence, device, sizes) for device in ("h100", "a100")}
    parts = []
    for name, points in [named for by_name in groups.values() for named in by_name.items()]:
        hours, kwh = values(points, "gpu_hours"), values(points, "energy_kwh")
        label = f"{name}, energy (kWh) against GPU hours"
        lined, bow = straightness(label, hours, kwh, check.most, [p.gpus for p in points])
        parts.append(("", decide(*lined, value=bow)))

    every = {p.id: p for by_name in groups.values() for points in by_name.values() for p in points}
    refuse_estimates(every.values())
    energies, scope = energies_alike(list(every.values()))
    position = {id_: index for index, id_ in enumerate(every)}
    slopes = []
    for by_name in groups.values():
        of_device = [
            _energy_slope(name, points, energies[[position[p.id] for p in points]])
            for name, points in by_name.items()
        ]
        slopes.append(mean_of(joined(of_device)))
    label = f"Slope of h100 over a100{scope}"
    steeper = decide(_ratio_within(label, joined(slopes), *check.bounds, strict=True))
    return all_of([("", steeper), *parts])


def _constant_gbs(
    evidence: Evidence, device: str, sizes: set[int | None]
) -> dict[str, Sequence[Point]]:
    """Points with energy of each series at constant GBS that has three, else all with these GBS."""
    series = evidence.series(MODEL, "pretrain", device, "fd_gbs", least=1)
    if not series:
        raise NotTestable(f"No finished pre-training at constant GBS on {device}.")
    lines = [line for line in series if not all(map(unlike_paper, line.points))] or series
    by_line = {line.title: _with_energy(in_paper(line)) for line in lines}
    groups: dict[str, Sequence[Point]] = {
        title: points for title, points in by_line.items() if len(points) >= MINIMUM_POINTS
    }
    if not groups:
        alike = [p for p in _pretrained_as_paper(evidence, device) if p.gbs in sizes]
        together = sorted(_with_energy(alike), key=lambda p: p.gpus)
        listed = ", ".join(f"{p.gpus}/{p.gbs}" for p in together)
        groups = {f"{device}, GPUs/GBS {listed}" if listed else device: together}
    for name, points in groups.items():
        enough(points, f"{name}, energy against GPU hours")
        refuse_unlike(points)
    return groups


def _pretrained_as_paper(evidence: Evidence, device: str) -> list[Point]:
    return [point for point in pretrainings(evidence, device) if not unlike_paper(point)]


def _each_pair(evidence: Evidence, compare: Callable[[Point, Point], Tests]) -> Outcome:
    """Combine a comparison of every pre-training that has results on both devices."""
    pairs = [
        (h100, a100)
        for h100 in _pretrained_as_paper(evidence, "h100")
        for a100 in _pretrained_as_paper(evidence, "a100")
        if same_training(dict(h100.row)) == same_training(dict(a100.row))
    ]
    if not pairs:
        raise NotTestable(
            "No pre-training as in the paper has finished with the same GPUs, LBS, GBS and settings on both "
            "a100 and h100."
        )

    def decide_pair(h100: Point, a100: Point) -> Outcome:
        return decide(compare(h100, a100))

    return combine(
        attempt(f"GPUs {h100.gpus}, LBS {h100.lbs}, GBS {h100.gbs}", decide_pair, h100, a100)
        for h100, a100 in sorted(pairs, key=lambda pair: pair[0].gpus)
    )


@rule_in(COMPARISON_RULES)
def saved_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the part that H100 saves is within the bounds in every pair.

    Decided is what is left, a ratio, on logarithms.
    """

    def compare(h100: Point, a100: Point) -> Tests:
        return tests(check.text, log_ratio(h100, a100, check.quantity), *check.bounds, SAVED)

    return _each_pair(evidence, compare)


@rule_in(COMPARISON_RULES)
def power_higher_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the energy per GPU hour on H100 over A100 is within the bounds in every pair."""

    def compare(h100: Point, a100: Point) -> Tests:
        refuse_estimates([h100, a100])
        energies, scope = energies_alike([h100, a100])
        totals = positive(quantities((h100, a100), "energy_kwh"))
        # The spread is that of P, in which energy and time of a run go together.
        powers = quantities((h100, a100), P)
        alike = powers.times(energies.values / totals.values)
        return beside_one(f"{check.text}{scope}", log_contrast(alike), check.rises)

    return _each_pair(evidence, compare)


@rule_in(COMPARISON_RULES)
def energy_equivalent_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energies of each pair are equivalent: the interval of their ratio within `high`."""

    def compare(h100: Point, a100: Point) -> Tests:
        energies, scope = energies_alike([h100, a100])
        label = f"Energy of h100 over a100{scope}"
        return tests(label, log_contrast(energies), 1 / (1 + check.high), 1 + check.high, RATIO)

    return _each_pair(evidence, compare)


# --- loading ------------------------------------------------------------------------------------


@rule_in(COMPARISON_RULES)
def without_loading(evidence: Evidence, check: Check) -> Outcome:
    """Check whether without loading (`loader: synthetic`) GPUs draw more power and the run takes less energy.

    The claimed share of low-power time is in no table.
    """
    twins = [
        (real, twin)
        for twin in evidence.points
        if twin.row["loader"] == "synthetic"
        for real in evidence.points
        if real.row["loader"] not in (None, "synthetic")
        and _but_for_loading(real) == _but_for_loading(twin)
    ]
    if not twins:
        raise NotTestable(
            "No configuration has finished runs both with and without loading (loader synthetic): "
            "campaigns/variants.yaml asks for them."
        )

    def compare(real: Point, twin: Point) -> Outcome:
        power, energy = (log_ratio(twin, real, n) for n in ("mean_gpu_power_w", "energy_kwh"))
        return decide(
            beside_one("GPU power without loading over that with", power, rises=True),
            beside_one("Energy without loading over that with", energy, rises=False),
        )

    return combine(attempt(real.id, compare, real, twin) for real, twin in twins)


def _but_for_loading(point: Point) -> tuple[object, ...]:
    """What two trainings share that differ in loading alone."""
    row = {**point.row, "loader": None}
    row["configuration"] = re.sub(r"-loader(?!_)[\w.]+", "", str(row["configuration"]))
    return (*same_training(row), point.device, point.origin, point.scope)


# --- energy per GPU hour of all trainings -------------------------------------------------------


@rule_in(COMPARISON_RULES)
def points_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether P of all trainings as in the paper, from `n` GPUs on, is within bounds and margin."""
    points = _as_paper(evidence.points, check)
    if not points:
        raise NotTestable(_none_as_paper(evidence, check))
    return _all_within([f"P of {p.id}" for p in points], quantities(points, P), check)


@rule_in(COMPARISON_RULES)
def means_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean P of every series is within bounds and margin.

    A series whose points another one has too does not count.
    """
    lines = evidence.find(check.model, None, check.device)
    series = [(line, points) for line in lines if (points := _as_paper(line.points, check))]
    if not series:
        raise NotTestable(_none_as_paper(evidence, check))
    labels, means, counted = [], [], list[set[str]]()
    for line, points in sorted(series, key=lambda pair: -len(pair[1])):  # the longest first
        ids = {point.id for point in points}
        if not any(ids <= others for others in counted):
            counted.append(ids)
            labels.append(f"Mean P of {line.title} (points: {len(points)})")
            means.append(mean_of(quantities(points, P)))
    return _all_within(labels, joined(means), check)


def _as_paper(points: Sequence[Point], check: Check) -> list[Point]:
    """Trainings as in the paper, the probe among them, from `n` GPUs on, with a known P."""
    return [
        point
        for point in points
        if (point.model, point.device) == (check.model, check.device)
        and point.gpus >= int(check.n or 1)
        and not _unlike(point)
        and point.mean(P) is not None
    ]


def _unlike(point: Point) -> tuple[str, ...]:
    return unlike_paper(point, PROBE_EPOCHS if "probe" in point.modes else None)


def _none_as_paper(evidence: Evidence, check: Check) -> str:
    wanted = check.model, check.device
    unlike = [p for p in evidence.points if (p.model, p.device) == wanted and _unlike(p)]
    other = f": {unlike[0].id} has {', '.join(_unlike(unlike[0]))}" if unlike else ""
    least = f" from {check.n} GPUs on" if check.n else ""
    kind = f"{check.model} on {check.device}{least}"
    return f"No finished run of {kind} as in the paper with a known energy{other}."


def _all_within(labels: Sequence[str], numbers: Numbers, check: Check) -> Outcome:
    """Decide whether all numbers lie within bounds and margin; the value is the range that they are in."""
    margin = check.most if check.margin else 0.0
    low, high = check.low * (1 - margin), check.high * (1 + margin)
    ends = dict.fromkeys((shown(float(numbers.values.min())), shown(float(numbers.values.max()))))
    return decide(tests(labels, numbers, low, high, unit=check.unit), value="-".join(ends))


@rule_in(COMPARISON_RULES)
def linear_everywhere(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy is linear in GPU hours along every series with enough points of whole nodes."""
    lines = [line for line in evidence.find() if line.mode not in ("probe", "other")]
    of_nodes = {line.name: _whole_nodes(evidence, line, *check.columns) for line in lines}
    long = [line for line in lines if len(of_nodes[line.name]) >= check.min_points]
    if not long:
        refuse_estimates([point for line in lines for point in line.having(check.quantity)])
        points = max(of_nodes.values(), key=len, default=())
        enough(points, "energy and GPU hours along one series, whole nodes")

    def check_line(line: Line) -> Outcome:
        refuse_estimates(line.having(check.quantity))
        refuse_unlike(of_nodes[line.name])
        return straight(check, evidence, line, of_nodes[line.name])

    outcome = combine(attempt(line.title, check_line, line) for line in long)
    left = len(lines) - len(long)
    more = f" Series with fewer than {check.min_points} points: {left}." if left else ""
    return replace(outcome, detail=outcome.detail + more)


def _whole_nodes(evidence: Evidence, line: Line, *names: str) -> Sequence[Point]:
    return line.having(*names, at_least=evidence.gpus_per_node(line.device))


def _groups(evidence: Evidence, *names: str) -> list[list[Point]]:
    """Points of whole nodes that know these quantities, by model, device and scope; no probes.

    Only those of the most frequent origin, as energies of several are not compared; NotTestable if all are
    estimated, which do not count.
    """
    points = {
        point.id: point
        for line in evidence.find()
        if line.mode != "probe"
        for point in _whole_nodes(evidence, line, *names)
    }
    sensed = [point for point in points.values() if point.origin != "estimated"]
    if not sensed:
        refuse_estimates(points.values())
    origins = [point.origin for point in sensed]
    most = max(set(origins), key=lambda origin: (origins.count(origin), str(origin)), default=None)
    alike = [point for point in sensed if point.origin == most]
    return list(grouped(alike, _kind).values())


def _kind(point: Point) -> str:
    return f"{point.model} {point.device} ({point.scope})"


@rule_in(COMPARISON_RULES)
def factors_differ(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of mean P between two models or devices is at least `low` for any pair."""
    groups = _groups(evidence, P)
    ratios = dict(filter(None, (_factor(a, b) for a, b in combinations(groups, 2))))
    if not ratios:
        kinds = ", ".join(sorted(_kind(points[0]) for points in groups)) or "none"
        raise NotTestable(
            "Two pairs of model and device with P_GPUh over the same kinds of device are needed; there "
            f"are {kinds}."
        )
    return any_at_least(list(ratios), joined(list(ratios.values())), check.low)


def _factor(a: Sequence[Point], b: Sequence[Point]) -> tuple[str, Numbers] | None:
    """The larger mean P over the other, by the device kinds that both have, with its label.

    Null of the same model and device, or if P over these kinds is not known.
    """
    scopes = [(points[0].scope or "").split("+") for points in (a, b)]
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope for scope in scopes)]
    shares = [[share_of_kinds(point, kinds) for point in points] for points in (a, b)]
    is_same = (a[0].model, a[0].device) == (b[0].model, b[0].device)
    if is_same or not kinds or None in (*shares[0], *shares[1]):
        return None
    means = [
        mean_of(quantities(points, P).times(np.array(of_kinds, float)))
        for points, of_kinds in zip((a, b), shares, strict=True)
    ]
    top, bottom = sorted(zip(means, (a, b), strict=True), key=lambda pair: -pair[0].values[0])
    if bottom[0].values[0] <= 0:
        return None
    names = [f"{points[0].model} {points[0].device}" for _, points in (top, bottom)]
    counts = f"{'+'.join(kinds)} of both, points: {len(top[1])}, {len(bottom[1])}"
    label = f"mean P_GPUh of {names[0]} over that of {names[1]} ({counts})"
    return label, log_contrast(joined([top[0], bottom[0]]))


@rule_in(COMPARISON_RULES)
def factors_at_equal_n(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of P between two models or devices at equal n is at least `low` for any pair.

    Energies of unlike scopes are not compared. Trainings at other n would differ by n as well.
    """
    points = [point for group in _groups(evidence, P) for point in group]
    labels, ratios = [], []
    for a, b in combinations(points, 2):
        if (a.gpus, a.scope) == (b.gpus, b.scope) and (a.model, a.device) != (b.model, b.device):
            top, bottom = sorted((a, b), key=lambda p: -(p.mean(P) or 0.0))
            names = [f"{point.model} {point.device}" for point in (top, bottom)]
            labels.append(f"P_GPUh of {names[0]} over that of {names[1]} at n = {a.gpus}")
            ratios.append(log_ratio(top, bottom, P))
    if not ratios:
        raise NotTestable("No two trainings of other models or devices have P_GPUh at the same n.")
    return any_at_least(labels, joined(ratios), check.low)


def any_at_least(labels: Sequence[str], logarithms: Numbers, low: float) -> Outcome:
    """Decide whether at least one of several ratios is at least `low`.

    Supported by one that is so rarely that far above, times their number; contradicted where all are
    below, with the probability of the one that is least so.
    """
    alone = [
        decide(tests(label, logarithms[[index]], low, scale=RATIO))
        for index, label in enumerate(labels)
    ]
    bound = math.log(low)
    # The probability of a ratio as far above the bound, were the truth on it; beyond 1/2 below it.
    chances = [
        1 - against(logarithms, index, bound, math.inf)
        if logarithms.values[index] < bound
        else against(logarithms, index, -math.inf, bound)
        for index in range(len(labels))
    ]
    nearest = min(range(len(labels)), key=lambda i: (chances[i], -(alone[i].p or 0.0)))
    p = max(1.0 if part.p is None else part.p for part in alone)
    outcome, chance = replace(alone[nearest], p=p), chances[nearest] * len(labels)
    if outcome.verdict == SUPPORTED and chance <= LEVEL:
        return outcome
    if all(part.verdict == CONTRADICTED for part in alone):
        return outcome
    note = f" Of {len(labels)} comparisons one may lie so far above by chance (p = {chance:.2g})."
    detail = outcome.detail + (note if outcome.verdict == SUPPORTED else "")
    return replace(outcome, verdict=UNDECIDED, detail=detail)


# --- what explains it -----------------------------------------------------------------------------


@rule_in(COMPARISON_RULES)
def rates_explain(evidence: Evidence, check: Check) -> Outcome:
    """Check whether each rate lowers the error of P when one point is left out."""
    names = (P, "samples_per_gpuh", "passes_per_gpuh")
    needed = POINTS_PER_COEFFICIENT * len(names)
    groups = _groups(evidence, *names)
    if not groups:
        raise NotTestable("There is no point with P_GPUh and rates.")
    large = [points for points in groups if len(points) >= needed]
    if not large:
        most = max(map(len, groups))
        raise NotTestable(
            f"{most} of the {needed} points that leaving one out needs; {needed - most} more needed."
        )
    return combine(attempt(_kind(points[0]), _left_out, points, names) for points in large)


def _left_out(points: Sequence[Point], names: Sequence[str]) -> Outcome:
    """Decide whether the mean error of P rises where either rate is dropped from both.

    Each is dropped for a bend of the other: a curve in one rate is no effect of two.
    """
    powers, *rates = (values(points, name) for name in names)
    first, second = np.triu_indices(len(points), 1)
    gaps = powers.contrast(np.eye(len(points))[second] - np.eye(len(points))[first])
    if np.all(np.abs(gaps.values) <= gaps.halves):
        detail = (
            f"all {len(points)} P_GPUh are within their spread: more repeats would tell them apart."
        )
        return Outcome(UNDECIDED, None, detail, p=1.0, origins=powers.origins)
    if not powers.values.all():
        raise NotTestable("An energy per GPU hour is 0.")
    samples, passes = (rate.values for rate in rates)
    both, by_passes, by_samples = (
        leave_one_out(powers.values, terms)
        for terms in ([samples, passes], [passes, passes**2], [samples, samples**2])
    )
    rises = [rise_of_error("samples", by_passes, both), rise_of_error("passes", by_samples, both)]
    outcome = decide(*rises)
    # The interval is over points.
    needed = outcome.detail.replace("repeats of each point would tell", "points are needed")
    error = f"with both rates the mean error of P_GPUh is {100 * np.mean(both):.1f} %"
    detail = f"leaving one of {len(points)} points out, {error}; {needed}"
    return replace(outcome, detail=detail, origins=powers.origins)


def rise_of_error(dropped: str, before: Sequence[float], after: Sequence[float]) -> Tests:
    """Test that errors of the same points fall, in percentage points, by a paired t interval."""
    falls = summarise([100 * (a - b) for a, b in zip(before, after, strict=True)])
    assert falls.mean is not None and falls.sd is not None
    square = falls.sd**2
    number = estimate(falls.mean, Source("points"), square / falls.n, falls.n - 1, square)
    return above(f"the rise of the mean error without {dropped}", number, "pp")


def leave_one_out(y: np.ndarray, terms: Sequence[np.ndarray]) -> list[float]:
    """Relative error of each y (not 0), predicted by least squares on the others."""
    scaled = [term / (np.max(np.abs(term)) or 1.0) for term in terms]
    design = np.column_stack([np.ones(len(y)), *scaled])
    errors = []
    for index in range(len(y)):
        others = np.arange(len(y)) != index
        coefficients, *_ = np.linalg.lstsq(design[others], y[others], rcond=None)
        errors.append(abs(float(design[index] @ coefficients) / float(y[index]) - 1))
    return errors


# --- shares and powers of device kinds ------------------------------------------------------------


@rule_in(COMPARISON_RULES)
def ram_shares_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether RAM's share of every training from `n` GPUs on is within the bounds."""
    points = _with_ram(evidence, check)
    labels = [f"share of RAM of {point.id}" for point in points]
    return _all_within(labels, quantities(points, check.quantity), check)


@rule_in(COMPARISON_RULES)
def largest_ram_share(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every share of RAM is at most the claim's, with its tolerance."""
    points = _with_ram(evidence, check)
    labels = [f"the share of RAM of {point.id}" for point in points]
    return decide(tests(labels, quantities(points, check.quantity), *check.bounds))


def _with_ram(evidence: Evidence, check: Check) -> list[Point]:
    """Points from `n` GPUs on with a measured or published share of RAM, on A100 if any.

    An estimate from rated powers says nothing of a share. NotTestable if there are none.
    """
    shares = [
        point
        for point in evidence.points
        if point.gpus >= int(check.n or 1) and point.mean(check.quantity) is not None
    ]
    sensed = [point for point in shares if point.origin in SENSED]
    if not sensed:
        origins = ", ".join(sorted({str(point.origin) for point in shares}))
        rest = f"; it is {origins} where there is one" if shares else ""
        least = f" from {check.n} GPUs on" if check.n else ""
        raise NotTestable(
            f"No finished run{least} has measured energy of RAM (it needs the sensor of an Intel CPU){rest}."
        )
    return [point for point in sensed if point.device == "a100"] or sensed


@rule_in(COMPARISON_RULES)
def gpu_varies_more_than_cpu(evidence: Evidence, check: Check) -> Outcome:
    """Check whether mean GPU power has a larger range than mean CPU socket power, by model and device."""
    names = (check.quantity, check.against)
    measured = [p for p in evidence.points if all(p.mean(name) is not None for name in names)]
    groups = grouped(measured, lambda point: f"{point.model} {point.device}")
    ready = {name: points for name, points in groups.items() if len(points) >= 2}
    if not ready:
        raise NotTestable(
            "No two configurations of a model and device have power of both GPU and CPU."
        )

    def compare(points: Sequence[Point]) -> Outcome:
        refuse_unlike(points)
        gpu, cpu = (_range(quantities(points, name)) for name in names)
        label = (
            f"Range of GPU power ({shown(float(gpu.values[0]))} W) less that of CPU socket power"
        )
        return decide(above(label, joined([gpu, cpu]).contrast([1, -1]), check.unit))

    return combine(attempt(group, compare, points) for group, points in ready.items())


def _range(numbers: Numbers) -> Numbers:
    """The largest number less the smallest."""
    order = np.argsort(numbers.values, kind="stable")
    return numbers[order[[-1, 0]]].contrast([1, -1])


@rule_in(COMPARISON_RULES)
def rank_of_all_points(evidence: Evidence, check: Check) -> Outcome:
    """Check whether a quantity goes with another over all points of a model, phase and device."""
    counted = [point for point in evidence.points if point.mean(check.against) is not None]
    groups = grouped(counted, lambda point: f"{point.model} {point.phase} {point.device}")
    if not groups:
        raise NotTestable("No finished run has samples per GPU hour.")

    def compare(name: str, points: Sequence[Point]) -> Outcome:
        ready = [point for point in points if point.mean(check.quantity) is not None]
        if not ready:
            raise NotTestable("GPU power is not known.")
        enough(ready, name, check.min_points)
        x = np.array([point.mean(check.against) or 0.0 for point in ready])
        return ranked(check, x, values(ready, check.quantity))

    return combine(attempt(name, compare, name, points) for name, points in groups.items())
