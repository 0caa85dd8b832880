"""What the finished runs of a campaign took, from its results."""

from __future__ import annotations

from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec, spec_sha256
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.run_row import RunFiles, run_row
from scalewatt.run_files.run_inventory import published_runs
from scalewatt.scaling.planning.plan import Used


def used_by(campaign: Campaign, results: Path) -> dict[tuple[str, int], Used]:
    """Of each finished run whose energy was accounted for, by configuration and repeat.

    `results`: the campaign's folder. A run of another spec than the campaign's now has to be made
    again, so it does not count; nor does one that was simulated, which used nothing. InputError where
    the folder is not there, or is none of a campaign, and where a file of a run is damaged.
    """
    _check_folder(campaign, results)
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
                    row["energy_origin"],
                )
    return found


def _check_folder(campaign: Campaign, results: Path) -> None:
    """InputError where `results` is not the folder of a campaign's results."""
    if not results.is_dir():
        raise InputError(
            f"{results}: is no folder; expected the campaign's results, "
            f"e.g. results/{campaign.name}"
        )
    inside = results / campaign.name
    if inside.is_dir() and not (results / "runs").exists():
        raise InputError(
            f"{results}: holds no runs, but {inside} does; expected the campaign's own folder: {inside}"
        )
