"""A run's energy: windows, stages, hosts, segments, devices, and every quality flag."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.energies.accounting.account import write_energy
from scalewatt.energies.accounting.energy_schema import (
    DEVICES_SCHEMA,
    ENERGY_SCHEMA,
    FLAGS_SCHEMA,
    TRACES_SCHEMA,
)
from scalewatt.energies.integration.rated_power import FACTOR

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
CPU_POWERS = NO_POWERS | {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}}
N = 41
NODE = {
    "CUDA:0_POWER": gpu(N, 100),
    "CUDA:1_POWER": gpu(N, 200),
    "cpu_0_package-0": counter(N, 150),
    "ram_0_dram": counter(N, 15),
}
OTHER_NODE = {**NODE, "cpu_0_package-0": counter(N, 140), "ram_0_dram": counter(N, 14)}
BUSY = np.full(N, 40.0)
STAGES = [(0, "startup", -2.0, 5.0), (0, "train", 5.0, 30.0), (0, "validate", 32.0, 41.0)]


def segment(folder: Path, host: dict[str, Any], *, node: str = "n1", number: int = 0) -> None:
    """Write perun's file and the journal of one host."""
    stem = folder / "perun" / f"segment-{number:03d}"
    start = T0 + 100 * number
    write_perun(stem.with_suffix(".hdf5"), {node: host})
    write_journal(stem.with_name(f"{stem.name}.{node}.journal"), node, host, start=start)


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
    assert found.energy.schema == ENERGY_SCHEMA and found.traces.schema == TRACES_SCHEMA
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


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("NVIDIA A100-SXM4-40GB", "instantaneous"),
        ("NVIDIA H100", "moving_mean"),
        ("AMD Instinct MI300X", None),
        (None, None),
    ],
)
def test_traces_tell_what_a_sample_of_power_stands_for(
    tmp_path: Path, name: str | None, quantity: str | None
) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, {"CUDA:0_POWER": gpu(N, 100), "ram_0_dram": counter(N, 15)} | {"CPU_BUSY": BUSY})
    write_json(run / "provenance.json", {"hostnames": ["n1"], "device_name": name})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    traces = tmp_path / "traces.parquet"
    write_energy(run, run / "spec.json", CPU_POWERS, traces, tmp_path / "1.parquet")
    found = {(r["device_kind"], r["quantity"]) for r in pq.read_table(traces).to_pylist()}
    assert found == {("gpu", quantity), ("ram", "mean"), ("cpu", None)}  # the CPU's is an estimate


