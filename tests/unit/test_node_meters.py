"""Meters of whole nodes in runs of ours: beside the parts of a node, never added to them, and with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from energy_files import Accounted, accounted, codes, counter, gpu, make_run, write_journal
from energy_files import write_telemetry as write_readings
from run_files import make_spec

import scalewatt
from scalewatt.energies.tables import BOUNDS
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.cross_checks import sums_of
from scalewatt.results.tables import frames

N = 601
STAGES = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 590.0)]
TIMES = np.arange(0.0, N, 5.0)
"""When meters are read."""
GPU_W, CPU_W, RAM_W = 100.0, 150.0, 20.0
ALL_W = GPU_W + CPU_W + RAM_W
PARTS = {
    "CUDA:0_POWER": gpu(N, GPU_W) + np.arange(N) % 7,
    "cpu_0_package-0": counter(N, CPU_W),
    "ram_0_dram": counter(N, RAM_W),
}


def record(run: Path, host: str, sensors: dict[str, Any], watts: Any) -> None:
    """Write a node's journal and, unless None, the readings of its meter; NaN is missing."""
    path = write_journal(run / "perun" / f"segment-000.{host}.csv", host, sensors)
    if watts is not None:
        values = {"node_power_hwmon": np.broadcast_to(watts, TIMES.shape)}
        write_readings(path, host, values, TIMES)


def measured(folder: Path, *watts: Any) -> Accounted:
    """Account for a run of 600 s on as many nodes as meters are given."""
    hosts = [f"n{i}" for i, _ in enumerate(watts, 1)]
    run = make_run(folder, stages=STAGES, gpus={host: [0] for host in hosts})
    for host, values in zip(hosts, watts, strict=True):
        record(run, host, PARTS, values)
    spec = make_spec(nodes=len(hosts), gpus=len(hosts), ranks_per_node=1)
    return accounted(run, spec)


def test_a_meter_is_a_scope_beside_the_parts_and_never_added_to_them(tmp_path: Path) -> None:
    run = measured(tmp_path, 300.0)
    assert run.totals.joules("node") == pytest.approx(600 * 300, rel=1e-6)
    assert run.totals.scope == ["gpu", "cpu", "ram"]
    assert run.totals.joules() == pytest.approx(600 * ALL_W, rel=1e-3)
    (row,) = run.tables.cross_checks.to_dict("records")
    assert (row["source"], row["device_kind"]) == ("hwmon", "node")
    assert row["recorded_scope"] == "gpu+cpu+ram"
    assert row["energy_j"] == pytest.approx(600 * 300, rel=1e-6)
    assert row["extra_w"] == pytest.approx(300 - ALL_W, abs=0.1)


@pytest.mark.parametrize(("watts", "flagged"), [(260, True), (265, False), (410, False)])
def test_a_meter_below_the_parts_is_flagged(tmp_path: Path, watts: float, flagged: bool) -> None:
    assert ("disagrees" in measured(tmp_path, watts).codes()) == flagged


def test_a_meter_on_some_nodes_only_leaves_the_runs_node_energy_unknown(tmp_path: Path) -> None:
    both = measured(tmp_path / "both", 300, 300)
    assert both.totals.joules("node") == pytest.approx(2 * 600 * 300, rel=1e-6)
    first = measured(tmp_path / "first", 300, None)
    assert first.totals.joules("node") is None
    assert first.totals.kinds.loc["node", [*BOUNDS]].isna().all()
    assert first.totals.joules() == pytest.approx(2 * 600 * ALL_W, rel=1e-3)
    (flag,) = first.flags("not_recorded")
    assert flag["detail"] == "n2: no node sensor, but other nodes of the run have one"
    assert (flag["node"], flag["device_kind"]) == ("n2", "node")


@pytest.mark.parametrize("lacking", [False, True])
def test_a_run_of_meters_alone_that_a_node_lacks_has_no_energy_and_says_why(
    tmp_path: Path, lacking: bool
) -> None:
    run = make_run(tmp_path, stages=STAGES, hostnames=("n1", "n2"), torch_device="cpu")
    (run / "spec.json").write_text(make_spec(nodes=2, gpus=2).text)
    busy = {"CPU_BUSY": np.full(N, 50.0)}
    record(run, "n1", busy, 300.0 + TIMES % 7)
    record(run, "n2", busy, None if lacking else 300.0)
    account = scalewatt.energy(run)
    whole = account.totals.set_index("device_kind").loc["all", ["energy_j", *BOUNDS]]
    assert account.scope == "node" and whole.isna().all() == lacking
    if lacking:
        assert account.coverage == pytest.approx(0.5)
        assert account.joules(column="recorded_j") == pytest.approx(600 * 303, rel=0.01)
        assert "not_recorded" in codes(account.flags)
        of_second = account.stages.query("node == 'n2' and device_kind == 'node'")
        assert set(of_second["stage"]) == {"startup", "train", "unattributed"}
        assert of_second["energy_j"].isna().all()


# --- summed over nodes --------------------------------------------------------------------------


def row(node: str, energy_j: float | None = 3e6, **others: Any) -> dict[str, Any]:
    made = {"segment": 0, "node": node, "source": "hwmon", "duration_s": 1000.0}
    counted = {"energy_j": energy_j, "recorded_j": 2e6, "recorded_scope": "gpu+cpu+ram"}
    return made | counted | others


def sum_of(rows: list[dict[str, Any]], segments: set[int]) -> dict[str, Any]:
    """The sum of one source's rows of a run on two nodes, which has a row in each of the segments."""
    others = [row("n1", source="nvml_counter") | {"segment": segment} for segment in segments]
    run = {"campaign": "made", "configuration": "c", "repeat": 1, "model": "m", "device": "d"}
    run |= {"gpus": 8, "nodes": 2, "device_kind": "node"}
    checks = pd.DataFrame([run | check for check in (*rows, *others)])
    sums = frames.records(sums_of(checks)[lambda sums: sums["source"] == rows[0]["source"]])
    return sums[0]


def test_the_sum_over_nodes_states_what_the_parts_miss() -> None:
    sums = sum_of([row("n1"), row("n2", 4e6)], {0})
    assert sums["energy_kwh"] == pytest.approx(7e6 / J_PER_KWH)
    assert sums["difference"] == pytest.approx(0.75)
    assert (sums["recorded_scope"], sums["extra_w"]) == ("gpu+cpu+ram", 1500)


@pytest.mark.parametrize(
    ("rows", "segments"),
    [
        ([row("n1")], {0}),
        ([row("n1", source="node_meter")], {0}),
        ([row("n1"), row("n2", None)], {0}),
        ([row("n1"), row("n2")], {0, 1}),
    ],
)
def test_a_sum_that_lacks_a_node_or_a_segment_is_unknown(
    rows: list[dict[str, Any]], segments: set[int]
) -> None:
    sums = sum_of(rows, segments)
    assert sums["energy_kwh"] is sums["difference"] is sums["extra_w"] is None
