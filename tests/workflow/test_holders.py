"""One training of a run at a time, also where its holder is on another machine or taken for dead."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
from test_interruptions import PATIENCE_S, WAVES, checkpointed, long_run, wait_for
from training import Training

from scalewatt.provenance.rank_placement import ranges
from scalewatt.run_files.run_lock import locked, run_target

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


def put_holder_elsewhere(work: Path) -> bytes:
    """The record of another machine's holder, put in place at once; its content."""
    said = {"host": "n9", "pid": 3, "pid_started_s": 1.0, "job": None, "since_s": time.time()}
    path = work / "elsewhere.json"
    path.write_text(json.dumps({**said, "machine": "elsewhere/1"}))
    path.replace(work / "holder.json")
    return (work / "holder.json").read_bytes()


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_that_another_machine_trains_is_refused_and_left_alone(
    tmp_path: Path, data: Path
) -> None:
    training = Training.of(tmp_path / "run", data, WAVES, epochs=1)
    code, _ = training.run("--max-updates", "2")
    assert code == 75
    before = put_holder_elsewhere(training.work), digest(training.work / "segments.json")
    code, output = training.run()
    assert code != 0
    for word in ("the run is being trained by process 3 on n9 since", "or end it on n9"):
        assert word in output
    [note] = (training.folder / "work" / "attempts").glob("*.json")
    assert json.loads(note.read_text())["code"] == 73
    now = (training.work / "holder.json").read_bytes(), digest(training.work / "segments.json")
    assert now == before
    assert not training.out.exists()
    (training.work / "holder.json").unlink()  # that one has ended
    code, output = training.run()
    assert code == 0, output
    said = json.loads((training.out / "provenance.json").read_text())
    assert [one["outcome"] for one in said["segments"]] == ["stopped", "finished"]
    for segment in said["segments"]:
        placed = [(one["rank"], one["local_rank"], one["host"]) for one in segment["ranks"]]
        assert placed == [(n, n, socket.gethostname()) for n in range(training.spec.gpus)]
        assert {one["cpus"] for one in segment["ranks"]} <= {ranges(os.sched_getaffinity(0))}
        assert segment["allocation"] is None
    assert "ranks" not in said


def test_a_training_that_was_taken_for_dead_changes_nothing_of_the_new_holders(
    tmp_path: Path, data: Path
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start()
    wait_for(lambda: checkpointed(training), "checkpoint")
    everybody = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGSTOP)
    record = put_holder_elsewhere(training.work)
    wait_for(lambda: not any(map(lives, everybody)), "end of the ranks at their next checkpoint")
    log = (training.work / "train.log").read_text()
    assert "the run is being trained by process 3 on n9" in log
    segments = digest(training.work / "segments.json")
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "the run is being trained by process 3 on n9" in output
    assert digest(training.work / "segments.json") == segments
    assert (training.work / "holder.json").read_bytes() == record
    assert not training.out.exists()
    (training.work / "holder.json").unlink()  # the new one has ended
    with locked(run_target(training.work)):
        pass
