"""Runs of several segments: starts that failed, nodes that changed, work that was lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from energy_files import (
    T0,
    accounted,
    counter,
    make_run,
    write_journal,
    write_perun,
)
from run_files import make_spec

from scalewatt.common.files import write_json, write_table
from scalewatt.recordings.stages import STAGES_SCHEMA

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
N = 41
STAGES = [(1, "startup", 0.0, 5.0), (1, "train", 5.0, 40.0)]


def record(folder: Path, number: int, host: dict[str, Any]) -> None:
    stem = folder / "perun" / f"segment-{number:03d}"
    write_perun(stem.with_suffix(".hdf5"), {"n1": host})
    write_journal(stem.with_name(f"{stem.name}.n1.csv"), "n1", host, start=T0)


def test_a_start_that_failed_before_anything_was_recorded_leaves_the_energy_known(
    tmp_path: Path,
) -> None:
    make_run(tmp_path, stages=[(0, "startup", -60.0, -60.0), *STAGES])
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    write_json(
        tmp_path / "provenance.json",
        {
            "hostnames": ["n1"],
            "torch_device": "cpu",
            "segments": [
                {"segment": 0, "outcome": "failed"},
                {"segment": 1, "outcome": "finished"},
            ],
        },
    )
    found = accounted(tmp_path, make_spec(), NO_POWERS)
    assert set(found.energy["segment"].to_pylist()) == {1}
    totals = found.totals
    assert totals.joules("cpu") == 150.0 * (N - 1)
    assert totals.coverage == 1.0
    assert "segment_lost" in found.codes()


def test_gpus_that_a_run_held_without_a_sensor_make_its_energy_unknown(tmp_path: Path) -> None:
    make_run(tmp_path, stages=STAGES)
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    write_json(
        tmp_path / "provenance.json",
        {"hostnames": ["n1"], "torch_device": "cuda", "gpus": {"n1": [0, 1]}, "segments": []},
    )
    found = accounted(tmp_path, make_spec(), NO_POWERS)
    totals = found.totals
    assert "gpu" in totals.scope
    assert totals.joules("gpu") is None
    assert "not_recorded" in found.codes()


def test_the_energy_since_the_last_checkpoint_of_a_killed_segment_is_discarded(
    tmp_path: Path,
) -> None:
    stages = [(1, "startup", 0.0, 5.0), (1, "train", 5.0, 20.0), (1, "checkpoint", 20.0, 21.0)]
    ends = ("killed", "was killed"), ("failed", "failed"), ("refused", "refused its input")
    for outcome, how in (*ends, ("stopped", "")):
        lost_s = 19.0 if how else 0.0
        run = tmp_path / outcome
        made = [{"segment": 1, "outcome": outcome}]
        make_run(run, stages=[*stages, (1, "train", 21.0, 40.0)], segments=made)
        record(run, 1, {"cpu_0_package-0": counter(N, 150)})
        found = accounted(run, make_spec(ranks_per_node=0), NO_POWERS)
        totals = found.totals
        assert totals.joules("cpu") == pytest.approx(40 * 150)
        assert totals.joules("cpu", "discarded_j") == pytest.approx(lost_s * 150)
        details = [one["detail"] for one in found.flags("segment_lost")]
        assert details == (
            [f"segment 1 {how}; {lost_s} s of its work were lost and done again"] if lost_s else []
        )


def test_an_evaluation_that_a_later_segment_did_again_is_discarded(tmp_path: Path) -> None:
    """Segment 0 stopped while it validated after its second epoch; both evaluations are repeated."""
    stages = [("train", 0, 5.0), ("evaluate_train", 0, 9.0), ("validate", 0, 11.0)]
    stages += [("train", 1, 12.0), ("evaluate_train", 1, 20.0), ("validate", 1, 27.0)]
    stages += [("checkpoint", 1, 30.0), ("shutdown", None, 32.0), (None, None, 33.0)]
    again = [("train", 1, 50.0), ("evaluate_train", 1, 50.0), ("validate", 1, 57.0)]
    again += [("train", 2, 60.0), (None, None, 80.0)]
    run = make_run(tmp_path, stages=[], segments=[{"segment": 0, "outcome": "stopped"}])
    rows = [
        {"segment": number, "stage": stage, "epoch": epoch, "start_s": T0 + a, "end_s": T0 + b}
        for number, marks in enumerate((stages, again))
        for (stage, epoch, a), (_, _, b) in pairwise(marks)
    ]
    write_table(pa.Table.from_pylist(rows, STAGES_SCHEMA), run / "events.parquet")
    for number, start in ((0, T0), (1, T0 + 45)):
        path = run / "perun" / f"segment-{number:03d}.n1.csv"
        write_journal(path, "n1", {"cpu_0_package-0": counter(N, 150)}, start=start)
    found = accounted(run, make_spec(ranks_per_node=0), NO_POWERS)
    discarded = {
        (row["segment"], row["stage"]): row["discarded_j"]
        for row in found.energy.to_pylist()
        if row["device_kind"] == "cpu" and row["discarded_j"]
    }
    assert discarded == pytest.approx({(0, "evaluate_train"): 7 * 150, (0, "validate"): 3 * 150})


def test_the_energy_of_a_run_is_the_sum_of_its_segments_however_they_ended(tmp_path: Path) -> None:
    """Stopped with perun's file; killed and failed with the journal alone; refused with nothing."""
    outcomes = ("stopped", "killed", "failed", "refused", "finished")
    stages = []
    for number, outcome in enumerate(outcomes):
        if outcome == "refused":
            continue
        at = 100.0 * number
        stages += [(number, "startup", at, at + 5), (number, "train", at + 5, at + 40)]
        stem = tmp_path / "perun" / f"segment-{number:03d}"
        sensors = {"cpu_0_package-0": counter(N, 150)}
        write_journal(stem.with_name(f"{stem.name}.n1.csv"), "n1", sensors, start=T0 + at)
        if outcome == "finished":
            stem.with_suffix(".hdf5").write_bytes(b"a file that perun was killed in")
    segments = [{"segment": n, "outcome": outcome} for n, outcome in enumerate(outcomes)]
    make_run(tmp_path, stages=stages, segments=segments)
    found = accounted(tmp_path, make_spec(ranks_per_node=0), NO_POWERS)
    totals = found.totals
    assert totals.joules("cpu") == pytest.approx(4 * 40 * 150)
    assert totals.runtime_s == pytest.approx(4 * 40)
    assert totals.joules("cpu", "discarded_j") == pytest.approx(2 * 40 * 150)
    assert {"segment_lost", "unreadable"} <= found.codes()


