"""Check a campaign's energy budget before another training is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign, Device
from scalewatt.campaign.cluster import powers
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.run_files.progress_files import done_updates
from scalewatt.scheduling.submissions import Submissions

Predicted = Callable[[RunSpec], float | None]
"""The energy of the whole run of a spec in kWh, by the scaling model; None if it is not known."""


def budgeted_submissions(
    campaign: Campaign,
    devices: Mapping[str, Device],
    results: Path,
    work: Path,
    crash_retries: int,
    energy_kwh: Predicted = lambda _: None,
) -> Submissions:
    """Return the submissions of a campaign, whose energy so far is counted when they are asked for.

    `results` and `work` are the campaign's own folders.
    """

    def energy_used() -> float:
        from scalewatt.tracking.energy_used import energy_used_kwh  # with pyarrow

        return energy_used_kwh(
            campaign, results, work, lambda device, _: powers(devices[device])
        ).kwh

    def still_kwh(spec: RunSpec) -> float | None:
        whole, updates = energy_kwh(spec), spec.updates
        if whole is None or not updates:
            return whole
        return whole * max(0.0, 1 - done_updates(work, spec) / updates)

    @cache
    def specs() -> Mapping[str, RunSpec]:
        found = (run_spec(campaign, run.configuration.id, run.repeat) for run in campaign.runs())
        return {spec.key: spec for spec in found}

    budget = campaign.energy_budget_kwh
    return Submissions(work, crash_retries, budget, energy_used, still_kwh, specs)


def check_budget(
    campaign: Campaign,
    devices: Mapping[str, Device],
    results: Path,
    work: Path,
    spec: RunSpec,
    energy_kwh: Predicted = lambda _: None,
) -> None:
    """Raise InputError if the budget is used up, or too little is left, and the run is not trained yet."""
    submissions = budgeted_submissions(campaign, devices, results, work, 0, energy_kwh)
    refusal = None
    if not submissions.is_trained(spec):
        refusal = submissions.over_budget() or submissions.would_exceed(spec)
    if refusal:
        raise InputError(f"{spec.name}: {refusal}")
