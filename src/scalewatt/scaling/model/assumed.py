"""Assumptions about fine-tuning where none was calibrated: twice the cost of pre-training, ± 30 %.

Huber et al. (2025) publish no time and no energy of a fine-tuning. It makes two forecast steps for each
sample, forward and backward (`scalewatt.workloads.fourcastnet`), so costs per sample, update or
pass are doubled. What an epoch costs whatever its size (validation, checkpoint) stays the same.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.model.posterior import Draws, factors_around_one
from scalewatt.scaling.model.training_kind import Kind

FINETUNE, PRETRAIN = ".finetune", ".pretrain"
STEPS = 2
"""Forecast steps of a sample in fine-tuning, to one in pre-training."""
HALF_WIDTH = 0.3
"""Relative half width of the 90 % interval of the assumption."""
SENTENCE = (
    "fine-tuning is assumed to cost twice the pre-training for each sample, update and pass (two "
    f"forecast steps), ± {100 * HALF_WIDTH:.0f} %: it was not calibrated on any fine-tuning"
)
_TWICE = ("sample", "update", "input_excess", "synchronisation", "pass")


def pretraining_of(kind: Kind) -> Kind | None:
    """Return the kind of pre-training that a fine-tuning follows; None where it is no fine-tuning."""
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
