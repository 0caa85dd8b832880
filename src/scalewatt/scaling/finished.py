"""What the finished runs of a campaign took, from its results."""

from __future__ import annotations

from pathlib import Path

from scalewatt.campaign.model import Campaign
from scalewatt.campaign.spec import run_spec, spec_sha256
from scalewatt.energy.samples import DEVICE_KINDS
from scalewatt.files import read_json
from scalewatt.results.derived import Facility
from scalewatt.results.found import published_runs
from scalewatt.results.runs import RunFiles, run_row
from scalewatt.scaling.plan import Used


def used_by(campaign: Campaign, results: Path) -> dict[tuple[str, int], Used]:
    """Of each finished run whose energy was accounted for, by configuration and repeat.

    `results`: the campaign's folder. A run of another spec than the campaign's now has to be made
    again, so it does not count; nor does one that was simulated, which used nothing. InputError where a
    file of a run is damaged.
    """
    found = {}
    for run in published_runs(results):
        files = RunFiles(results, *run)
        if run[0] in campaign.configurations and files.energy.is_file():
            row = run_row(files, campaign.name, Facility())
            if read_json(files.folder / "provenance.json").get("simulated"):
                continue
            if campaign.registered or row["spec_sha256"] == spec_sha256(run_spec(campaign, *run)):
                found[run] = Used(
                    row["runtime_h"],
                    row["energy_kwh"],
                    {kind: row[f"{kind}_energy_kwh"] for kind in DEVICE_KINDS},
                    row["energy_scope"],
                )
    return found
