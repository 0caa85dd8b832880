"""Small made run folders, in the layout of a finished run, and rows made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import write_json, write_table
from scalewatt.energies import traces as energy_traces
from scalewatt.energies.stages import STAGES
from scalewatt.energies.tables import BOUNDS, DEVICES_SCHEMA, ENERGY_SCHEMA, FLAGS_SCHEMA
from scalewatt.recordings.block import sensor_frame
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.run_row import RunFiles, read_runs, write_row
from scalewatt.training.history import history_table

NAME = "resnet50-local-n002-lbs0064-full"


def make_spec(**changes: Any) -> RunSpec:
    """The spec of a run of two ranks on one node, 4 epochs of 12 updates."""
    content: dict[str, Any] = {
        "configuration": NAME,
        "repeat": 1,
        "model": "resnet50",
        "phase": "train",
        "device": "local",
        "gpus": 2,
        "nodes": 1,
        "ranks_per_node": 2,
        "local_batch_size": 64,
        "global_batch_size": 128,
        "dataset": {"name": "scans", "format": "imagenet"},
        "dataset_fraction": "1",
        "dataset_samples": 1437,
        "validation_samples": 360,
        "protocol": "corrected",
        "epochs": 4,
        "seed": 0,
        "sampling_period_s": 1,
        "settings": {
            "precision": "torch_default",
            "loader": "pil",
            "channels_last": False,
            "compile": False,
        },
        "initial_weights": None,
    } | changes
    return RunSpec(**content)


def epochs(metrics: list[float | None], **changes: Any) -> list[dict[str, Any]]:
    """Rows of a history, one per metric."""
    return [
        {
            "epoch": epoch,
            "segment": 0,
            "train_loss": 2.0 - epoch / 10,
            "validation_loss": 3.0 - epoch / 10,
            "metric": metric,
            "train_metric": None,
            "learning_rate": 0.1,
            "samples": 1436,
            "updates": 12,
            "epoch_s": 9.0,
            "train_s": 8.0,
            "validate_s": 1.0,
            "step_data_s": 0.1,
            "step_copy_s": 0.02,
            "step_forward_s": 0.1,
            "step_backward_s": 0.15,
            "step_optimizer_s": 0.03,
            "peak_memory_bytes": 2**30,
        }
        | changes
        for epoch, metric in enumerate(metrics)
    ]


def part(
    kind: str,
    stage: str,
    duration_s: float,
    energy_j: float | None,
    *,
    segment: int = 0,
    node: str = "n1",
    devices: int = 1,
    origin: str | None = "measured",
    coverage: float | None = 1.0,
    discarded_j: float = 0.0,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A row of an energy table."""
    return {
        "configuration": NAME,
        "repeat": 1,
        "segment": segment,
        "node": node,
        "device_kind": kind,
        "devices": devices,
        "stage": stage,
        "duration_s": duration_s,
        "unrecorded_s": 0.0,
        "energy_j": energy_j,
        **dict.fromkeys(BOUNDS, None if origin == "estimated" else energy_j),
        "recorded_j": energy_j,
        **dict.fromkeys(BOUNDS, None if origin == "estimated" else energy_j),
        "discarded_j": None if energy_j is None else discarded_j,
        "energy_origin": origin,
        "coverage": coverage,
        "short": "stage_short" in flags,
        "flags": flags,
    }


def absent(kind: str, stage: str, duration_s: float, **more: Any) -> dict[str, Any]:
    """A row of a kind that the node has no sensor of."""
    return part(
        kind,
        stage,
        duration_s,
        None,
        origin=None,
        coverage=None,
        devices=0,
        flags=("absent",),
        **more,
    )


def make_run(
    results: Path,
    energy: list[dict[str, Any]],
    *,
    spec: RunSpec | None = None,
    history: list[dict[str, Any]] | None = None,
    **provenance: Any,
) -> RunFiles:
    """Write the files of one run that its row is made from."""
    spec = spec or make_spec()
    files = RunFiles(results, spec.configuration, spec.repeat)
    files.folder.mkdir(parents=True)
    (files.folder / "spec.json").write_text(spec.text + "\n")
    rows = history or epochs([40.0, 30.0, 20.0, 25.0])
    write_table(history_table(rows), files.folder / "history.parquet")
    write_energy(files.energy, energy)
    write_json(
        files.folder / "provenance.json",
        {
            "spec_sha256": spec.sha256,
            "hostnames": ["n1"],
            "torch_device": "cuda",
            "device_name": "NVIDIA A100",
            "metric_name": "top1_error_percent",
            "metric_persistence": None,
            "precision_used": "tf32_convolutions",
            "segments": [{"segment": 0, "outcome": "finished"}],
        }
        | provenance,
    )
    write_row(files)
    return files


