"""The table `plan`: its columns, and the whole plan of a campaign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, basis
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.energies.estimate import FACTOR
from scalewatt.results.tables.derived_quantities import facility_of
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.model.scores import NOMINAL
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.planning import marginal
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.scaling.planning.marginal import ENDS, MARGINALS, point_rows, steps
from scalewatt.scaling.planning.plan import (
    CAMPAIGN,
    DEVICE,
    FINISHED,
    MIXED,
    POINT,
    PREDICTED,
    QUANTITIES,
    RUN,
    PlannedRun,
    Planner,
    Row,
    added,
    joined,
    of_configuration,
    plan_sha256,
    stated,
)
from scalewatt.scaling.planning.plan_numbers import short
from scalewatt.scaling.planning.recommend import Recommendation, recommendations

PLAN = pa.schema(
    [
        *((name, pa.string()) for name in ("campaign", "level", "series", "configuration")),
        *((name, pa.string()) for name in ("model", "phase", "device")),
        *(
            (name, pa.int32())
            for name in ("gpus", "nodes", "local_batch_size", "global_batch_size")
        ),
        ("dataset_samples", pa.int64()),
        *((name, pa.int32()) for name in ("epochs", "repeat")),
        *((name, pa.int32()) for name in ("runs", "finished_runs", "unknown_runs")),
        *((f"{name}{end}", pa.float64()) for name in QUANTITIES for end in ENDS),
        *((f"segments{end}", pa.int32()) for end in ENDS),
        ("wall_time_min", pa.int32()),
        ("smaller_gpus", pa.int32()),
        *((f"{name}{end}", pa.float64()) for name in MARGINALS for end in ENDS),
        *((name, pa.string()) for name in ("basis", "energy_origin", "energy_scope")),
        *((name, pa.string()) for name in ("reason", "warnings")),
    ]
)


@dataclass(frozen=True, eq=False)
class Plan:
    """A campaign's plan."""

    table: pd.DataFrame
    """Of the schema PLAN, with its metadata."""
    recommended: tuple[Recommendation, ...]
    notes: tuple[str, ...]
    """The assumptions and sources that it rests on."""
    steps: pd.DataFrame
    """What going from one chosen n to another buys and costs, by series: of the schema STEPS."""
    planner: Planner

    def of_level(self, *levels: str) -> pd.DataFrame:
        """Return the rows of some levels."""
        return self.table[self.table["level"].isin(levels)]

    def as_json(self) -> dict[str, Any]:
        """Return it as `scalewatt plan --json` prints it."""
        return {
            **{str(name): value for name, value in self.table.attrs.items()},
            "points": _without_nulls(self.of_level(POINT)),
            "runs": _without_nulls(self.of_level(RUN)),
            "sums": _without_nulls(self.of_level(DEVICE, CAMPAIGN)),
            "steps": _without_nulls(self.steps),
            "recommended": [asdict(one) for one in self.recommended],
        }


def _without_nulls(rows: pd.DataFrame) -> list[Row]:
    """Return rows without their nulls, except those of `reason` and `warnings`."""
    always = ("reason", "warnings")
    return [
        {name: value for name, value in row.items() if value is not None or name in always}
        for row in records(rows)
    ]


