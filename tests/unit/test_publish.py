"""From a finished working directory to a run's outputs: all of them, the provenance last."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from run_files import epochs, make_spec

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json
from scalewatt.execution.publish import already_published, publish
from scalewatt.recordings.journal import write_journal
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.run_files.record import WorkDir, description_path, open_workdir, segment_name

OUTPUTS = [
    "events.parquet",
    "history.parquet",
    "perun",
    "provenance.json",
    "train.log",
    "weights.pt",
]
T0 = 1_795_000_000.0
PACKAGES = {
    "packages_installed": {"torch": "2.7.0"},
    "lock": {"sha256": "ab", "differences": []},
}
SOFTWARE = {"commit": "4567", "commit_clean": True, **PACKAGES}


def journal(work: WorkDir, segment: int, host: str, seconds: list[float], torn: str = "") -> None:
    times = np.array(seconds)
    path = work.perun / f"{segment_name(segment)}.{host}.csv"
    path.unlink(missing_ok=True)
    about = {"host": host, "sampling_period_s": 1.0, "sensors": {}, "telemetry": {}}
    write_journal(path, about, T0 + times, times, {"CPU_USAGE": np.full(times.size, 50.0)})
    path.write_bytes(path.read_bytes() + torn.encode())


def event(segment: int, stage: str | None, second: float, epoch: int | None = None) -> str:
    mark = {"segment": segment, "stage": stage, "epoch": epoch, "start_s": T0 + second}
    return json.dumps(mark) + "\n"


def describe(work: WorkDir, segment: int, **changes: Any) -> None:
    write_json(
        description_path(work.path, segment),
        {
            "hostnames": ["n1"],
            "ranks": [{"host": "n1", "gpu": gpu, "gpu_uuid": None} for gpu in (0, 1)],
            "nodes": [],
            "torch_device": "cuda",
            "device_name": "NVIDIA A100",
            "packages": {"torch": "2.7.0"},
        }
        | changes,
    )


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDir]:
    """A run that was killed in its first segment and finished in its second."""
    with open_workdir(tmp_path / "work", make_spec(), "d" * 64) as work:
        work.begin_segment({}, {})
        work.open_record()
        work.begin_segment({}, SOFTWARE)
        work.end_segment("finished")
        (work.path / "events.jsonl").write_text(
            event(0, "startup", 0)
            + event(0, "train", 5, 0)
            + event(1, "startup", 100)
            + event(1, "train", 105, 0)
            + event(1, "shutdown", 150)
            + event(1, None, 151)
        )
        journal(work, 0, "n1", [1, 2, 42.5], torn='{"t": 17950000')
        journal(work, 1, "n1", [101, 150])
        (work.perun / f"{segment_name(1)}.hdf5").write_bytes(b"hdf5")
        (work.path / "weights.pt").write_bytes(b"weights")
        (work.path / "checkpoint.pt").write_bytes(b"checkpoint")
        (work.path / "train.log").write_text("epoch 1/4\n")
        describe(work, 0)
        describe(work, 1)
        history = [row | {"metric_persistence": 9.5, "top5": 1.0} for row in epochs([40.0, 30.0])]
        result = {"metric_name": "top1_error_percent", "parameters": 23, "history": history}
        write_json(work.path / "result.json", result)
        yield work


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "runs" / "a" / "1"


def test_every_output_is_there_and_nothing_else(work: WorkDir, out: Path) -> None:
    publish(work, out)
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS
    assert sorted(path.name for path in (out / "perun").iterdir()) == [
        "segment-000.n1.csv", "segment-000.n1.sensors.json",
        "segment-001.hdf5", "segment-001.n1.csv", "segment-001.n1.sensors.json",
    ]  # fmt: skip
    assert (out / "weights.pt").read_bytes() == b"weights"
    assert (out / "train.log").read_text() == "epoch 1/4\n"
    assert (out / "perun" / "segment-001.hdf5").read_bytes() == b"hdf5"


def test_a_killed_segments_last_stage_ends_with_its_recording(work: WorkDir, out: Path) -> None:
    publish(work, out)
    events = pq.read_table(out / "events.parquet")
    assert events.schema.equals(EVENTS_SCHEMA)
    rows = [
        (r["segment"], r["stage"], r["epoch"], r["start_s"] - T0, r["end_s"] - T0)
        for r in events.to_pylist()
    ]
    assert rows == [
        (0, "startup", None, 0, 5),
        (0, "train", 0, 5, 42.5),
        (1, "startup", None, 100, 105),
        (1, "train", 0, 105, 150),
        (1, "shutdown", None, 150, 151),
    ]


def test_the_provenance_records_what_the_run_was_done_with(work: WorkDir, out: Path) -> None:
    ranks = [{"host": host, "gpu": gpu, "gpu_uuid": None} for host, gpu in (("n1", 2), ("n3", 0))]
    describe(work, 0, hostnames=["n3", "n1"], ranks=ranks, packages={})
    publish(work, out, {"cpu": None})
    provenance = read_json(out / "provenance.json")
    assert provenance["rated_powers"] == {"cpu": None}
    assert provenance["spec_sha256"] == work.spec.sha256
    assert provenance["dataset_sha256"] == work.dataset_sha256
    assert provenance["hostnames"] == ["n1", "n3"]
    assert provenance["gpus"] == {"n1": [0, 1, 2], "n3": [0]}
    assert provenance["packages"] == {"torch": "2.7.0"}
    assert (provenance["metric_name"], provenance["metric_persistence"]) == (
        "top1_error_percent",
        9.5,
    )
    assert provenance["parameters"] == 23
    assert [s["outcome"] for s in provenance["segments"]] == ["killed", "finished"]


@pytest.mark.parametrize("missing", ["weights.pt", "train.log", "events.jsonl", "perun"])
def test_a_failed_publication_is_not_regarded_as_finished(
    missing: str, work: WorkDir, out: Path
) -> None:
    hidden = work.path / f"{missing}.hidden"
    (work.path / missing).rename(hidden)
    with pytest.raises((FileNotFoundError, InputError)):
        publish(work, out)
    assert not (out / "provenance.json").exists()
    assert not already_published(out, work)
    assert (work.path / "checkpoint.pt").exists()
    hidden.rename(work.path / missing)
    publish(work, out)  # and the next one completes it
    assert already_published(out, work)
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS


def test_only_the_very_run_counts_as_published(work: WorkDir, out: Path) -> None:
    assert not already_published(out, work)
    publish(work, out)
    assert already_published(out, work)
    for changed in ({"spec": make_spec(epochs=99)}, {"dataset_sha256": "0" * 64}):
        assert not already_published(out, replace(work, **changed))


def test_the_working_directory_keeps_all_but_the_checkpoint(work: WorkDir, out: Path) -> None:
    publish(work, out)
    assert not (work.path / "checkpoint.pt").exists()
    shutil.rmtree(out)  # as a user, or Snakemake before another attempt
    publish(work, out)
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS
