"""Rules on several series: batch regimes, phases, devices, with and without loading, all trainings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from scalewatt.claims.evidence import Evidence, Line, Points, is_of_energy
from scalewatt.claims.outcomes import (
    Outcome,
    Rule,
    Tests,
    above,
    against,
    all_of,
    attempt,
    combine,
    decide,
    ratios,
    rule_in,
)
from scalewatt.claims.quantities import (
    P,
    abscissa,
    in_common,
    in_papers_scope,
    known,
    log_contrast,
    mean_of,
    quantities,
    refuse_estimates,
    refuse_unlike,
    require_paper,
    samples_of,
    values,
)
from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED, UNDECIDED, Check, NotTestable
from scalewatt.claims.shapes import all_within, slope_along, slope_with_errors_of, straightness
from scalewatt.results.tables.comparisons import same_training
from scalewatt.results.tables.frames import records
from scalewatt.statistics import LEVEL, Numbers, Source, estimate, joined

COMPARISON_RULES: dict[str, Rule] = {}
"""The rules by the name that the table calls them."""
MODEL = "fourcastnet"
POINTS_PER_COEFFICIENT = 2


# --- pairs of points --------------------------------------------------------------------------------

Pair = tuple[str, Points]
"""A name, and the points whose quantities are divided: the first by the second."""


def _large_over_small(evidence: Evidence, check: Check) -> Iterator[Pair]:
    """Yield every point of the large regime with every one of the small."""
    for lines in evidence.anywhere(*check.series, *check.modes):
        least = int(check.least or 3)
        smalls, larges = (
            known(line.points, line.title, check.quantity, min_points=least) for line in lines
        )
        for large in larges.index:
            for small in smalls.index:
                counts = f"n = {larges['gpus'][large]} over n = {smalls['gpus'][small]}"
                pair = pd.concat([larges.loc[[large]], smalls.loc[[small]]])
                yield f"{lines[0].device}, {counts}", pair


def _phases(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Fine-tuning and pre-training at constant LBS on each device that has both; else NotTestable."""
    both = [
        (fine, evidence.line(MODEL, "pretrain", fine.device, "fd_lbs"))
        for fine in evidence.distinct(MODEL, "finetune", None, "fd_lbs")
        if evidence.find(MODEL, "pretrain", fine.device, "fd_lbs")
    ]
    if not both:
        raise NotTestable("No device has finished runs of both pre-training and fine-tuning.")
    return both


def _fine_over_pre(evidence: Evidence, check: Check) -> Iterator[Pair]:
    """Yield fine-tuning with pre-training at every n that has both."""
    for lines in _phases(evidence):
        points = pd.concat([line.points for line in lines]).dropna(subset=[f"{check.column}_mean"])
        for n, pair in points.groupby("gpus"):
            if len(pair) == 2:
                yield f"{lines[0].device}, n = {n}", pair


def _h100_over_a100(evidence: Evidence, check: Check) -> Iterator[Pair]:
    """Yield every pre-training as in the paper that has results on both devices."""
    points = pd.concat([_pretrained_as_paper(evidence, device) for device in ("h100", "a100")])
    points = points.sort_values("gpus", kind="stable")
    trainings = [str(same_training(row)) for row in records(points)]
    for _, pair in points.groupby(pd.Series(trainings, points.index, dtype=object), sort=False):
        if len(pair) == 2:
            sizes = ("gpus", "local_batch_size", "global_batch_size")
            gpus, lbs, gbs = (pair[name].iloc[0] for name in sizes)
            yield f"GPUs {gpus}, LBS {lbs}, GBS {gbs}", pair


def _pretrained_as_paper(evidence: Evidence, device: str) -> Points:
    points = evidence.points
    is_alike = (points["model"] == MODEL) & (points["phase"] == "pretrain")
    is_alike &= (points["unlike"] == "") & ~points["is_probe"].astype(bool)
    return points[is_alike & (points["device"] == device)]


