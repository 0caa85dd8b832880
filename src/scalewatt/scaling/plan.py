"""A campaign's time, energy and cost before it is submitted: by the scaling model, with intervals.

Runs that have finished count with what they used; of the others draws are added up (`forecast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scalewatt.campaign.model import Campaign, Cluster, Configuration, Device
from scalewatt.campaign.spec import run_spec
from scalewatt.energy.samples import DEVICE_KINDS, J_PER_KWH
from scalewatt.errors import InputError
from scalewatt.jobs.request import segments, wall_time_min
from scalewatt.results.derived import Facility
from scalewatt.scaling.forecast import Forecaster, check_any
from scalewatt.scaling.predict import TOTAL, Predicted, estimate
from scalewatt.scaling.terms import Array

Row = dict[str, Any]
POINT, RUN, DEVICE, CAMPAIGN = "point", "run", "device", "campaign"
"""Levels of rows: a point of a series, a run, and sums over the runs of a device or of all."""
PREDICTED, FINISHED, MIXED = "predicted", "finished", "mixed"
QUANTITIES = (
    *("runtime_h", "gpu_hours", "energy_kwh"),
    *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS),
    *("facility_energy_kwh", "carbon_kg", "cost"),
)
"""What a plan says, each with the ends of its 90 % interval."""


@dataclass(frozen=True)
class Used:
    """What a finished run took; null where it is not known."""

    runtime_h: float
    energy_kwh: float | None
    kinds_kwh: Mapping[str, float | None]
    """By device kind."""
    scope: str | None


@dataclass(frozen=True)
class Amounts:
    """Draws, (draws,), of what one or several runs take; None where it is not known."""

    runtime_h: Array | None
    gpu_hours: Array
    energy_kwh: Array | None
    kinds_kwh: Mapping[str, Array | None]
    segments: Array | None

    def quantities(self, facility: Facility) -> dict[str, Array | None]:
        """By name of QUANTITIES."""
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
    """None where the model does not know it, and it has not finished."""
    reason: str | None
    """Why it is not known, and what would make it possible."""
    basis: str | None
    scope: str | None
    warnings: tuple[str, ...] = ()

    @property
    def energy_is_known(self) -> bool:
        """Whether its energy is in the sums."""
        return self.amounts is not None and self.amounts.energy_kwh is not None


@dataclass(frozen=True)
class Planner:
    """What plans are made with."""

    campaign: Campaign
    cluster: Cluster
    forecaster: Forecaster
    facility: Facility
    used: Mapping[tuple[str, int], Used] = field(default_factory=dict)
    """Of finished runs, by configuration and repeat."""

    def runs(self) -> list[PlannedRun]:
        """All runs of the campaign, in order.

        InputError where nothing of it has finished or can be predicted, and what would make it so.
        """
        found = [
            run for configuration in self.campaign.configurations for run in self._of(configuration)
        ]
        if all(run.amounts is None for run in found):
            check_any(self.campaign, self.forecaster)
        return found

    def point(self, configuration: str) -> Predicted | None:
        """Draws of one run of a configuration, whatever has finished; None where it is not known."""
        try:
            return self.forecaster.runs(run_spec(self.campaign, configuration, 1))
        except InputError:
            return None

    def amounts(self, configuration: str, predicted: Predicted, run: int = 0) -> Amounts:
        """What one of the runs of `predicted` takes."""
        return self._amounts(
            self.campaign.configurations[configuration],
            predicted.runtime_s[:, run],
            {name: joules[:, run] for name, joules in predicted.energy_j.items()},
        )

    def wall_time_min(self, configuration: str) -> int | None:
        """What the first job of a configuration's run asks for; None without a wall-time limit."""
        spec = run_spec(self.campaign, configuration, 1)
        device = self._device(spec["device"])
        if device is None or device.time_limit_min is None:
            return None
        upper_s = self.forecaster.upper_runtime_s(spec)
        return wall_time_min(spec, device, 0, self.cluster.stop_warning_s, upper_s)

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
            scope = self.forecaster.of_kind(spec).scope
        except InputError as error:
            reason = str(error)
        for repeat in range(1, repeats + 1):
            used = self.used.get((id_, repeat))
            if used is not None:
                yield self._finished(configuration, repeat, used, spec if predicted else None)
            elif predicted is None:
                yield PlannedRun(configuration, repeat, None, reason, None, None)
            else:
                amounts = self.amounts(id_, predicted, repeat - 1)
                yield PlannedRun(configuration, repeat, amounts, None, PREDICTED, scope, warnings)

    def _finished(
        self, configuration: Configuration, repeat: int, used: Used, spec: Row | None
    ) -> PlannedRun:
        """A finished run; an energy that was not found out is predicted for its time, if it can be."""
        runtime_s = np.array([used.runtime_h * 3600])
        if used.energy_kwh is not None:
            energy = {TOTAL: np.array([used.energy_kwh * J_PER_KWH])}
            amounts = self._amounts(configuration, runtime_s, energy)
            kinds = {k: None if v is None else np.array([v]) for k, v in used.kinds_kwh.items()}
            amounts = Amounts(
                amounts.runtime_h, amounts.gpu_hours, amounts.energy_kwh, kinds, amounts.segments
            )
            return PlannedRun(configuration, repeat, amounts, None, FINISHED, used.scope)
        energy = {} if spec is None else self.forecaster.energy_at(spec, float(runtime_s[0]))
        said = "it has finished, but its energy is not known" + ("; predicted" if energy else "")
        scope = self.forecaster.of_kind(spec).scope if spec else None
        amounts = self._amounts(configuration, runtime_s, energy)
        basis = MIXED if energy else FINISHED
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
        return np.array([segments(one, device, warning_s) for one in runtime_s.tolist()], float)


def added(runs: Sequence[PlannedRun]) -> Amounts | None:
    """The sum over the runs that are known, within each draw; None where none is.

    An energy that is not known is left out; a device kind's is null where one energy lacks it.
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
    """Draws and single values added up."""
    total = np.zeros(1)
    for one in draws:
        total = total + one
    return total


def _sum_or_none(draws: Sequence[Array | None]) -> Array | None:
    known = [one for one in draws if one is not None]
    return _sum(known) if known and len(known) == len(draws) else None


# --- rows -----------------------------------------------------------------------------------------

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
            "wall_time_min": planner.wall_time_min(run.configuration.id),
            **_counts([run]),
            **stated(run.amounts, planner.facility),
            "basis": run.basis,
            "energy_scope": run.scope,
            "reason": run.reason,
            "warnings": _joined(run.warnings),
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
        scopes = {run.scope for run in own if run.energy_is_known}
        rows.append(
            {
                **empty_row(planner.campaign.name, level),
                "device": device,
                **_counts(own),
                **stated(added(own), planner.facility),
                "basis": bases.pop() if len(bases) == 1 else (MIXED if bases else None),
                "energy_scope": scopes.pop() if len(scopes) == 1 else None,
                "warnings": _joined(_sum_warnings(own)),
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
        **dict.fromkeys(("smaller_gpus", "extra_kwh_per_hour_saved")),
        **dict.fromkeys(
            f"{name}{end}"
            for name in ("speedup", "extra_gpu_hours", "extra_energy_kwh")
            for end in ("", "_low", "_high")
        ),
        **dict.fromkeys(("basis", "energy_scope", "reason", "warnings")),
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


def _joined(sentences: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(sentences)) or None
