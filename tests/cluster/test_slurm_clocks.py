"""A run on two nodes of a real Slurm, of which one has a clock that is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm
from training import changed_python

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.nightly]

APART = "fourcastnet.pretrain-a100-apart-n002-lbs0002-full"
AHEAD_S = 2.0


def test_stages_are_corrected_by_a_nodes_wrong_clock_and_its_run_is_flagged(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    project = MiniProject.on(slurm, tmp_path / "project")
    project.variables.update(changed_python("wrong_clock", WRONG_HOST="a2", AHEAD_S=AHEAD_S))
    project.done(f"results/mini/energy/{APART}/1.parquet")
    (segment,) = project.provenance(APART)["segments"]
    assert [rank["host"] for rank in segment["ranks"]] == ["a1", "a2"]
    (offset,) = segment["clock_offsets"]
    assert offset["host"] == "a2"
    assert abs(offset["offset_s"] - AHEAD_S) <= offset["uncertainty_s"] + 0.005
    assert segment["started_s"] <= offset["at_s"] <= segment["ended_s"]
    table = project.results / "energy" / APART / "1.flags.parquet"
    flags = [row for row in pq.read_table(table).to_pylist() if row["code"] == "clock"]
    assert [row["node"] for row in flags] == ["a2"]
    startup_s = {
        row["node"]: row["duration_s"]
        for row in project.energy(APART)
        if (row["device_kind"], row["stage"]) == ("cpu", "startup")
    }
    assert abs(startup_s["a2"] - startup_s["a1"]) < AHEAD_S / 2
