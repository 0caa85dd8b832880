"""Runs of several segments: starts that failed, nodes that changed, work that was lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import run_files
from energy_files import (
    T0,
    accounted,
    codes,
    counter,
    gpu,
    make_run,
    make_spec,
    write_journal,
    write_perun,
)

from scalewatt.energy.publish import EVENTS_SCHEMA
from scalewatt.files import write_json, write_table
from scalewatt.results.runs import EnergyTotals, Facility, run_row

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
N = 41
STAGES = [(1, "startup", 0.0, 5.0), (1, "train", 5.0, 40.0)]


def record(folder: Path, number: int, host: dict[str, Any]) -> None:
    stem = folder / "perun" / f"segment-{number:03d}"
    write_perun(stem.with_suffix(".hdf5"), {"n1": host})
    write_journal(stem.with_name(f"{stem.name}.n1.journal"), "n1", host, start=T0)


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
    energy = accounted(tmp_path, make_spec(), NO_POWERS)[1]
    assert set(energy["segment"].to_pylist()) == {1}
    totals = EnergyTotals(energy, with_staging=True)
    assert totals.joules("cpu") == 150.0 * (N - 1)
    assert totals.coverage == 1.0
    assert "segment_not_started" in codes(totals.flags)


def test_a_cut_segment_without_any_recording_keeps_the_energy_unknown(tmp_path: Path) -> None:
    make_run(tmp_path, stages=[(0, "startup", -60.0, -50.0), (0, "train", -50.0, -10.0), *STAGES])
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    energy = accounted(tmp_path, make_spec(), NO_POWERS)[1]
    assert EnergyTotals(energy, with_staging=True).joules("cpu") is None


def test_gpus_that_a_run_held_without_a_sensor_make_its_energy_unknown(tmp_path: Path) -> None:
    make_run(tmp_path, stages=STAGES)
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    write_json(
        tmp_path / "provenance.json",
        {"hostnames": ["n1"], "torch_device": "cuda", "gpus": {"n1": [0, 1]}, "segments": []},
    )
    totals = EnergyTotals(accounted(tmp_path, make_spec(), NO_POWERS)[1], with_staging=True)
    assert not totals.absent("gpu")
    assert totals.joules("gpu") is None
    assert "unknown_power" in codes(totals.flags)


def test_gpus_that_a_run_held_count_and_the_others_are_beside(tmp_path: Path) -> None:
    make_run(tmp_path, stages=STAGES)
    record(tmp_path, 1, {"CUDA:0_POWER": gpu(N, 100), "CUDA:1_POWER": gpu(N, 200)})
    write_json(
        tmp_path / "provenance.json",
        {"hostnames": ["n1"], "torch_device": "cuda", "gpus": {"n1": [1]}, "segments": []},
    )
    spec = make_spec(gpus=1, ranks_per_node=1)
    totals = EnergyTotals(accounted(tmp_path, spec, NO_POWERS)[1], with_staging=True)
    assert totals.joules("gpu") == 200.0 * (N - 1)
    assert totals.joules("unused_gpu") == 100.0 * (N - 1)
    assert totals.origin == "measured"


def test_a_sampler_that_died_before_the_training_lowers_the_coverage(tmp_path: Path) -> None:
    make_run(tmp_path, stages=[(1, "startup", 0.0, 5.0), (1, "train", 5.0, 45.0)])
    record(tmp_path, 1, {"cpu_0_package-0": counter(N, 150)})
    totals = EnergyTotals(accounted(tmp_path, make_spec(), NO_POWERS)[1], with_staging=True)
    assert totals.coverage is not None and totals.coverage < 0.95
    assert totals.joules("cpu") is None
    assert "recording_short" in codes(totals.flags)


def test_powers_are_those_of_one_device_also_when_the_segments_ran_on_other_nodes(
    tmp_path: Path,
) -> None:
    def segment(number: int, node: str) -> list[dict[str, Any]]:
        place = {"segment": number, "node": node}
        return [
            run_files.part("gpu", "train", 50.0, 2 * 300.0 * 50.0, devices=2, **place),
            run_files.part("cpu", "train", 50.0, 2 * 70.0 * 50.0, devices=2, **place),
        ]

    files = run_files.make_run(tmp_path, [*segment(0, "n1"), *segment(1, "n2")])
    row = run_row(files, "demo", Facility())
    assert row["mean_cpu_socket_power_w"] == 70.0
    assert row["mean_gpu_power_w"] == 300.0
    assert row["runtime_s"] == 100.0


def test_ranks_that_share_a_gpu_are_flagged_and_its_power_is_not_divided(tmp_path: Path) -> None:
    energy = [
        run_files.part("gpu", "train", 50.0, 300.0 * 50.0),
        run_files.part("cpu", "train", 50.0, 70.0 * 50.0),
    ]
    files = run_files.make_run(tmp_path, energy, gpus={"n1": [0]})
    row = run_row(files, "demo", Facility())
    assert row["mean_gpu_power_w"] == 300.0
    assert "gpus_shared" in codes(json.loads(row["flags"]))


def test_work_that_a_killed_segment_lost_is_reported(tmp_path: Path) -> None:
    energy = [run_files.part("cpu", "train", 50.0, 3500.0)]
    segments = [{"segment": 0, "outcome": "killed"}, {"segment": 1, "outcome": "finished"}]
    files = run_files.make_run(tmp_path, energy, segments=segments)
    times = [("startup", 0, 10), ("train", 10, 30), ("checkpoint", 30, 31), ("train", 31, 48.5)]
    events = [
        {"segment": 0, "stage": stage, "epoch": None, "start_s": begin, "end_s": end}
        for stage, begin, end in times
    ]
    write_table(pa.Table.from_pylist(events, EVENTS_SCHEMA), files.folder / "events.parquet")
    flags = json.loads(run_row(files, "demo", Facility())["flags"])
    (lost,) = [flag["detail"] for flag in flags if flag["code"] == "segment_killed"]
    assert "17.5 s" in lost
