"""A run of images on the node's own disk, whose removal takes longer than perun may take to close."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from mini_project import HERE, MiniProject
from minislurm import MiniSlurm
from training import changed_python

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.nightly]

IMAGES = "resnet50-a100-n002-lbs0016-full"
CLOSING_S, REMOVAL_S = 10, 20


def test_a_removal_longer_than_the_time_for_closing_costs_no_job_and_no_file_of_perun(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    project = MiniProject.on(slurm, tmp_path / "project", HERE / "staged.yaml")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    project.change("cluster", scratch=str(scratch), closing_s=CLOSING_S)
    project.variables.update(changed_python("slow_removal", REMOVAL_S=REMOVAL_S))
    project.done(f"results/mini/runs/{IMAGES}/1/provenance.json")
    assert list(scratch.iterdir()) == []
    (segment,) = project.provenance(IMAGES)["segments"]
    assert segment["outcome"] == "finished"
    assert len(segment["ranks"]) == 2 and len({rank["host"] for rank in segment["ranks"]}) == 1
    (job,) = project.slurm.sacct(segment["job"])
    assert job["State"] == "COMPLETED"
    assert len(list((project.out(IMAGES) / "perun").glob("*.hdf5"))) == 1
    *_, last = pq.read_table(project.out(IMAGES) / "events.parquet").to_pylist()
    assert last["stage"] == "stage_data"
    assert last["end_s"] - last["start_s"] >= REMOVAL_S
