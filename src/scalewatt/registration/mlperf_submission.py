"""Trainings in a submission to MLPerf Training with power logs: found, described, and said if left out.

<submitter>/systems/<system>.json
<submitter>/results/<system>/<benchmark>/result_<X>.txt
<submitter>/results/<system>/<benchmark>/power/result_<X>/node_<i>.txt, sw_<i>.txt
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL, check_point
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object
from scalewatt.recordings.foreign_files import recording_name
from scalewatt.recordings.formats.format import decoded
from scalewatt.recordings.formats.mlperf_power import READING
from scalewatt.recordings.formats.mlperf_result import MlperfResult, read_mlperf_result
from scalewatt.registration.mlperf_benchmarks import BENCHMARKS, EPOCHS, GPUS_PER_REPLICA
from scalewatt.registration.mlperf_lines import FoundRun, LeftOut, on_lines
from scalewatt.registration.recording_discovery import Recorded, RecordedFile
from scalewatt.registration.run_descriptions import Description

RESULT_LOG = "segment-000.mlperf-result.txt"
"""Name of the copy of a run's result log, beside its recordings."""
_POWER_FILE = re.compile(r"^(node|sw)_\d+\.txt$")
TELLABLE = ("gpus_per_replica", "series", "label", "variant", "precision")
_MOST_SAMPLES = 10**15


@dataclass(frozen=True)
class System:
    """The machine of a folder of results."""

    name: str
    submission: str
    """Name of the submission's folder, such as smc-dc-power."""
    submitter: str
    device: str
    device_name: str
    nodes: int
    gpus_per_node: int


def is_submission(path: Path) -> bool:
    """Return True if a folder holds results of MLPerf Training, or submitters' folders that do."""
    return path.is_dir() and bool(_submitters(path))


def _submitters(path: Path) -> list[Path]:
    candidates = [path, *sorted(one for one in path.iterdir() if one.is_dir())]
    return [one for one in candidates if (one / "results").is_dir() and (one / "systems").is_dir()]


def find_runs(
    paths: Sequence[Path], told: Mapping[Path, Mapping[str, Any]]
) -> tuple[list[FoundRun], list[LeftOut]]:
    """Return the runs with power logs below `paths`, and those left out.

    `told`: what the user tells of all runs in a folder, by its resolved path; the keys TELLABLE.
    """
    runs: list[FoundRun] = []
    left_out: list[LeftOut] = []
    for submitter in (one for path in paths for one in _submitters(path)):
        for folder in sorted((submitter / "results").iterdir()):
            results = sorted(folder.glob("*/result_*.txt"))
            try:
                system = _system(submitter / "systems" / f"{folder.name}.json")
            except InputError as error:
                left_out += [LeftOut(result, f"{result}: {error}") for result in results]
                continue
            for result in results:
                try:
                    runs.append(_found(result, system, _told_of(result, told)))
                except InputError as error:
                    left_out.append(LeftOut(result, str(error)))
    once, repeated = _each_once(runs)
    placed, beside = on_lines(once)
    return placed, [*left_out, *repeated, *beside]


def _each_once(runs: Sequence[FoundRun]) -> tuple[list[FoundRun], list[LeftOut]]:
    """Return the runs of different power logs; those whose logs another run has too are left out.

    Submitters put some runs twice, as logged and as edited (`result_<X>_raw_1`).
    """
    once: dict[tuple[str, ...], FoundRun] = {}
    repeated = []
    for one in runs:
        logs = tuple(file.sha256 for file in one.recorded.files if file.target != RESULT_LOG)
        first = once.setdefault(logs, one)
        if first is not one:
            reason = (
                f"{one.description.where}: its power logs are those of {first.description.where}"
            )
            repeated.append(LeftOut(Path(one.description.where), reason))
    return list(once.values()), repeated


def _told_of(result: Path, told: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    folders = reversed(result.resolve().parents)
    return {key: value for folder in folders for key, value in told.get(folder, {}).items()}


def _system(path: Path) -> System:
    content = read_json_object(
        path, "submitter", "number_of_nodes", "accelerators_per_node", "accelerator_model_name"
    )
    counts = [content["number_of_nodes"], content["accelerators_per_node"]]
    if not all(str(count).isdecimal() and 0 < int(count) < 10**6 for count in counts):
        raise InputError(
            f"{path}: number_of_nodes and accelerators_per_node: {counts}; allowed: counts"
        )
    name = str(content["accelerator_model_name"])
    device = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("nvidia")).strip("-")
    if not device:
        raise InputError(f"{path}: accelerator_model_name: {name!r}; allowed: a name")
    return System(
        path.stem,
        path.resolve().parents[1].name,
        str(content["submitter"]),
        device,
        name,
        *map(int, counts),
    )


