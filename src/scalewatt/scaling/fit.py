"""Fit the scaling model to points: select the terms of the run time, and draw costs from their posterior.

A value y is the sum of its terms, x · b with b ≥ 0, times 1 + e: its error is relative. The errors
are normal with an unknown standard deviation, whose prior is worth `PRIOR_POINTS` points with the
spread `PRIOR_SPREAD`; b has a flat prior where it is not negative. A Gibbs sampler draws from it, each
draw by a chain of its own, so that draws are independent: terms that the points cannot separate stay
uncertain, and what they determine together stays narrow.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.scaling.model import (
    ENERGY_TERMS,
    Array,
    Draws,
    Kind,
    KindModel,
    Load,
    Point,
    energy_columns,
    time_columns,
)

MIN_POINTS = 3
SURE = 3
"""With fewer points beyond the number of terms, the fitted spread is too small (`_draw`)."""
BASE = ("epoch", "sample", "update")
OPTIONAL = ("startup", "first_batch", "straggler", "synchronisation")
SHORT_S = 3600.0
"""In shorter runs the start, half a minute or more, is a considerable part."""
WORTH = 0.95
"""A further term must reduce the mean leave-one-out error to this part of what it was."""


# --- kinds and terms ------------------------------------------------------------------------------


def by_kind(points: Iterable[tuple[Kind, Point]]) -> dict[Kind, list[Point]]:
    """Points of each kind, in order.

    InputError if a configuration is there twice, or energies of several origins or scopes would be one
    model's.
    """
    kinds: dict[Kind, list[Point]] = {}
    for kind, point in points:
        of_kind = kinds.setdefault(kind, [])
        if point.configuration in {other.configuration for other in of_kind}:
            raise InputError(f"{point.configuration}: is in several sources; expected it once")
        of_kind.append(point)
    for kind, of_kind in kinds.items():
        for name in ("origin", "scope"):
            values = {str(getattr(p, name)) for p in of_kind if p.energy_j is not None}
            if len(values) > 1:
                raise InputError(
                    f"{kind.name}: energies of several {name}s: {', '.join(sorted(values))}; "
                    "calibrate on sources that agree"
                )
    return kinds


def lacking(points: Sequence[Point]) -> str | None:
    """Which points are missing for a calibration; None if there are enough.

    One LBS is enough: then no other one can be predicted (`ScalingModel.find_for`).
    """
    gpus = {point.load.gpus for point in points}
    if len(points) >= MIN_POINTS and len(gpus) > 1:
        return None
    return (
        f"too few points to calibrate: configurations {len(points)}, numbers of GPUs {len(gpus)}; expected "
        f"{MIN_POINTS} and 2 or more (scalewatt pilot CAMPAIGN makes a campaign that has them)"
    )


def calibrate(kind: Kind, points: Sequence[Point], few: bool = False) -> KindModel:
    """Model of a kind by its points; with `few`, for validation, also of fewer energies."""
    loads, times = [point.load for point in points], np.array([p.runtime_s for p in points])
    terms = choose_terms(loads, times)
    known = [point for point in points if point.energy_j is not None]
    energy = None
    if known and (few or lacking(known) is None):
        columns = energy_columns([p.load for p in known], np.array([p.runtime_s for p in known]))
        energy = _draw(columns, np.array([p.energy_j for p in known], dtype=float))
    time = _draw(time_columns(loads, terms), times)
    return KindModel(kind, tuple(points), terms, time, energy)


def _draw(columns: Array, values: Array) -> Draws:
    """Draw costs whose spread is at least the leave-one-out error, where the points are few.

    With hardly more points than terms any costs fit, and residuals are meaningless. Then the
    standard deviation of all predictions is at least the root mean square of the leave-one-out errors,
    times (points - 1) / points, because each fit lacks one of the points.
    """
    points, terms = columns.shape
    draws = draw(columns, values)
    if points - terms >= SURE:
        return draws

    def predict(others: Array, known: Array, left_out: Array) -> float:
        return float(np.median(draw(others, known).means(left_out)))

    errors = _left_out_errors(columns, values, predict)
    return widened(draws, float(np.sqrt(np.mean(np.square(errors)))) * (points - 1) / points)


def choose_terms(loads: Sequence[Load], values: Array) -> tuple[str, ...]:
    """The fewest terms that predict points left out well.

    Of all sets of one size, that with the smallest mean leave-one-out error is considered; a larger
    size is chosen where the error falls to WORTH of it. A set beyond the minimal one has at least two
    terms less than points; the minimal one, what is required and a considerable start-up, is always
    allowed.
    """

    def error_of(terms: Sequence[str]) -> float:
        errors = _left_out_errors(time_columns(loads, terms), values, _best_fit)
        return float(np.mean(np.abs(errors)))

    # Short runs have a start-up, which would else be attributed to epochs; no start-up can be told from
    # them where all runs have as many.
    vary = len({load.epochs for load in loads}) > 1
    short = values.min() < SHORT_S and vary and len(loads) > len(BASE)
    chosen = least = ("startup", *BASE) if short else BASE
    optional = [name for name in OPTIONAL if name not in least and (vary or name != "startup")]
    error = error_of(chosen)
    for size in range(1, min(len(optional) + 1, len(values) - len(least) - 1)):
        errors = {terms: error_of((*least, *terms)) for terms in combinations(optional, size)}
        extra = min(errors, key=lambda terms: errors[terms])
        if errors[extra] <= WORTH * error:
            error, chosen = errors[extra], (*least, *extra)
    return chosen


def _best_fit(others: Array, known: Array, left_out: Array) -> float:
    return float(left_out[0] @ best(others, known))


def _left_out_errors(
    columns: Array, values: Array, predict: Callable[[Array, Array, Array], float]
) -> Array:
    """Relative errors of values (points,), each predicted from the columns and values of the others."""
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        errors.append(predict(columns[others], values[others], columns[[number]]) / value - 1)
    return np.array(errors)


# --- the posterior --------------------------------------------------------------------------------

PRIOR_SPREAD = 0.03
"""Relative; the paper's repeats of one training vary by 0.2 to 3.4 % in time, 0.2 to 1.4 % in energy at
5 repeats (reference/published_results.csv)."""
PRIOR_POINTS = 2.0
MOST_SPREAD = 0.5
"""Without it the spread would be unbounded where there are as many terms as points."""
MOST_UNSURE = 0.3
"""Relative standard deviation that `widened` gives at most: its nominal 90 % interval is ± 50 %."""
LEAST_FACTOR = 0.1
"""Of a deviation from a cost or a model: a normal one would make some runs take no time at all."""
DRAWS = 500
SWEEPS = 100
"""Updates of everything in a chain, of which the last is the draw; after 50 nothing changes any more, also
where points hardly separate terms."""
SEED = 1
_FACTORS_SEED = 3
_LEAST_PRECISION, _RIDGE = 1e-9, 1e-6
"""For directions of costs, scaled to 1, on which no value depends."""


def best(columns: Array, values: Array) -> Array:
    """Non-negative costs with the smallest relative errors (least squares)."""
    from scipy.optimize import nnls

    relative, scale = _relative(columns, values)
    return nnls(relative, np.ones(len(values)))[0] / scale


def _relative(columns: Array, values: Array) -> tuple[Array, Array]:
    """Columns over values, scaled to 1 each, and the scale."""
    relative = columns / values[:, None]
    largest = relative.max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    return relative / scale, scale


def draw(columns: Array, values: Array) -> Draws:
    """Draw costs for columns (points, terms) and measured values (points,).

    Draws for other values use another random stream, because sums of several models pair them.
    """
    digits = " ".join(f"{value:.9g}" for value in values)  # alike where sums are rounded otherwise
    random = np.random.default_rng(SEED + zlib.crc32(digits.encode()) % 2**31)
    relative, scale = _relative(columns, values)
    gram, sums = relative.T @ relative, relative.sum(axis=0)
    costs = np.tile(best(columns, values) * scale, (DRAWS, 1))
    spread = np.full(DRAWS, PRIOR_SPREAD)
    directions = [(way, gram @ way, float(sums @ way)) for way in _directions(gram)]
    for _ in range(SWEEPS):
        for way, change, aim in directions:
            # Along a direction the squares are a parabola, so the density of the step is normal.
            precision = max(float(way @ change), _LEAST_PRECISION)
            middle = (aim - costs @ change) / precision
            deviation = spread / math.sqrt(precision)
            steps = _normal_within(*_step_limits(costs, way), middle, deviation, random)
            costs = np.maximum(costs + np.outer(steps, way), 0.0)
        squares = ((costs @ relative.T - 1) ** 2).sum(axis=1) + PRIOR_POINTS * PRIOR_SPREAD**2
        spread = _spread(squares, len(values) + PRIOR_POINTS, random)
    return Draws(costs / scale, spread)


def _directions(gram: Array) -> list[Array]:
    """Directions in which costs are moved: each alone, and each with those before it.

    In the latter these move so that the values change as little as they can (conjugate directions). Where
    points hardly separate terms, or as GPU and node hours not at all, single costs would move by tiny
    steps.
    """
    factor = np.linalg.cholesky(gram + _RIDGE * np.eye(len(gram)))
    together = np.linalg.inv(factor)[1:]
    together /= np.abs(together).max(axis=1, keepdims=True)
    return [*np.eye(len(gram)), *together]


def _step_limits(costs: Array, way: Array) -> tuple[Array, Array]:
    """How far each row of costs can go back and forth along a direction until one of them is 0."""
    up, down = way > _LEAST_PRECISION, way < -_LEAST_PRECISION
    back = (-costs[:, up] / way[up]).max(axis=1, initial=-np.inf)
    return back, (-costs[:, down] / way[down]).min(axis=1, initial=np.inf)


def _normal_within(
    low: Array, high: Array, middle: Array, deviation: Array, random: np.random.Generator
) -> Array:
    """Draw from normal distributions that are cut off below `low` and above `high`."""
    from scipy.special import ndtr, ndtri

    first, last = (low - middle) / deviation, (high - middle) / deviation
    upper = first > 0  # mirrored: probabilities near 0 are exact, those near 1 are not
    first, last = np.where(upper, -last, first), np.where(upper, -first, last)
    below = ndtr(first)
    part = below + (ndtr(last) - below) * random.random(len(low))
    drawn = ndtri(np.clip(part, 1e-300, 1 - 1e-16))
    return np.clip(middle + deviation * np.where(upper, -drawn, drawn), low, high)


def _spread(squares: Array, weight: float, random: np.random.Generator) -> Array:
    """Draw standard deviations, at most MOST_SPREAD, of `weight` errors with these sums of squares."""
    from scipy.special import gammaincc, gammainccinv

    half, least = weight / 2, squares / 2 / MOST_SPREAD**2
    precisions = random.gamma(half, size=len(squares))
    parts = random.random(len(squares))  # drawn for all, so that no rounding shifts what follows
    outside = precisions < least
    allowed = gammaincc(half, least[outside])
    precisions[outside] = gammainccinv(half, parts[outside] * allowed)
    return np.sqrt(squares / 2 / precisions)


def widened(draws: Draws, least: float) -> Draws:
    """The draws times a factor each, so that a point's standard deviation is `least`.

    `least` is limited to MOST_UNSURE. All predictions of a draw share its factor, so their errors are
    fully correlated. Every other draw is used twice, with factors as far above 1 as below, so that
    medians stay.
    """
    least = min(least, MOST_UNSURE)
    spread = float(np.median(draws.spread))
    if least <= spread:
        return draws
    kept = np.arange(0, 2 * (len(draws.spread) // 2), 2)
    above = factors_around_one(len(kept), math.sqrt(least**2 - spread**2))
    factors = np.concatenate([above, 2 - above])
    both = np.concatenate([kept, kept])
    return Draws(draws.terms[both] * factors[:, None], draws.spread[both])


def factors_around_one(count: int, deviation: float) -> Array:
    """Factors (count,), at least LEAST_FACTOR: shuffled quantiles of a normal one around 1."""
    normal = NormalDist(1.0, deviation)
    quantiles = np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
    return np.random.default_rng(_FACTORS_SEED).permutation(np.maximum(quantiles, LEAST_FACTOR))


# --- fine-tuning that was not calibrated ----------------------------------------------------------
#
# Huber et al. (2025) publish no time and no energy of a fine-tuning. It makes two forecast steps for each
# sample, forward and backward (`scalewatt.models.fourcastnet`), so costs per sample, update or
# pass are doubled. What an epoch costs whatever its size (validation, checkpoint) stays the same.

HALF_WIDTH = 0.3
"""Relative half width of the nominal 90 % interval of the assumption."""
SENTENCE = (
    "fine-tuning is assumed to cost twice the pre-training for each sample, update and pass (two "
    f"forecast steps), ± {100 * HALF_WIDTH:.0f} %: it was not calibrated on any fine-tuning"
)
_DOUBLED = ("sample", "update", "synchronisation", "pass")


def pretraining_of(kind: Kind) -> Kind | None:
    """The kind of pre-training that a fine-tuning follows; None if it is no fine-tuning."""
    model, _, phase = kind.key.partition(".")
    return replace(kind, key=f"{model}.pretrain") if phase == "finetune" else None


def assumed_finetuning(kind: Kind, pretraining: KindModel) -> KindModel:
    """Model of a fine-tuning that was not calibrated, derived from that of the pre-training.

    Each draw has one unknown factor, the same for its time and its samples' and passes' energy. An
    energy's terms of hours need none: the time already has it.
    """
    deviation = HALF_WIDTH / NormalDist().inv_cdf(0.95)
    unknown = factors_around_one(len(pretraining.time.spread), deviation)[:, None]
    time, energy = (
        np.array([2.0 if name in _DOUBLED else 1.0 for name in names])
        for names in (pretraining.time_terms, ENERGY_TERMS)
    )

    def times(draws: Draws, factors: Array) -> Draws:
        return replace(draws, terms=draws.terms * factors)

    of_energy = np.where(energy > 1, energy * unknown, 1.0)
    return replace(
        pretraining,
        kind=kind,
        time=times(pretraining.time, time * unknown),
        energy=pretraining.energy and times(pretraining.energy, of_energy),
        assumed=SENTENCE,
    )
