"""Made results of the paper's whole campaign, in the real formats: 175 finished runs for benchmarks.

Times and energies follow a simple rule with noise, and are called simulated everywhere.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.expand import load_campaign
from scalewatt.campaign.spec import run_spec, spec_sha256, spec_text
from scalewatt.energy.publish import EVENTS_SCHEMA
from scalewatt.energy.tables import (
    CONDITIONS_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    SECOND_OPINIONS_SCHEMA,
    TRACES_SCHEMA,
)
from scalewatt.files import write_json, write_table
from scalewatt.training.history import history_table

ROOT = Path(__file__).parents[1]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SHARES = {
    "startup": 0.01,
    "train": 0.75,
    "evaluate_train": 0.15,
    "validate": 0.08,
    "shutdown": 0.01,
}
WATTS = {"gpu": 240.0, "cpu": 150.0, "ram": 25.0}
DEVICES = {"gpu": 4, "cpu": 2, "ram": 2}


def make(results: Path, traced: set[str]) -> int:
    """Make all runs below `results`, power traces of `traced` configurations; how many there are."""
    cluster = load_cluster(ROOT / "profiles/horeka/cluster.yaml")
    campaign = load_campaign(ROOT / "config.yaml", cluster)
    runs = list(campaign.runs())
    for run in runs:
        spec = run_spec(campaign, run.configuration.id, run.repeat)
        _make_run(results, spec, run.configuration.id in traced)
    return len(runs)


def _make_run(results: Path, spec: dict[str, Any], traced: bool) -> None:
    name, repeat = spec["configuration"], spec["repeat"]
    noise = np.random.default_rng(zlib.crc32(f"{name} {repeat}".encode()))
    per_sample_s = 3e-3 if spec["model"] == "resnet50" else 0.15
    step_s = 0.05 + per_sample_s * spec["local_batch_size"] * (1 + 0.02 * noise.standard_normal())
    seconds = 60 + spec["updates"] * step_s
    folder = results / "runs" / name / str(repeat)
    (folder / "perun").mkdir(parents=True)
    (folder / "spec.json").write_text(spec_text(spec))
    write_table(_events(spec, seconds), folder / "events.parquet")
    write_table(history_table(_epochs(spec, seconds, noise)), folder / "history.parquet")
    metric = "top1_error_percent" if spec["model"] == "resnet50" else "z500_rmse_m2_s2"
    write_json(
        folder / "provenance.json",
        {
            "spec_sha256": spec_sha256(spec),
            "dataset_sha256": "0" * 64,
            "hostnames": [f"n{node}" for node in range(spec["nodes"])],
            "gpus": {f"n{node}": list(range(4)) for node in range(spec["nodes"])},
            "torch_device": "cuda",
            "device_name": f"made {spec['device']}",
            "metric_name": metric,
            "metric_persistence": None,
            "precision_used": "tf32_convolutions",
            "segments": [{"segment": 0, "outcome": "finished"}],
            "packages": {"torch": "2.7.0"},
        },
    )
    # The accounting comes after the run, or Snakemake would do it again.
    table = pa.Table.from_pylist(list(_energy(spec, seconds, noise)), ENERGY_SCHEMA)
    path = results / "energy" / name / f"{repeat}.parquet"
    write_table(table, path)
    beside = {
        "epochs": EPOCHS_SCHEMA,
        "conditions": CONDITIONS_SCHEMA,
        "second-opinions": SECOND_OPINIONS_SCHEMA,
    }
    for word, schema in beside.items():
        write_table(schema.empty_table(), path.with_suffix(f".{word}.parquet"))
    traces = _traces(spec, noise) if traced else TRACES_SCHEMA.empty_table()
    write_table(traces, results / "traces" / name / f"{repeat}.parquet")


def _events(spec: dict[str, Any], seconds: float) -> pa.Table:
    rows, at_s = [], BEGIN.timestamp()
    for stage, share in SHARES.items():
        rows.append({"segment": 0, "stage": stage, "epoch": None, "start_s": at_s})
        at_s += share * seconds
        rows[-1]["end_s"] = at_s
    return pa.Table.from_pylist(rows, EVENTS_SCHEMA)


def _epochs(
    spec: dict[str, Any], seconds: float, noise: np.random.Generator
) -> list[dict[str, Any]]:
    worst, best = (90.0, 25.0) if spec["model"] == "resnet50" else (900.0, 60.0)
    best *= 1 + 0.02 * float(np.log2(spec["global_batch_size"]))
    rows = []
    for epoch in range(spec["epochs"]):
        left = float(np.exp(-4 * epoch / spec["epochs"])) * (1 + 0.01 * noise.standard_normal())
        each_s = seconds / spec["epochs"]
        rows.append(
            {
                **{"epoch": epoch, "segment": 0, "learning_rate": 0.1, "train_metric": None},
                **{"train_loss": 1 + 5 * left, "validation_loss": 1 + 5.5 * left},
                **{"metric": best + (worst - best) * left, "samples": spec["samples_per_epoch"]},
                **{"updates": spec["updates_per_epoch"], "epoch_s": each_s},
                **{"train_s": 0.8 * each_s, "validate_s": 0.1 * each_s, "peak_memory_bytes": 2**33},
                **{f"step_{phase}_s": 0.05 for phase in _PHASES},
            }
        )
    return rows


_PHASES = ("data", "copy", "forward", "backward", "optimizer")


def _energy(spec: dict[str, Any], seconds: float, noise: np.random.Generator) -> Any:
    kinds = [kind for kind in WATTS if not (kind == "ram" and spec["device"] == "h100")]
    for node in range(spec["nodes"]):
        for kind in kinds:
            devices = spec["ranks_per_node"] if kind == "gpu" else DEVICES[kind]
            watts = WATTS[kind] * devices * (1 + 0.02 * noise.standard_normal())
            for stage, share in SHARES.items():
                joules = watts * share * seconds
                yield {
                    **{"configuration": spec["configuration"], "repeat": spec["repeat"]},
                    **{"segment": 0, "node": f"n{node}", "device_kind": kind, "stage": stage},
                    **{"devices": devices, "duration_s": share * seconds, "unrecorded_s": 0.0},
                    **{"energy_j": joules, "recorded_j": joules, "discarded_j": 0.0},
                    **{"energy_origin": "simulated", "coverage": 1.0, "flags": "[]"},
                }


def _traces(spec: dict[str, Any], noise: np.random.Generator) -> pa.Table:
    seconds = 600
    times = [BEGIN + timedelta(seconds=s) for s in range(seconds)]
    parts = []
    for node in range(spec["nodes"]):
        for index in range(spec["ranks_per_node"]):
            watts = np.where(noise.random(seconds) < 0.2, 90.0, 260 + 20 * noise.random(seconds))
            fixed = {
                **{"configuration": spec["configuration"], "repeat": spec["repeat"]},
                **{"segment": 0, "node": f"n{node}", "device_kind": "gpu", "device_index": index},
                **{"stage": "train", "energy_origin": "simulated", "flag": ""},
            }
            rows = [
                {**fixed, "time": t, "power_w": float(w)} for t, w in zip(times, watts, strict=True)
            ]
            rows = [{n: row.get(n) for n in TRACES_SCHEMA.names} for row in rows]
            parts.append(pa.Table.from_pylist(rows, TRACES_SCHEMA))
    return pa.concat_tables(parts)
