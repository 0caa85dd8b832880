"""Calibrate the scaling model on points: select the terms of the run time, and draw their costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.scaling.model.posterior import (
    Draws,
    best,
    draw,
    factors_around_one,
    widened,
)
from scalewatt.scaling.model.terms import (
    ENERGY_TERMS,
    Array,
    Kind,
    Load,
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


@dataclass(frozen=True)
class Point:
    """Means of one configuration over its repeats; null where not known."""

    campaign: str
    configuration: str
    kind: Kind
    load: Load
    runtime_s: float
    energy_j: float | None
    origin: str | None
    """Of the energy, as its scope."""
    scope: str | None


@dataclass(frozen=True)
class Score:
    """Relative errors of one quantity where points were left out of the calibration."""

    scheme: str
    quantity: str
    points: int
    mean_error: float
    largest_error: float
    covered: float
    """Share of the points in their nominal 90 % intervals."""


@dataclass(frozen=True)
class KindModel:
    """Time and energy of one kind of training."""

    kind: Kind
    points: tuple[Point, ...]
    time_terms: tuple[str, ...]
    time: Draws
    """Of the costs of `time_terms`, in s."""
    energy: Draws | None
    """Of the costs of ENERGY_TERMS in J; None if no energy is known."""
    scores: tuple[Score, ...] = ()
    """Of its validation."""
    assumed: str | None = None
    """The assumption where it was not calibrated itself: a sentence that goes with all its predictions."""

    @property
    def scope(self) -> str | None:
        """Scope of its energies; null without any."""
        return next((p.scope for p in self.points if p.energy_j is not None and self.energy), None)

    @property
    def origin(self) -> str | None:
        """Origin of the energies that it was calibrated on; null without any."""
        return next((p.origin for p in self.points if p.energy_j is not None and self.energy), None)

    @property
    def largest_gpus(self) -> int:
        """The largest n that it was calibrated on."""
        return max(point.load.gpus for point in self.points)

    def check(self, load: Load) -> None:
        """Raise InputError if it cannot predict a load: its points are all of one other LBS."""
        sizes = {point.load.pass_size for point in self.points}
        if len(sizes) == 1 and load.pass_size not in sizes:
            raise InputError(
                f"{self.kind.name}: is calibrated on local batch size {sizes.pop():g} alone, so "
                f"{load.pass_size:g} cannot be predicted; calibrate on runs of another one as well"
            )


# --- calibrate ------------------------------------------------------------------------------------


def by_kind(points: Iterable[Point]) -> dict[Kind, list[Point]]:
    """Points of each kind, in order.

    InputError if a configuration is there twice, or energies of several origins or scopes would be one
    model's.
    """
    found: dict[Kind, list[Point]] = {}
    for point in points:
        of_kind = found.setdefault(point.kind, [])
        if point.configuration in {other.configuration for other in of_kind}:
            raise InputError(f"{point.configuration}: is in several sources; expected it once")
        of_kind.append(point)
    for kind, of_kind in found.items():
        for name in ("origin", "scope"):
            values = {str(getattr(p, name)) for p in of_kind if p.energy_j is not None}
            if len(values) > 1:
                raise InputError(
                    f"{kind.name}: energies of several {name}s: {', '.join(sorted(values))}; "
                    "calibrate on sources that agree"
                )
    return found


def lacking(points: Sequence[Point]) -> str | None:
    """Which points are missing for a calibration; None if there are enough.

    One LBS is enough: then no other one can be predicted (`KindModel.check`).
    """
    gpus = {point.load.gpus for point in points}
    missing = []
    if len(points) < MIN_POINTS:
        missing.append(f"{MIN_POINTS - len(points)} more of {MIN_POINTS} configurations")
    if len(gpus) < 2:
        missing.append(f"another number of GPUs than {min(gpus, default=0)}")
    if not missing:
        return None
    return (
        f"too few points to calibrate ({len(points)}); missing: {', '.join(missing)} "
        "(scalewatt pilot CAMPAIGN makes a campaign that has them)"
    )


def calibrate(points: Sequence[Point], few: bool = False) -> KindModel:
    """Model of one kind's points; with `few`, for validation, also of fewer energies."""
    loads, times = [point.load for point in points], np.array([p.runtime_s for p in points])
    terms = choose_terms(loads, times)
    known = [point for point in points if point.energy_j is not None]
    energy = None
    if known and (few or lacking(known) is None):
        columns = energy_columns([p.load for p in known], np.array([p.runtime_s for p in known]))
        energy = _draw(columns, np.array([p.energy_j for p in known], dtype=float))
    time = _draw(time_columns(loads, terms), times)
    return KindModel(points[0].kind, tuple(points), terms, time, energy)


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
    errors = []
    for number, value in enumerate(values):
        others = np.arange(points) != number
        means = draw(columns[others], values[others]).means(columns[number : number + 1])
        errors.append(float(np.median(means)) / value - 1)
    return widened(draws, float(np.sqrt(np.mean(np.square(errors)))) * (points - 1) / points)


def choose_terms(loads: Sequence[Load], values: Array) -> tuple[str, ...]:
    """The fewest terms that predict points left out well.

    Of all sets of one size, that with the smallest mean leave-one-out error is considered; a larger
    size is chosen where the error falls to WORTH of it. A set beyond the minimal one has at least two
    terms less than points; the minimal one, what is required and a considerable start-up, is always
    allowed.
    """
    # Short runs have a start-up, which would else be attributed to epochs; no start-up can be told from
    # them where all runs have as many.
    vary = len({load.epochs for load in loads}) > 1
    short = values.min() < SHORT_S and vary and len(loads) > len(BASE)
    chosen = least = ("startup", *BASE) if short else BASE
    optional = [name for name in OPTIONAL if name not in least and (vary or name != "startup")]
    error = _left_out_error(loads, values, chosen)
    for size in range(1, min(len(optional) + 1, len(values) - len(least) - 1)):
        sets = [(*least, *extra) for extra in combinations(optional, size)]
        errors = [_left_out_error(loads, values, terms) for terms in sets]
        if min(errors) <= WORTH * error:
            error = min(errors)
            chosen = sets[errors.index(error)]
    return chosen


def _left_out_error(loads: Sequence[Load], values: Array, terms: Sequence[str]) -> float:
    """Mean relative error of values (points,), each predicted by the best fit of the others."""
    columns = time_columns(loads, terms)
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        costs = best(columns[others], values[others])
        errors.append(abs(columns[number] @ costs / value - 1))
    return float(np.mean(errors))


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
    time, energy = (_doubled(names) for names in (pretraining.time_terms, ENERGY_TERMS))
    of_energy = np.where(energy > 1, energy * unknown, 1.0)
    return replace(
        pretraining,
        kind=kind,
        time=pretraining.time.times(time * unknown),
        energy=pretraining.energy and pretraining.energy.times(of_energy),
        assumed=SENTENCE,
    )


def _doubled(names: Sequence[str]) -> Array:
    return np.array([2.0 if name in _DOUBLED else 1.0 for name in names])
