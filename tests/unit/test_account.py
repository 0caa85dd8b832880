"""A run's energy: windows, stages, hosts, devices, and every quality flag."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from energy_files import (
    NO_POWERS,
    Accounted,
    accounted,
    counter,
    gpu,
    make_run,
    record,
    write_perun,
)
from run_files import make_spec

from scalewatt.energies.node import FACTOR

N = 41
NODE = {
    "CUDA:0_POWER": gpu(N, 100),
    "CUDA:1_POWER": gpu(N, 200),
    "cpu_0_package-0": counter(N, 150),
    "ram_0_dram": counter(N, 15),
}
STAGES = [(0, "startup", -2.0, 5.0), (0, "train", 5.0, 30.0), (0, "validate", 32.0, 41.0)]
STARTED = "2026-11-18T11:06:40"
"""T0 in UTC, as perun states it."""


def recorded(folder: Path, hdf5: bool = False, **provenance: object) -> Path:
    """A run of `NODE`, as journal and as perun's file if `hdf5`."""
    run = make_run(folder, stages=STAGES, **provenance)
    record(run, {"n1": NODE}, hdf5=hdf5)
    return run


def joules(run: Accounted, kind: str, by: str = "stage") -> dict[str, float]:
    """Energy of a kind by stage or node; NaN if a row is null."""
    rows = run.tables.energy
    return rows[rows["device_kind"] == kind].groupby(by)["energy_j"].sum(skipna=False).to_dict()


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are UTC."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_energy_is_shared_out_to_stages_within_the_nodes_window(tmp_path: Path) -> None:
    run = accounted(recorded(tmp_path), make_spec())
    seconds = {"startup": 5, "train": 25, "unattributed": 2, "validate": 8}
    for kind, watts in (("gpu", 300), ("cpu", 150), ("ram", 15)):
        expected = {stage: watts * s for stage, s in seconds.items()}
        assert joules(run, kind) == pytest.approx(expected), kind
    rows = run.tables.energy
    assert rows.groupby("stage")["duration_s"].first().to_dict() == pytest.approx(seconds)
    assert rows.groupby("device_kind")["devices"].max().to_dict() == {"gpu": 2, "cpu": 1, "ram": 1}
    assert set(rows["energy_origin"]) == {"measured"} and set(rows["coverage"]) == {1.0}
    assert run.codes() == set()


def test_the_energy_of_devices_adds_up_to_that_of_their_kind(tmp_path: Path) -> None:
    run = accounted(recorded(tmp_path), make_spec())
    devices, keys = run.tables.devices, ["device_kind", "stage"]
    sums = devices.groupby(keys)["energy_j"].sum()
    assert sums.to_dict() == pytest.approx(run.tables.energy.set_index(keys)["energy_j"].to_dict())
    assert (devices["covered_s"] / devices["duration_s"]).tolist() == pytest.approx([1] * 16)
    second = devices[devices["sensor"] == "CUDA:1_POWER"].set_index("stage")
    samples = {"startup": 5, "train": 25, "validate": 9, "unattributed": 2}
    assert second["samples"].to_dict() == samples
    assert set(second["mean_power_w"].round(9)) == {200.0} and set(second["device_index"]) == {1}


def test_gpus_that_the_run_did_not_hold_count_separately(tmp_path: Path) -> None:
    run = accounted(recorded(tmp_path, gpus={"n1": [1]}), make_spec(ranks_per_node=1))
    totals = {kind: sum(joules(run, kind).values()) for kind in ("gpu", "unused_gpu")}
    assert totals == pytest.approx({"gpu": 8000, "unused_gpu": 4000})
    assert run.codes() == set() and "unused_gpu" in run.traces["device_kind"].to_pylist()


def test_without_sensors_cpu_energy_is_estimated_and_the_rest_absent(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES)
    record(run, {"n1": {"CPU_BUSY": np.full(N, 40.0)}})
    cpus = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}}
    of_run = accounted(run, make_spec(), NO_POWERS | cpus)
    rows = of_run.tables.energy.set_index("device_kind")
    cpu = rows.loc["cpu"]
    assert cpu["energy_j"].sum() == pytest.approx(40 * 2 * 51.06)
    assert (cpu["energy_low_j"] * FACTOR).tolist() == pytest.approx(cpu["energy_j"].tolist())
    assert (cpu["energy_high_j"] / FACTOR).tolist() == pytest.approx(cpu["energy_j"].tolist())
    for kind in ("gpu", "ram"):
        assert rows.loc[kind, ["energy_j", "energy_origin"]].isna().all(axis=None)
        assert of_run.codes(device_kind=kind) == {"absent"}
    sample = of_run.traces.to_pylist()[0]
    assert (sample["energy_origin"], sample["power_w"]) == ("estimated", pytest.approx(102.12))