def make_plan(
    campaign: Campaign,
    cluster: Cluster,
    forecaster: Forecaster,
    used: Mapping[tuple[str, int], Row] | None = None,
    deadline_h: float | None = None,
    energy_kwh: float | None = None,
    step: tuple[int, int] | None = None,
) -> Plan:
    """Plan a campaign on a cluster; `step`: two n to compare, the smaller first.

    InputError if nothing of it can be predicted, or no series has both n.
    """
    planner = Planner(campaign, cluster, forecaster, facility_of(cluster), used or {})
    runs = planner.runs()
    rows = [*point_rows(planner), *run_rows(planner, runs), *sum_rows(planner, runs)]
    table = _frame(rows, PLAN)
    notes = _notes(planner, runs)
    table.attrs.update(
        campaign=campaign.name,
        scaling_model=forecaster.model.name,
        sources=list(forecaster.model.sources),
        currency=cluster.currency,
        notes=notes,
        definition_sha256=plan_sha256(campaign, cluster),
    )
    return Plan(
        table,
        tuple(recommendations(planner, deadline_h, energy_kwh)),
        tuple(notes),
        _frame(steps(planner, *step) if step else [], marginal.STEPS),
        planner,
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
    known = own["known"].sum()
    scopes = sorted(with_energy["scope"].dropna().unique())
    origins = with_energy["origin"].fillna("unknown").value_counts().sort_index()
    counts = {
        "missing, as they cannot be predicted": len(own) - known,
        "without a known energy, so not in it": known - len(with_energy),
        "longer than the wall-time limit allows": own["stuck"].notna().sum(),
        **own["warnings"].explode().dropna().value_counts(sort=False),
    }
    found = [f"{what} (runs: {number})" for what, number in counts.items() if number]
    if len(scopes) > 1:
        found.append(f"over unequal scopes of energy: {', '.join(scopes)}")
    if len(origins) > 1:
        named = ", ".join(f"{name} {number}" for name, number in origins.items())
        found.append(f"over energies of several origins (runs: {named})")
    return found


def _counts(runs: Sequence[PlannedRun]) -> Row:
    return {
        "runs": len(runs),
        "finished_runs": sum(run.basis in (FINISHED, MIXED) for run in runs),
        "unknown_runs": sum(not run.amounts for run in runs),
    }


def _frame(rows: Iterable[Row], schema: pa.Schema) -> pd.DataFrame:
    """Return rows as a table; what a row does not state is null."""
    return frame_of([{**dict.fromkeys(schema.names), **row} for row in rows], schema)


def predicted_by(model: ScalingModel, more: str = "") -> str:
    """Return which scaling model predicts, and what is not in its numbers; `more`: of its sources."""
    return (
        f"Predicted by the scaling model {model.name} (calibrated on {', '.join(model.sources)}{more}): "
        f"medians and {NOMINAL} intervals. Waiting in a queue and preparing data are not in it."
    )


def _notes(planner: Planner, runs: Sequence[PlannedRun]) -> list[str]:
    """Return what the numbers rest on, and what is not in them."""
    model = planner.forecaster.model
    origins = sorted({one.origin for one in model.kinds if one.origin})
    origin = f", energies {' and '.join(origins)}" if origins else ""
    notes = [
        *(f"{one}." for one in planner.campaign.left_out),
        predicted_by(model, origin),
    ]
    specs = {
        run.configuration.id: run_spec(planner.campaign, run.configuration.id, 1)
        for run in runs
        if run.basis in (PREDICTED, MIXED)
    }
    estimated = _estimated_kinds(model, specs.values())
    if estimated:
        notes.append(_of_estimates(estimated))
    if specs:
        notes.append(planner.forecaster.stated_error(specs.values()))
    notes += _of_whole_nodes(planner, runs)
    # What rated powers would estimate has no part in a prediction.
    notes += basis(planner.cluster, [])
    if planner.campaign.idle_probe is not None:
        notes.append("The campaign's idle probes are not in it.")
    if planner.campaign.energy_budget_kwh is not None:
        notes.append(_of_budget(planner.campaign.energy_budget_kwh, runs, bool(estimated)))
    return notes


def _of_whole_nodes(planner: Planner, runs: Sequence[PlannedRun]) -> list[str]:
    """Say how many GPU hours whole nodes have, where runs leave GPUs of theirs unused."""
    used_h = held_h = 0.0
    for run in runs:
        device = planner.cluster.devices.get(run.configuration.device)
        if run.amounts and device is not None:
            gpus, hours = run.configuration.gpus, float(np.median(run.amounts["runtime_h"]))
            used_h += gpus * hours
            held_h += -(-gpus // device.gpus_per_node) * device.gpus_per_node * hours
    if held_h <= used_h * 1.005:
        return []
    return [f"GPU hours are n times the run time; of whole nodes: {short(held_h)} GPUh."]


def _estimated_kinds(model: ScalingModel, specs: Iterable[RunSpec]) -> list[str]:
    """Return the kinds of training that are predicted from energies that were estimated."""
    kinds = dict.fromkeys(kind_of_spec(spec) for spec in specs)
    return [kind.name for kind in kinds if model.of(kind).origin in ORIGINS]


def _of_estimates(kinds: Sequence[str]) -> str:
    """Say within what the true energies lie, where those of some kinds rest on estimates."""
    return (
        f"Energies of {', '.join(kinds)} rest on estimates: the true ones lie within × or ÷ {FACTOR:g}, "
        "which the intervals leave out (docs/energy.md)."
    )


def _of_budget(budget: float, runs: Sequence[PlannedRun], estimated: bool) -> str:
    """Return how probably a campaign's energy budget is enough, as far as its energies are known.

    Estimated energies are also told as FACTOR times less and more, which their intervals leave out.
    """
    unknown = sum(not run.energy_is_known for run in runs)
    whole = added(runs).get("energy_kwh")
    if whole is None:
        return f"energy_budget_kwh {budget:g}: no energy is known."
    within = f"{100 * np.mean(whole <= budget):.0f} %"
    if estimated:
        low, high = (100 * np.mean(whole * by <= budget) for by in (FACTOR, 1 / FACTOR))
        within = f"{low:.0f} to {high:.0f} %, by estimates"
    lack = f"; runs without a known energy, not in it: {unknown}" if unknown else ""
    found = estimate(whole)
    return (
        f"energy_budget_kwh {budget:g}: {found.median:.6g} kWh ({found.low:.6g} to {found.high:.6g}) are "
        f"within it with a probability of {within}{lack}."
    )
