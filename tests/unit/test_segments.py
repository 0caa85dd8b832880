"""Runs of several segments: starts that failed, nodes that changed, work that was lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from energy_files import T0, Accounted, accounted, counter, make_run, record
from run_files import make_spec

from scalewatt.common.files import write_table
from scalewatt.recordings.stages import EVENTS_SCHEMA

N = 41
STAGES = [(1, "startup", 0.0, 5.0), (1, "train", 5.0, 40.0)]
CPU = {"n1": {"cpu_0_package-0": counter(N, 150)}}


def of_cpu(run: Path) -> Accounted:
    """The account of a run that holds no GPU."""
    return accounted(run, make_spec(ranks_per_node=0))


def test_a_start_that_failed_before_anything_was_recorded_leaves_the_energy_known(
    tmp_path: Path,
) -> None:
    segments = [{"segment": 0, "outcome": "failed"}, {"segment": 1, "outcome": "finished"}]
    stages = [(0, "startup", -60.0, -60.0), *STAGES]
    run = make_run(tmp_path, stages=stages, segments=segments, torch_device="cpu")
    record(run, CPU, 1)
    of_run = accounted(run, make_spec())
    assert set(of_run.tables.energy["segment"]) == {1}
    assert (of_run.totals.joules("cpu"), of_run.totals.coverage) == (150.0 * (N - 1), 1.0)
    assert "segment_lost" in of_run.codes()


def test_gpus_that_a_run_held_without_a_sensor_make_its_energy_unknown(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, torch_device="cuda", gpus={"n1": [0, 1]}, segments=[])
    record(run, CPU, 1)
    of_run = accounted(run, make_spec())
    assert "gpu" in of_run.totals.scope and of_run.totals.joules("gpu") is None
    assert "not_recorded" in of_run.codes()


@pytest.mark.parametrize(
    ("outcome", "is_lost"),
    [("killed", True), ("failed", True), ("refused", True), ("stopped", False)],
)
def test_the_energy_since_the_last_checkpoint_of_a_killed_segment_is_discarded(
    tmp_path: Path, outcome: str, is_lost: bool
) -> None:
    marks = [("startup", 0.0, 5.0), ("train", 5.0, 20.0), ("checkpoint", 20.0, 21.0)]
    stages = [(1, *mark) for mark in (*marks, ("train", 21.0, 40.0))]
    run = make_run(tmp_path, stages=stages, segments=[{"segment": 1, "outcome": outcome}])
    record(run, CPU, 1)
    of_run = of_cpu(run)
    lost_s = 19.0 * is_lost
    assert of_run.totals.joules("cpu") == pytest.approx(40 * 150)
    assert of_run.totals.joules("cpu", "discarded_j") == pytest.approx(lost_s * 150)
    details = [flag["detail"] for flag in of_run.flags("segment_lost")]
    assert details == [f"segment 1: {outcome}; work done again: {lost_s} s"] * is_lost


def test_an_evaluation_that_a_later_segment_did_again_is_discarded(tmp_path: Path) -> None:
    """Segment 0 stopped while it validated after its second epoch; both evaluations are repeated."""
    first: list[Any] = [("train", 0, 5.0), ("evaluate_train", 0, 9.0), ("validate", 0, 11.0)]
    first += [("train", 1, 12.0), ("evaluate_train", 1, 20.0), ("validate", 1, 27.0)]
    first += [("checkpoint", 1, 30.0), ("shutdown", None, 32.0), (None, None, 33.0)]
    again: list[Any] = [("train", 1, 50.0), ("evaluate_train", 1, 50.0), ("validate", 1, 57.0)]
    again += [("train", 2, 60.0), (None, None, 80.0)]
    run = make_run(tmp_path, stages=[], segments=[{"segment": 0, "outcome": "stopped"}])
    rows = [
        {"segment": number, "stage": stage, "epoch": epoch, "start_s": T0 + a, "end_s": T0 + b}
        for number, marks in enumerate((first, again))
        for (stage, epoch, a), (_, _, b) in pairwise(marks)
    ]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), run / "events.parquet")
    record(run, CPU, 0)
    record(run, CPU, 1, start=T0 + 45)
    energy = of_cpu(run).tables.energy
    discarded = energy[energy["discarded_j"] > 0].set_index(["segment", "stage"])["discarded_j"]
    expected = {(0, "evaluate_train"): 7 * 150, (0, "validate"): 3 * 150}
    assert discarded.to_dict() == pytest.approx(expected)


def test_overlapping_segments_count_once(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 40.0), (1, "train", 41.0, 70.0)])
    record(run, CPU, 0)
    record(run, CPU, 1, start=T0 + 30)
    of_run = of_cpu(run)
    assert of_run.totals.joules("cpu") == pytest.approx(70 * 150)
    assert of_run.totals.runtime_s == pytest.approx(70)
    (detail,) = {flag["detail"] for flag in of_run.flags("overlap")}
    assert "10.0 s" in detail
