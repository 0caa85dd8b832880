"""Plan a campaign's time, energy and cost before it is submitted, with intervals.

Finished runs count with what they used; of the others draws are summed (`forecast`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalewatt.campaign.campaign_types import Campaign, Cluster, Configuration, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec, text_sha256
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import TOTAL, Predicted
from scalewatt.scaling.planning.forecast import Forecaster, check_any
from scalewatt.scheduling.job_request import segments, wall_time_min

Row = dict[str, Any]
PREDICTED, FINISHED, MIXED = "predicted", "finished", "mixed"
QUANTITIES = (
    *("runtime_h", "gpu_hours", "energy_kwh"),
    *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS),
    *("facility_energy_kwh", "carbon_kg", "cost"),
)
"""The quantities of a plan, each with the ends of its 90 % interval."""


@dataclass(frozen=True)
class Used:
    """Time and energy of a finished run; null where unknown."""

    runtime_h: float
    energy_kwh: float | None
    kinds_kwh: Mapping[str, float | None]
    """By device kind."""
    scope: str | None
    origin: str | None
    """Of the energy; both null without one."""


@dataclass(frozen=True)
class Amounts:
    """Draws (draws,) of what one or several runs take; None where unknown."""

    runtime_h: Array | None
    gpu_hours: Array
    energy_kwh: Array | None
    kinds_kwh: Mapping[str, Array | None]
    segments: Array | None

    def quantities(self, facility: Facility) -> dict[str, Array | None]:
        """Return the draws by name of QUANTITIES."""
        facility_kwh = _times(self.energy_kwh, facility.pue)
        carbon = None if facility.carbon_g_per_kwh is None else facility.carbon_g_per_kwh / 1000
        return {
            "runtime_h": self.runtime_h,
            "gpu_hours": self.gpu_hours,
            "energy_kwh": self.energy_kwh,
            **{f"{kind}_energy_kwh": self.kinds_kwh[kind] for kind in DEVICE_KINDS},
            "facility_energy_kwh": facility_kwh,
            "carbon_kg": _times(facility_kwh, carbon),
            "cost": _times(facility_kwh, facility.price_per_kwh),
        }


def _times(draws: Array | None, factor: float | None) -> Array | None:
    return None if draws is None or factor is None else draws * factor


@dataclass(frozen=True)
class PlannedRun:
    """One run of the plan."""

    configuration: Configuration
    repeat: int
    amounts: Amounts | None
    """None where it cannot be predicted and has not finished."""
    reason: str | None
    """Why it cannot be predicted, and what would make it possible."""
    basis: str | None
    scope: str | None
    """Of the energy; null without one."""
    warnings: tuple[str, ...] = ()
    origin: str | None = PREDICTED
    """Of the energy, where it is known."""
    stuck: str | None = None
    """Why the run cannot be trained under its device's wall-time limit."""

    @property
    def energy_is_known(self) -> bool:
        """Return True if its energy is in the sums."""
        return self.amounts is not None and self.amounts.energy_kwh is not None


