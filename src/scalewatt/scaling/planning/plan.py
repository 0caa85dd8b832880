"""Plan a campaign's time, energy and cost before it is submitted, with intervals.

Finished runs count with what they used; of the others draws are summed (`forecast`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec, text_sha256
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import Predicted, estimate
from scalewatt.scaling.planning.forecast import Forecaster, check_any
from scalewatt.scheduling.job_request import segments, wall_time_min

Row = dict[str, Any]
PREDICTED, FINISHED, MIXED = "predicted", "finished", "mixed"
QUANTITIES = (
    *("runtime_h", "gpu_hours", "energy_kwh"),
    *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS),
    *("facility_energy_kwh", "carbon_kg", "cost"),
)
"""The quantities of a plan, each with the ends of its nominal 90 % interval."""


POINT, RUN, DEVICE, CAMPAIGN = "point", "run", "device", "campaign"
"""Levels of rows: a point of a series, a run, and sums over the runs of a device or of all."""

_OF_CONFIGURATION = (
    *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)
Amounts = Mapping[str, Array]
"""Draws (draws,) of what one or several runs take: of QUANTITIES and `segments`, those that are known."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of the plan."""

    configuration: Configuration
    repeat: int
    amounts: Amounts
    """Empty if it cannot be predicted and has not finished."""
    basis: str | None = None
    scope: str | None = None
    """Of the energy; null without one."""
    origin: str | None = PREDICTED
    """Of the energy, where it is known."""
    reason: str | None = None
    """Why it cannot be predicted, and what would make it possible."""
    warnings: tuple[str, ...] = ()
    stuck: str | None = None
    """Why the run cannot be trained under its device's wall-time limit."""

    @property
    def energy_is_known(self) -> bool:
        """Return True if its energy is in the sums."""
        return "energy_kwh" in self.amounts


@dataclass(frozen=True)
class Planner:
    """Everything that plans are made from."""

    campaign: Campaign
    cluster: Cluster
    forecaster: Forecaster
    facility: Facility
    used: Mapping[tuple[str, int], Row] = field(default_factory=dict)
    """Rows of RUNS of finished runs, by configuration and repeat."""
    _jobs: dict[str, tuple[int | None, str | None]] = field(default_factory=dict, init=False)

    def runs(self) -> list[PlannedRun]:
        """Return all runs of the campaign, in order.

        InputError if nothing of it has finished or can be predicted, with what would make it possible.
        """
        found = [
            run for configuration in self.campaign.configurations for run in self._of(configuration)
        ]
        if not any(run.amounts for run in found):
            check_any(self.campaign, self.forecaster)
        return found

    def point(self, configuration: str) -> Predicted | None:
        """Return draws of one run of a configuration, whatever has finished; None if unknown."""
        try:
            return self.forecaster.runs(run_spec(self.campaign, configuration, 1))
        except InputError:
            return None

    def amounts(self, configuration: str, predicted: Predicted, run: int = 0) -> Amounts:
        """Return what one of the runs of `predicted` takes."""
        joules = {name: found[:, run] for name, found in predicted.energy_j.items()}
        return self._amounts(configuration, predicted.runtime_s[:, run], _kwh(joules))

    def jobs_of(self, configuration: str) -> tuple[int | None, str | None]:
        """Return the wall time in min that a run's first job requests, and why no time is enough.

        None without a limit or where none is enough; None if one is.
        """
        if configuration not in self._jobs:
            self._jobs[configuration] = self._asked(configuration)
        return self._jobs[configuration]

    def _asked(self, configuration: str) -> tuple[int | None, str | None]:
        spec = run_spec(self.campaign, configuration, 1)
        device = self._device(spec.device)
        if device is None or device.time_limit_min is None:
            return None, None
        warning_s = self.cluster.stop_warning_s
        try:
            asked = wall_time_min(spec, device, 0, warning_s, self.forecaster.upper_runtime_s(spec))
            segments(0, device, warning_s)
        except InputError as error:
            return None, str(error)
        return asked, None

    def _device(self, name: str) -> Device | None:
        return self.cluster.devices.get(name)

    def _of(self, id_: str) -> Iterable[PlannedRun]:
        configuration = self.campaign.configurations[id_]
        repeats = self.campaign.repeats_of(id_)
        spec = run_spec(self.campaign, id_, 1)
        predicted, reason, scope = None, None, None
        warnings: tuple[str, ...] = ()
        try:
            predicted = self.forecaster.runs(spec, len(repeats))
            warnings = tuple(self.forecaster.warnings(spec))
            scope = self.forecaster.of_kind(spec).scope if predicted.energy_j else None
        except InputError as error:
            reason = str(error)
        stuck = self.jobs_of(id_)[1]
        at_times = self._energies_at_times(id_, spec if predicted else None)
        for number, repeat in enumerate(repeats):
            used = self.used.get((id_, repeat))
            if used is not None:
                yield self._finished(configuration, used, at_times.get(repeat, {}), scope)
            elif predicted is None:
                yield PlannedRun(configuration, repeat, {}, reason=reason, stuck=stuck)
            else:
                amounts = self.amounts(id_, predicted, number)
                yield PlannedRun(
                    configuration,
                    repeat,
                    amounts,
                    PREDICTED,
                    scope,
                    warnings=warnings,
                    stuck=stuck,
                )

    def _energies_at_times(self, id_: str, spec: RunSpec | None) -> dict[int, Amounts]:
        """Return draws of the energies, by repeat, of finished runs of which only the time is known.

        Their deviations are independent. Empty if they cannot be predicted.
        """
        times_s = {
            repeat: self.used[id_, repeat]["runtime_s"]
            for configuration, repeat in sorted(self.used)
            if configuration == id_ and self.used[id_, repeat]["energy_kwh"] is None
        }
        if spec is None or not times_s:
            return {}
        found = self.forecaster.energies_at(spec, list(times_s.values()))
        return {
            repeat: _kwh({name: joules[:, number] for name, joules in found.items()})
            for number, repeat in enumerate(times_s)
        }

    def _finished(
        self, configuration: Configuration, used: Row, predicted: Amounts, scope: str | None
    ) -> PlannedRun:
        """Return the plan of a finished run; its energy is the `predicted` one where it is not known."""
        names = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
        known = used["energy_kwh"] is not None
        kwh = {name: np.array([used[name]]) for name in names if known and used[name] is not None}
        runtime_s = np.array([used["runtime_s"]])
        run = PlannedRun(
            configuration,
            used["repeat"],
            self._amounts(configuration.id, runtime_s, kwh if known else predicted),
            FINISHED,
            used["energy_scope"],
            used["energy_origin"],
        )
        if known:
            return run
        note = "it has finished, but its energy is not known" + ("; predicted" if predicted else "")
        basis = MIXED if predicted else FINISHED
        return replace(run, basis=basis, scope=scope, origin=PREDICTED, warnings=(note,))

    def _amounts(self, id_: str, runtime_s: Array, kwh: Amounts) -> Amounts:
        configuration, facility = self.campaign.configurations[id_], self.facility
        runtime_h = runtime_s / 3600
        found = {"runtime_h": runtime_h, "gpu_hours": runtime_h * configuration.gpus, **kwh}
        if facility.pue is not None and "energy_kwh" in kwh:
            found["facility_energy_kwh"] = facility_kwh = kwh["energy_kwh"] * facility.pue
            if facility.carbon_g_per_kwh is not None:
                found["carbon_kg"] = facility_kwh * (facility.carbon_g_per_kwh / 1000)
            if facility.price_per_kwh is not None:
                found["cost"] = facility_kwh * facility.price_per_kwh
        segments = self._segments(configuration, runtime_s)
        return found if segments is None else {**found, "segments": segments}

    def _segments(self, configuration: Configuration, runtime_s: Array) -> Array | None:
        device = self._device(configuration.device)
        if device is None or device.time_limit_min is None:
            return None
        warning_s = self.cluster.stop_warning_s
        if self.jobs_of(configuration.id)[1] is not None:
            return None
        return np.array([segments(one, device, warning_s) for one in runtime_s.tolist()], float)


