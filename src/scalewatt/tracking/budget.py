"""A campaign's energy budget, checked before another segment is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Device, powers
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError


def check_budget(
    campaign: Campaign, devices: Mapping[str, Device], results: Path, work: Path, spec: RunSpec
) -> None:
    """Raise InputError if the budget is used up.

    `results` and `work` are the campaign's folders.
    """
    from scalewatt.tracking.energy_used import energy_used_kwh  # with pyarrow

    budget_kwh = campaign.energy_budget_kwh
    if budget_kwh is None:
        return
    rated = lambda device, _: powers(devices[device])  # noqa: E731
    used_kwh = energy_used_kwh(campaign, results, work, rated).kwh
    if used_kwh >= budget_kwh:
        raise InputError(
            f"{spec.name}: the campaign's energy budget is used up: {used_kwh:.6g} of {budget_kwh:g} kWh; "
            "what was submitted goes on, nothing else is (energy_budget_kwh of the campaign file)"
        )
