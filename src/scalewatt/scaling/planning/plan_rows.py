"""A plan's runs and sums as rows of the table `plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.plan import (
    FINISHED,
    MIXED,
    QUANTITIES,
    Amounts,
    PlannedRun,
    Planner,
    Row,
    added,
)

POINT, RUN, DEVICE, CAMPAIGN = "point", "run", "device", "campaign"
"""Levels of rows: a point of a series, a run, and sums over the runs of a device or of all."""
MARGINALS = ("speedup", "extra_gpu_hours", "extra_energy_kwh", "extra_kwh_per_hour_saved")
"""What more GPUs buy and cost, each with the ends of its 90 % interval."""

_OF_CONFIGURATION = (
    *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)


def run_rows(planner: Planner, runs: Sequence[PlannedRun]) -> list[Row]:
    """One row for each run."""
    return [
        {
            **empty_row(planner.campaign.name, RUN),
            **of_configuration(run.configuration),
            "repeat": run.repeat,
            "wall_time_min": planner.jobs_of(run.configuration.id)[0],
            **_counts([run]),
            **stated(run.amounts, planner.facility),
            "basis": run.basis,
            "energy_origin": run.origin if run.energy_is_known else None,
            "energy_scope": run.scope,
            "reason": run.reason,
            "warnings": joined([*run.warnings, *filter(None, [run.stuck])]),
        }
        for run in runs
    ]


def sum_rows(planner: Planner, runs: Sequence[PlannedRun]) -> list[Row]:
    """One row for each device, and one for the whole campaign."""
    devices = dict.fromkeys(run.configuration.device for run in runs)
    groups: list[tuple[str, str | None]] = [*((DEVICE, name) for name in devices), (CAMPAIGN, None)]
    rows = []
    for level, device in groups:
        own = [run for run in runs if device in (None, run.configuration.device)]
        bases = {run.basis for run in own if run.basis is not None}
        origins = {run.origin for run in own if run.energy_is_known}
        scopes = {run.scope for run in own if run.energy_is_known}
        rows.append(
            {
                **empty_row(planner.campaign.name, level),
                "device": device,
                **_counts(own),
                **stated(added(own), planner.facility),
                "basis": bases.pop() if len(bases) == 1 else (MIXED if bases else None),
                "energy_origin": origins.pop()
                if len(origins) == 1
                else (MIXED if origins else None),
                "energy_scope": scopes.pop() if len(scopes) == 1 else None,
                "warnings": joined(_sum_warnings(own)),
            }
        )
    return rows


def _sum_warnings(runs: Sequence[PlannedRun]) -> list[str]:
    said = []
    unknown = [run for run in runs if run.amounts is None]
    if unknown:
        said.append(f"{len(unknown)} of {len(runs)} runs are missing: they cannot be predicted")
    without = sum(run.amounts is not None and not run.energy_is_known for run in runs)
    if without:
        said.append(f"the energy of {without} of {len(runs)} runs is not known, so not in it")
    scopes = sorted({run.scope for run in runs if run.scope and run.energy_is_known})
    if len(scopes) > 1:
        said.append(f"over unequal scopes of energy: {', '.join(scopes)}")
    origins = Counter(run.origin or "of unknown origin" for run in runs if run.energy_is_known)
    if len(origins) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(origins.items()))
        said.append(f"over energies of several origins (runs: {counts})")
    stuck = sum(run.stuck is not None for run in runs)
    if stuck:
        said.append(f"{stuck} of {len(runs)} runs cannot be trained under the wall-time limit")
    found: dict[str, int] = {}
    for one in (one for run in runs for one in run.warnings):
        found[one] = found.get(one, 0) + 1
    return [*said, *(f"{count} runs: {one}" for one, count in found.items())]


def empty_row(campaign: str, level: str) -> Row:
    """A row of a plan in which nothing is known."""
    return {
        "campaign": campaign,
        "level": level,
        **dict.fromkeys(("series", "configuration")),
        **dict.fromkeys(_OF_CONFIGURATION),
        **dict.fromkeys(("repeat", "runs", "finished_runs", "unknown_runs")),
        **dict.fromkeys(f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high")),
        **dict.fromkeys(("segments", "segments_low", "segments_high", "wall_time_min")),
        **dict.fromkeys(("smaller_gpus",)),
        **dict.fromkeys(f"{name}{end}" for name in MARGINALS for end in ("", "_low", "_high")),
        **dict.fromkeys(("basis", "energy_origin", "energy_scope", "reason", "warnings")),
    }


def of_configuration(configuration: Configuration) -> Row:
    """What a row says of its configuration."""
    return {
        "configuration": configuration.id,
        **{name: getattr(configuration, name) for name in _OF_CONFIGURATION},
    }


def stated(amounts: Amounts | None, facility: Facility) -> Row:
    """Medians and the ends of the 90 % intervals; null where they are not known."""
    if amounts is None:
        return {}
    found: Row = {}
    for name, draws in amounts.quantities(facility).items():
        found |= interval_columns(name, draws)
    jobs = interval_columns("segments", amounts.segments)
    return found | {name: None if v is None else round(v) for name, v in jobs.items()}


def interval_columns(name: str, draws: Array | None) -> Row:
    """The median of draws and the ends of its 90 % interval, as columns; null of None."""
    found = None if draws is None else estimate(draws)
    ends = {"": "median", "_low": "low", "_high": "high"}
    return {f"{name}{end}": getattr(found, which, None) for end, which in ends.items()}


def _counts(runs: Sequence[PlannedRun]) -> Row:
    return {
        "runs": len(runs),
        "finished_runs": sum(run.basis in (FINISHED, MIXED) for run in runs),
        "unknown_runs": sum(run.amounts is None for run in runs),
    }


def joined(sentences: Iterable[str]) -> str | None:
    """Sentences, each once, in one text; None without any."""
    return "; ".join(dict.fromkeys(sentences)) or None
