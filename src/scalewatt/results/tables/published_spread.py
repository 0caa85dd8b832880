"""How much single runs of one training scatter: pooled over repeats, and as published for each model.

Published are the repeats of Huber et al. (2025): three of FourCastNet's pre-training on 64 A100 (section
3.3.1), five of each training of ResNet50 (its authors' figure 3), in reference/published_results.csv.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.repeat_statistics import Summary, summary_of

WIDEST = "fourcastnet"
"""The model whose spread is taken for models of which none is published."""


@dataclass(frozen=True)
class Spread:
    """Relative sample standard deviation of one run, and how many degrees of freedom tell it."""

    relative: float
    freedom: int


def pooled(summaries: Iterable[Summary]) -> Spread | None:
    """Spread that repeats of several configurations share; null if none has two, or all are equal.

    Repeats that are all equal share their seed: they do not tell what another run would give.
    """
    known = [each for each in summaries if each.n > 1 and each.mean and each.sd is not None]
    freedom = sum(each.n - 1 for each in known)
    square = math.fsum((s.n - 1) * ((s.sd or 0.0) / (s.mean or 1.0)) ** 2 for s in known)
    return Spread(math.sqrt(square / freedom), freedom) if square else None


@cache
def published_spread(model: str, name: str) -> Spread | None:
    """Published spread of a quantity of `configurations`; null of errors, of which none is.

    Times and rates have that of GPU hours, energies that of the energy. Powers and shares have that of a
    quotient of independent ones, wider than for any positive correlation: how energy and time of a run go
    together is not published. (In repeats of trainings in MLPerf v4.0 their logarithms correlate by 0.0
    to 0.9.) Of a model without published repeats it is the WIDEST one's.
    """
    if name.startswith("metric_"):
        return None
    if any(part in name for part in ("power", "p_gpuh", "share")):
        energy, time = _published(model, "energy_kwh"), _published(model, "gpu_hours")
        both = math.hypot(energy.relative, time.relative)
        return Spread(both, min(energy.freedom, time.freedom))
    is_energy = any(part in name for part in ("energy", "carbon", "cost"))
    return _published(model, "energy_kwh" if is_energy else "gpu_hours")


@cache
def _published(model: str, name: str) -> Spread:
    rows = records(published_configurations())
    spread = pooled(summary_of(row, name) for row in rows if row["model"] == model)
    return spread or _published(WIDEST, name)
