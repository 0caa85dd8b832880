"""What a run does, by its notes and Slurm's queue."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from holder_records import DEAD_PID, on_this_machine
from status_files import (
    Made,
    begin_segment,
    queue,
    running,
    stopped,
    submitted,
)

from scalewatt.common.files import write_json
from scalewatt.run_files.attempt_log import note_no_retries
from scalewatt.tracking.status_text import status_text


def test_a_finished_run_is_done(made: Made) -> None:
    made.publish()
    run = made.run()
    assert run.state.state == "done"
    assert (run.updates, run.updates_total) == (100, 100)


def test_a_finished_run_of_another_spec_is_out_of_date(made: Made) -> None:
    made.publish(seed=5)
    run = made.run()
    assert (run.state.state, run.updates) == ("out_of_date", None)


def test_an_outdated_run_that_is_trained_again_is_running(made: Made) -> None:
    made.publish(seed=5)
    running(made)
    assert made.run().state.state == "running"


def test_a_submitted_run_is_queued_and_says_why_it_waits(made: Made) -> None:
    submitted(made)
    queue(made, "8|PENDING|N/A||Resources")
    state = made.run().state
    assert (state.state, state.job, state.reason) == ("queued", "8", "Resources")
    assert time.time() - (state.since_s or 0) < 60


def test_without_slurms_answer_a_submitted_run_counts_as_queued_and_that_is_said(
    made: Made,
) -> None:
    submitted(made)
    status = made.status()
    assert status.queue_asked is False
    assert made.run().state.state == "queued"
    assert "Slurm's queue gives no answer" in status_text(status)


def test_a_submitted_job_that_left_the_queue_has_vanished(made: Made) -> None:
    log = made.folder / "8.log"
    log.write_text("slurmstepd: error: node failure")
    submitted(made, log=log)
    queue(made)
    state = made.run().state
    assert (state.state, state.log) == ("failed", log)
    assert "job 8 is gone from the queue and has not begun to train" in (state.reason or "")


def test_a_job_that_has_begun_but_not_come_to_its_training_is_running(made: Made) -> None:
    submitted(made)
    queue(made, "8|RUNNING|2099-01-01T00:00:00|n[1-2]|None")
    run = made.run()
    assert (run.state.state, run.state.host, run.progress) == ("running", "n[1-2]", None)


def test_a_stopped_run_waits_at_its_checkpoint(made: Made) -> None:
    stopped(made)
    run = made.run()
    assert (run.state.state, run.updates, run.segment) == ("stopped", 40, 0)


def test_a_requeued_job_is_queued(made: Made) -> None:
    folder = running(made)
    made.held(folder, silent_s=100)
    made.attempt(ended_s=None, code=None, job="8", started_s=time.time())
    made.held(folder, silent_s=100, job="8")
    submitted(made)
    queue(made, "8|PENDING|N/A||BeginTime")
    state = made.run().state
    assert (state.state, state.reason) == (
        "queued",
        "its job was put back into the queue (BeginTime)",
    )


# --- no further retries --------------------------------------------------------------------------


def no_retries(made: Made, job: str | None = "8", reason: str = "it makes no progress") -> None:
    note_no_retries(made.work, made.spec(), job, reason)


@pytest.mark.parametrize("before", ["stopped", "vanished", "not started", "failed", "out of date"])
def test_a_run_without_retries_has_failed_for_the_noted_reason(made: Made, before: str) -> None:
    log = made.folder / "8.log"
    log.touch()
    if before == "stopped":
        log = stopped(made) / "train.log"
        log.touch()
    elif before == "failed":
        made.attempt(code=70, reason="MemoryError")
        submitted(made, "7", log)
    elif before == "out of date":
        made.publish(seed=5)
    if before in ("vanished", "stopped"):
        submitted(made, log=log)
    no_retries(made)
    state = made.run().state
    assert (state.state, state.reason) == ("failed", "it makes no progress")
    assert state.log == (None if before in ("not started", "out of date") else log)
    assert time.time() - (state.since_s or 0) < 60
    assert "job 8: it makes no progress" in status_text(made.status())


# --- ended --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "word"), [(64, "refused"), (73, "refused"), (70, "failed"), (9, "failed")]
)
def test_the_code_of_an_attempt_tells_its_end(made: Made, code: int, word: str) -> None:
    made.attempt(code=code, reason="said so")
    state = made.run().state
    assert (state.state, state.reason) == (word, "said so")


def test_a_trained_run_without_results_waits_for_the_next_start(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "finished")
    write_json(folder / "result.json", {})
    for attempt in (True, False):
        if attempt:
            made.attempt(code=0)
        else:
            shutil.rmtree(made.work / "attempts")
        run = made.run()
        assert (run.state.state, run.updates) == ("stopped", 100)
        assert "publishes" in (run.state.reason or "")


def test_an_attempt_whose_job_is_gone_has_failed_without_a_word(made: Made) -> None:
    folder = running(made)
    made.held(folder, silent_s=100)
    queue(made)
    run = made.run()
    assert run.state.state == "failed"
    assert run.state.reason == "job 7 on n1 exited without status: killed, or its node was lost"
    assert run.updates == 40, "those of its checkpoint"


def test_an_attempt_of_a_dead_process_of_this_machine_has_failed(made: Made) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    made.attempt(
        host=socket.gethostname(),
        pid=process.pid,
        job=None,
        ended_s=None,
        code=None,
        started_s=time.time(),
    )
    assert made.run().state.state == "failed"


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ("stopped", "stopped"),
        ("monitor_lost", "stopped"),
        ("refused", "refused"),
        ("failed", "failed"),
        ("killed", "failed"),
        ("running", "failed"),
    ],
)
def test_without_notes_of_attempts_the_last_segment_tells(
    made: Made, outcome: str, word: str
) -> None:
    begin_segment(made.work_folder(), 0, outcome)
    assert made.run().state.state == word


@pytest.mark.parametrize(
    ("silent_s", "answer", "word", "silent"),
    [
        (0, None, "running", False),
        (200, None, "running", True),
        (2000, None, "failed", False),
        (0, [], "running", False),
        (100, [], "failed", False),
        (2000, ["7|RUNNING|N/A|n1|None"], "running", True),
        (20, ["7|COMPLETING|N/A|n1|None"], "running", False),
        (100, ["7|COMPLETING|N/A|n1|None"], "running", False),
    ],
)
def test_a_holder_elsewhere_lives_by_slurms_word_or_by_its_signs_of_life(
    made: Made, silent_s: float, answer: list[str] | None, word: str, silent: bool
) -> None:
    folder = running(made)
    made.attempt(ended_s=None, code=None, started_s=time.time() - 3000)
    made.held(folder, silent_s=silent_s)
    if answer is not None:
        queue(made, *answer)
    state = made.run().state
    assert state.state == word
    assert (state.silent_s is not None) == silent
    if silent:
        assert state.silent_s == pytest.approx(silent_s, abs=20)
        assert "no sign of life for" in status_text(made.status())


def test_a_holder_of_this_machine_is_dead_with_its_process_and_job(made: Made) -> None:
    folder = running(made)
    made.held(folder, **on_this_machine(pid=DEAD_PID))
    queue(made, "7|RUNNING|N/A|n1|None")
    assert made.run().state.state == "running", "it may have ranks on other nodes"
    queue(made)
    assert made.run().state.state == "failed"


def test_of_two_working_directories_the_held_one_counts(made: Made) -> None:
    folder = running(made)
    other = folder.with_name(f"{folder.name[:-1]}1")
    shutil.copytree(folder, other)
    (folder / "holder.json").unlink()
    assert made.run().state.folder == other


def test_registered_runs_are_done_or_not_there(made: Made) -> None:
    made.publish(seed=5)
    registered = replace(made, campaign=replace(made.campaign, registered=True))
    counts = registered.status().counts()
    assert (counts["done"], counts["not_started"]) == (1, 3)
