"""The scaling model of one kind of training: its points, and draws of the costs of its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.scaling.model.cost_terms import Array, EnergyTerms, Load, TimeTerms
from scalewatt.scaling.model.posterior import Draws, factors_around_one
from scalewatt.scaling.model.training_kind import Kind

DEVIATIONS = 4
"""Deviations of a run sampled for each posterior sample of the costs: quantiles become smoother."""


FINETUNE, PRETRAIN = ".finetune", ".pretrain"
STEPS = 2
"""Forecast steps of a sample in fine-tuning, to one in pre-training."""
HALF_WIDTH = 0.3
"""Relative half width of the nominal 90 % interval of the assumption."""
SENTENCE = (
    "fine-tuning is assumed to cost twice the pre-training for each sample, update and pass (two "
    f"forecast steps), ± {100 * HALF_WIDTH:.0f} %: it was not calibrated on any fine-tuning"
)
_TWICE = ("sample", "update", "input_excess", "synchronisation", "pass")


@dataclass(frozen=True)
class Point:
    """Measurements of one configuration: means over its repeats, energies in J, null if not known."""

    source: str
    campaign: str
    configuration: str
    kind: Kind
    load: Load
    runtime_s: float
    energy_j: float | None
    joules: Mapping[str, float | None]
    """By device kind."""
    origin: str | None
    scope: str | None
    n_repeats: int
    spec_sha256: str | None = None
    assumed_settings: bool = False
    """True if its spec was missing, so that settings are assumed to be the model's defaults."""


@dataclass(frozen=True)
class KindModel:
    """Time and energy of one kind of training."""

    kind: Kind
    points: tuple[Point, ...]
    time_terms: TimeTerms
    time: Draws
    energy_terms: EnergyTerms
    energy: Mapping[str, Draws]
    """By device kind where every point has them, else `total` alone; empty if no energy is known."""
    origin: str | None
    scope: str | None
    assumed: str | None = None
    """The assumption where it was not calibrated itself: a sentence that goes with all its predictions."""
    no_energy: str | None = None
    """Why it has no energies."""

    @property
    def largest_gpus(self) -> int:
        """Return the largest n it was calibrated on."""
        return max(point.load.gpus for point in self.points)

    @property
    def pass_sizes(self) -> tuple[float, ...]:
        """Return the samples of a pass it was calibrated on, ascending; LBS without accumulation."""
        return tuple(sorted({point.load.pass_size for point in self.points}))

    def check(self, load: Load) -> None:
        """Raise InputError if it cannot predict a load: its points are all of one other LBS."""
        sizes = self.pass_sizes
        if len(sizes) == 1 and load.pass_size != sizes[0]:
            raise InputError(
                f"{self.kind.name}: is calibrated on local batch size {sizes[0]:g} alone, so "
                f"{load.pass_size:g} cannot be predicted; calibrate on runs of another one as well"
            )


def repeated(model: KindModel, times: int) -> KindModel:
    """Return the model with each draw several times, in order: terms of time and energy stay paired."""

    def more(draws: Draws) -> Draws:
        return Draws(np.repeat(draws.terms, times, axis=0), np.repeat(draws.spread, times))

    energy = {name: more(draws) for name, draws in model.energy.items()}
    return replace(model, time=more(model.time), energy=energy)


def assumed_of(points: Sequence[Point]) -> str | None:
    """Return what is assumed of points without their specs; None if all have one."""
    without = sum(point.assumed_settings for point in points)
    if not without:
        return None
    return (
        f"{without} of the {len(points)} configurations it was calibrated on came without their "
        "spec.json: their settings are assumed to be the model's defaults, on official data"
    )


# --- fine-tuning that was not calibrated ----------------------------------------------------------
#
# Huber et al. (2025) publish no time and no energy of a fine-tuning. It makes two forecast steps for each
# sample, forward and backward (`scalewatt.models.fourcastnet`), so costs per sample, update or
# pass are doubled. What an epoch costs whatever its size (validation, checkpoint) stays the same.


def pretraining_of(kind: Kind) -> Kind | None:
    """Return the kind of pre-training that a fine-tuning follows; None if it is no fine-tuning."""
    if not kind.key.endswith(FINETUNE):
        return None
    return replace(kind, key=kind.key.removesuffix(FINETUNE) + PRETRAIN)


def assumed_finetuning(kind: Kind, pretraining: KindModel) -> KindModel:
    """Return the model of a fine-tuning, derived from that of the pre-training.

    Each draw has one unknown factor, the same for its time and its samples' and passes' energy.
    """
    factors = factors_around_one(
        len(pretraining.time.spread), HALF_WIDTH / NormalDist().inv_cdf(0.95)
    )
    energy_names = pretraining.energy_terms.names
    return replace(
        pretraining,
        kind=kind,
        time=_scaled(pretraining.time, pretraining.time_terms.names, factors, every_term=True),
        energy={
            name: _scaled(draws, energy_names, factors, every_term=False)
            for name, draws in pretraining.energy.items()
        },
        assumed="; ".join(filter(None, (SENTENCE, pretraining.assumed))),
    )


def _scaled(draws: Draws, names: tuple[str, ...], factors: Array, every_term: bool) -> Draws:
    """Return draws with the costs per step doubled; `factors` on these terms only, or on every one.

    An energy's terms of time need none: the time already has it.
    """
    columns = []
    for number, name in enumerate(names):
        times = STEPS if name in _TWICE else 1
        unknown = factors if every_term or name in _TWICE else 1.0
        columns.append(draws.terms[:, number] * times * unknown)
    return Draws(np.column_stack(columns), draws.spread)