@dataclass(frozen=True)
class Planner:
    """Everything that plans are made from."""

    campaign: Campaign
    cluster: Cluster
    forecaster: Forecaster
    facility: Facility
    used: Mapping[tuple[str, int], Used] = field(default_factory=dict)
    """Of finished runs, by configuration and repeat."""
    _jobs: dict[str, tuple[int | None, str | None]] = field(default_factory=dict, init=False)

    def runs(self) -> list[PlannedRun]:
        """Return all runs of the campaign, in order.

        InputError where nothing of it has finished or can be predicted, with what would make it possible.
        """
        found = [
            run for configuration in self.campaign.configurations for run in self._of(configuration)
        ]
        if all(run.amounts is None for run in found):
            check_any(self.campaign, self.forecaster)
        return found

    def point(self, configuration: str) -> Predicted | None:
        """Return draws of one run of a configuration, whatever has finished; None where unknown."""
        try:
            return self.forecaster.runs(run_spec(self.campaign, configuration, 1))
        except InputError:
            return None

    def amounts(self, configuration: str, predicted: Predicted, run: int = 0) -> Amounts:
        """Return what one of the runs of `predicted` takes."""
        return self._amounts(
            self.campaign.configurations[configuration],
            predicted.runtime_s[:, run],
            {name: joules[:, run] for name, joules in predicted.energy_j.items()},
        )

    def jobs_of(self, configuration: str) -> tuple[int | None, str | None]:
        """Return the wall time in min that a run's first job requests, and why no time is enough.

        None without a limit or where none is enough; None where one is.
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
        repeats = self.campaign.repeats[id_]
        spec = run_spec(self.campaign, id_, 1)
        predicted, reason, scope = None, None, None
        warnings: tuple[str, ...] = ()
        try:
            predicted = self.forecaster.runs(spec, repeats)
            warnings = tuple(self.forecaster.warnings(spec))
            scope = self.forecaster.of_kind(spec).scope if predicted.energy_j else None
        except InputError as error:
            reason = str(error)
        stuck = self.jobs_of(id_)[1]
        at_times = self._energies_at_times(id_, spec if predicted else None)
        for repeat in range(1, repeats + 1):
            used = self.used.get((id_, repeat))
            if used is not None and used.energy_kwh is None:
                energy = at_times.get(repeat, {})
                yield self._without_energy(configuration, repeat, used, energy, scope)
            elif used is not None:
                yield self._finished(configuration, repeat, used)
            elif predicted is None:
                yield PlannedRun(configuration, repeat, None, reason, None, None, stuck=stuck)
            else:
                amounts = self.amounts(id_, predicted, repeat - 1)
                yield PlannedRun(
                    configuration, repeat, amounts, None, PREDICTED, scope, warnings, stuck=stuck
                )

    def _energies_at_times(self, id_: str, spec: RunSpec | None) -> dict[int, dict[str, Array]]:
        """Return draws of the energies in J, by repeat, of finished runs of which only the time is known.

        Their deviations are independent. Empty where they cannot be predicted.
        """
        times_s = {
            repeat: used.runtime_h * 3600
            for (configuration, repeat), used in sorted(self.used.items())
            if configuration == id_ and used.energy_kwh is None
        }
        if spec is None or not times_s:
            return {}
        found = self.forecaster.energies_at(spec, list(times_s.values()))
        return {
            repeat: {name: joules[:, number] for name, joules in found.items()}
            for number, repeat in enumerate(times_s)
        }

    def _finished(self, configuration: Configuration, repeat: int, used: Used) -> PlannedRun:
        """Return the plan of a finished run whose energy is known."""
        energy = {TOTAL: np.array([(used.energy_kwh or 0.0) * J_PER_KWH])}
        amounts = self._amounts(configuration, np.array([used.runtime_h * 3600]), energy)
        kinds = {k: None if v is None else np.array([v]) for k, v in used.kinds_kwh.items()}
        amounts = replace(amounts, kinds_kwh=kinds)
        return PlannedRun(
            configuration, repeat, amounts, None, FINISHED, used.scope, origin=used.origin
        )

    def _without_energy(
        self,
        configuration: Configuration,
        repeat: int,
        used: Used,
        energy_j: Mapping[str, Array],
        scope: str | None,
    ) -> PlannedRun:
        """Return the plan of a finished run of which only the time is known: its energy is predicted."""
        said = "it has finished, but its energy is not known" + ("; predicted" if energy_j else "")
        amounts = self._amounts(configuration, np.array([used.runtime_h * 3600]), energy_j)
        basis = MIXED if energy_j else FINISHED
        return PlannedRun(configuration, repeat, amounts, None, basis, scope, (said,))

    def _amounts(
        self, configuration: Configuration, runtime_s: Array, energy_j: Mapping[str, Array]
    ) -> Amounts:
        runtime_h = runtime_s / 3600
        kwh = {name: joules / J_PER_KWH for name, joules in energy_j.items()}
        return Amounts(
            runtime_h=runtime_h,
            gpu_hours=runtime_h * configuration.gpus,
            energy_kwh=sum(kwh.values()) if kwh else None,  # type: ignore[arg-type]
            kinds_kwh={kind: kwh.get(kind) for kind in DEVICE_KINDS},
            segments=self._segments(configuration, runtime_s),
        )

    def _segments(self, configuration: Configuration, runtime_s: Array) -> Array | None:
        device = self._device(configuration.device)
        if device is None or device.time_limit_min is None:
            return None
        warning_s = self.cluster.stop_warning_s
        if self.jobs_of(configuration.id)[1] is not None:
            return None
        return np.array([segments(one, device, warning_s) for one in runtime_s.tolist()], float)


def added(runs: Sequence[PlannedRun]) -> Amounts | None:
    """Return the sum over the known runs, within each draw; None where none is known.

    Unknown energies are left out; a device kind's is null where one energy lacks it.
    """
    known = [run.amounts for run in runs if run.amounts is not None]
    with_energy = [one for one in known if one.energy_kwh is not None]
    if not known:
        return None
    jobs = [one.segments for one in known]
    return Amounts(
        runtime_h=None,
        gpu_hours=_sum([one.gpu_hours for one in known]),
        energy_kwh=_sum([one.energy_kwh for one in with_energy]) if with_energy else None,
        kinds_kwh={
            kind: _sum_or_none([one.kinds_kwh[kind] for one in with_energy])
            for kind in DEVICE_KINDS
        },
        segments=_sum_or_none(jobs),
    )


def _sum(draws: Iterable[Any]) -> Array:
    """Return the sum of draws and single values."""
    total = np.zeros(1)
    for one in draws:
        total = total + one
    return total


def _sum_or_none(draws: Sequence[Array | None]) -> Array | None:
    known = [one for one in draws if one is not None]
    return _sum(known) if known and len(known) == len(draws) else None


def plan_definition(campaign: Campaign, cluster: Cluster) -> dict[str, Any]:
    """Return all of a campaign and a cluster that a plan depends on, as JSON-ready values."""
    return {
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
