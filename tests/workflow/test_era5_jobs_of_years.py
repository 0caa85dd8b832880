"""Several years of ERA5 a job, by a key of the cluster file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import h5py
import yaml
from workspace import Workspace

sys.path.append(str(Path(__file__).parents[1] / "unit"))
import pytest
from era5_data import original_fields

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CAMPAIGN = Path(__file__).parent / "earth.yaml"
YEARS = (1999, 2000, 2001)
CHOSEN = ("--config", "campaign=campaigns/earth.yaml")


def set_per_job(workspace: Workspace, folder: Path, years: int) -> None:
    """Write the cluster file with the source in `folder`, and so many years a job."""
    path = workspace.path / "profiles" / "local" / "cluster.yaml"
    content = yaml.safe_load(path.read_text()) | {
        "sources": {"earth": {"hdf5": str(folder)}},
        "data_roots": {"earth": str(folder / "data")},
        "era5_years_per_job": years,
    }
    path.write_text(yaml.safe_dump(content))


@pytest.mark.long
def test_jobs_have_as_many_years_as_the_cluster_file_says_and_what_is_done_stays(
    tmp_path: Path,
) -> None:
    for year in YEARS:
        with h5py.File(tmp_path / f"{year}.h5", "w") as file:
            file["fields"] = original_fields(40, 21, (8, 16))
    workspace = Workspace.create(tmp_path / "project")
    (workspace.path / "campaigns" / "earth.yaml").write_text(CAMPAIGN.read_text())
    set_per_job(workspace, tmp_path, 1)
    assert workspace.jobs("prepare_era5", *CHOSEN)["era5_year"] == 3
    set_per_job(workspace, tmp_path, 2)
    assert workspace.jobs("prepare_era5", *CHOSEN)["era5_year"] == 2

    workspace.done("prepare_era5", *CHOSEN)
    described = workspace.path / "results" / "earth" / "datasets"
    left = json.loads((described / "earth" / "1999-2000.json").read_text())
    assert [one["year"] for one in left["years"]] == [1999, 2000]
    assert json.loads((described / "earth" / "2001.json").read_text())["year"] == 2001
    assert {path.name for path in (tmp_path / "data").glob("*.h5")} >= {f"{y}.h5" for y in YEARS}

    for per_job in (1, 3):
        set_per_job(workspace, tmp_path, per_job)
        assert workspace.jobs("prepare_era5", *CHOSEN) == {}