def test_an_unrecorded_segment_has_null_rows_and_the_others_stay(tmp_path: Path) -> None:
    stages, segments = [*STAGES, (1, "train", 100.0, 160.0)], [{"segment": 0}, {"segment": 1}]
    run = make_run(tmp_path, stages=stages, segments=segments)
    record(run, {"n1": NODE})
    of_run = accounted(run, make_spec())
    rows = of_run.tables.energy
    lost = rows[rows["segment"] == 1]
    assert lost["energy_j"].isna().all() and lost["duration_s"].tolist() == [60.0] * 3
    assert set(lost["device_kind"]) == {"gpu", "cpu", "ram"}
    assert of_run.codes(segment=1) == {"not_recorded"} and of_run.codes(segment=0) == set()
    first = rows[(rows["segment"] == 0) & (rows["device_kind"] == "gpu")]
    assert first["energy_j"].sum() == pytest.approx(12_000)


def test_a_node_without_a_journal_is_read_from_peruns_file(tmp_path: Path, in_utc: None) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"))
    write_perun(run / "perun/segment-000.hdf5", {"n1": NODE, "n2": NODE}, execution_dt=STARTED)
    record(run, {"n1": NODE | {"CUDA:0_POWER": gpu(N, 300)}})
    of_run = accounted(run, make_spec(nodes=2))
    assert joules(of_run, "gpu", "node") == pytest.approx({"n1": 20_000, "n2": 12_000})
    assert of_run.codes(node="n1") == set() and of_run.codes(node="n2") == {"time_assumed"}


def test_a_missing_host_is_named_and_null(tmp_path: Path) -> None:
    run = recorded(tmp_path, hostnames=("n1", "n2"))
    of_run = accounted(run, make_spec(nodes=2))
    by_node = {"n1": pytest.approx(12_000), "n2": pytest.approx(np.nan, nan_ok=True)}
    assert joules(of_run, "gpu", "node") == by_node and of_run.codes() == {"not_recorded"}
    nodes = accounted(run, make_spec(nodes=3)).tables.energy["node"]
    assert set(nodes) == {"n1", "n2", "unknown-1"}


@pytest.mark.parametrize(
    ("begin_s", "end_s", "codes"),
    [(0.0, 80.0, {"coverage", "stage_short"}), (-60.0, 41.0, {"stage_short"})],
    ids=["stops midway", "begins late"],
)
def test_a_recording_that_stops_midway_does_not_pass_for_the_whole(
    tmp_path: Path, begin_s: float, end_s: float, codes: set[str]
) -> None:
    run = make_run(tmp_path, stages=[(0, "startup", begin_s, 2.0), (0, "train", 2.0, end_s)])
    record(run, {"n1": NODE})
    of_run = accounted(run, make_spec())
    assert of_run.codes() == codes
    assert (of_run.totals.joules("gpu") is None) == ("coverage" in codes)


@pytest.mark.parametrize(("lost", "expected"), [(6, 69_900), (31, 66_700), (40, None)])
def test_gaps_below_the_limit_keep_the_energy_and_beyond_make_it_null(
    tmp_path: Path, lost: int, expected: float | None
) -> None:
    """6 s are bridged; 32 s of 699 s are under 5 %: still stated, without the uncovered part."""
    power = gpu(700, 100)
    power[300 : 300 + lost] = 0
    run = make_run(tmp_path, stages=[(0, "train", 0.0, 699.0)])
    record(run, {"n1": {"CUDA:0_POWER": power, "cpu_0_package-0": counter(700, 90)}})
    of_run = accounted(run, make_spec(ranks_per_node=1))
    assert of_run.totals.joules("gpu") == (expected and pytest.approx(expected))
    assert ("coverage" in of_run.codes(device_kind="gpu")) == (expected is None)
    assert "missing_samples" in of_run.codes(device_kind="gpu")
    assert of_run.totals.joules("cpu") == pytest.approx(699 * 90)
