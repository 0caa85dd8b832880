"""A run's energy: windows, stages, hosts, segments, and every doubt in its rows."""

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
    codes,
    counter,
    gpu,
    make_run,
    make_spec,
    write_journal,
    write_perun,
)

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.energy.accounting.account import write_energy
from scalewatt.energy.accounting.energy_schema import ENERGY_SCHEMA, TRACES_SCHEMA

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


def flags_of(table: pa.Table, **match: Any) -> set[str]:
    found: set[str] = set()
    for row in table.to_pylist():
        if all(row[key] == value for key, value in match.items()):
            found |= codes(row["flags"])
    return found


def test_energy_is_shared_out_to_stages_within_the_nodes_window(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    traces, energy = accounted(run, make_spec(), NO_POWERS)
    assert energy.schema == ENERGY_SCHEMA and traces.schema == TRACES_SCHEMA
    expected = {"startup": 1500, "train": 7500, "unattributed": 600, "validate": 2400}
    assert energy_of(energy, "gpu") == pytest.approx(expected)
    assert energy_of(energy, "cpu") == pytest.approx({k: v / 2 for k, v in expected.items()})
    assert sum(energy_of(energy, "ram").values()) == pytest.approx(600)  # type: ignore[arg-type]
    seconds = {r["stage"]: r["duration_s"] for r in energy.to_pylist()}
    assert seconds == pytest.approx({"startup": 5, "train": 25, "unattributed": 2, "validate": 8})
    assert set(energy["energy_origin"].to_pylist()) == {"measured"}
    assert set(energy["coverage"].to_pylist()) == {1.0}
    assert flags_of(energy) == set()
    assert {r["device_kind"]: r["devices"] for r in energy.to_pylist()} == {
        "gpu": 2, "cpu": 1, "ram": 1,
    }  # fmt: skip


def test_traces_hold_every_sample_with_its_stage_sorted(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE | {"CPU_BUSY": np.full(N, 40.0)})
    traces, _ = accounted(run, make_spec(), NO_POWERS)
    rows = traces.to_pylist()
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


def test_gpus_that_the_run_did_not_hold_are_beside(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1.cluster": [1]})
    segment(run, NODE)
    traces, energy = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert sum(energy_of(energy, "gpu").values()) == pytest.approx(8000)  # type: ignore[arg-type]
    unused = energy_of(energy, "unused_gpu")
    assert sum(unused.values()) == pytest.approx(4000)  # type: ignore[arg-type]
    assert flags_of(energy) == set()
    assert "unused_gpu" in set(traces["device_kind"].to_pylist())


def test_a_gpu_that_the_run_held_and_nobody_recorded_makes_the_energy_null(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1": [0, 1, 2]})
    segment(run, NODE)
    _, energy = accounted(run, make_spec(ranks_per_node=3), NO_POWERS)
    assert set(energy_of(energy, "gpu").values()) == {None}
    assert flags_of(energy, device_kind="gpu") == {"gpu_count", "coverage"}
    assert None not in energy_of(energy, "cpu").values()


def test_a_cpu_run_on_a_gpu_machine_holds_no_gpu(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, torch_device="cpu")
    segment(run, NODE)
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert set(energy_of(energy, "gpu").values()) == {None}
    assert flags_of(energy, device_kind="gpu") == {"absent"}
    assert None not in energy_of(energy, "unused_gpu").values()


def test_without_sensors_cpu_energy_is_estimated_and_the_rest_absent(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, {"CPU_BUSY": np.full(N, 40.0)})
    traces, energy = accounted(run, make_spec(), CPU_POWERS)
    cpu = energy_of(energy, "cpu", energy_origin="estimated")
    assert sum(cpu.values()) == pytest.approx(40 * 2 * 90)  # type: ignore[arg-type]
    for kind in ("gpu", "ram"):
        assert set(energy_of(energy, kind, energy_origin=None).values()) == {None}
        assert flags_of(energy, device_kind=kind) == {"absent"}
    row = traces.to_pylist()[0]
    assert (row["energy_origin"], row["power_w"]) == ("estimated", 180)


def test_gaps_below_the_limit_keep_the_energy_and_beyond_make_it_null(tmp_path: Path) -> None:
    for zeros, known in ((6, True), (31, False)):
        power = gpu(700, 100)
        power[300 : 300 + zeros] = 0
        run = make_run(tmp_path / str(zeros), stages=[(0, "train", 0.0, 699.0)])
        segment(run, {"CUDA:0_POWER": power, "cpu_0_package-0": counter(700, 90)})
        _, energy = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
        assert flags_of(energy, device_kind="gpu") >= {"zero_power"}
        # 32 s of 699 s are under 5 %: still stated, without the uncovered part.
        total = sum(v or 0 for v in energy_of(energy, "gpu").values())
        assert total == pytest.approx(69_900 if known else 66_700)
    power[300:340] = 0
    run = make_run(tmp_path / "null", stages=[(0, "train", 0.0, 699.0)])
    segment(run, {"CUDA:0_POWER": power, "cpu_0_package-0": counter(700, 90)})
    _, energy = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert set(energy_of(energy, "gpu").values()) == {None}
    assert "coverage" in flags_of(energy, device_kind="gpu")
    assert None not in energy_of(energy, "cpu").values()


def test_a_segment_without_hdf5_uses_its_journals(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").unlink()
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert sum(energy_of(energy, "gpu").values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert flags_of(energy) == {"from_journal"}


def test_a_damaged_hdf5_uses_its_journals_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert sum(energy_of(energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert flags_of(energy) == {"from_journal", "hdf5_unreadable"}


def test_perun_own_name_of_a_failed_programs_file_is_found(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "perun/segment-000.hdf5").rename(run / "perun/failed_segment-000.hdf5")
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert flags_of(energy) == set()


def test_a_counter_wrap_in_a_journal_of_unknown_range_is_bridged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    wrapping = (counter(N, 150).astype(np.float64) + 262_143_328_850 - 3.9e9) % 262_143_328_850
    segment(run, {"cpu_0_package-0": wrapping, "CUDA:0_POWER": gpu(N)})
    (run / "perun/segment-000.hdf5").unlink()
    _, energy = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    assert sum(energy_of(energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert flags_of(energy, device_kind="cpu") == {"from_journal", "counter_reset"}


def test_an_unrecorded_segment_has_null_rows_and_the_others_stay(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        stages=[*STAGES, (1, "train", 100.0, 160.0)],
        segments=[{"segment": 0}, {"segment": 1}],
    )
    segment(run, NODE)
    _, energy = accounted(run, make_spec(), NO_POWERS)
    lost = energy.filter(pa.compute.equal(energy["segment"], 1))
    assert set(lost["energy_j"].to_pylist()) == {None}
    assert set(lost["device_kind"].to_pylist()) == {"gpu", "cpu", "ram"}
    assert lost["duration_s"].to_pylist() == [60.0] * 3
    assert flags_of(energy, segment=1) == {"segment_unrecorded"}
    assert sum(energy_of(energy, "gpu", segment=0).values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert flags_of(energy, segment=0) == set()


def test_segments_add_up(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[*STAGES, (1, "train", 100.0, 140.0)])
    segment(run, NODE)
    segment(run, NODE, number=1)
    _, energy = accounted(run, make_spec(), NO_POWERS)
    totals = [sum(energy_of(energy, "gpu", segment=s).values()) for s in (0, 1)]  # type: ignore[arg-type]
    assert totals == pytest.approx([12_000, 12_000]) and flags_of(energy) == set()


def test_a_disagreeing_journal_is_flagged_with_both_energies(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n1.journal", "n1", NODE | {"CUDA:0_POWER": gpu(N, 102)})
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert flags_of(energy, device_kind="gpu") == {"journal_disagrees"}
    assert flags_of(energy, device_kind="cpu") == set()
    text = energy.to_pylist()[-1]["flags"] + "".join(energy["flags"].to_pylist())
    assert "HDF5 12000.0 J, journal 12080.0 J" in text
    write_journal(run / "perun/segment-000.n1.journal", "n1", NODE | {"CUDA:0_POWER": gpu(N, 101)})
    assert flags_of(accounted(run, make_spec(), NO_POWERS)[1]) == set()


def test_a_missing_host_is_named_and_null(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    segment(run, NODE)
    _, energy = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert set(energy_of(energy, "gpu", node="n2").values()) == {None}
    assert None not in energy_of(energy, "gpu", node="n1").values()
    assert flags_of(energy) == {"missing_host"}
    _, energy = accounted(run, make_spec(nodes=3), NO_POWERS)
    assert set(energy["node"].to_pylist()) == {"n1", "n2", "unknown-1"}


def test_a_missing_host_is_one_of_its_own_segments_hosts(tmp_path: Path) -> None:
    ranks = [{"host": host, "gpu": 0, "gpu_uuid": None} for host in ("n1", "n4")]
    noted = [{"segment": 0, "ranks": ranks}]
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2", "n3", "n4"), segments=noted)
    segment(run, NODE)
    _, energy = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert set(energy["node"].to_pylist()) == {"n1", "n4"}
    assert "missing: n4" in energy["flags"][0].as_py()


def test_a_host_that_only_the_journals_have_is_taken_from_there(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n2.journal", "n2", NODE)
    _, energy = accounted(run, make_spec(nodes=2), NO_POWERS)
    assert sum(energy_of(energy, "gpu", node="n2").values()) == pytest.approx(12_000)  # type: ignore[arg-type]
    assert flags_of(energy, node="n2") == {"from_journal"}
    assert flags_of(energy, node="n1") == set()


def test_more_hosts_than_nodes_are_flagged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    write_journal(run / "perun/segment-000.n2.journal", "n2", NODE)
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert "extra_host" in flags_of(energy)


def test_a_recording_that_stops_midway_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=[(0, "startup", 0.0, 2.0), (0, "train", 2.0, 80.0)])
    segment(run, NODE)
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert set(energy_of(energy, "gpu").values()) == {None}
    assert flags_of(energy) == {"recording_short", "coverage", "stage_short"}
    late = make_run(tmp_path / "late", stages=[(0, "startup", -60.0, 2.0), (0, "train", 2.0, 41.0)])
    segment(late, NODE)
    assert flags_of(accounted(late, make_spec(), NO_POWERS)[1]) == {"stage_short"}


def test_without_journal_the_clock_is_peruns_start_and_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    run = make_run(tmp_path, stages=STAGES)
    write_perun(run / "perun/segment-000.hdf5", {"n1": NODE}, execution_dt="2026-11-18T11:06:40")
    traces, energy = accounted(run, make_spec(), NO_POWERS)
    monkeypatch.undo()
    time.tzset()
    assert "clock_from_execution_dt" in flags_of(energy)
    assert energy_of(energy, "gpu")["train"] == pytest.approx(7500)
    assert traces["time"][0].as_py().isoformat() == "2026-11-18T11:06:40+00:00"


def test_a_run_without_events_is_unattributed_and_flagged(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    segment(run, NODE)
    (run / "events.parquet").unlink()
    _, energy = accounted(run, make_spec(), NO_POWERS)
    assert energy_of(energy, "gpu") == {"unattributed": pytest.approx(12_000)}
    assert flags_of(energy) == {"no_events"}


def test_damaged_events_are_refused_with_their_path(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    (run / "events.parquet").write_text("{}")
    with pytest.raises(InputError, match=r"events\.parquet.*expected segment, stage"):
        accounted(run, make_spec(), NO_POWERS)


def test_both_tables_are_written_with_their_schemas(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", stages=STAGES)
    segment(run, NODE)
    write_json(run / "spec.json", make_spec())
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
    traces, energy = accounted(run, make_spec(), NO_POWERS)
    stages = [r["stage"] for r in traces.to_pylist() if r["device_kind"] == "cpu"]
    assert stages == ["train"] * 20 + ["unattributed"] + ["train"] * 9 + ["validate"] * 11
    assert sum(energy_of(energy, "cpu").values()) == pytest.approx(6000)  # type: ignore[arg-type]
    assert "clock_backwards" in flags_of(energy)
