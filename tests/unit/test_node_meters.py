"""Meters of whole nodes in runs of ours: beside the parts of a node, never added to them, and with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import (
    Accounted,
    accounted,
    counter,
    gpu,
    make_run,
    write_journal,
    write_telemetry,
)
from energy_said import describe
from run_files import make_spec

from scalewatt.energies.tables import BOUNDS, records
from scalewatt.notebooks import energy
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.other_sources import sums_of

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
N = 601
STAGES = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 590.0)]
TIMES = np.arange(0.0, N, 5.0)
"""When telemetry are read."""
GPU_W, CPU_W, RAM_W = 100.0, 150.0, 20.0
PARTS = {
    "CUDA:0_POWER": gpu(N, GPU_W) + np.arange(N) % 7,
    "cpu_0_package-0": counter(N, CPU_W),
    "ram_0_dram": counter(N, RAM_W),
}
ALL_W = GPU_W + CPU_W + RAM_W
METER = "node_power_hwmon"


def write_meters(run: Path, values: dict[str, Any], node: str = "n1") -> None:
    """Write readings every 5 s, in W or J; NaN is missing. Of accelerators one row for each."""
    rows = {q: np.broadcast_to(v, (*np.shape(v)[:-1], N // 5 + 1)) for q, v in values.items()}
    write_telemetry(run / "perun" / f"segment-000.{node}.csv", node, rows, TIMES)


def measured(
    folder: Path,
    meters: dict[str, Any] | None,
    parts: tuple[str, ...] = tuple(PARTS),
    nodes: int = 1,
    metered: int = 1,
) -> Accounted:
    """Account for a run of 600 s on some nodes, of which the first `metered` have meters."""
    hosts = [f"n{i}" for i in range(1, nodes + 1)]
    run = make_run(folder, stages=STAGES, gpus={host: [0] for host in hosts})
    for i, host in enumerate(hosts):
        path = run / "perun" / f"segment-000.{host}.csv"
        write_journal(path, host, {name: PARTS[name] for name in parts})
        if meters and i < metered:
            write_meters(run, meters, host)
    return accounted(run, make_spec(nodes=nodes, gpus=nodes, ranks_per_node=1), NO_POWERS)


def checks(found: Accounted) -> list[dict[str, Any]]:
    return records(found.tables.cross_checks)


# --- a scope of its own -------------------------------------------------------------------------


def test_a_meter_is_a_scope_beside_the_parts_and_never_added_to_them(tmp_path: Path) -> None:
    found = measured(tmp_path, {METER: 300.0})
    assert found.totals.joules("node") == pytest.approx(600 * 300, rel=1e-6)
    assert found.totals.scope == ["gpu", "cpu", "ram"]
    assert found.totals.total_j == pytest.approx(600 * ALL_W, rel=1e-3)
    (row,) = checks(found)
    assert (row["source"], row["device_kind"], row["recorded_scope"]) == (
        "hwmon",
        "node",
        "gpu+cpu+ram",
    )
    assert row["energy_j"] == pytest.approx(600 * 300, rel=1e-6)
    assert row["extra_w"] == pytest.approx(300 - ALL_W, abs=0.1)
    assert "disagrees" not in found.codes()


@pytest.mark.parametrize(
    ("watts", "flagged"),
    [(250, True), (260, True), (265, False), (330, False), (400, False), (410, True)],
)
def test_a_meter_below_the_parts_or_far_above_them_is_flagged(
    tmp_path: Path, watts: float, flagged: bool
) -> None:
    found = measured(tmp_path, {METER: watts})
    assert ("disagrees" in found.codes()) == flagged


# --- faults -------------------------------------------------------------------------------------


def faulty(values: Any, begin_s: float, end_s: float) -> Any:
    return np.where((begin_s < TIMES) & (end_s > TIMES), np.nan, values)


def test_a_power_that_is_missing_for_long_leaves_the_meters_energy_unknown(tmp_path: Path) -> None:
    values = 300.0 + TIMES % 7
    short = measured(tmp_path / "short", {METER: faulty(values, 100, 120)})
    assert short.totals.joules("node") == pytest.approx(600 * 302, rel=0.02)
    assert checks(short)[0]["energy_j"] is not None
    found = measured(tmp_path / "long", {METER: faulty(values, 100, 400)})
    assert found.totals.joules("node") is None
    (row,) = checks(found)
    assert row["energy_j"] is None and row["extra_w"] is None


def test_a_meter_on_some_nodes_only_leaves_the_runs_node_energy_unknown(tmp_path: Path) -> None:
    both = measured(tmp_path / "both", {METER: 300}, nodes=2, metered=2)
    assert both.totals.joules("node") == pytest.approx(2 * 600 * 300, rel=1e-6)
    found = measured(tmp_path / "one", {METER: 300}, nodes=2, metered=1)
    assert found.totals.joules("node") is None
    assert found.totals.total_j == pytest.approx(2 * 600 * ALL_W, rel=1e-3)
    assert found.totals.kinds.loc["node", [*BOUNDS]].isna().all()
    (said,) = found.flags("not_recorded")
    assert said["detail"] == "n2: no node sensor, but other nodes of the run have one"
    assert (said["node"], said["device_kind"]) == ("n2", "node")


def meters_only(folder: Path, watts: dict[str, Any]) -> Path:
    """Write a run of which the busy share of cores, and of some nodes the meter, is all that there is."""
    run = make_run(folder, stages=STAGES, hostnames=tuple(watts), torch_device="cpu")
    (run / "spec.json").write_text(make_spec(nodes=len(watts), gpus=len(watts)).text)
    for host, values in watts.items():
        path = run / "perun" / f"segment-000.{host}.csv"
        write_journal(path, host, {"CPU_BUSY": np.full(N, 50.0)})
        if values is not None:
            write_meters(run, {METER: values}, host)
    return run


def test_a_run_of_meters_alone_that_one_node_lacks_has_no_energy_and_says_why(
    tmp_path: Path,
) -> None:
    found = describe(meters_only(tmp_path / "both", {"n1": 300.0 + TIMES % 7, "n2": 300.0}))
    assert found["energy_scope"] == "node" and found["energy_j"] is not None
    run = meters_only(tmp_path / "one", {"n1": 300.0 + TIMES % 7, "n2": None})
    found = describe(run)
    assert found["energy_scope"] == "node" and found["coverage"] == pytest.approx(0.5)
    assert found["energy_kwh"] is found["energy_low_kwh"] is found["energy_high_kwh"] is None
    assert found["recorded_energy_kwh"] == pytest.approx(600 * 303 / J_PER_KWH, rel=0.01)
    assert {one["stage"]: one["energy_j"] for one in found["stages"]} == dict.fromkeys(
        ("startup", "train", "unattributed")
    )
    assert "not_recorded" in {one["code"] for one in found["flags"]}
    rows = energy(run).stages
    lacking = rows[(rows.node == "n2") & (rows.device_kind == "node")]
    assert len(lacking) and lacking.energy_j.isna().all()


# --- beside Slurm's figure ----------------------------------------------------------------------


# --- summed over nodes --------------------------------------------------------------------------


def row(node: str, energy_j: float | None = 3e6, **others: Any) -> dict[str, Any]:
    made = {"segment": 0, "node": node, "source": "hwmon", "duration_s": 1000.0}
    return (
        made | {"energy_j": energy_j, "recorded_j": 2e6, "recorded_scope": "gpu+cpu+ram"} | others
    )


def test_the_sum_over_nodes_states_what_the_parts_miss() -> None:
    found = sums_of([row("n1"), row("n2", 4e6)], 2, {0})
    assert found["energy_kwh"] == pytest.approx(7e6 / J_PER_KWH)
    assert found["difference"] == pytest.approx(0.75)
    assert (found["recorded_scope"], found["extra_w"]) == ("gpu+cpu+ram", 1500)


@pytest.mark.parametrize(
    ("rows", "nodes", "segments"),
    [
        ([row("n1")], 2, {0}),
        ([row("n1", source="node_meter")], 2, {0}),
        ([row("n1"), row("n2", None)], 2, {0}),
        ([row("n1"), row("n2")], 2, {0, 1}),
    ],
)
def test_a_sum_that_lacks_a_node_or_a_segment_is_unknown(
    rows: list[dict[str, Any]], nodes: int, segments: set[int]
) -> None:
    found = sums_of(rows, nodes, segments)
    assert found["energy_kwh"] is found["difference"] is found["extra_w"] is None