def test_overlapping_segments_count_once(tmp_path: Path) -> None:
    make_run(tmp_path, stages=[(0, "train", 0.0, 40.0), (1, "train", 41.0, 70.0)])
    sensors = {"cpu_0_package-0": counter(N, 150)}
    for number, start in ((0, T0), (1, T0 + 30)):
        stem = tmp_path / "perun" / f"segment-{number:03d}.n1.csv"
        write_journal(stem, "n1", sensors, start=start)
    found = accounted(tmp_path, make_spec(ranks_per_node=0), NO_POWERS)
    totals = found.totals
    assert totals.joules("cpu") == pytest.approx(70 * 150)
    assert totals.runtime_s == pytest.approx(70)
    (detail,) = {f["detail"] for f in found.flags("overlap")}
    assert "10.0 s" in detail


def test_time_outside_of_the_recording_is_run_time(tmp_path: Path) -> None:
    make_run(tmp_path, stages=[(1, "train", 0.0, 100.0)])
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    found = accounted(tmp_path, make_spec(ranks_per_node=0), NO_POWERS)
    totals = found.totals
    assert totals.runtime_s == pytest.approx(100)
    assert totals.joules("cpu") is None and totals.joules("cpu", "recorded_j") == pytest.approx(
        40 * 150
    )