def _synthetic_over_loaded(evidence: Evidence, check: Check) -> Iterator[Pair]:
    """Yield every training without loading (`loader: synthetic`) with the one that differs in that alone."""
    points, keys = evidence.points, []
    for row in records(points):
        bare = re.sub(r"-loader(?!_)[\w.]+", "", str(row["configuration"]))
        alike = same_training({**row, "loader": None, "configuration": bare})
        keys.append(str((*alike, row["device"], row["energy_origin"], row["energy_scope"])))
    trainings = pd.Series(keys, points.index, dtype=object)[points["loader"].notna()]
    is_synthetic = points["loader"][trainings.index] == "synthetic"
    for id_, training in trainings[is_synthetic].items():
        for loaded in trainings.index[~is_synthetic & (trainings == training)]:
            yield str(loaded), points.loc[[id_, loaded]]


PAIRS: Mapping[str, tuple[Callable[[Evidence, Check], Iterator[Pair]], str]] = {
    "large/small": (_large_over_small, "regimes"),
    "finetune/pretrain": (_fine_over_pre, "n that both phases have with known quantities"),
    "h100/a100": (
        _h100_over_a100,
        "pre-trainings as in the paper with the same GPUs, LBS, GBS and settings on both a100 and h100",
    ),
    "synthetic/loaded": (
        _synthetic_over_loaded,
        "configurations that have runs both with and without loading (loader synthetic), which "
        "campaigns/variants.yaml asks for",
    ),
}


def _compare_pairs(
    evidence: Evidence, check: Check, test: Callable[[str, Numbers], Tests]
) -> Outcome:
    """Test the logarithm of the ratio in every pair; energies over the device kinds that both measured."""
    pairs, what = PAIRS[check.against]

    def compare(pair: Points) -> Outcome:
        if is_of_energy(check.quantity):
            refuse_unlike(pair, "origin")
        is_total = check.quantity in ("energy_kwh", P)
        factors, scope = in_common(pair) if is_total else (np.ones(2), "")
        ratio = log_contrast(quantities(pair, check.quantity).times(factors))
        return decide(test(f"{check.text}{scope}", ratio))

    parts = [attempt(name, compare, pair) for name, pair in pairs(evidence, check)]
    if not parts:
        raise NotTestable(f"There are no {what}.")
    return combine(parts)


