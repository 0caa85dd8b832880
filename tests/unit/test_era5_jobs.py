"""Jobs that prepare several years of ERA5: which there are, and what is left of one that is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from era5_data import DEFINITION, marked_store, write

from scalewatt.common.file_locks import waiting_lock
from scalewatt.datasets.era5.year_jobs import year_jobs, years_of_job
from scalewatt.datasets.prepare import prepare_dataset_years

YEARS = (1999, 2000, 2001, 2002)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(marked_store(), tmp_path_factory.mktemp("source") / "era5.zarr")


@pytest.mark.parametrize(
    ("per_job", "done", "jobs"),
    [
        (1, [], ["2014", "2015", "2016", "2017", "2019"]),
        (2, [], ["2014-2015", "2016-2017", "2019"]),
        (3, [], ["2014-2016", "2017-2019"]),
        (9, [], ["2014-2019"]),
        # What is done stays as it is.
        (9, ["2014", "2015", "2016", "2017", "2019"], ["2014", "2015", "2016", "2017", "2019"]),
        (1, ["2014-2019"], ["2014-2019"]),
        (2, ["2016"], ["2014-2015", "2016", "2017-2019"]),
        (1, ["2014-2016", "2014"], ["2014", "2015", "2016", "2017", "2019"]),
        # What is not of these years is not taken for done.
        (9, ["2012-2019", "2018", "notes"], ["2014-2019"]),
    ],
)
def test_jobs_cover_each_year_once_and_what_is_done_is_not_done_again(
    per_job: int, done: list[str], jobs: list[str]
) -> None:
    years = [2014, 2015, 2016, 2017, 2019]
    found = year_jobs(years, per_job, done)
    assert found == jobs
    assert [year for job in found for year in years_of_job(job, years)] == years


def test_years_of_one_job_are_those_of_single_jobs(tmp_path: Path, source: str) -> None:
    apart = [prepare_dataset_years(DEFINITION, tmp_path / "a", source, str(y)) for y in YEARS]
    together = prepare_dataset_years(DEFINITION, tmp_path / "b", source, "1999-2002", 2)
    assert together["years"] == [{k: v for k, v in one.items() if k != "name"} for one in apart]
    for year in YEARS:
        one, other = ((tmp_path / folder / f"{year}.h5").read_bytes() for folder in "ab")
        assert one == other


def test_a_year_that_fails_stops_no_other(tmp_path: Path, source: str) -> None:
    (tmp_path / ".2000.h5.partial").mkdir()
    with pytest.raises(Exception, match="2000"):
        prepare_dataset_years(DEFINITION, tmp_path, source, "1999-2002", 1)
    assert {path.name for path in tmp_path.glob("*.h5")} == {"1999.h5", "2001.h5", "2002.h5"}


def test_a_lost_job_loses_no_finished_year(tmp_path: Path, source: str) -> None:
    folder, out = tmp_path / "data", tmp_path / "out.json"
    command = [
        *(sys.executable, "-m", "scalewatt.cli", "prepare", "--folder", str(folder)),
        *("--definition", json.dumps(DEFINITION), "--source", source),
        *("--year", "1999-2002", "--processes", "1", "--out", str(out)),
    ]
    folder.mkdir()
    finished = [folder / "1999.h5", folder / "2000.h5"]
    with waiting_lock(folder / ".2001.lock", "nobody has it"):  # where the job is when it is lost
        job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert job.stderr is not None
            assert "waiting for another preparation" in job.stderr.readline()
            processes = psutil.Process(job.pid).children(recursive=True)
        finally:
            job.kill()
            job.communicate()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive, "they end with the job"
    before = [path.stat() for path in finished]
    time.sleep(0.05)
    assert subprocess.run(command).returncode == 0
    assert [(s.st_mtime_ns, s.st_ino) for s in before] == [
        (path.stat().st_mtime_ns, path.stat().st_ino) for path in finished
    ]
    assert [one["year"] for one in json.loads(out.read_text())["years"]] == list(YEARS)
