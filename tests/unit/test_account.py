"""A run's energy: windows, stages, hosts, segments, devices, and every quality flag."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from energy_files import (
    T0,
    accounted,
    counter,
    gpu,
    make_run,
    write_journal,
    write_perun,
)
from run_files import make_spec

from scalewatt.energies.estimate import FACTOR
from scalewatt.energies.tables import (
    DEVICES_SCHEMA,
    ENERGY_SCHEMA,
    records,
)

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
CPU_POWERS = NO_POWERS | {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}}
N = 41
NODE = {
    "CUDA:0_POWER": gpu(N, 100),
    "CUDA:1_POWER": gpu(N, 200),
    "cpu_0_package-0": counter(N, 150),
    "ram_0_dram": counter(N, 15),
}
STAGES = [(0, "startup", -2.0, 5.0), (0, "train", 5.0, 30.0), (0, "validate", 32.0, 41.0)]


def segment(folder: Path, host: dict[str, Any], *, node: str = "n1", number: int = 0) -> None:
    """Write perun's file and the journal of one host."""
    stem = folder / "perun" / f"segment-{number:03d}"
    start = T0 + 100 * number
    write_perun(stem.with_suffix(".hdf5"), {node: host})
    write_journal(stem.with_name(f"{stem.name}.{node}.csv"), node, host, start=start)


def energy_of(table: pa.Table, kind: str, **match: Any) -> dict[str, float | None]:
    """Return energy per stage of the rows of a kind."""
    rows = [
        row
        for row in table.to_pylist()
        if row["device_kind"] == kind and all(row[key] == value for key, value in match.items())
    ]
    assert rows, f"no rows of {kind}"
    return {row["stage"]: row["energy_j"] for row in rows}


