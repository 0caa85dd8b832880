"""A plan's runs and sums as rows of the table `plan`; what a row does not state is null."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.plan import (
    FINISHED,
    MIXED,
    Amounts,
    PlannedRun,
    Planner,
    Row,
    added,
)

POINT, RUN, DEVICE, CAMPAIGN = "point", "run", "device", "campaign"
"""Levels of rows: a point of a series, a run, and sums over the runs of a device or of all."""

_OF_CONFIGURATION = (
    *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)


def run_rows(planner: Planner, runs: Sequence[PlannedRun]) -> list[Row]:
    """Return one row for each run."""
    return [
        {
            "campaign": planner.campaign.name,
            "level": RUN,
            **of_configuration(run.configuration),
            "repeat": run.repeat,
            "wall_time_min": planner.jobs_of(run.configuration.id)[0],
            **_counts([run]),
            **stated(run.amounts),
            "basis": run.basis,
            "energy_origin": run.origin if run.energy_is_known else None,
            "energy_scope": run.scope,
            "reason": run.reason,
            "warnings": joined([*run.warnings, *filter(None, [run.stuck])]),
        }
        for run in runs
    ]


def sum_rows(planner: Planner, runs: Sequence[PlannedRun]) -> list[Row]:
    """Return one row for each device, and one for the whole campaign."""
    frame = pd.DataFrame([vars(run) for run in runs], dtype=object).assign(
        run=pd.Series(list(runs), dtype=object),
        device=[run.configuration.device for run in runs],
        known=[bool(run.amounts) for run in runs],
        with_energy=[run.energy_is_known for run in runs],
    )
    groups = [(DEVICE, name, own) for name, own in frame.groupby("device", sort=False)]
    return [
        {"campaign": planner.campaign.name, "level": level, "device": device} | _summed(own)
        for level, device, own in [*groups, (CAMPAIGN, None, frame)]
    ]


def _summed(own: pd.DataFrame) -> Row:
    runs = list(own["run"])
    with_energy = own[own["with_energy"]]
    scopes = with_energy["scope"].unique()
    return {
        **_counts(runs),
        **stated(added(runs)),
        "basis": _common(own["basis"].dropna()),
        "energy_origin": _common(with_energy["origin"]),
        "energy_scope": scopes[0] if len(scopes) == 1 else None,
        "warnings": joined(_sum_warnings(own, with_energy)),
    }


def _common(values: pd.Series[Any]) -> str | None:
    """Return the one value; MIXED of several, None of none."""
    found = values.unique()
    return found[0] if len(found) == 1 else MIXED if len(found) else None


def _sum_warnings(own: pd.DataFrame, with_energy: pd.DataFrame) -> list[str]:
    found = []
    known = int(own["known"].sum())
    if known < len(own):
        found.append(f"{len(own) - known} of {len(own)} runs are missing: they cannot be predicted")
    if len(with_energy) < known:
        without = known - len(with_energy)
        found.append(f"the energy of {without} of {len(own)} runs is not known, so not in it")
    scopes = sorted(with_energy["scope"].dropna().unique())
    if len(scopes) > 1:
        found.append(f"over unequal scopes of energy: {', '.join(scopes)}")
    origins = with_energy["origin"].fillna("of unknown origin").value_counts().sort_index()
    if len(origins) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in origins.items())
        found.append(f"over energies of several origins (runs: {counts})")
    if stuck := int(own["stuck"].notna().sum()):
        found.append(f"{stuck} of {len(own)} runs cannot be trained under the wall-time limit")
    counted = own["warnings"].explode().dropna().value_counts(sort=False)
    return [*found, *(f"{count} runs: {one}" for one, count in counted.items())]


def of_configuration(configuration: Configuration) -> Row:
    """Return what a row states of its configuration."""
    return {
        "configuration": configuration.id,
        **{name: getattr(configuration, name) for name in _OF_CONFIGURATION},
    }


def stated(amounts: Amounts) -> Row:
    """Return medians and the ends of the 90 % intervals of what is known."""
    found: Row = {}
    for name, draws in amounts.items():
        found |= interval_columns(name, draws)
    return {
        name: round(value) if name.startswith("segments") else value
        for name, value in found.items()
    }


def interval_columns(name: str, draws: Array | None) -> Row:
    """Return the median of draws and the ends of its 90 % interval, as columns; null of None."""
    found = None if draws is None else estimate(draws)
    ends = {"": "median", "_low": "low", "_high": "high"}
    return {f"{name}{end}": getattr(found, which, None) for end, which in ends.items()}


def _counts(runs: Sequence[PlannedRun]) -> Row:
    return {
        "runs": len(runs),
        "finished_runs": sum(run.basis in (FINISHED, MIXED) for run in runs),
        "unknown_runs": sum(not run.amounts for run in runs),
    }


def joined(sentences: Iterable[str]) -> str | None:
    """Return sentences, each once, in one text; None without any."""
    return "; ".join(dict.fromkeys(sentences)) or None