def _found(result: Path, system: System, told: Mapping[str, Any]) -> FoundRun:
    """Return one run. Raises InputError, whose message is the reason for leaving it out."""
    power = result.parent / "power" / result.stem
    files = _power_files(power)
    run = read_mlperf_result(result)
    if not run.succeeded:
        raise InputError(f"{result}: its run_stop does not say `success`")
    gpus = system.nodes * system.gpus_per_node
    point = {**_work(result, run, system, gpus, told), "gpus": gpus, "protocol": TARGET_PROTOCOL}
    known = BENCHMARKS.get(run.benchmark)
    point |= {key: told[key] for key in ("variant", "precision") if key in told}
    entry = {"model": run.benchmark.lower(), "device": system.device}
    if known is not None:
        entry["metric_name"] = known.metric_name
    check_point(entry, point, str(result))
    trained = _samples(run, point["dataset_samples"])
    batch = run.global_batch_size or 1
    given = {
        "device_name": system.device_name,
        "metric_goal": known.metric_goal if known else "min",
        "metric_target": known.target if known else None,
        "window": {"start_s": run.start_s, "end_s": run.stop_s},
        "updates": None if trained is None else round(trained / batch),
        "seed": run.seed,
        "source": f"MLPerf Training, {system.submitter}, {system.submission}, {system.name}, {result.stem}",
        **{key: told[key] for key in ("series", "label") if key in told},
    }
    description = Description(
        where=str(result),
        path=power,
        entry=entry,
        point=point,
        constant="global_batch_size",
        samples=trained,
        metric=run.metric,
        torch_device="cuda",
        events=result,
        given=given,
    )
    hosts = tuple(sorted(file.stem for file in files if file.stem.startswith("node_")))
    if len(hosts) > system.nodes:
        raise InputError(f"{power}: {len(hosts)} nodes' files of a system of {system.nodes} nodes")
    log = RecordedFile(result, file_sha256(result), 0, RESULT_LOG)
    recorded = Recorded((*_recorded_files(files), log), (hosts,), {}, ())
    place = system.submission, system.name
    return FoundRun(description, recorded, system.nodes, run.stages, place)


def _power_files(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.glob("*.txt") if _POWER_FILE.match(p.name))
    nodes = [path for path in files if path.stem.startswith("node_")]
    if not nodes:
        raise InputError(f"{folder}: holds no power log of a node")
    for path in nodes:
        if READING not in decoded(path.read_bytes()):
            raise InputError(f"{path}: holds no {READING}")
    return files


def _recorded_files(files: list[Path]) -> tuple[RecordedFile, ...]:
    return tuple(RecordedFile(p, file_sha256(p), 0, recording_name(0, p.stem)) for p in files)


def _work(
    result: Path, run: MlperfResult, system: System, gpus: int, told: Mapping[str, Any]
) -> dict[str, Any]:
    """Return batch size, replicas, passes and dataset of a run; epochs is 1, as its protocol has it."""
    known = BENCHMARKS.get(run.benchmark)
    samples = known.dataset_samples if known and known.dataset_samples else run.train_samples
    if run.global_batch_size is None or not samples:
        raise InputError(f"{result}: states no global_batch_size, or no train_samples")
    per_replica = _gpus_per_replica(result, run, system, gpus, told)
    replicas = gpus // per_replica
    if gpus % per_replica or run.global_batch_size % replicas:
        raise InputError(
            f"{result}: global batch {run.global_batch_size} on {gpus} GPUs, {per_replica} to a replica, "
            "does not divide"
        )
    passes = {
        "gpus_per_replica": per_replica,
        "gradient_accumulation_steps": run.accumulation_steps,
    }
    return {
        "local_batch_size": run.global_batch_size // replicas,
        "dataset_samples": samples,
        "epochs": 1,
        **{key: count for key, count in passes.items() if count > 1},
    }


def _gpus_per_replica(
    result: Path, run: MlperfResult, system: System, gpus: int, told: Mapping[str, Any]
) -> int:
    """Return how many GPUs hold one copy of the model: as told, as is known of it, or as logged."""
    if "gpus_per_replica" in told:
        return int(told["gpus_per_replica"])
    benchmark = BENCHMARKS.get(run.benchmark)
    if benchmark is not None and not benchmark.splits_model:
        return 1
    if run.local_batch_size and run.global_batch_size:
        replicas, rest = divmod(
            run.global_batch_size, run.local_batch_size * run.accumulation_steps
        )
        if replicas and not rest and gpus % replicas == 0:
            return gpus // replicas
    known = GPUS_PER_REPLICA.get((system.submitter, run.benchmark, system.nodes))
    if known is not None:
        return known
    raise InputError(
        f"{result}: how many GPUs hold one copy of the model is not known; a row of --table with the "
        f"path {result.parent} and gpus_per_replica says it"
    )


def _samples(run: MlperfResult, dataset_samples: int) -> int | None:
    """Return the samples trained on until the last evaluation; None if that is not known."""
    known = BENCHMARKS.get(run.benchmark)
    if known is None or run.trained is None:
        return None
    trained = run.trained * (dataset_samples if known.counts == EPOCHS else 1)
    return round(trained) if trained < _MOST_SAMPLES else None