def test_the_energy_of_devices_adds_up_to_that_of_their_kind(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    devices = found.tables.devices
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


def test_a_device_has_the_mean_power_of_its_known_time(tmp_path: Path) -> None:
    watts = gpu(N, 100).astype(float)
    watts[5:] *= 3
    times = np.concatenate([np.arange(5.0), 100 + np.arange(N - 5)])
    run = make_run(tmp_path, stages=[])
    path = run / "perun" / "segment-000.hdf5"
    write_perun(path, {"n1": {"CUDA:0_POWER": watts}}, time_s=times)
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    (row,) = found.tables.devices.to_pylist()
    assert row["energy_j"] is None and row["recorded_j"] == pytest.approx(4 * 100 + 35 * 300)
    assert (row["covered_s"], row["duration_s"], row["samples"]) == (39, 135, N)
    assert row["mean_power_w"] == pytest.approx((4 * 100 + 35 * 300) / 39)


def test_a_flag_is_at_the_segment_node_kind_or_stage_that_it_concerns(tmp_path: Path) -> None:
    stages = [*STAGES[:2], (0, "checkpoint", 30.0, 30.5), (0, "validate", 30.5, 41.0)]
    run = make_run(tmp_path, stages=stages, hostnames=("n1", "n2"))
    for number in (0, 1):
        segment(run, NODE | {"CUDA:1_POWER": gpu(N, 0)}, number=number)
    (run / "perun" / "segment-000.hdf5").unlink()
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert found.tables.flags.schema == FLAGS_SCHEMA
    place = ("segment", "node", "device_kind", "stage", "sensor")
    at = {code: tuple(found.flags(code)[0][name] for name in place) for code in found.codes()}
    assert at["missing_host"] == (0, None, None, None, None)
    assert at["from_journal"] == (0, "n1", None, None, None)
    assert at["zero_power"] == (0, "n1", "gpu", None, "CUDA:1_POWER")
    assert at["stage_short"] == (0, "n1", "cpu", "checkpoint", None)
    assert at["no_events"] == (1, None, None, None, None)


def test_gpus_that_the_run_did_not_hold_count_separately(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1.cluster": [1]})
    segment(run, NODE)
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert sum(energy_of(found.energy, "gpu").values()) == pytest.approx(8000)  # type: ignore[arg-type]
    unused = energy_of(found.energy, "unused_gpu")
    assert sum(unused.values()) == pytest.approx(4000)  # type: ignore[arg-type]
    assert found.codes() == set()
    assert "unused_gpu" in set(found.traces["device_kind"].to_pylist())


def test_a_gpu_that_the_run_held_and_that_was_not_recorded_makes_the_energy_null(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1": [0, 1, 2]})
    segment(run, NODE)
    found = accounted(run, make_spec(ranks_per_node=3), NO_POWERS)
    assert set(energy_of(found.energy, "gpu").values()) == {None}
    assert found.codes(device_kind="gpu") == {"gpu_count", "coverage"}
    assert None not in energy_of(found.energy, "cpu").values()


def test_a_cpu_run_on_a_gpu_machine_holds_no_gpu(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, torch_device="cpu")
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    assert set(energy_of(found.energy, "gpu").values()) == {None}
    assert found.codes(device_kind="gpu") == {"absent"}
    assert None not in energy_of(found.energy, "unused_gpu").values()


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
        assert found.codes(device_kind="gpu") >= {"zero_power"}
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
    assert found.codes() == {"from_journal"}


def test_a_damaged_hdf5_uses_its_journals_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    found = accounted(run, make_spec(), NO_POWERS)
    assert sum(energy_of(found.energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert found.codes() == {"from_journal", "hdf5_unreadable"}


def test_perun_own_name_of_a_failed_programs_file_is_found(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").rename(run / "perun/failed_segment-000.hdf5")
    found = accounted(run, make_spec(), NO_POWERS)
    assert found.codes() == set()


def test_a_counter_wrap_in_a_journal_of_unknown_range_is_bridged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    wrapping = (counter(N, 150).astype(np.float64) + 262_143_328_850 - 3.9e9) % 262_143_328_850
    segment(run, {"cpu_0_package-0": wrapping, "CUDA:0_POWER": gpu(N)})
    (run / "perun/segment-000.hdf5").unlink()
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert sum(energy_of(found.energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert found.codes(device_kind="cpu") == {"from_journal", "counter_reset"}


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
    assert found.codes(segment=1) == {"segment_unrecorded"}
    assert sum(energy_of(found.energy, "gpu", segment=0).values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert found.codes(segment=0) == set()


def test_segments_add_up(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[*STAGES, (1, "train", 100.0, 140.0)])
    segment(run, NODE)
    segment(run, NODE, number=1)
    found = accounted(run, make_spec(), NO_POWERS)
    totals = [sum(energy_of(found.energy, "gpu", segment=s).values()) for s in (0, 1)]  # type: ignore[arg-type]
    assert totals == pytest.approx([12_000, 12_000]) and found.codes() == set()


def test_a_disagreeing_journal_is_flagged_with_both_energies(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n1.journal", "n1", NODE | {"CUDA:0_POWER": gpu(N, 102)})
    found = accounted(run, make_spec(), NO_POWERS)
    assert found.codes(device_kind="gpu") == {"journal_disagrees"}
    assert found.codes(device_kind="cpu") == set()
    (one,) = found.flags("journal_disagrees")
    assert "HDF5 12000.0 J, journal 12080.0 J" in one["detail"]
    write_journal(run / "perun/segment-000.n1.journal", "n1", NODE | {"CUDA:0_POWER": gpu(N, 101)})
    assert accounted(run, make_spec(), NO_POWERS).codes() == set()


def test_a_missing_host_is_named_and_null(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    segment(run, NODE)
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert set(energy_of(found.energy, "gpu", node="n2").values()) == {None}
    assert None not in energy_of(found.energy, "gpu", node="n1").values()
    assert found.codes() == {"missing_host"}
    found = accounted(run, make_spec(nodes=3), NO_POWERS)
    assert set(found.energy["node"].to_pylist()) == {"n1", "n2", "unknown-1"}


def test_a_missing_host_is_one_of_its_own_segments_hosts(tmp_path: Path) -> None:
    ranks = [{"host": host, "gpu": 0, "gpu_uuid": None} for host in ("n1", "n4")]
    noted = [{"segment": 0, "ranks": ranks}]
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2", "n3", "n4"), segments=noted)
    segment(run, NODE)
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert set(found.energy["node"].to_pylist()) == {"n1", "n4"}
    assert "missing: n4" in found.flags("missing_host")[0]["detail"]


def test_a_host_that_only_the_journals_have_is_taken_from_there(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n2.journal", "n2", OTHER_NODE)
    found = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert sum(energy_of(found.energy, "gpu", node="n2").values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert found.codes(node="n2") == {"from_journal"}
    assert found.codes(node="n1") == set()


def test_more_hosts_than_nodes_are_flagged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n2.journal", "n2", NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    assert "extra_host" in found.codes()


def test_a_recording_that_stops_midway_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[(0, "startup", 0.0, 2.0), (0, "train", 2.0, 80.0)])
    segment(run, NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    assert set(energy_of(found.energy, "gpu").values()) == {None}
    assert found.codes() == {"recording_short", "coverage", "stage_short"}
    late = make_run(tmp_path / "late", stages=[(0, "startup", -60.0, 2.0), (0, "train", 2.0, 41.0)])
    segment(late, NODE)
    assert accounted(late, make_spec(), NO_POWERS).codes() == {"stage_short"}


def test_without_journal_the_clock_is_peruns_start_and_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    run = make_run(tmp_path, stages=STAGES)
    write_perun(run / "perun/segment-000.hdf5", {"n1": NODE}, execution_dt="2026-11-18T11:06:40")
    found = accounted(run, make_spec(), NO_POWERS)
    monkeypatch.undo()
    time.tzset()
    assert "clock_from_execution_dt" in found.codes()
    assert energy_of(found.energy, "gpu")["train"] == pytest.approx(7500)
    assert found.traces["time"][0].as_py().isoformat() == "2026-11-18T11:06:40+00:00"


def test_a_run_without_events_is_unattributed_and_flagged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "events.parquet").unlink()
    found = accounted(run, make_spec(), NO_POWERS)
    assert energy_of(found.energy, "gpu") == {"unattributed": pytest.approx(12_000)}
    assert found.codes() == {"no_events"}


def test_damaged_events_are_refused_with_their_path(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    (run / "events.parquet").write_text("{}")
    with pytest.raises(InputError, match=r"events\.parquet.*expected segment, stage"):
        accounted(run, make_spec(), NO_POWERS)


def test_both_tables_are_written_with_their_schemas(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", stages=STAGES)
    segment(run, NODE)
    (run / "spec.json").write_text(make_spec().text)
    traces, energy = tmp_path / "t/1.parquet", tmp_path / "e/1.parquet"
    write_energy(run, run / "spec.json", NO_POWERS, traces, energy)
    assert pq.read_table(energy).schema.equals(ENERGY_SCHEMA)
    assert pq.read_table(traces).num_rows == 4 * N
    assert pq.read_table(traces).schema.names == TRACES_SCHEMA.names


def test_a_stray_stamp_moves_no_other_sample_to_another_stage(tmp_path: Path) -> None:
    times = np.arange(N, dtype=float)
    times[20] = 1e6
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 30.0), (0, "validate", 30.0, 40.0)])
    stem = tmp_path / "perun" / "segment-000"
    write_perun(stem.with_suffix(".hdf5"), {"n1": NODE}, time_s=times)
    write_journal(stem.with_name("segment-000.n1.journal"), "n1", NODE)
    found = accounted(run, make_spec(), NO_POWERS)
    stages = [r["stage"] for r in found.traces.to_pylist() if r["device_kind"] == "cpu"]
    assert stages == ["train"] * 20 + ["unattributed"] + ["train"] * 9 + ["validate"] * 11
    assert sum(energy_of(found.energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert "clock_backwards" in found.codes()
