"""The table `plan`: its columns, and the whole plan of a campaign as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from scalewatt.campaign.cluster import basis
from scalewatt.campaign.model import Campaign, Cluster
from scalewatt.campaign.spec import run_spec, spec_sha256
from scalewatt.results.derived import Facility
from scalewatt.results.metadata import with_metadata
from scalewatt.results.schema import table
from scalewatt.scaling.forecast import Forecaster
from scalewatt.scaling.marginal import point_rows
from scalewatt.scaling.plan import (
    CAMPAIGN,
    DEVICE,
    POINT,
    QUANTITIES,
    RUN,
    Planner,
    Row,
    Used,
    run_rows,
    sum_rows,
)
from scalewatt.scaling.recommend import Recommendation, recommendations

_ENDS = ("", "_low", "_high")

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
        *((f"{name}{end}", pa.float64()) for name in QUANTITIES for end in _ENDS),
        *((f"segments{end}", pa.int32()) for end in _ENDS),
        ("wall_time_min", pa.int32()),
        ("smaller_gpus", pa.int32()),
        *(
            (f"{name}{end}", pa.float64())
            for name in ("speedup", "extra_gpu_hours", "extra_energy_kwh")
            for end in _ENDS
        ),
        ("extra_kwh_per_hour_saved", pa.float64()),
        *((name, pa.string()) for name in ("basis", "energy_scope", "reason", "warnings")),
    ]
)


@dataclass(frozen=True)
class Plan:
    """A campaign's plan: rows by level, what is recommended, and what it rests on."""

    rows: tuple[Row, ...]
    recommended: tuple[Recommendation, ...]
    notes: tuple[str, ...]
    said: Mapping[str, Any]
    """For the table's metadata."""

    def of_level(self, level: str) -> list[Row]:
        """The rows of one level."""
        return [row for row in self.rows if row["level"] == level]

    def as_table(self) -> pa.Table:
        """The table `plan`."""
        return with_metadata(table(self.rows, PLAN), dict(self.said))

    def as_json(self) -> dict[str, Any]:
        """As `scalewatt plan --json` prints it."""
        return {
            **self.said,
            "points": [_without_nulls(row) for row in self.of_level(POINT)],
            "runs": [_without_nulls(row) for row in self.of_level(RUN)],
            "sums": [
                _without_nulls(row) for row in self.rows if row["level"] in (DEVICE, CAMPAIGN)
            ],
            "recommended": [one.as_json() for one in self.recommended],
        }


def _without_nulls(row: Row) -> Row:
    """What a row says; `reason` and `warnings` always, so that their absence is no news."""
    return {k: v for k, v in row.items() if v is not None or k in ("reason", "warnings")}


def make_plan(
    campaign: Campaign,
    cluster: Cluster,
    forecaster: Forecaster,
    used: Mapping[tuple[str, int], Used] | None = None,
    deadline_h: float | None = None,
    energy_kwh: float | None = None,
) -> Plan:
    """Plan a campaign on a cluster. InputError where nothing of it can be predicted."""
    planner = Planner(campaign, cluster, forecaster, facility_of(cluster), used or {})
    runs = planner.runs()
    rows = [*point_rows(planner), *run_rows(planner, runs), *sum_rows(planner, runs)]
    notes = _notes(planner, rows)
    return Plan(
        tuple(rows),
        tuple(recommendations(planner, deadline_h, energy_kwh)),
        tuple(notes),
        {
            "campaign": campaign.name,
            "scaling_model": forecaster.model.path,
            "sources": list(forecaster.model.sources),
            "currency": (cluster.price or {}).get("currency", ""),
            "notes": notes,
        },
    )


def plan_definition(campaign: Campaign, cluster: Cluster) -> dict[str, Any]:
    """All of a campaign and a cluster that a plan depends on, as JSON-ready values."""
    return {
        "specs": {id_: spec_sha256(run_spec(campaign, id_, 1)) for id_ in campaign.configurations},
        "repeats": dict(campaign.repeats),
        "series": {name: list(one.points.values()) for name, one in campaign.series.items()},
        "budget": campaign.energy_budget_kwh,
        "idle_probe": campaign.idle_probe is not None,
        "facility": [cluster.pue, cluster.carbon_intensity, cluster.price],
        "stop_warning_s": cluster.stop_warning_s,
        "devices": {
            name: [one.time_limit_min, one.step_time] for name, one in cluster.devices.items()
        },
    }


def facility_of(cluster: Cluster) -> Facility:
    """PUE, carbon and price of a cluster, null where it names none."""
    given = (cluster.pue, cluster.carbon_intensity, cluster.price)
    return Facility(*(entry["value"] if entry else None for entry in given))


def _notes(planner: Planner, rows: list[Row]) -> list[str]:
    """What the numbers rest on, and what is not in them."""
    model = planner.forecaster.model
    origins = sorted({one.origin for one in model.kinds if one.origin})
    origin = f", energies {' and '.join(origins)}" if origins else ""
    notes = [
        f"Predicted by the scaling model {model.path} (calibrated on {', '.join(model.sources)}"
        f"{origin}): medians and 90 % intervals. Waiting in a queue and preparing data are not in it."
    ]
    # What rated powers would estimate has no part in a prediction.
    notes += basis(planner.cluster, [])
    if planner.campaign.idle_probe is not None:
        notes.append("The campaign's idle probes are not in it.")
    budget = planner.campaign.energy_budget_kwh
    whole = next(row for row in rows if row["level"] == CAMPAIGN)
    if budget is not None and whole["energy_kwh"] is not None:
        word = "above" if whole["energy_kwh"] > budget else "within"
        notes.append(
            f"{whole['energy_kwh']:.6g} kWh are {word} the campaign's energy_budget_kwh of {budget:g}."
        )
    return notes