def test_energy_is_shared_out_to_stages_within_the_nodes_window(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    assert found.energy.schema == ENERGY_SCHEMA
    expected = {"startup": 1500, "train": 7500, "unattributed": 600, "validate": 2400}
    assert energy_of(found.energy, "gpu") == pytest.approx(expected)
    assert energy_of(found.energy, "cpu") == pytest.approx({k: v / 2 for k, v in expected.items()})
    assert sum(energy_of(found.energy, "ram").values()) == pytest.approx(600)  # type: ignore[arg-type]
    seconds = {r["stage"]: r["duration_s"] for r in found.energy.to_pylist()}
    assert seconds == pytest.approx({"startup": 5, "train": 25, "unattributed": 2, "validate": 8})
    assert set(found.energy["energy_origin"].to_pylist()) == {"measured"}
    assert set(found.energy["coverage"].to_pylist()) == {1.0}
    assert found.codes() == set()
    assert {r["device_kind"]: r["devices"] for r in found.energy.to_pylist()} == {
        "gpu": 2, "cpu": 1, "ram": 1,
    }  # fmt: skip


def test_traces_hold_every_sample_with_its_stage_sorted(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE | {"CPU_BUSY": np.full(N, 40.0)})
    found = accounted(run, make_spec(), NO_POWERS)
    rows = found.traces.to_pylist()
    assert len(rows) == 4 * N
    order = [(r["node"], r["device_kind"], r["device_index"], r["time"]) for r in rows]
    assert order == sorted(order)
    assert rows[0]["time"].timestamp() == T0
    first_cpu = next(r for r in rows if r["device_kind"] == "cpu")
    assert first_cpu["power_w"] is None
    gpu_row = next(
        r
        for r in rows
        if r["device_kind"] == "gpu" and r["device_index"] == 1 and r["stage"] == "train"
    )
    assert gpu_row["power_w"] == 200 and gpu_row["flag"] == "" and gpu_row["uuid"] is None
    assert gpu_row["time"].timestamp() == T0 + 5


def test_the_energy_of_devices_adds_up_to_that_of_their_kind(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    devices = found.devices
    assert devices.schema == DEVICES_SCHEMA
    sums: dict[tuple[str, str], float] = {}
    for row in devices.to_pylist():
        key = row["device_kind"], row["stage"]
        sums[key] = sums.get(key, 0.0) + row["energy_j"]
        assert row["covered_s"] == pytest.approx(row["duration_s"])
        assert row["mean_power_w"] == pytest.approx(row["energy_j"] / row["duration_s"])
    rows = found.energy.to_pylist()
    assert sums == pytest.approx({(r["device_kind"], r["stage"]): r["energy_j"] for r in rows})
    second = [r for r in devices.to_pylist() if r["sensor"] == "CUDA:1_POWER"]
    assert {r["stage"]: r["samples"] for r in second} == {
        **{"startup": 5, "train": 25, "validate": 9, "unattributed": 2}
    }
    assert {(r["device_index"], r["mean_power_w"]) for r in second} == {(1, 200.0)}


def test_gpus_that_the_run_did_not_hold_count_separately(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1.cluster": [1]})
    segment(run, NODE)
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert sum(energy_of(found.energy, "gpu").values()) == pytest.approx(8000)  # type: ignore[arg-type]
    unused = energy_of(found.energy, "unused_gpu")
    assert sum(unused.values()) == pytest.approx(4000)  # type: ignore[arg-type]
    assert found.codes() == set()
    assert "unused_gpu" in set(found.traces["device_kind"].to_pylist())


def test_without_sensors_cpu_energy_is_estimated_and_the_rest_absent(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, {"CPU_BUSY": np.full(N, 40.0)})
    found = accounted(run, make_spec(), CPU_POWERS)
    cpu = energy_of(found.energy, "cpu", energy_origin="estimated")
    assert sum(cpu.values()) == pytest.approx(40 * 2 * 51.06)  # type: ignore[arg-type]
    rows = [row for row in found.energy.to_pylist() if row["device_kind"] == "cpu"]
    for row in rows:
        assert row["energy_low_j"] == pytest.approx(row["energy_j"] / FACTOR)
        assert row["energy_high_j"] == pytest.approx(row["energy_j"] * FACTOR)
    for kind in ("gpu", "ram"):
        assert set(energy_of(found.energy, kind, energy_origin=None).values()) == {None}
        assert found.codes(device_kind=kind) == {"absent"}
    row = found.traces.to_pylist()[0]
    assert (row["energy_origin"], row["power_w"]) == ("estimated", pytest.approx(102.12))


def test_gaps_below_the_limit_keep_the_energy_and_beyond_make_it_null(tmp_path: Path) -> None:
    for zeros, known in ((6, True), (31, False)):
        power = gpu(700, 100)
        power[300 : 300 + zeros] = 0
        run = make_run(tmp_path / str(zeros), stages=[(0, "train", 0.0, 699.0)])
        segment(run, {"CUDA:0_POWER": power, "cpu_0_package-0": counter(700, 90)})
        found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
        assert found.codes(device_kind="gpu") >= {"missing_samples"}
        # 32 s of 699 s are under 5 %: still stated, without the uncovered part.
        total = sum(v or 0 for v in energy_of(found.energy, "gpu").values())
        assert total == pytest.approx(69_900 if known else 66_700)
    power[300:340] = 0
    run = make_run(tmp_path / "null", stages=[(0, "train", 0.0, 699.0)])
    segment(run, {"CUDA:0_POWER": power, "cpu_0_package-0": counter(700, 90)})
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert set(energy_of(found.energy, "gpu").values()) == {None}
    assert "coverage" in found.codes(device_kind="gpu")
    assert None not in energy_of(found.energy, "cpu").values()


def test_a_segment_without_hdf5_uses_its_journals(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").unlink()
    found = accounted(run, make_spec(), NO_POWERS)
    assert sum(energy_of(found.energy, "gpu").values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert found.codes() == set()


def test_a_damaged_hdf5_uses_its_journals_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    found = accounted(run, make_spec(), NO_POWERS)
    assert sum(energy_of(found.energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert found.codes() == {"unreadable"}


def test_an_unrecorded_segment_has_null_rows_and_the_others_stay(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        stages=[*STAGES, (1, "train", 100.0, 160.0)],
        segments=[{"segment": 0}, {"segment": 1}],
    )
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    lost = found.energy.filter(pa.compute.equal(found.energy["segment"], 1))
    assert set(lost["energy_j"].to_pylist()) == {None}
    assert set(lost["device_kind"].to_pylist()) == {"gpu", "cpu", "ram"}
    assert lost["duration_s"].to_pylist() == [60.0] * 3
    assert found.codes(segment=1) == {"not_recorded"}
    assert sum(energy_of(found.energy, "gpu", segment=0).values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert found.codes(segment=0) == set()


def test_peruns_own_total_stands_beside_ours_and_is_flagged_if_it_differs(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    for stated_j, codes in ((12_000 * 1.005, set()), (12_000 * 1.02, {"disagrees"})):
        with h5py.File(run / "perun/segment-000.hdf5", "a") as file:
            metrics = file["app/nodes/run/nodes/0/nodes/n1"].require_group("metrics/GPU_ENERGY")
            metrics.attrs.update({"value": stated_j, "mag": 1.0})
        found = accounted(run, make_spec(), NO_POWERS)
        (row,) = records(found.tables.cross_checks)
        assert (row["node"], row["device_kind"], row["source"]) == ("n1", "gpu", "perun")
        assert (row["energy_j"], row["recorded_j"]) == pytest.approx((stated_j, 12_000))
        assert found.codes(device_kind="gpu") == codes and found.codes(device_kind="cpu") == set()


def test_a_node_without_a_journal_is_read_from_peruns_file(tmp_path: Path, in_utc: None) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    write_perun(run / "perun/segment-000.hdf5", {"n1": NODE, "n2": NODE}, execution_dt=STARTED)
    write_journal(run / "perun/segment-000.n1.csv", "n1", NODE | {"CUDA:0_POWER": gpu(N, 300)})
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    sums = {
        node: sum(v or 0 for v in energy_of(found.energy, "gpu", node=node).values())
        for node in ("n1", "n2")
    }
    assert sums == pytest.approx({"n1": 20_000, "n2": 12_000})
    assert found.codes(node="n1") == set() and found.codes(node="n2") == {"time_assumed"}


def test_a_missing_host_is_named_and_null(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    segment(run, NODE)
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert set(energy_of(found.energy, "gpu", node="n2").values()) == {None}
    assert None not in energy_of(found.energy, "gpu", node="n1").values()
    assert found.codes() == {"not_recorded"}
    found = accounted(run, make_spec(nodes=3), NO_POWERS)
    assert set(found.energy["node"].to_pylist()) == {"n1", "n2", "unknown-1"}


def test_a_recording_that_stops_midway_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[(0, "startup", 0.0, 2.0), (0, "train", 2.0, 80.0)])
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    assert set(energy_of(found.energy, "gpu").values()) == {None}
    assert found.codes() == {"recording_short", "coverage", "stage_short"}
    late = make_run(tmp_path / "late", stages=[(0, "startup", -60.0, 2.0), (0, "train", 2.0, 41.0)])
    segment(late, NODE)
    assert accounted(late, make_spec(), NO_POWERS).codes() == {"stage_short"}


STARTED = "2026-11-18T11:06:40"
"""T0 in UTC, as perun states it."""


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are UTC."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_without_journal_the_clock_is_peruns_start_and_flagged(
    tmp_path: Path, in_utc: None
) -> None:
    run = make_run(tmp_path, stages=STAGES)
    write_perun(run / "perun/segment-000.hdf5", {"n1": NODE}, execution_dt=STARTED)
    found = accounted(run, make_spec(), NO_POWERS)
    assert "time_assumed" in found.codes()
    assert energy_of(found.energy, "gpu")["train"] == pytest.approx(7500)
    assert found.traces["time"][0].as_py().isoformat() == "2026-11-18T11:06:40+00:00"


def test_a_stray_stamp_moves_no_other_sample_to_another_stage(tmp_path: Path, in_utc: None) -> None:
    times = np.arange(N, dtype=float)
    times[20] = 1e6
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 30.0), (0, "validate", 30.0, 40.0)])
    path = tmp_path / "perun" / "segment-000.hdf5"
    write_perun(path, {"n1": NODE}, time_s=times, execution_dt=STARTED)
    found = accounted(run, make_spec(), NO_POWERS)
    stages = [r["stage"] for r in found.traces.to_pylist() if r["device_kind"] == "cpu"]
    assert stages == ["train"] * 20 + ["unattributed"] + ["train"] * 9 + ["validate"] * 11
    assert sum(energy_of(found.energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert "clock" in found.codes()
