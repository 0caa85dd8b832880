"""A job that prepares several years of ERA5 is lost, and its finished years are not."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import pytest
import yaml
from mini_project import DEVICES, MiniProject
from minislurm import MiniSlurm, wait_for

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from era5_data import original_fields

from scalewatt.common.file_locks import waiting_lock

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(240)]

CAMPAIGN = Path(__file__).parents[1] / "workflow" / "earth.yaml"
YEARS = (1999, 2000, 2001)


def test_a_cancelled_job_of_three_years_goes_on_with_the_one_that_was_not_finished(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    for year in YEARS:
        with h5py.File(tmp_path / f"{year}.h5", "w") as file:
            file["fields"] = original_fields(40, 21, (8, 16))
    project = MiniProject.on(slurm, tmp_path / "project", CAMPAIGN)
    data = tmp_path / "data"
    project.change(
        "cluster",
        sources={"earth": {"hdf5": str(tmp_path)}},
        data_roots={"earth": str(data)},
        era5_years_per_job=3,
        devices={**DEVICES, "local": DEVICES["a100"]},
    )
    data.mkdir()
    finished = [data / "1999.h5", data / "2000.h5"]
    with waiting_lock(data / ".2001.lock", "nobody has it"):  # where the job is when it is lost
        process = project.start("prepare_era5")
        try:
            wait_for(lambda: all(path.exists() for path in finished), "two years", 90)
            (job,) = [job for job, state in slurm.squeue().items() if state == "RUNNING"]
            assert "NumCPUs=3 " in slurm.command("scontrol", "show", "job", job)
            before = [path.stat() for path in finished]
            slurm.command("scancel", job)
            wait_for(lambda: slurm.squeue().get(job) != "RUNNING", "the end of the job")
        except BaseException:
            process.kill()
            raise
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert (data / "2001.h5").exists()
    assert [(one.st_ino, one.st_mtime_ns) for one in before] == [
        (path.stat().st_ino, path.stat().st_mtime_ns) for path in finished
    ]
    name = yaml.safe_load(CAMPAIGN.read_text())["name"]
    assert (project.path / "results" / name / "datasets" / "earth" / "1999-2001.json").exists()
