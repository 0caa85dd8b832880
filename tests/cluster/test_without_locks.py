"""A campaign where every file system refuses locks, as Lustre does without `-o flock`."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from no_flock import no_flock

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.nightly]

RUN = "resnet50-h100-n001-lbs0016-full/1"


def test_images_are_packed_staged_trained_on_and_accounted_for_without_locks(
    slurm: MiniSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.cancel_all()
    project = MiniProject.on(slurm, tmp_path / "project")
    (tmp_path / "scratch").mkdir()
    tried = f"flock {tmp_path}/tried true 2> {tmp_path}/said || true"
    project.change("cluster", scratch=str(tmp_path / "scratch"), setup=[tried])
    for name, value in no_flock(tmp_path / "stub", errno.ENOSYS).items():
        monkeypatch.setenv(name, value)  # sbatch and srun pass it on
    code, output = project.snakemake(f"results/mini/energy/{RUN}.parquet")
    assert code == 0, output
    assert "Function not implemented" in (tmp_path / "said").read_text(), "in the job as well"
    events = pq.read_table(project.results / "runs" / RUN / "events.parquet")["stage"].to_pylist()
    assert events.count("stage_data") == 2, "unpacked, and removed again"
    assert not list((tmp_path / "scratch").iterdir())
