"""Write a simulated run's folder: the files that a training would publish."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json, write_table, write_text
from scalewatt.common.project_files import project_path
from scalewatt.common.redaction import Redaction
from scalewatt.provenance.versions import made_with, package_versions
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.predict import warnings_of
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.learning_curves import curve, final_metric
from scalewatt.scaling.simulation.simulated_run import Simulation, simulation
from scalewatt.scaling.simulation.stage_schedule import Segment
from scalewatt.scaling.simulation.write_recording import Recorder
from scalewatt.training.history import history_table

_UNDER_WAY = ".simulating"
"""Is there while a folder is written: what a simulation that was broken off left is made anew."""


def simulate_run(
    spec_path: Path, out: Path, cluster: Cluster, model_path: Path, is_scaled: bool = True
) -> None:
    """Write the run folder of a spec as a training would leave it.

    `is_scaled` as of `simulation`. InputError if the model does not know the run's kind, or the
    folder holds what was measured.
    """
    check_replaceable(out)
    spec = read_spec(spec_path)
    model = read_model(model_path).of(kind_of_spec(spec))
    write_run(simulation(spec, cluster, model, is_scaled), out, model_path)


def write_run(one: Simulation, out: Path, model_path: Path) -> None:
    """Write the files of a simulated run; the provenance comes last."""
    recordings = out / "perun"
    out.mkdir(parents=True, exist_ok=True)
    (out / _UNDER_WAY).touch()
    (out / "provenance.json").unlink(missing_ok=True)
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir(parents=True)
    for segment in one.segments:
        nodes = one.nodes
        started_s, period_s = one.started_s(segment), nodes.periods.usual_s
        place = Recorder(recordings, segment.number, started_s, period_s, one.spec.ranks_per_node)
        place.write(nodes.sampled(segment))
    write_table(history_table(_history(one)), out / "history.parquet")
    write_table(pa.Table.from_pylist(list(_events(one)), EVENTS_SCHEMA), out / "events.parquet")
    write_text(out / "train.log", _log(one, model_path))
    write_json(out / "provenance.json", _provenance(one, model_path))
    (out / _UNDER_WAY).unlink()


def check_replaceable(folder: Path) -> None:
    """Raise InputError if a run folder holds more than its spec and what a simulation has written."""
    if (folder / _UNDER_WAY).exists() or not folder.exists():
        return
    provenance = folder / "provenance.json"
    stored = read_json(provenance) if provenance.exists() else {}
    is_simulated = isinstance(stored, dict) and stored.get("simulated")
    if not folder.is_dir() or not (is_simulated or {*os.listdir(folder)} <= {"spec.json"}):
        raise InputError(
            f"{folder}: holds what is not known to be simulated; expected an empty folder (--out)"
        )


def _events(one: Simulation) -> Iterator[dict[str, Any]]:
    for segment in one.segments:
        started_s = one.started_s(segment)
        for stage in segment.stages:
            yield {
                "segment": segment.number,
                "stage": stage.name,
                "epoch": stage.epoch,
                "start_s": started_s + stage.start_s,
                "end_s": started_s + stage.end_s,
            }


def _history(one: Simulation) -> list[dict[str, Any]]:
    """Return one row per epoch; null if a simulation has no value."""
    spec = one.spec
    names = ("train", *EVALUATIONS)
    seconds = [dict.fromkeys(names, 0.0) for _ in range(spec.epochs)]
    ended = [0] * spec.epochs
    for segment in one.segments:
        begin_s, end_s = one.discarded(segment)
        for stage in segment.stages:
            if stage.name not in names or stage.epoch is None:
                continue
            if begin_s <= stage.start_s < end_s:  # a later segment does it again
                continue
            seconds[stage.epoch][stage.name] += stage.seconds
            ended[stage.epoch] = segment.number
    metrics = curve(spec, one.draw)
    samples = spec.samples_per_epoch
    assert samples is not None  # drawing the run has refused one whose samples are not known
    return [
        {
            "epoch": epoch,
            "segment": ended[epoch],
            "metric": float(metrics[epoch]),
            "samples": samples,
            "updates": spec.updates_per_epoch,
            "epoch_s": sum(own.values()),
            **{f"{name}_s": own[name] for name in names},
            "throughput_samples_per_s": samples / own["train"],
        }
        for epoch, own in enumerate(seconds)
    ]


def _log(one: Simulation, model_path: Path) -> str:
    spec = one.spec
    lines = [
        f"{spec.name}: simulated with {project_path(model_path)}, not trained",
        *(
            f"segment {segment.number}: {segment.seconds:.0f} s, {segment.outcome}"
            + (" at the wall limit" if segment.outcome == "stopped" else "")
            for segment in one.segments
        ),
    ]
    return "\n".join(lines) + "\n"


def _provenance(one: Simulation, model_path: Path) -> dict[str, Any]:
    spec, nodes = one.spec, one.nodes
    final = final_metric(spec)
    held = {host: list(range(nodes.held_gpus)) for host in nodes.hosts}
    uuids = {host: nodes.uuids(host)[: nodes.held_gpus] for host in nodes.hosts}
    return {
        "spec_sha256": spec.sha256,
        "dataset_sha256": None,
        "hostnames": nodes.hosts,
        "gpus": held if nodes.held_gpus else None,
        "gpu_uuids": uuids if nodes.held_gpus else None,
        "torch_device": "cuda" if nodes.held_gpus else "cpu",
        "device_name": f"{spec.device} (simulated)",
        "packages_of": "the simulator",
        "packages": package_versions(("scalewatt", "numpy", "h5py")),
        **made_with(),
        **dict.fromkeys(("nodes", "software", "perun", "environment_variables")),
        "precision_used": None,
        "metric_name": final.name,
        "metric_goal": spec.settings.get("metric_goal") or "min",
        "metric_persistence": None,
        "metric_climatology": None,
        "parameters": None,
        "segments": [_segment(one, segment) for segment in one.segments],
        "simulated": {
            "model": Redaction.of(os.environ).text(str(project_path(model_path))),
            "model_sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
            "kind": one.model.kind.name,
            "assumed": one.model.assumed,
            "calibrated": one.calibrated,
            "warnings": warnings_of(one.model, load_of_spec(spec)),
            "seed": one.draw.seed,
            "sampling_period_s": nodes.periods.usual_s,
            "fine_start_s": nodes.periods.until_s,
            "spec_sampling_period_s": spec.sampling_period_s,
            "metric": final.as_json(),
        },
    }


def _segment(one: Simulation, segment: Segment) -> dict[str, Any]:
    nodes, started_s = one.nodes, one.started_s(segment)
    each = one.spec.ranks_per_node
    places = [(host, index) for host in nodes.hosts for index in range(each)]
    uuids = {host: nodes.uuids(host) for host in nodes.hosts} if nodes.held_gpus else {}
    return {
        "segment": segment.number,
        "started_s": started_s,
        "ended_s": started_s + segment.seconds,
        "outcome": segment.outcome,
        "job": None,
        "code": None,
        "ranks": [
            {
                "rank": rank,
                "host": host,
                "gpu": index if uuids else None,
                "gpu_uuid": uuids[host][index] if uuids else None,
            }
            for rank, (host, index) in enumerate(places)
        ],
    }
