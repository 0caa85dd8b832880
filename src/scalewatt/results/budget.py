"""Whether a campaign's energy budget leaves anything to start another training with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import powers
from scalewatt.campaign.model import Campaign, Device
from scalewatt.errors import InputError
from scalewatt.jobs.submissions import Submissions


def budgeted_submissions(
    campaign: Campaign,
    devices: Mapping[str, Device],
    results: Path,
    work: Path,
    crash_retries: int,
) -> Submissions:
    """The submissions of a campaign, whose energy so far is counted when they are asked for.

    `results` and `work` are the campaign's own folders.
    """

    def spent() -> float:
        from scalewatt.results.spent import spent_kwh  # with pyarrow

        return spent_kwh(campaign, results, work, lambda spec: powers(devices[spec["device"]])).kwh

    return Submissions(work, crash_retries, campaign.energy_budget_kwh, spent)


def check_budget(
    campaign: Campaign,
    devices: Mapping[str, Device],
    results: Path,
    work: Path,
    spec: dict[str, Any],
) -> None:
    """InputError where the budget is spent and the run still has to be trained."""
    submissions = budgeted_submissions(campaign, devices, results, work, 0)
    refusal = None if submissions.is_trained(spec) else submissions.over_budget()
    if refusal:
        raise InputError(f"{spec['configuration']} repeat {spec['repeat']}: {refusal}")
