"""Made results of the paper's whole campaign, in the real formats: 175 finished runs for benchmarks.

Times and energies follow a simple rule with noise, and are called simulated everywhere. What the scaling
model simulates would not do: these have idle probes and power traces as long as a benchmark wants, and are
made in seconds, without an accounting that takes longer than what is measured.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import write_json, write_table, write_table_with_csv
from scalewatt.energies.accounting.energy_schema import (
    CROSS_CHECKS_SCHEMA,
    DEVICES_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    FLAGS_SCHEMA,
    TELEMETRY_SCHEMA,
    TRACES_SCHEMA,
    Accounts,
)
from scalewatt.recordings.stage_files import EVENTS_SCHEMA
from scalewatt.results.tables.idle import IDLE
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
OF_EPOCHS = ("train", "evaluate_train", "validate")
"""The stages that each epoch goes through; the others come before and after all of them."""
WATTS = {"gpu": 240.0, "cpu": 150.0, "ram": 25.0}
IDLE_WATTS = {"gpu": 55.0, "cpu": 70.0, "ram": 12.0}
DEVICES = {"gpu": 4, "cpu": 2, "ram": 2}
LEAST_SAMPLES = 1_000_000
"""Of a traced run: a sample a second of every device, and more where that is less than this."""


def make(results: Path, traced: set[str], campaign_file: Path = ROOT / "config.yaml") -> int:
    """Make all runs below `results`, power traces of `traced` configurations, and what idle probes
    leave; how many runs there are. The campaign that draws it needs the key idle_probe."""
    cluster = load_cluster(ROOT / "profiles/horeka/cluster.yaml")
    campaign = load_campaign(campaign_file, cluster)
    runs = list(campaign.runs())
    for run in runs:
        spec = run_spec(campaign, run.configuration.id, run.repeat)
        _make_run(results, spec, run.configuration.id in traced)
    _make_idle(results, sorted(campaign.devices()))
    return len(runs)


def _make_idle(results: Path, devices: list[str]) -> None:
    """A finished probe of each device, and after these their table, which is not to be made again."""
    for device in devices:
        (results / "idle" / device / "1" / "perun").mkdir(parents=True)
        write_json(results / "idle" / device / "1" / "probe.json", {})
    rows = []
    for device in devices:
        write_json(results / "idle" / f"{device}.json", {})
        for kind in _kinds(device):
            each = dict.fromkeys(IDLE.names) | {"campaign": results.name, "device": device}
            each |= {"device_kind": kind, "devices": DEVICES[kind], "repeats": 1}
            each |= {"mean_w": IDLE_WATTS[kind] * DEVICES[kind], "energy_origin": "simulated"}
            each |= {"mean_per_device_w": IDLE_WATTS[kind], "coverage": 1.0, "flags": "[]"}
            rows.append(each)
    write_table_with_csv(pa.Table.from_pylist(rows, IDLE), results / "tables" / "idle.parquet")


def _kinds(device: str) -> list[str]:
    return [kind for kind in WATTS if not (kind == "ram" and device == "h100")]


def _make_run(results: Path, spec: RunSpec, traced: bool) -> None:
    name, repeat = spec.configuration, spec.repeat
    noise = np.random.default_rng(zlib.crc32(f"{name} {repeat}".encode()))
    per_sample_s = 3e-3 if spec.model == "resnet50" else 0.15
    step_s = 0.05 + per_sample_s * spec.local_batch_size * (1 + 0.02 * noise.standard_normal())
    seconds = 60 + spec.updates * step_s
    folder = results / "runs" / name / str(repeat)
    (folder / "perun").mkdir(parents=True)
    (folder / "spec.json").write_text(spec.text)
    write_table(_events(spec, seconds), folder / "events.parquet")
    write_table(history_table(_epochs(spec, seconds, noise)), folder / "history.parquet")
    metric = "top1_error_percent" if spec.model == "resnet50" else "z500_rmse_m2_s2"
    write_json(
        folder / "provenance.json",
        {
            "spec_sha256": spec.sha256,
            "dataset_sha256": "0" * 64,
            "hostnames": [f"n{node}" for node in range(spec.nodes)],
            "gpus": {f"n{node}": list(range(4)) for node in range(spec.nodes)},
            "torch_device": "cuda",
            "device_name": f"made {spec.device}",
            "metric_name": metric,
            "metric_persistence": None,
            "precision_used": "tf32_convolutions",
            "segments": [{"segment": 0, "outcome": "finished"}],
            "packages": {"torch": "2.7.0"},
        },
    )
    # The accounting comes after the run, or Snakemake would do it again.
    energy = list(_energy(spec, seconds, noise))
    path = results / "energy" / name / f"{repeat}.parquet"
    Accounts(
        energy=pa.Table.from_pylist(energy, ENERGY_SCHEMA),
        epochs=pa.Table.from_pylist(_epoch_energy(spec, energy), EPOCHS_SCHEMA),
        devices=pa.Table.from_pylist(list(_device_energy(energy)), DEVICES_SCHEMA),
        flags=FLAGS_SCHEMA.empty_table(),
        telemetry=TELEMETRY_SCHEMA.empty_table(),
        cross_checks=CROSS_CHECKS_SCHEMA.empty_table(),
    ).write(path)
    if traced:
        _write_traces(results / "traces" / name / f"{repeat}.parquet", spec, seconds, noise)
    else:
        write_table(TRACES_SCHEMA.empty_table(), results / "traces" / name / f"{repeat}.parquet")


def _stages(spec: RunSpec) -> list[tuple[str, int | None, float]]:
    """Stage, epoch and share of the run's time, in order."""
    found: list[tuple[str, int | None, float]] = [("startup", None, SHARES["startup"])]
    for epoch in range(spec.epochs):
        found += [(stage, epoch, SHARES[stage] / spec.epochs) for stage in OF_EPOCHS]
    return [*found, ("shutdown", None, SHARES["shutdown"])]