@rule_in(COMPARISON_RULES)
def pair_ratio(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of the two points is within the bounds in every pair of `against`."""
    low, high = check.bounds
    return _compare_pairs(
        evidence, check, partial(ratios, low=low, high=high, strict=check.is_sign)
    )


@rule_in(COMPARISON_RULES)
def pair_saving(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the part that the first point of every pair saves is within the bounds.

    Decided is what is left, a ratio, on logarithms.
    """
    high, low = (math.log(1 - part) for part in check.bounds)
    return _compare_pairs(evidence, check, partial(Tests, low=low, high=high, show=_saved))


def _saved(logarithm: float) -> float:
    return 1 - math.exp(logarithm)


@rule_in(COMPARISON_RULES)
def pair_equivalent(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the points of each pair are equivalent: the interval of their ratio within `high`."""
    most = 1 + check.bounds[1]
    return _compare_pairs(evidence, check, partial(ratios, low=1 / most, high=most))


# --- means and slopes of two series ---------------------------------------------------------------------


@rule_in(COMPARISON_RULES)
def large_regime_is_worse(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean of the second regime is above that of the first, by at most `high`."""

    def compare(*lines: Line) -> Outcome:
        small, large = (
            mean_of(values(known(line.points, line.title, check.quantity), check.quantity))
            for line in lines
        )
        more = joined([large, small]).contrast([1, -1])
        label = f"{check.text} of {lines[1].title} less that of {lines[0].title}"
        within = Tests(label, more, *check.bounds, unit=check.unit)
        return decide(above(label, more, check.unit), within)

    regimes = evidence.anywhere(*check.series, *check.modes)
    return combine(attempt(lines[0].device, compare, *lines) for lines in regimes)


@rule_in(COMPARISON_RULES)
def large_regime_steeper_with_data(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the second regime is worse at the smallest common dataset, and improves faster.

    Datasets are common that differ by at most the part `margin`.
    """

    def compare(*lines: Line) -> Outcome:
        small, large = (
            known(line.points, line.title, check.quantity, min_points=1) for line in lines
        )
        apart = np.abs(samples_of(small)[:, None] / samples_of(large) - 1)
        of_small, of_large = np.nonzero(apart <= check.most)
        if len(of_small) < 2:
            few = f"{len(of_small)} dataset sizes that both regimes have"
            raise NotTestable(f"{few}; {2 - len(of_small)} more needed.")
        both = small.iloc[of_small], large.iloc[of_large]
        small_fall, large_fall = (
            slope_along(abscissa(points, "log2 samples").values, values(points, check.quantity))
            for points in both
        )
        first = pd.concat([both[1].head(1), both[0].head(1)])
        smallest = f"{samples_of(both[0])[0]:.0f} samples"
        return decide(
            ratios(
                f"{check.text} of the large regime over the small at {smallest}",
                log_contrast(quantities(first, check.quantity)),
                low=1.0,
                strict=True,
            ),
            above(
                f"fall of the {check.text} per doubling in the large regime less that in the small",
                joined([small_fall, large_fall]).contrast([1, -1]),
                check.unit,
            ),
        )

    regimes = evidence.anywhere(*check.series, *check.modes)
    return combine(attempt(lines[0].device, compare, *lines) for lines in regimes)


@rule_in(COMPARISON_RULES)
def same_slope_in_both_phases(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the slopes of energy against GPU hours of both phases have a ratio within the bounds."""

    def compare(fine: Line, pre: Line) -> Outcome:
        every = [known(line.points, line.title, *check.columns) for line in (pre, fine)]
        refuse_unlike(pd.concat(every))
        slopes = joined([_energy_slope(points) for points in every])
        return decide(ratios(check.text, log_contrast(slopes), *check.bounds))

    return combine(attempt(fine.device, compare, fine, pre) for fine, pre in _phases(evidence))


def _energy_slope(points: Points, factors: np.ndarray | float = 1.0) -> Numbers:
    """Slope of energy against GPU hours; NotTestable for estimates."""
    refuse_estimates(points)
    energies = quantities(points, "energy_kwh").times(factors)
    return slope_with_errors_of(quantities(points, "gpu_hours"), energies)


@rule_in(COMPARISON_RULES)
def steeper_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy is linear in GPU hours at constant GBS, and steeper on H100.

    Where no series of a device has three points, all its trainings with a GBS that is constant in a series
    of either device are one: so those of Table 1 count on both. The slopes are of the energy of the
    device kinds that both measured, where these are known apart.
    """
    devices = ("h100", "a100")
    lines = [
        line
        for device in devices
        for line in evidence.distinct(MODEL, "pretrain", device, "fd_gbs")
    ]
    groups = [_constant_gbs(evidence, device, lines) for device in devices]
    every = pd.concat([points for by_name in groups for points in by_name.values()])
    shares, scope = in_common(every)
    factors = dict(zip(every.index, shares, strict=True))
    slopes, parts = [], []
    for by_name in groups:
        of_device = []
        for name, points in by_name.items():
            hours, kwh = values(points, "gpu_hours"), values(points, "energy_kwh")
            label = f"{name}, {check.text}"
            outcome = straightness(label, hours, kwh, check.most, list(points["gpus"]))
            parts.append(("", outcome))
            of_device.append(_energy_slope(points, points.index.map(factors).to_numpy()))
        slopes.append(mean_of(joined(of_device)))
    label = f"Slope of h100 over a100{scope}"
    steeper = ratios(label, log_contrast(joined(slopes)), *check.bounds, strict=check.is_sign)
    return all_of([("", decide(steeper)), *parts])


def _constant_gbs(evidence: Evidence, device: str, lines: Sequence[Line]) -> dict[str, Points]:
    """Points with energy of each series of a device that has three, else all with the GBS of `lines`."""
    series = [line for line in lines if line.device == device]
    if not series:
        raise NotTestable(f"No finished pre-training at constant GBS on {device}.")
    columns = ["energy_kwh_mean", "gpu_hours_mean"]
    groups = {
        line.title: line.points[line.points["unlike"] == ""].dropna(subset=columns)
        for line in series
    }
    groups = {title: points for title, points in groups.items() if len(points) >= 3}
    if not groups:
        alike = _pretrained_as_paper(evidence, device)
        alike = alike[alike["global_batch_size"].isin({line.constant for line in lines})]
        alike = alike.sort_values("gpus", kind="stable")
        if alike.empty:
            require_paper(series[0].points)
        listed = ", ".join(f"{p.gpus}/{p.global_batch_size}" for p in alike.itertuples())
        groups = {f"{device}, GPUs/GBS {listed}": alike}
    return {name: known(points, name, "energy_kwh", "gpu_hours") for name, points in groups.items()}


# --- energy per GPU hour of all trainings -------------------------------------------------------


@rule_in(COMPARISON_RULES)
def means_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the mean of every series, of points as in the paper, is within bounds and margin.

    A series whose points another one has too does not count.
    """
    least = int(check.n.removeprefix(">=") or 1)
    lines, series = evidence.find(check.model, None, check.device), []
    for line in lines:
        points = line.points[(line.points["unlike"] == "") & (line.points["gpus"] >= least)]
        series.append((line.title, points.dropna(subset=[f"{check.quantity}_mean"])))
    counted: dict[str, Points] = {}
    for title, points in sorted(series, key=lambda each: -len(each[1])):  # the longest first
        ids = [set(others.index) for others in counted.values()]
        if len(points) and not any(set(points.index) <= others for others in ids):
            counted[title] = points
    if not counted:
        for line in lines:
            require_paper(line.points)
        raise NotTestable(
            f"No finished run of {check.model} on {check.device} with a known energy."
        )
    alike = {title: in_papers_scope(points) for title, points in counted.items()}
    labels = [f"{check.text} of {t} (points: {len(p)}){remark}" for t, (p, remark) in alike.items()]
    means = joined([mean_of(quantities(points, check.quantity)) for points, _ in alike.values()])
    return all_within(labels, means, check)


Group = tuple[str, Points]
"""Points of one model and device, and these."""


def _groups(evidence: Evidence, *names: str) -> list[Group]:
    """Points of whole nodes that know these quantities, by model, device and scope; no probes.

    Only those of the most frequent origin, as energies of several are not compared; NotTestable if all are
    estimated, which do not count.
    """
    points = evidence.points.dropna(subset=[f"{name}_mean" for name in names])
    nodes = evidence.node_sizes(points)
    points = points[~points["is_probe"].astype(bool) & (points["gpus"] >= nodes)]
    sensed = points[points["energy_origin"] != "estimated"]
    if sensed.empty:
        refuse_estimates(points)
        return []
    origins = sensed["energy_origin"].map(str)
    alike = sensed[origins == max(origins, key=lambda origin: ((origins == origin).sum(), origin))]
    keys = ["model", "device", "energy_scope"]
    groups = alike.groupby(keys, sort=False, dropna=False)
    return [(f"{model} {device}", group) for (model, device, _), group in groups]


@rule_in(COMPARISON_RULES)
def factors_differ(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of means between two models or devices is at least `low` for any pair."""
    return _any_factor(_groups(evidence, P), check)


@rule_in(COMPARISON_RULES)
def factors_at_equal_n(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio between two models or devices at equal n is at least `low` for any pair.

    Trainings at other n would differ by n as well.
    """
    groups = _groups(evidence, P)
    points = [(kind, group.loc[[id_]]) for kind, group in groups for id_ in group.index]
    return _any_factor(points, check, is_equal_n=True)


def _any_factor(groups: Sequence[Group], check: Check, is_equal_n: bool = False) -> Outcome:
    factors: dict[str, Numbers] = {}
    for (kind, points), (other_kind, others) in combinations(groups, 2):
        if kind != other_kind and not (is_equal_n and set(points["gpus"]) != set(others["gpus"])):
            factors |= _factor([(kind, points), (other_kind, others)])
    if not factors:
        kinds = ", ".join(sorted({kind for kind, _ in groups})) or "none"
        raise NotTestable(
            "Two models or devices with P_GPUh over the same kinds of device (and at the same n) are needed; "
            f"there are {kinds}."
        )
    return any_at_least(list(factors), joined(list(factors.values())), check.bounds[0])


def _factor(groups: Sequence[Group]) -> dict[str, Numbers]:
    """The larger mean of P over the other, by the device kinds that all measured, with its label.

    Empty if P over these kinds is not known.
    """
    every, count = pd.concat([points for _, points in groups]), len(groups[0][1])
    try:
        factors, scope = in_common(every)
        numbers = quantities(every, P).times(factors)
        both = joined([mean_of(numbers[:count]), mean_of(numbers[count:])])
        order = np.argsort(-both.values, kind="stable")
        logarithm = log_contrast(both[order])
    except NotTestable:
        return {}
    over, under = (
        f"{groups[row][0]} (n = {', '.join(map(str, groups[row][1]['gpus']))})" for row in order
    )
    return {f"mean P_GPUh of {over} over that of {under}{scope}": logarithm}


def any_at_least(labels: Sequence[str], logarithms: Numbers, low: float) -> Outcome:
    """Decide whether at least one of several ratios is at least `low`.

    Supported by one that is so rarely that far above, times their number; contradicted where all are
    below, with the probability of the one that is least so.
    """
    alone = [decide(ratios(label, logarithms[[row]], low)) for row, label in enumerate(labels)]
    bound = math.log(low)
    # The probability of a ratio as far above the bound, were the truth on it; beyond 1/2 below it.
    chances = [
        1 - against(logarithms, row, bound, math.inf)
        if logarithms.values[row] < bound
        else against(logarithms, row, -math.inf, bound)
        for row in range(len(labels))
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
    large = [(kind, points) for kind, points in groups if len(points) >= needed]
    if not large:
        most = max((len(points) for _, points in groups), default=0)
        raise NotTestable(f"{most} of the {needed} points that leaving one out needs.")
    return combine(attempt(kind, _left_out, points, names) for kind, points in large)


def _left_out(points: Points, names: Sequence[str]) -> Outcome:
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
    outcome = decide(
        rise_of_error("samples", by_passes, both), rise_of_error("passes", by_samples, both)
    )
    # The interval is over points.
    needed = outcome.detail.replace("repeats of each point would tell", "points are needed")
    error = f"with both rates the mean error of P_GPUh is {100 * np.mean(both):.1f} %"
    detail = f"leaving one of {len(points)} points out, {error}; {needed}"
    return replace(outcome, detail=detail, origins=powers.origins)


def rise_of_error(dropped: str, before: Sequence[float], after: Sequence[float]) -> Tests:
    """Test that errors of the same points fall, in percentage points, by a paired t interval."""
    falls = 100 * (np.array(before) - np.array(after))
    square = float(np.var(falls, ddof=1))
    source, freedom = Source("points"), len(falls) - 1
    number = estimate(float(falls.mean()), source, square / len(falls), freedom, square)
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