def _kwh(energy_j: Mapping[str, Array]) -> Amounts:
    """Return the energy in all and by device kind, of energies in J as of `Predicted`."""
    kwh = {name: joules / J_PER_KWH for name, joules in energy_j.items()}
    kinds = {f"{kind}_energy_kwh": kwh[kind] for kind in DEVICE_KINDS if kind in kwh}
    return {"energy_kwh": np.asarray(sum(kwh.values())), **kinds} if kwh else {}


def added(runs: Iterable[PlannedRun]) -> Amounts:
    """Return the sums over the known runs, within each draw; none where no run is known.

    Unknown energies are left out; a device kind's is unknown where one energy lacks it.
    """
    known = [run.amounts for run in runs if run.amounts]
    with_energy = [one for one in known if "energy_kwh" in one]
    found = {}
    for name in (*QUANTITIES[1:], "segments"):
        own = known if name in ("gpu_hours", "segments") else with_energy
        if own and all(name in one for one in own):
            # Draws and single values: the sum begins with what is broadcast to either.
            found[name] = sum((one[name] for one in own), np.zeros(1))
    return found


def plan_definition(campaign: Campaign, cluster: Cluster) -> dict[str, Any]:
    """Return all of a campaign and a cluster that a plan depends on, as JSON-ready values."""
    left_out = {"left_out": campaign.left_out} if campaign.left_out else {}
    return {
        **left_out,
        "specs": {id_: run_spec(campaign, id_, 1).sha256 for id_ in campaign.configurations},
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


def plan_sha256(campaign: Campaign, cluster: Cluster) -> str:
    """Return the SHA-256 of the plan's definition; another definition makes another plan."""
    text = json.dumps(plan_definition(campaign, cluster), sort_keys=True)
    return text_sha256(text)


# --- as columns of a row --------------------------------------------------------------------------


def of_configuration(configuration: Configuration) -> Row:
    """Return what a row states of its configuration."""
    return {
        "configuration": configuration.id,
        **{name: getattr(configuration, name) for name in _OF_CONFIGURATION},
    }


def stated(amounts: Amounts) -> Row:
    """Return medians and the ends of the nominal 90 % intervals of what is known."""
    found: Row = {}
    for name, draws in amounts.items():
        found |= interval_columns(name, draws)
    return {
        name: round(value) if name.startswith("segments") else value
        for name, value in found.items()
    }


def interval_columns(name: str, draws: Array | None) -> Row:
    """Return the median of draws and the ends of its nominal 90 % interval, as columns; null of None."""
    found = None if draws is None else estimate(draws)
    ends = {"": "median", "_low": "low", "_high": "high"}
    return {f"{name}{end}": getattr(found, which, None) for end, which in ends.items()}


def joined(sentences: Iterable[str]) -> str | None:
    """Return sentences, each once, in one text; None without any."""
    return "; ".join(dict.fromkeys(sentences)) or None
