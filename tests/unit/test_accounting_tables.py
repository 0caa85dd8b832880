"""The tables of an account: telemetry, cross-checks, concurrent runs, epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from energy_files import (
    T0,
    accounted,
    counter,
    gpu,
    make_run,
    telemetry_block,
    write_journal,
)
from energy_files import write_telemetry as write_recorded
from run_files import make_spec

from scalewatt.common.files import write_json
from scalewatt.energies.account import write_energy
from scalewatt.energies.checks import MAX_DIFFERENCE, state_flags
from scalewatt.energies.tables import (
    CROSS_CHECKS_SCHEMA,
    EPOCHS_SCHEMA,
    FLAGS_SCHEMA,
    TELEMETRY_SCHEMA,
)

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
N = 121
STAGES = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 90.0), (0, "validate", 90.0, 115.0)]
TIMES = np.arange(0.0, N, 5.0)
"""When telemetry are read."""


def write_telemetry(folder: Path, values: dict[str, Any], node: str = "n1") -> None:
    """Write readings every 5 s: of each quantity the raw values of GPU 0 or of the node."""
    rows = {q: np.broadcast_to(v, TIMES.shape) for q, v in values.items()}
    write_recorded(folder / "perun" / f"segment-000.{node}.csv", node, rows, TIMES)


def recorded(folder: Path, telemetry: dict[str, Any], **sensors: Any) -> Path:
    """A run of 120 s on one GPU at 100 W, one CPU at 150 W."""
    run = make_run(folder, stages=STAGES, gpus={"n1": [0]})
    node = {"CUDA:0_POWER": gpu(N, 100) + np.arange(N) % 7, "cpu_0_package-0": counter(N, 150)}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", node | sensors)
    if telemetry:
        write_telemetry(run, telemetry)
    return run


def tables(run: Path, powers: dict[str, Any] | None = None) -> dict[str, list[dict[str, Any]]]:
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    out = run / "energy" / "1.parquet"
    write_energy(run, run / "spec.json", powers or NO_POWERS, run / "traces.parquet", out)
    names = ("epochs", "telemetry", "cross-checks", "flags")
    found = {name: pq.read_table(out.with_suffix(f".{name}.parquet")) for name in names}
    schemas = (EPOCHS_SCHEMA, TELEMETRY_SCHEMA, CROSS_CHECKS_SCHEMA, FLAGS_SCHEMA)
    for (name, table), schema in zip(found.items(), schemas, strict=True):
        assert table.schema.names == schema.names, name
    rows = {name: table.to_pylist() for name, table in found.items()}
    return rows | {"energy": pq.read_table(out).to_pylist()}


def energy_flags(rows: list[dict[str, Any]], kind: str = "gpu") -> set[str]:
    return {row["code"] for row in rows if row["device_kind"] in (kind, None)}


# --- throttling ---------------------------------------------------------------------------------


def test_the_seconds_of_a_slowed_down_gpu_are_given_by_reason() -> None:
    reasons = np.where((TIMES >= 20) & (TIMES < 50), 0x20, 0) + np.where(TIMES >= 100, 0x04, 0)
    throttled, capped = state_flags(
        [telemetry_block("throttle_reasons", T0 + TIMES, reasons)], [0], (T0, T0 + 120)
    )
    assert (throttled["code"], capped["code"]) == ("throttled", "power_capped")
    assert "software thermal slowdown 30 s of 120 s" in throttled["detail"]
    assert "at its power limit for 22 s of 120 s" in capped["detail"]


# --- cross-checks -------------------------------------------------------------------------------

TRUE_W = 100.003
"""Mean of the made GPU's power."""


