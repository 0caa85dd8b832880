"""What many campaigns measured, and what the claims' checks decide of all of them at once.

The contrasts are those of src/scalewatt/claims: tests/unit/test_claims_coverage.py holds them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from claims_worlds import Quantities, campaign
from scipy.special import stdtr

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.claims.reference_tables import PER_SAMPLE, Check
from scalewatt.claims.shapes import PUBLISHED_RUNS
from scalewatt.recordings.terms import Floats
from scalewatt.results.tables.published import published_spread
from scalewatt.statistics import (
    LEVEL,
    Numbers,
    Part,
    Source,
    joined,
    least_squares,
    quotient,
    slope_weights,
)

# --- what campaigns measure -----------------------------------------------------------------------


@dataclass(frozen=True)
class Campaigns:
    """Many campaigns; exact ones know the truth."""

    known: Quantities
    are_exact: bool = False

    def numbers(self, ids: Sequence[str], name: str) -> Numbers:
        """A quantity of some configurations (campaigns, configurations), as the claims know it."""
        return joined([self._number(id_, name) for id_ in ids])

    def _number(self, id_: str, name: str) -> Numbers:
        configuration = campaign().configurations[id_]
        if name == PER_SAMPLE:
            return self._number(id_, "energy_kwh").times(
                1000 / (configuration.dataset_samples or 1)
            )
        values = self.known[id_][name]
        mean, n = values.mean(axis=1, keepdims=True), values.shape[1]
        if self.are_exact:
            return Numbers(mean)
        pool = f"{configuration.model} {configuration.phase}"
        if n > 1:
            square = values.var(axis=1, ddof=1, keepdims=True)
            return number(mean, Source(id_, pool), square / n, n - 1, square)
        source, relative, freedom = self._spread(configuration, name, pool)
        return number(mean, source, relative * mean**2, freedom)

    def _spread(self, one: Configuration, name: str, pool: str) -> tuple[Source, Floats, int]:
        """The square of a single run's relative spread: of the campaign's repeats, else as published."""
        squares, freedom = 0.0, 0
        for id_, known in self.known.items():
            other, values = campaign().configurations[id_], known[name]
            if (other.model, other.phase) == (one.model, one.phase) and values.shape[1] > 1:
                mean = values.mean(axis=1, keepdims=True)
                squares = squares + ((values - mean) ** 2).sum(axis=1, keepdims=True) / mean**2
                freedom += values.shape[1] - 1
        if freedom:
            return Source(pool), np.asarray(squares / freedom), freedom
        published = published_spread(one.model, name)
        assert published is not None
        return Source("published"), np.array(published.relative**2), published.freedom


def number(
    values: Floats, source: Source, square: Floats, freedom: float, single: Floats | None = None
) -> Numbers:
    """Numbers (campaigns, 1) with the squares of their errors."""
    square = np.broadcast_to(square, values.shape)
    of_run = square if single is None else single
    return Numbers(
        values, {source: Part(square, np.full(values.shape, freedom), of_run, 0 * square)}
    )


# --- verdicts ---------------------------------------------------------------------------------------


class Held(NamedTuple):
    """What numbers that are held against their bounds say together (campaigns,)."""

    inside: npt.NDArray[np.bool_]
    outside: npt.NDArray[np.bool_]
    p: Floats
    """The least of all."""
    count: npt.NDArray[np.int_]
    room: Floats
    """How far the numbers are within their bounds."""

    @property
    def supported(self) -> npt.NDArray[np.bool_]:
        return self.inside

    @property
    def contradicted(self) -> npt.NDArray[np.bool_]:
        return ~self.inside & self.outside & (self.count * self.p <= LEVEL)


def held(numbers: Numbers, low: float | None, high: float | None, logs: bool = False) -> Held:
    """Numbers against bounds, which are of the ratios whose logarithms they may be."""
    ends = [-math.inf if low is None else low, math.inf if high is None else high]
    if logs:
        ends = [math.log(max(end, 0.0)) if end > 0 else -math.inf for end in ends]
    room = np.minimum(numbers.values - ends[0], ends[1] - numbers.values)
    half, error = numbers.halves, np.where(numbers.errors > 0, numbers.errors, 1e-300)
    p = np.where(room >= 0, 1.0, stdtr(np.minimum(numbers.freedom, 1e6), room / error))
    count = np.full(len(room), room.shape[1])
    return Held((room >= half).all(1), (-room > half).any(1), p.min(1), count, room.min(1))


def together(tests: Sequence[Held]) -> Held:
    """All parts of a claim."""
    inside, outside, p, count, room = (np.stack(parts) for parts in zip(*tests, strict=True))
    return Held(inside.all(0), outside.any(0), p.min(0), count.sum(0), room.min(0))


def slope(x: Numbers, y: Numbers) -> Numbers:
    """The slope of y against x, with the errors of both."""
    weights = slope_weights(x.values)[..., None, :]
    return y.with_errors_of(x, y.contrast(weights).values).contrast(weights)


def gpus_of(ids: Sequence[str]) -> Floats:
    return np.array([campaign().configurations[id_].gpus for id_ in ids], float)


def _against(c: Campaigns, check: Check, ids: Sequence[str]) -> Numbers:
    if check.against != "samples":
        return c.numbers(ids, check.against)
    samples = [campaign().configurations[id_].dataset_samples or 0 for id_ in ids]
    return Numbers(
        np.broadcast_to(np.array(samples, float), c.numbers(ids, check.quantity).values.shape)
    )


def _ratio(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    """Each number of the first half over that of the second; of a series the ends that are named."""
    if check.against in ("first/last", "last/first"):
        ids = [ids[0], ids[-1]][:: 1 if check.against == "first/last" else -1]
    half = np.eye(len(ids) // 2)
    ratios = c.numbers(ids, check.quantity).logarithms().contrast(np.hstack([half, -half]))
    low, high = check.bounds
    if check.rule == "pair_saving":
        low, high = 1 - high, 1 - low
    return held(ratios, low, high, logs=True)


def _equivalent(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    """Energies of the first half over those of the second, of GPUs and CPUs, which both measure."""
    energies = c.numbers(ids, "energy_kwh")
    gpu, cpu = (c.numbers(ids, f"{kind}_energy_kwh").values for kind in ("gpu", "cpu"))
    alike = energies.times((gpu + cpu) / energies.values).logarithms()
    half, most = np.eye(len(ids) // 2), 1 + check.bounds[1]
    return held(alike.contrast(np.hstack([half, -half])), 1 / most, most, logs=True)


def _value(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    """The mean of numbers over the paper's own, which is of runs as well."""
    target, room, _ = check.target
    mean = c.numbers(ids, check.quantity).contrast(np.full(len(ids), 1 / len(ids)))
    paper = Numbers(np.full(mean.values.shape, target))
    spread = published_spread(check.model, check.quantity)
    if spread is not None and not c.are_exact:
        square = np.array((spread.relative * target) ** 2 / PUBLISHED_RUNS[check.model])
        paper = number(paper.values, Source("published"), square, spread.freedom)
    return held(joined([mean, paper]).logarithms().contrast([1, -1]), 1 - room, 1 + room, logs=True)


