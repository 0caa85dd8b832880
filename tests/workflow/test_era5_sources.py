"""From a source of ERA5 to a trained FourCastNet, as a user does it: one job a year."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import pyarrow.parquet as pq
import pytest
import yaml
from workspace import Workspace

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from era5_data import original_fields

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

CAMPAIGN = Path(__file__).parent / "earth.yaml"
YEARS = (1999, 2000, 2001)


def originals(folder: Path) -> str:
    for year in YEARS:
        with h5py.File(folder / f"{year}.h5", "w") as file:
            file["fields"] = original_fields(40, 21, (8, 16))
    return str(folder)


def test_yearly_files_are_described_one_job_a_year_and_trained_on(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    workspace = Workspace.create(tmp_path / "project")
    (workspace.path / "campaigns" / "earth.yaml").write_text(CAMPAIGN.read_text())
    cluster = workspace.path / "config.yaml"
    places = {
        "sources": {"earth": originals(tmp_path / "source")},
        "data_roots": {"earth": str(tmp_path / "data")},
    }
    cluster.write_text(cluster.read_text() + yaml.safe_dump(places))
    campaign = ("--config", "campaign=campaigns/earth.yaml")

    workspace.done("prepare_era5", *campaign)
    described = workspace.path / "results" / "earth" / "datasets" / "earth"
    for year in YEARS:
        described_year = json.loads((described / f"{year}.json").read_text())
        assert described_year["year"] == year
        assert (described_year["steps"], described_year["grid"]) == (14, [9, 16])
    assert workspace.jobs("prepare_era5", *campaign) == {}

    workspace.done("figure4", *campaign)
    (run,) = (workspace.path / "results" / "earth" / "runs").glob("*/1")
    history = pq.read_table(run / "history.parquet").to_pylist()
    assert [(row["samples"], row["updates"]) for row in history] == [(12, 3), (12, 3)]
