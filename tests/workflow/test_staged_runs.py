"""A run's images on the node's own disk."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_resume import IMAGES, assert_same_training, run_in_segments
from training import Training

from scalewatt.data.node_copy import pack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SUBSET = "resnet50-local-n001-lbs0032-s0000051"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("configuration", "updates"),
    [(IMAGES, 5), pytest.param(SUBSET, 1, marks=pytest.mark.nightly)],
)
def test_a_run_in_segments_on_the_nodes_disk_learns_what_an_uninterrupted_one_does_elsewhere(
    tmp_path: Path, data: Path, scratch: Path, configuration: str, updates: int
) -> None:
    own_data = Path(shutil.copytree(data, tmp_path / "data"))
    pack(own_data / "scans")
    for split in ("train", "val"):
        shutil.rmtree(own_data / "scans" / split)  # so that nothing can be read from there
    plain = Training.of(tmp_path / "plain", data, configuration)
    staged = replace(Training.of(tmp_path / "staged", own_data, configuration), scratch=scratch)
    code, output = plain.run()
    assert code == 0, output
    segments = run_in_segments(staged, updates)
    assert segments >= 2
    assert_same_training(staged, plain)
    assert list(scratch.iterdir()) == []
    events = pq.read_table(staged.out / "events.parquet").to_pylist()
    assert [e["stage"] for e in events].count("stage_data") == 2 * segments
    assert [e["stage"] for e in events][:4] == ["startup", "stage_data", "startup", "train"]
    assert [e["stage"] for e in events][-2:] == ["shutdown", "stage_data"]
    assert all(event["end_s"] <= other["start_s"] for event, other in pairwise(events))
    assert "stage_data" not in pq.read_table(plain.out / "events.parquet")["stage"].to_pylist()


def test_without_the_packed_file_nothing_is_trained(
    tmp_path: Path, data: Path, scratch: Path
) -> None:
    training = replace(Training.of(tmp_path / "run", data, IMAGES), scratch=scratch)
    code, output = training.run()
    assert code == 1, output
    command = f"scalewatt prepare --folder {data / 'scans'} --pack"
    assert f"-train.tar: missing; create it with: {command}" in output
    assert not training.out.exists()
    assert not (training.work / "train.log").exists(), "no rank was started"
    assert list(scratch.iterdir()) == []