def _events(spec: RunSpec, seconds: float) -> pa.Table:
    rows, at_s = [], BEGIN.timestamp()
    for stage, epoch, share in _stages(spec):
        rows.append({"segment": 0, "stage": stage, "epoch": epoch, "start_s": at_s})
        at_s += share * seconds
        rows[-1]["end_s"] = at_s
    return pa.Table.from_pylist(rows, EVENTS_SCHEMA)


def _epoch_energy(spec: RunSpec, energy: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The energy's rows by epoch, over all nodes."""
    kinds = list(dict.fromkeys(row["device_kind"] for row in energy))
    rows = []
    for stage, epoch, share in _stages(spec):
        for kind in kinds:
            own = [r for r in energy if (r["device_kind"], r["stage"]) == (kind, stage)]
            part = share / SHARES[stage]
            rows.append(
                {
                    **{"configuration": spec.configuration, "repeat": spec.repeat},
                    **{"epoch": epoch, "stage": stage, "device_kind": kind},
                    "node_s": part * sum(row["duration_s"] for row in own),
                    "energy_j": part * sum(row["energy_j"] for row in own),
                    "energy_origin": "simulated",
                }
            )
    return rows


def _device_energy(energy: list[dict[str, Any]]) -> Any:
    """The energy's rows by device: each has an equal part."""
    for row in energy:
        joules = row["energy_j"] / row["devices"]
        for index in range(row["devices"]):
            yield {
                **row,
                **{"device_index": index, "sensor": f"{row['device_kind']}_{index}"},
                **{"energy_j": joules, "recorded_j": joules, "covered_s": row["duration_s"]},
                **{"mean_power_w": joules / row["duration_s"], "samples": 0},
            }


def _epochs(spec: RunSpec, seconds: float, noise: np.random.Generator) -> list[dict[str, Any]]:
    worst, best = (90.0, 25.0) if spec.model == "resnet50" else (900.0, 60.0)
    best *= 1 + 0.02 * float(np.log2(spec.global_batch_size))
    rows = []
    for epoch in range(spec.epochs):
        left = float(np.exp(-4 * epoch / spec.epochs)) * (1 + 0.01 * noise.standard_normal())
        each_s = seconds / spec.epochs
        rows.append(
            {
                **{"epoch": epoch, "segment": 0, "learning_rate": 0.1, "train_metric": None},
                **{"train_loss": 1 + 5 * left, "validation_loss": 1 + 5.5 * left},
                **{"metric": best + (worst - best) * left, "samples": spec.samples_per_epoch},
                **{"updates": spec.updates_per_epoch, "epoch_s": each_s},
                **{"train_s": 0.8 * each_s, "validate_s": 0.1 * each_s, "peak_memory_bytes": 2**33},
                **{f"step_{phase}_s": 0.05 for phase in _PHASES},
            }
        )
    return rows


_PHASES = ("data", "copy", "forward", "backward", "optimizer")


def _energy(spec: RunSpec, seconds: float, noise: np.random.Generator) -> Any:
    for node in range(spec.nodes):
        for kind in _kinds(spec.device):
            devices = spec.ranks_per_node if kind == "gpu" else DEVICES[kind]
            watts = WATTS[kind] * devices * (1 + 0.02 * noise.standard_normal())
            for stage, share in SHARES.items():
                joules = watts * share * seconds
                yield {
                    **{"configuration": spec.configuration, "repeat": spec.repeat},
                    **{"segment": 0, "node": f"n{node}", "device_kind": kind, "stage": stage},
                    **{"devices": devices, "duration_s": share * seconds, "unrecorded_s": 0.0},
                    **{"energy_j": joules, "recorded_j": joules, "discarded_j": 0.0},
                    **{"energy_origin": "simulated", "coverage": 1.0, "short": False},
                }


def _write_traces(path: Path, spec: RunSpec, seconds: float, noise: np.random.Generator) -> None:
    """A sample a second of all devices over the whole run, oftener where that is too few."""
    devices = [
        (node, kind, index)
        for node in range(spec.nodes)
        for kind in sorted(_kinds(spec.device))
        for index in range(spec.ranks_per_node if kind == "gpu" else DEVICES[kind])
    ]
    count = max(int(seconds), LEAST_SAMPLES // len(devices))
    at = np.arange(count) * seconds / count
    times = pa.array((BEGIN.timestamp() * 1e6 + at * 1e6).astype(np.int64))
    shares = _stages(spec)
    ends = np.cumsum([share for *_, share in shares]) * seconds
    names = list(SHARES)
    codes = np.array([names.index(stage) for stage, *_ in shares])
    stages = pa.array(codes[np.minimum(np.searchsorted(ends, at), len(ends) - 1)], pa.int8())

    def word(text: str, codes: pa.DataType) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count), codes), pa.array([text]))

    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, TRACES_SCHEMA, compression="zstd") as writer:
        for node, kind, index in devices:
            low = noise.random(count) < 0.2
            watts = np.where(low, 0.4, 1.0 + 0.1 * noise.random(count)) * WATTS[kind]
            columns = {
                "segment": pa.array(np.zeros(count), pa.int32()),
                "time": times.cast(pa.timestamp("us", "UTC")),
                "node": word(f"n{node}", pa.int16()),
                "device_kind": word(kind, pa.int8()),
                "device_index": pa.array(np.full(count, index), pa.int16()),
                "uuid": pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int16()), pa.array([""])),
                "power_w": pa.array(watts, pa.float32()),
                "quantity": word("instantaneous" if kind == "gpu" else "mean", pa.int8()),
                "energy_origin": word("simulated", pa.int8()),
                "stage": pa.DictionaryArray.from_arrays(stages, pa.array(names)),
                "flag": word("", pa.int8()),
            }
            writer.write_table(pa.table(columns, schema=TRACES_SCHEMA))
