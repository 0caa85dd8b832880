"""Claims on how rates and GPU power go with n: samples and passes per GPU hour (section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from scalewatt.claims.evidence.claim_types import CHECKS, NotTestable, Outcome, check
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.rules.fourcastnet_points import in_paper
from scalewatt.claims.rules.power_rules import each_line, efficiency_within, named, numbers_of
from scalewatt.claims.rules.tolerance import (
    all_of,
    attempt,
    combine,
    enough,
    monotone,
    ranked,
    sign,
    steady,
)
from scalewatt.claims.rules.uncertain_number import over

RESNET = ("resnet50", "train", "a100")
SAMPLES, PASSES, POWER = "samples_per_gpuh", "passes_per_gpuh", "mean_gpu_power_w"
FALLS, RISES, STEADY = "falls", "rises", "constant"
RANK = 0.9
"""From which Spearman correlation with n a quantity goes with it (claims K07, K09)."""
CONSTANT_CV = 0.05
"""Up to which coefficient of variation a quantity counts as constant (claim K13)."""
POWER_RANK = 0.5
"""The same of GPU power with samples per GPU hour over all points (claim K16)."""
Rule = Callable[[str, Sequence[Point]], Outcome]

TRENDS: dict[str, tuple[str, dict[str, str]]] = {
    "K13": ("sd_lbs", {SAMPLES: STEADY, PASSES: STEADY, POWER: STEADY}),
    "K14": ("sd_gbs_s", {PASSES: RISES, SAMPLES: STEADY, POWER: FALLS}),
    "K15": ("sd_gbs_l", {PASSES: RISES, SAMPLES: FALLS, POWER: RISES}),
}
"""Mode of ResNet50, and how each quantity goes with n."""
SIGNS = {
    "K10": ("a100", 64, False),
    "K11": ("h100", 32, False),
    "K12": ("h100", 16, True),
}
"""Device and GBS of FourCastNet's pre-training, and whether GPU power rises."""


def _goes(way: str) -> Rule:
    def rule(name: str, points: Sequence[Point]) -> Outcome:
        numbers, what = numbers_of(points, name), named(name)
        if way == STEADY:
            return steady(what, numbers, CONSTANT_CV)
        return monotone(what, numbers, way == RISES)

    return rule


def _falls_by_rank(name: str, points: Sequence[Point]) -> Outcome:
    numbers = numbers_of(points, name)
    return ranked(f"{named(name)} with n", [p.gpus for p in points], numbers, False, RANK)


def _all(rules: dict[str, Rule], line: Line, points: Sequence[Point]) -> Outcome:
    """Every quantity of a line by its rule."""
    return all_of([attempt("", rule, name, points) for name, rule in rules.items()])


def _ways(ways: dict[str, str]) -> dict[str, Rule]:
    return {name: _goes(way) for name, way in ways.items()}


def _trend(id_: str, evidence: Evidence) -> Outcome:
    mode, ways = TRENDS[id_]
    lines = evidence.anywhere(*RESNET, mode)
    return each_line(lines, [SAMPLES], partial(_all, _ways(ways)))


for _id in TRENDS:
    check(_id)(partial(_trend, _id))


@check("K07")
def all_fall(evidence: Evidence) -> Outcome:
    """Samples and passes per GPU hour and GPU power fall with n at constant LBS, of both models."""
    return _both_models(evidence, "fd_lbs", dict.fromkeys((SAMPLES, PASSES, POWER), _falls_by_rank))


@check("K08")
def passes_rise(evidence: Evidence) -> Outcome:
    """Samples per GPU hour fall and passes rise with n at constant GBS, of both models."""
    return _both_models(evidence, "fd_gbs", _ways({SAMPLES: FALLS, PASSES: RISES}))


def _both_models(evidence: Evidence, mode: str, rules: dict[str, Rule]) -> Outcome:
    def of_model(model: str) -> Outcome:
        lines = evidence.series(model, mode=mode)
        if not lines:
            raise NotTestable(f"No finished run of {model} in a series of mode {mode}.")
        return each_line(lines, [SAMPLES], partial(_all, rules))

    return all_of([attempt("", of_model, model) for model in ("resnet50", "fourcastnet")])


@check("K09")
def power_falls(evidence: Evidence) -> Outcome:
    """GPU power of ResNet50 falls with n at constant GBS, in both regimes."""

    def in_regime(mode: str) -> Outcome:
        lines = evidence.anywhere(*RESNET, mode)
        return each_line(lines, [POWER], partial(_all, {POWER: _falls_by_rank}))

    return all_of([attempt("", in_regime, mode) for mode in ("fd_gbs_s", "fd_gbs_l")])


def _sign(id_: str, evidence: Evidence) -> Outcome:
    device, gbs, rises = SIGNS[id_]
    line = in_paper(evidence.line("fourcastnet", "pretrain", device, "fd_gbs", gbs))
    numbers = numbers_of(line.points, POWER)
    enough(line.points, line.title)
    what = f"GPU power at n = {line.points[-1].gpus} over that at n = {line.points[0].gpus}"
    return sign(what, over(numbers[-1], numbers[0]), rises)


for _id in SIGNS:
    check(_id)(partial(_sign, _id))


@check("K16")
def power_follows_samples(evidence: Evidence) -> Outcome:
    """GPU power goes with samples per GPU hour over all points of a model, phase and device."""
    groups: dict[str, list[Point]] = {}
    for point in evidence.points:
        if point.mean(SAMPLES) is not None:
            name = f"{point.model} {point.phase} {point.device}"
            groups.setdefault(name, []).append(point)
    if not groups:
        raise NotTestable("No finished run has samples per GPU hour.")
    return combine([attempt(name, _power_rank, name, points) for name, points in groups.items()])


def _power_rank(name: str, points: Sequence[Point]) -> Outcome:
    known = [point for point in points if point.mean(POWER) is not None]
    if not known:
        raise NotTestable("GPU power is not known.")
    enough(known, name)
    rates = [point.mean(SAMPLES) or 0.0 for point in known]
    what = "GPU power with samples per GPU hour"
    return ranked(what, rates, numbers_of(known, POWER), True, POWER_RANK)


@check("L04")
def resnet_scales_better(evidence: Evidence) -> Outcome:
    """After quadrupling the GPUs ResNet50's efficiency is at least 0.9, FourCastNet's below 0.9."""
    parts = []
    for model, phase, low, high in (
        ("resnet50", "train", 0.9, None),
        ("fourcastnet", "pretrain", None, 0.9),
    ):
        parts.append(attempt(model, _quadrupled, evidence, model, phase, low, high))
    return all_of(parts)


def _quadrupled(
    evidence: Evidence, model: str, phase: str, low: float | None, high: float | None
) -> Outcome:
    lines = evidence.anywhere(model, phase, "a100", "fd_lbs")
    within = partial(efficiency_within, low=low, high=high)
    return each_line(lines, ["gpu_hours"], within, least=2)


@check("L05")
def mostly_constant_time(evidence: Evidence) -> Outcome:
    """Claims F03, F12 and F13 together."""
    return all_of([attempt(id_, CHECKS[id_], evidence) for id_ in ("F03", "F12", "F13")])