def _constant(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    x, logs = np.log2(gpus_of(ids)), c.numbers(ids, check.quantity).logarithms()
    drift = logs.contrast(slope_weights(x) * np.ptp(x))
    distances = logs.contrast(np.eye(len(ids)) - 1 / len(ids))
    return held(
        joined([drift, distances]), 1 / (1 + check.bounds[1]), 1 + check.bounds[1], logs=True
    )


def _exponent(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    logs = c.numbers(ids, check.quantity).logarithms()
    return held(slope(_against(c, check, ids).logarithms(), logs), *check.bounds)


def _straight(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    x, y = _against(c, check, ids), c.numbers(ids, check.quantity)
    y = y.with_errors_of(x, y.contrast(slope_weights(x.values)[..., None, :]).values)
    z = x.values - x.values.min(axis=1, keepdims=True)
    z = z / z.max(axis=1, keepdims=True)
    curve = np.stack([np.ones_like(z), z, z**2], axis=-1)
    parabola, line = (least_squares(1 / y.values**2, curve[..., :k]) for k in (3, 2))
    ends = parabola[:, 1] + parabola[:, 2]
    off = np.eye(len(ids)) - curve[..., :2] @ line
    rise = y.contrast(ends[:, None, :])
    bent = quotient(y, np.concatenate([parabola[:, 2:] / 4, off], axis=1), ends)
    is_clear = (rise.values > rise.halves)[:, 0]
    both = zip(held(bent, -check.bounds[1], check.bounds[1]), held(rise, 0, None), strict=True)
    return Held(*(np.where(is_clear, a, b) for a, b in both))


def _monotone(sense: int) -> Rule:
    def rule(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
        numbers = c.numbers(ids, check.quantity)
        steps = sense * (np.eye(len(ids))[1:] - np.eye(len(ids))[:-1])
        whole = numbers.contrast(sense * slope_weights(np.arange(len(ids))))
        ratios = numbers.logarithms().contrast(steps)
        back = held(ratios, 1 / (1 + check.most), None, logs=True)
        return together([held(whole, 0, None), back])

    return rule


def _within(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    low, high = check.bounds
    low, high = low * (1 - check.most), high * (1 + check.most)
    return held(c.numbers(ids, check.quantity or "p_gpuh_kw"), low, high)


def _same_slope(c: Campaigns, check: Check, ids: Sequence[str]) -> Held:
    """Slopes against GPU hours of pre-training over fine-tuning."""
    phases = [campaign().configurations[id_].phase for id_ in ids]
    both = [
        [i for i, of in zip(ids, phases, strict=True) if of == p] for p in dict.fromkeys(phases)
    ]
    pre, fine = (
        slope(c.numbers(ids_of_phase, "gpu_hours"), c.numbers(ids_of_phase, "energy_kwh"))
        for ids_of_phase in both
    )
    return held(joined([pre, fine]).logarithms().contrast([1, -1]), *check.bounds, logs=True)


Rule = Callable[[Campaigns, Check, Sequence[str]], Held]
RULES: Mapping[str, Rule] = {
    "value": _value,
    "ratio": _ratio,
    "pair_saving": _ratio,
    "pair_equivalent": _equivalent,
    "same_slope_in_both_phases": _same_slope,
    "constant": _constant,
    "proportional": _exponent,
    "straight": _straight,
    "rises": _monotone(1),
    "falls": _monotone(-1),
    "within": _within,
}