def cross_check(tmp_path: Path, telemetry: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    rows = tables(recorded(tmp_path, telemetry))
    (row,) = rows["cross-checks"]
    return row, energy_flags(rows["flags"])


def test_nvmls_energy_counter_is_compared_with_the_power(tmp_path: Path) -> None:
    row, flags = cross_check(tmp_path, {"energy_total": 5e6 + TRUE_W * TIMES})
    assert (row["source"], row["device_kind"], row["device_index"]) == (
        "nvml_energy_counter",
        "gpu",
        0,
    )
    assert row["duration_s"] == 120 and row["energy_j"] == pytest.approx(120 * TRUE_W)
    assert abs(row["difference"]) < 1e-3 and row["tolerance"] == MAX_DIFFERENCE
    assert "disagrees" not in flags


@pytest.mark.parametrize(("joules", "flagged"), [(120 * 250.0, False), (120 * 400.0, True)])
def test_slurms_energy_is_compared_with_the_segment(
    tmp_path: Path, joules: float, flagged: bool
) -> None:
    run = recorded(tmp_path, {})
    slurm = {"job": "1", "step": "0", "consumed_energy_j": joules, "elapsed_s": 125, "nodes": 1}
    write_json(run / "perun" / "segment-000.slurm-energy.json", slurm)
    rows = tables(run)
    (row,) = rows["cross-checks"]
    assert (row["node"], row["source"]) == (None, "slurm_consumed_energy")
    assert row["recorded_j"] == pytest.approx(120 * 250, rel=0.01)
    assert ("disagrees" in energy_flags(rows["flags"], "cpu")) == flagged


# --- shared nodes -------------------------------------------------------------------------------


def test_on_a_shared_node_the_energy_of_the_gpus_that_the_run_held_stays_known(
    tmp_path: Path,
) -> None:
    met = np.where((TIMES >= 60) & (TIMES < 90), 1, 0)
    others = {"CUDA:1_POWER": gpu(N, 300) + np.arange(N) % 7}
    run = recorded(tmp_path, {"concurrent_samplers": met}, **others)
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    totals = found.totals
    assert totals.joules("gpu") == pytest.approx(120 * 100, rel=1e-4)
    assert totals.joules("unused_gpu") == pytest.approx(120 * 300, rel=1e-4)
    assert totals.joules("cpu") is None and totals.total_j is None
    assert totals.joules("cpu", "recorded_j") == pytest.approx(120 * 150)
    details = {f["detail"] for f in found.flags("node_shared")}
    assert details and all("30.0 s" in detail for detail in details)


@pytest.mark.parametrize(("gpus", "known"), [([1, 2], True), ([0, 1], False), (None, False)])
def test_a_gpu_that_two_registered_runs_held_at_once_is_the_energy_of_neither(
    tmp_path: Path, gpus: list[int] | None, known: bool
) -> None:
    run = recorded(tmp_path, {})
    other = {"host": "n1", "run": "x", "gpus": gpus, "start_s": T0 + 50, "end_s": T0 + 70}
    facts = {"hostnames": ["n1"], "gpus": {"n1": [0]}, "concurrent_runs": [other]}
    write_json(run / "provenance.json", facts)
    totals = accounted(run, make_spec(ranks_per_node=1), NO_POWERS).totals
    assert (totals.joules("gpu") is not None) == known
    assert totals.joules("cpu") is None


def test_concurrent_runs_noted_at_registration_count_where_they_overlap(tmp_path: Path) -> None:
    for name, host, start, shared in (
        ("a", "n1", 50, True),
        ("b", "n2", 50, False),
        ("c", "n1", 500, False),
    ):
        run = recorded(tmp_path / name, {})
        other = {"host": host, "run": "x", "start_s": T0 + start, "end_s": T0 + start + 20}
        write_json(
            run / "provenance.json",
            {"hostnames": ["n1"], "gpus": {"n1": [0]}, "concurrent_runs": [other]},
        )
        found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
        totals = found.totals
        assert (totals.joules("cpu") is None) == shared, name
        assert ("node_shared" in found.codes()) == shared, name


# --- estimates from the load of GPUs ------------------------------------------------------------


# --- epochs -------------------------------------------------------------------------------------


def test_epochs_and_what_lies_outside_of_them_add_up_to_the_total(tmp_path: Path) -> None:
    import pyarrow as pa

    from scalewatt.common.files import write_table
    from scalewatt.recordings.stages import EVENTS_SCHEMA

    run = recorded(tmp_path, {})
    events = [
        (0, "startup", None, 0, 10),
        (0, "train", 0, 10, 40),
        (0, "validate", 0, 40, 50),
        (0, "train", 1, 50, 80),
        (0, "checkpoint", 2, 80, 81),
    ]
    rows = [
        {"segment": s, "stage": stage, "epoch": epoch, "start_s": T0 + a, "end_s": T0 + b}
        for s, stage, epoch, a, b in events
    ]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), run / "events.parquet")
    found = [r for r in tables(run)["epochs"] if r["device_kind"] == "cpu"]
    energies = {(r["epoch"], r["stage"]): r["energy_j"] / 150 for r in found}
    assert energies == pytest.approx(
        {
            (None, "startup"): 10,
            (None, "unattributed"): 39,
            (0, "train"): 30,
            (0, "validate"): 10,
            (1, "train"): 30,
            (2, "checkpoint"): 1,
        }
    )
    assert {r["energy_origin"] for r in found} == {"measured"}
    assert sum(r["node_s"] for r in found) == pytest.approx(120)


def test_held_gpus_are_identified_by_uuid_before_index(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, stages=STAGES, gpus={"n1": [0]}, gpu_uuids={"n1": ["GPU-b"]}, segments=[]
    )
    sensors = {"CUDA:0_POWER": gpu(N, 100), "CUDA:1_POWER": gpu(N, 200)}
    same = {"kind": "gpu", "unit": "W", "mag": 1e-3}
    uuids = zip(sensors, ("GPU-a", "GPU-b"), strict=True)
    facts = {name: {**same, "index": i, "uuid": u} for i, (name, u) in enumerate(uuids)}
    path = run / "perun" / "segment-000.n1.csv"
    write_journal(path, "n1", sensors, facts=facts)
    found = accounted(run, make_spec(ranks_per_node=1), NO_POWERS)
    totals = found.totals
    assert totals.joules("gpu") == pytest.approx(120 * 200)
    assert totals.joules("unused_gpu") == pytest.approx(120 * 100)
