"""One training of a run at a time, also where its holder is on another machine or taken for dead."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from commands import PATIENCE_S, wait_for
from test_interruptions import checkpointed, long_run

from scalewatt.run_files.lock import Holder, locked

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


def put_holder_elsewhere(work: Path) -> bytes:
    """The record of another machine's holder, put in place at once; its content."""
    holder = Holder("n9", 3, None, time.time(), token="other")
    path = work / "elsewhere.json"
    path.write_text(json.dumps(asdict(holder)))
    path.replace(work / "holder.json")
    return (work / "holder.json").read_bytes()


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_training_that_was_taken_for_dead_changes_nothing_of_the_new_holders(
    tmp_path: Path, data: Path
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start()
    wait_for(lambda: checkpointed(training))
    everybody = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGSTOP)
    record = put_holder_elsewhere(training.work)
    wait_for(lambda: not any(map(lives, everybody)))
    log = (training.work / "train.log").read_text()
    assert "process 3 on n9" in log
    segments = digest(training.work / "run.json")
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "process 3 on n9" in output
    assert digest(training.work / "run.json") == segments
    assert (training.work / "holder.json").read_bytes() == record
    assert not training.out.exists()
    (training.work / "holder.json").unlink()  # the new one has ended
    with locked(training.work):
        pass
