"""Write a simulated run's folder: the files that a training would publish."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_json, write_table, write_text
from scalewatt.common.project_files import project_path
from scalewatt.common.redaction import Redaction
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.provenance.versions import made_with, package_versions
from scalewatt.recordings.journal import write_journal
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.run_files.inventory import json_object
from scalewatt.run_files.record import FINISHED, segment_name
from scalewatt.scaling.model import load_of_spec
from scalewatt.scaling.predict import extrapolation_warnings, read_model
from scalewatt.scaling.simulation.learning_curves import curve, final_metric
from scalewatt.scaling.simulation.run import WORKING, Simulation, simulation
from scalewatt.scaling.simulation.sensors import NodeSamples, sample_nodes
from scalewatt.training.history import history_table

_UNKNOWN = (
    *("dataset_sha256", "nodes", "software", "perun", "environment_variables", "precision_used"),
    *("metric_persistence", "metric_climatology", "parameters"),
)
"""Keys of a training's provenance that are null."""


def simulate_run(spec_path: Path, out: Path, cluster: Cluster, model_path: Path) -> None:
    """Write the run folder of a spec as a training would leave it.

    InputError if the model cannot predict the run, or the folder holds more than its spec and what a
    simulation has written.
    """
    held = {path.name for path in out.glob("*")} - {"spec.json"}
    if held and not json_object(out / "provenance.json").get("simulated"):
        raise InputError(
            f"{out}: holds what is not known to be simulated; expected nothing but spec.json"
        )
    write_run(simulation(read_spec(spec_path), cluster, read_model(model_path)), out, model_path)


def write_run(run: Simulation, out: Path, model_path: Path) -> None:
    """Write the files of a simulated run; the provenance comes last."""
    recordings = out / "perun"
    out.mkdir(parents=True, exist_ok=True)
    (out / "provenance.json").unlink(missing_ok=True)
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir()
    for node in sample_nodes(run):
        write_samples(run, node, recordings)
    write_table(history_table(_history(run)), out / "history.parquet")
    events = [
        (0, s.name, s.epoch, run.begun_s + s.start_s, run.begun_s + s.end_s) for s in run.stages
    ]
    rows = [dict(zip(EVENTS_SCHEMA.names, event, strict=True)) for event in events]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), out / "events.parquet")
    model = project_path(model_path)
    write_text(out / "train.log", f"{run.spec.name}: simulated with {model}, not trained\n")
    write_json(out / "provenance.json", _provenance(run, model_path))


def write_samples(run: Simulation, node: NodeSamples, folder: Path) -> None:
    """Write the journal of a node."""
    about = {
        "host": node.host,
        "sampling_period_s": run.period_s,
        SIMULATED_KEY: True,
        "sensors": node.sensors,
        "telemetry": {},
    }
    path = folder / f"{segment_name(0)}.{node.host}.csv"
    write_journal(path, about, run.begun_s + node.time_s, node.time_s, node.raw)


def _history(run: Simulation) -> list[dict[str, Any]]:
    """Rows of the history, one an epoch; all take the same time. What is unknown is null."""
    samples = run.spec.samples_per_epoch
    assert samples is not None  # drawing the run has refused one whose samples are not known
    seconds = dict.fromkeys((f"{name}_s" for name in WORKING), 0.0)
    seconds |= {f"{stage.name}_s": stage.seconds for stage in run.stages if stage.epoch == 0}
    each = {
        "segment": 0,
        "samples": samples,
        "updates": run.spec.updates_per_epoch,
        "epoch_s": sum(seconds.values()),
        **seconds,
        "throughput_samples_per_s": samples / seconds["train_s"],
    }
    metrics = curve(run.spec, run.draw)
    return [{"epoch": e, "metric": float(metric), **each} for e, metric in enumerate(metrics)]


def _provenance(run: Simulation, model_path: Path) -> dict[str, Any]:
    spec, load, final = run.spec, load_of_spec(run.spec), final_metric(run.spec)
    each = spec.ranks_per_node
    gpus = [
        {"host": host, "gpu": index, "gpu_uuid": uuid}
        for host in run.hosts
        for index, uuid in enumerate(run.uuids(host)[:each])
    ]
    ranks = [{"rank": rank, **gpu} for rank, gpu in enumerate(gpus)]
    segment = {
        "segment": 0,
        "started_s": run.begun_s,
        "ended_s": run.begun_s + run.stages[-1].end_s,
        "outcome": FINISHED,
        **dict.fromkeys(("job", "code")),
        "ranks": ranks,
    }
    return {
        "spec_sha256": spec.sha256,
        "hostnames": run.hosts,
        **held_gpus(ranks),
        "torch_device": "cuda",
        "device_name": f"{spec.device} (simulated)",
        "packages_of": "the simulator",
        "packages": package_versions(("scalewatt", "numpy", "pyarrow")),
        **made_with(),
        **dict.fromkeys(_UNKNOWN),
        "metric_name": final.name,
        "metric_goal": spec.settings.get("metric_goal") or "min",
        "segments": [segment],
        "simulated": {
            "model": Redaction.of(os.environ).text(str(project_path(model_path))),
            "model_sha256": file_sha256(model_path),
            "kind": run.model.kind.name,
            "assumed": run.model.assumed,
            "calibrated": run.model.assumed is None
            and load in {point.load for point in run.model.points},
            "warnings": extrapolation_warnings(run.model, load),
            "seed": run.draw.seed,
            "sampling_period_s": run.period_s,
            "spec_sampling_period_s": spec.sampling_period_s,
            "metric": {"name": final.name, "source": final.source},
        },
    }
