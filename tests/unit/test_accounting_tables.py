"""The tables of an account: telemetry, cross-checks, concurrent runs, epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from energy_files import (
    NO_POWERS,
    T0,
    accounted,
    counter,
    gpu,
    make_run,
    record,
    telemetry_block,
    write_journal,
    write_telemetry,
)
from run_files import make_spec

from scalewatt.common.files import write_table
from scalewatt.energies.account import write_energy
from scalewatt.energies.checks import state_flags
from scalewatt.energies.node import MAX_DIFFERENCE, Node
from scalewatt.energies.tables import CROSS_CHECKS_SCHEMA, EPOCHS_SCHEMA, FLAGS_SCHEMA
from scalewatt.recordings.stages import EVENTS_SCHEMA

N = 121
STAGES = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 90.0), (0, "validate", 90.0, 115.0)]
TIMES = np.arange(0.0, N, 5.0)
"""When telemetry are read."""
SPEC = make_spec(ranks_per_node=1)
SCHEMAS = {
    "epochs": EPOCHS_SCHEMA,
    "cross-checks": CROSS_CHECKS_SCHEMA,
    "flags": FLAGS_SCHEMA,
}


def recorded(folder: Path, telemetry: dict[str, Any] | None = None, **provenance: Any) -> Path:
    """A run of 120 s on GPU 0 at 100 W, with GPU 1 at 300 W beside it, and a CPU at 150 W."""
    run = make_run(folder, stages=STAGES, gpus={"n1": [0]}, **provenance)
    noise = np.arange(N) % 7
    gpus = {f"CUDA:{i}_POWER": gpu(N, watts) + noise for i, watts in ((0, 100), (1, 300))}
    record(run, {"n1": gpus | {"cpu_0_package-0": counter(N, 150)}})
    if telemetry:
        rows = {name: np.broadcast_to(values, TIMES.shape) for name, values in telemetry.items()}
        write_telemetry(run / "perun" / "segment-000.n1.csv", "n1", rows, TIMES)
    return run


def tables(run: Path) -> dict[str, pd.DataFrame]:
    """The tables that `write_energy` writes beside a run's energy."""
    (run / "spec.json").write_text(SPEC.text)
    out = run / "energy" / "1.parquet"
    write_energy(run, run / "spec.json", NO_POWERS, run / "traces.parquet", out)
    written = {name: pq.read_table(out.with_suffix(f".{name}.parquet")) for name in SCHEMAS}
    for name, schema in SCHEMAS.items():
        assert written[name].schema.names == schema.names, name
    return {name: table.to_pandas() for name, table in written.items()}


def test_the_seconds_of_a_slowed_down_gpu_are_given_by_reason() -> None:
    reasons = np.where((TIMES >= 20) & (TIMES < 50), 0x20, 0) + np.where(TIMES >= 100, 0x04, 0)
    read = [telemetry_block("throttle_reasons", T0 + TIMES, reasons)]
    node = Node("n1", [], telemetry=read, held=[0], window=(T0, T0 + 120))
    (flag,) = state_flags(node)
    words = "software thermal slowdown 30 s, at its power limit for 22 s of 120 s"
    assert (flag["code"], flag["detail"]) == ("throttled", f"n1: GPU 0: {words}")


# --- cross-checks -------------------------------------------------------------------------------


def test_nvmls_energy_counter_is_compared_with_the_power(tmp_path: Path) -> None:
    watts = 100.003  # mean of the made GPU's power
    written = tables(recorded(tmp_path, {"energy_total": 5e6 + watts * TIMES}))
    (row,) = written["cross-checks"].to_dict("records")
    assert (row["source"], row["device_kind"]) == ("nvml_energy_counter", "gpu")
    assert row["device_index"] == 0 and row["tolerance"] == MAX_DIFFERENCE
    assert row["duration_s"] == 120 and row["energy_j"] == pytest.approx(120 * watts)
    assert abs(row["difference"]) < 1e-3
    assert "disagrees" not in set(written["flags"]["code"])


# --- shared nodes -------------------------------------------------------------------------------


def test_on_a_shared_node_the_energy_of_the_gpus_that_the_run_held_stays_known(
    tmp_path: Path,
) -> None:
    met = np.where((TIMES >= 60) & (TIMES < 90), 1, 0)
    run = accounted(recorded(tmp_path, {"concurrent_samplers": met}), SPEC)
    assert run.totals.joules("gpu") == pytest.approx(120 * 100, rel=1e-4)
    assert run.totals.joules("unused_gpu") == pytest.approx(120 * 300, rel=1e-4)
    assert run.totals.joules("cpu") is None and run.totals.joules() is None
    assert run.totals.joules("cpu", "recorded_j") == pytest.approx(120 * 150)
    details = {flag["detail"] for flag in run.flags("node_shared")}
    assert details and all("30.0 s" in detail for detail in details)


# --- epochs and devices -------------------------------------------------------------------------


def test_epochs_and_what_lies_outside_of_them_add_up_to_the_total(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    events = [
        ("startup", None, 0, 10),
        ("train", 0, 10, 40),
        ("validate", 0, 40, 50),
        ("train", 1, 50, 80),
        ("checkpoint", 2, 80, 81),
    ]
    rows = [
        {"segment": 0, "stage": stage, "epoch": epoch, "start_s": T0 + a, "end_s": T0 + b}
        for stage, epoch, a, b in events
    ]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), run / "events.parquet")
    epochs = tables(run)["epochs"].query("device_kind == 'cpu'")
    seconds = epochs.assign(epoch=epochs["epoch"].fillna(-1)).set_index(["epoch", "stage"])
    assert (seconds["energy_j"] / 150).to_dict() == pytest.approx(
        {
            **{(-1, "startup"): 10, (-1, "unattributed"): 39, (0, "train"): 30},
            **{(0, "validate"): 10, (1, "train"): 30, (2, "checkpoint"): 1},
        }
    )
    assert set(epochs["energy_origin"]) == {"measured"}
    assert epochs["node_s"].sum() == pytest.approx(120)


def test_held_gpus_are_identified_by_uuid_before_index(tmp_path: Path) -> None:
    run = make_run(tmp_path, stages=STAGES, gpus={"n1": [0]}, gpu_uuids={"n1": ["GPU-b"]})
    sensors = {"CUDA:0_POWER": gpu(N, 100), "CUDA:1_POWER": gpu(N, 200)}
    facts = {
        name: {"kind": "gpu", "unit": "W", "mag": 1e-3, "index": i, "uuid": f"GPU-{'ab'[i]}"}
        for i, name in enumerate(sensors)
    }
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", sensors, facts=facts)
    totals = accounted(run, SPEC).totals
    assert totals.joules("gpu") == pytest.approx(120 * 200)
    assert totals.joules("unused_gpu") == pytest.approx(120 * 100)