def write_energy(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the energy table of these rows of `part`, and that of their flags."""
    write_table(pa.Table.from_pylist(rows, ENERGY_SCHEMA), path)
    flags = [
        {
            **{name: row[name] for name in ("configuration", "repeat", "segment", "node")},
            **{"device_kind": row["device_kind"], "code": code, "detail": code},
            "stage": row["stage"] if code == "stage_short" else None,
        }
        for row in rows
        for code in row.get("flags", ())
    ]
    write_table(pa.Table.from_pylist(flags, FLAGS_SCHEMA), path.with_suffix(".flags.parquet"))


def row_of(
    results: Path, energy: list[dict[str, Any]], facility: Facility | None = None, **more: Any
) -> dict[str, Any]:
    """The row of a run with these energies."""
    return run_row(make_run(results, energy, **more), "made", facility)


def run_row(files: RunFiles, campaign: str = "made", *more: Any) -> dict[str, Any]:
    """Write a run's row, and read it as the only one of its table."""
    write_row(files)
    (row,) = records(
        read_runs(files.results, [(files.configuration, files.repeat)], campaign, *more)
    )
    return row


WHOLE = [
    part("gpu", "train", 3000, 900_000, devices=2),
    part("gpu", "validate", 600, 108_000, devices=2),
    part("cpu", "train", 3000, 450_000, devices=2),
    part("cpu", "validate", 600, 90_000, devices=2),
    part("ram", "train", 3000, 60_000),
    part("ram", "validate", 600, 12_000),
]
"""One hour on one node with two GPUs and two sockets: 1 620 000 J = 0.45 kWh."""


def trace(
    node: str, kind: str, index: int, second: float, power_w: float | None, stage: str = "train"
) -> dict[str, Any]:
    """A row of a run's traces; times count from 2026-01-01."""
    return {
        "segment": 0,
        "time": 1_767_225_600_000_000 + round(second * 1e6),
        "node": node,
        "device_kind": kind,
        "device_index": index,
        "uuid": None,
        "power_w": power_w,
        "quantity": "instantaneous" if kind == "gpu" else "mean",
        "energy_origin": "measured",
        "stage": stage,
    }


def device(**values: Any) -> dict[str, Any]:
    """A row of a run's table of devices."""
    return {"configuration": NAME, "repeat": 1, "covered_s": 1.0} | values


def write_traces(files: RunFiles, rows: list[dict[str, Any]]) -> None:
    """Write a run's traces, and the energy of its devices: a second of each known sample, none of others."""
    keys = ("segment", "node", "device_kind", "device_index")
    devices: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        devices.setdefault(tuple(row[key] for key in keys), []).append(row)
    with energy_traces.write_traces(files.traces) as traces:
        for (segment, node, kind, index), of_device in devices.items():
            first = of_device[0]
            quantity = "mean_power" if first["quantity"] == "mean" else "power"
            sensor = {"name": "made", "kind": kind, "index": index, "quantity": quantity}
            sensor |= {"origin": first["energy_origin"], "samples": first["quantity"] or ""}
            traces.add(
                segment,
                node,
                np.array([row["time"] for row in of_device]) / 1e6,
                [np.array([row["power_w"] for row in of_device], np.float64)],
                sensor_frame([sensor]),
                np.array([STAGES.index(row["stage"]) for row in of_device], np.int8),
            )
    names = ("segment", "node", "device_kind", "device_index", "stage", "energy_origin")
    energies = [
        device(
            **{name: row[name] for name in names},
            recorded_j=row["power_w"] or 0.0,
            covered_s=float(row["power_w"] is not None),
        )
        for row in rows
    ]
    write_table(pa.Table.from_pylist(energies, DEVICES_SCHEMA), files.devices)
