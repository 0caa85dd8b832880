"""Write a simulated run's folder: the files that a training would publish, and the truth."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json, write_table, write_text
from scalewatt.common.redaction import Redaction
from scalewatt.common.schema_validation import project_path
from scalewatt.provenance.versions import made_with
from scalewatt.recordings.record_file import read_header
from scalewatt.recordings.series import SIMULATED, origin_stated
from scalewatt.recordings.stage_files import EVENTS_SCHEMA
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.predict import warnings_of
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.learning_curves import curve, final_metric
from scalewatt.scaling.simulation.sensors import NodeSamples, joules_between
from scalewatt.scaling.simulation.simulated_run import Simulation, simulation
from scalewatt.scaling.simulation.stage_schedule import Segment
from scalewatt.scaling.simulation.write_recording import Recorder
from scalewatt.training.history import history_table

TRUTH = "truth.json"
"""The true energies, which only tests may read."""


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
    (out / "provenance.json").unlink(missing_ok=True)
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir(parents=True)
    truth = [_record(one, segment, recordings) for segment in one.segments]
    write_table(history_table(_history(one)), out / "history.parquet")
    write_table(pa.Table.from_pylist(list(_events(one)), EVENTS_SCHEMA), out / "events.parquet")
    write_json(out / TRUTH, _truth(one, truth))
    write_text(out / "train.log", _log(one, model_path))
    write_json(out / "provenance.json", _provenance(one, model_path))


def check_replaceable(folder: Path) -> None:
    """Raise InputError if a run folder holds more than its spec and what a simulation has written.

    The provenance of a finished simulation records that it was simulated; of an interrupted one, the
    journals do.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; expected an empty folder (--out)")
    provenance = folder / "provenance.json"
    if provenance.exists():
        stored = read_json(provenance)
        if not (isinstance(stored, dict) and stored.get("simulated")):
            raise _measured(folder, "its provenance.json is that of a run which was not simulated")
        return
    recordings = sorted((folder / "perun").glob("*"))
    for path in recordings:
        if not _is_simulated(path):
            raise _measured(folder, f"perun/{path.name} is not marked as simulated")
    others = {path.name for path in folder.glob("*")} - {"perun", "spec.json"}
    if others and not recordings:
        raise _measured(folder, f"{min(others)} is not known to belong to a simulation")


def _is_simulated(recording: Path) -> bool:
    """Return True if the journals of a recording's segment, at least one, say so."""
    segment = recording.name.lstrip(".").split(".")[0]
    journals = list(recording.parent.glob(f"{segment}.*.journal"))
    try:
        origins = {origin_stated(read_header(journal)[0]) for journal in journals}
    except InputError:
        return False
    return origins == {SIMULATED}


def _measured(folder: Path, what: str) -> InputError:
    return InputError(
        f"{folder}: {what}; a simulation can only replace another simulation: expected an empty "
        "folder (--out)"
    )


def _record(one: Simulation, segment: Segment, folder: Path) -> dict[str, Any]:
    """Write a segment's recordings; return its truth."""
    nodes = one.nodes
    discarded: dict[str, dict[str, float]] = {}
    begin_s, end_s = one.discarded(segment)

    def sampled() -> Iterator[NodeSamples]:
        for node in nodes.sampled(segment):
            if end_s > begin_s:
                discarded[node.host] = joules_between(node, begin_s, end_s, nodes.held_gpus)
            yield node

    recorder = Recorder(
        folder,
        segment.number,
        one.started_s(segment),
        nodes.periods.usual_s,
        one.spec.ranks_per_node,
    )
    return {
        "segment": segment.number,
        "seconds": segment.seconds,
        **recorder.write(sampled()),
        "discarded_s": end_s - begin_s,
        "discarded_joules": discarded,
    }


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
    work = spec.epoch_work
    assert work is not None  # drawing the run has refused one whose samples are not known
    return [
        {
            "epoch": epoch,
            "segment": ended[epoch],
            "metric": float(metrics[epoch]),
            "samples": work.samples,
            "updates": work.updates,
            "epoch_s": sum(own.values()),
            **{f"{name}_s": own[name] for name in names},
            "throughput_samples_per_s": work.samples / own["train"],
        }
        for epoch, own in enumerate(seconds)
    ]


def _truth(one: Simulation, segments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the true time and energies, uninterrupted and in the recorded segments."""
    return {
        "runtime_s": sum(segment.seconds for segment in one.segments),
        "in_one_go": {"runtime_s": one.draw.runtime_s, "joules": dict(one.draw.joules)},
        "segments": list(segments),
    }


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
        "packages": _versions(),
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
        "allocation": None,
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("scalewatt", "numpy", "h5py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
