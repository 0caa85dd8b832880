"""What a run does, by its notes and Slurm's queue, in words and as JSON."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from energy_files import gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from run_files import WHOLE
from status_files import CAMPAIGN, ONE, TWO, Made, begin_segment, progress, record

from scalewatt.files import write_json
from scalewatt.jobs import slurm
from scalewatt.jobs.attempts import note_submission, noted_attempt
from scalewatt.jobs.position import Progress, note_position, read_progress
from scalewatt.results.pace import time_left
from scalewatt.results.queue import ask_queue
from scalewatt.results.status import updates_of
from scalewatt.results.status_text import WIDTH, bar, clock, duration, status_json, status_text

SQUEUE = """#!/bin/sh
[ -n "$HANG" ] && exec sleep 60
[ -n "$FAIL" ] && echo "$FAIL" >&2 && exit 1
cat "$(dirname "$0")/answer"
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The campaign on a machine without Slurm."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return Made.create(tmp_path)


def queue(made: Made, *lines: str) -> None:
    """From now on there is a squeue, which answers so."""
    program = made.folder / "bin" / "squeue"
    program.write_text(SQUEUE.replace("cat ", f"{shutil.which('cat', path='/usr/bin:/bin')} "))
    text = program.read_text().replace(
        "dirname", shutil.which("dirname", path="/usr/bin:/bin") or ""
    )
    program.write_text(text.replace("sleep", shutil.which("sleep", path="/usr/bin:/bin") or ""))
    program.chmod(0o755)
    (made.folder / "bin" / "answer").write_text("".join(f"{line}\n" for line in lines))


def submitted(made: Made, job: str = "8", log: Path | None = None) -> None:
    made.work.mkdir(parents=True, exist_ok=True)
    note_submission(made.work, made.spec(), job, str(log) if log else None)


def stopped(made: Made, updates: int = 40) -> Path:
    """A working directory at a checkpoint."""
    folder = made.work_folder()
    begin_segment(folder, 0, "stopped")
    note_position(folder, updates, updates // 10, updates % 10)
    made.attempt()
    return folder


def running(made: Made, updates: int = 40, **changes: Any) -> Path:
    """A working directory that a job on another node holds."""
    folder = made.work_folder()
    begin_segment(folder)
    progress(folder, updates, **changes)
    made.attempt(ended_s=None, code=None)
    made.held(folder)
    return folder


# --- states -------------------------------------------------------------------------------------


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


def test_a_stopped_run_that_was_submitted_again_is_queued(made: Made) -> None:
    stopped(made)
    submitted(made)
    queue(made, "8|PENDING|N/A||Priority")
    run = made.run()
    assert (run.state.state, run.state.job, run.updates) == ("queued", "8", 40)


def test_a_requeued_job_is_queued(made: Made) -> None:
    folder = running(made)
    made.held(folder, silent_s=100)
    made.attempt(ended_s=None, code=None, job="8", started_s=time.time())
    made.held(folder, silent_s=100, job="8")
    submitted(made)
    queue(made, "8|PENDING|N/A||BeginTime")
    state = made.run().state
    assert (state.state, state.reason) == ("queued", "its job was put back into the queue")


def test_an_attempt_that_said_that_it_failed_has_failed(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "failed")
    (folder / "train.log").write_text("MemoryError\n")
    with pytest.raises(ValueError), noted_attempt(made.work, made.spec()):
        raise ValueError("broken")
    state = made.run().state
    assert (state.state, state.reason) == ("failed", "ValueError: broken")
    assert state.log == folder / "train.log"


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
    assert run.state.reason == "job 7 on n1 has ended without a word: killed, or its node was lost"
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


def test_an_attempt_of_this_process_is_under_way_before_it_holds_its_run(made: Made) -> None:
    with noted_attempt(made.work, made.spec()) as note:
        run = made.run()
        assert (run.state.state, run.progress, run.segment) == ("running", None, None)
        note.code = 0


def test_a_later_process_of_the_same_number_is_another(made: Made) -> None:
    long_ago = time.time() - 10**7
    made.attempt(
        host=socket.gethostname(),
        pid=os.getpid(),
        job=None,
        ended_s=None,
        code=None,
        started_s=long_ago,
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
        (100, ["7|COMPLETING|N/A|n1|None"], "failed", False),
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


# --- how far, how fast, how long ----------------------------------------------------------------


def marks(folder: Path, *stages: tuple[int, str, int, float]) -> None:
    """Stages as (segment, stage, epoch, seconds before the note of progress)."""
    note = read_progress(folder)
    assert note is not None
    now = note.written_s
    rows = [
        {"segment": segment, "stage": stage, "epoch": epoch, "start_s": now - ago_s}
        for segment, stage, epoch, ago_s in stages
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def epochs_of_14_s(folder: Path, epochs: int, step_s: float) -> None:
    """Marks of epochs of 10 s of training, 3 s of validation and 1 s of checkpoint."""
    stages: list[tuple[int, str, int, float]] = [(0, "startup", 0, 14 * epochs + step_s + 30)]
    for epoch in range(epochs):
        ago_s = 14 * (epochs - epoch) + step_s
        stages += [
            (0, "train", epoch, ago_s),
            (0, "validate", epoch, ago_s - 10),
            (0, "checkpoint", epoch + 1, ago_s - 13),
        ]
    marks(folder, *stages, (0, "train", epochs, step_s))


def test_the_time_left_is_that_of_updates_and_of_what_lies_between_epochs(made: Made) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    run = made.run()
    assert run.left is not None and not run.left.at_least
    assert run.left.seconds == pytest.approx(55 + 6 * 4)
    assert run.progress is not None and run.ends_s is not None
    assert run.ends_s - run.progress.written_s == pytest.approx(79)


def test_before_the_first_epochs_end_it_is_at_least_the_time_of_the_updates(made: Made) -> None:
    folder = running(made, 5)
    marks(folder, (0, "startup", 0, 30), (0, "train", 0, 5.0))
    run = made.run()
    assert run.left is not None and run.left.at_least
    assert run.left.seconds == pytest.approx(95)
    assert run.ends_s is None
    assert "at least 1 min" in status_text(made.status())


def test_before_the_first_update_nothing_is_known(made: Made) -> None:
    folder = running(made, 0, samples_per_s=None)
    marks(folder, (0, "train", 0, 5.0))
    run = made.run()
    assert (run.left, run.ends_s) == (None, None)


@pytest.mark.parametrize(("limit_s", "known"), [(4000, True), (650, False)])
def test_an_end_beyond_the_jobs_limit_is_none(made: Made, limit_s: int, known: bool) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    ends = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + limit_s))
    queue(made, f"7|RUNNING|{ends}|n1|None")
    run = made.run()
    assert (run.ends_s is not None) == known, "the job is warned 600 s before its limit"
    assert run.left is not None
    assert ("of training left" in status_text(made.status())) != known


@pytest.mark.parametrize(("began_ago_s", "known"), [(100, True), (600 * 60 - 620, False)])
def test_without_slurm_the_limit_is_the_devices(
    made: Made, began_ago_s: float, known: bool
) -> None:
    folder = running(made, 45)
    begin_segment(folder, started_s=time.time() - began_ago_s)
    epochs_of_14_s(folder, 4, step_s=5.0)
    assert (made.run().ends_s is not None) == known


def test_the_campaigns_end_is_known_once_all_that_is_left_runs(made: Made) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    for configuration, repeat in ((ONE, 1), (ONE, 2)):
        made.publish(configuration, repeat)
    assert made.status().ends_s is None
    made.publish(TWO, 2)
    assert made.status().ends_s == made.run().ends_s
    assert "ends     about" in status_text(made.status())
    made.publish(TWO, 1)
    assert made.status().ends_s is None


@settings(max_examples=200, deadline=None)
@given(
    epochs=st.integers(1, 6),
    steps=st.integers(1, 5),
    done=st.integers(0, 29),
    update_s=st.floats(0.1, 50),
    between_s=st.floats(0, 50),
    first=st.integers(0, 29),
)
def test_the_time_left_of_an_even_pace_is_exact(
    epochs: int, steps: int, done: int, update_s: float, between_s: float, first: int
) -> None:
    total = epochs * steps
    done = min(done, total - 1)
    first = min(first, done)
    now, epoch, found = 0.0, first // steps, []
    for update in range(first, done):
        if update == first or update % steps == 0:
            found.append({"segment": 1, "stage": "train", "epoch": update // steps, "start_s": now})
        now += update_s
        if (update + 1) % steps == 0:
            found.append({"segment": 1, "stage": "validate", "epoch": epoch, "start_s": now})
            now += between_s
            epoch += 1
            found.append({"segment": 1, "stage": "checkpoint", "epoch": epoch, "start_s": now})
    if done > first:
        found.append({"segment": 1, "stage": "train", "epoch": epoch, "start_s": now})
    at = Progress(1, done // steps, epochs, done % steps, steps, done, total, None, "train", now)
    left = time_left(at, first, found)
    if done == first:
        assert left is None
        return
    assert left is not None
    assert left.at_least == (first // steps == done // steps)
    expected = (total - done) * update_s
    if not left.at_least:
        expected += (epochs - done // steps) * between_s
    assert left.seconds == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_running_ones_power_is_that_of_its_nodes_last_samples(made: Made) -> None:
    folder = running(made)
    begin_segment(folder)
    sensors = {
        "CUDA:0_POWER": gpu(60, 300),
        "CUDA:1_POWER": gpu(60, 250),
        "CUDA:2_POWER": gpu(60, 90),
    }
    record(folder, {**sensors, "CPU_BUSY": [50.0] * 60})
    run = made.run()
    assert run.power is not None
    assert run.power.watts == pytest.approx(300 + 250 + 2 * 100)
    assert run.power.origin == "mixed"
    assert run.kwh == pytest.approx(59 * 750 / 3.6e6)


@pytest.mark.parametrize("why", ["old", "a node is missing", "of an earlier segment"])
def test_a_power_that_is_not_that_of_now_is_not_told(made: Made, why: str) -> None:
    folder = running(made)
    begin_segment(folder)
    if why == "a node is missing":
        said = json.loads((folder / "segment-000.json").read_text())
        write_json(folder / "segment-000.json", {**said, "hostnames": ["n1", "n2"]})
    sensors = {"CUDA:0_POWER": gpu(60), "CUDA:1_POWER": gpu(60), "CPU_BUSY": [50.0] * 60}
    record(folder, sensors, ago_s=120 if why == "old" else 0)
    if why == "of an earlier segment":
        begin_segment(folder, 1, from_updates=40)
    assert made.run().power is None


def test_progress_of_an_earlier_segment_does_not_count(made: Made) -> None:
    folder = running(made, 45)
    begin_segment(folder, 1, from_updates=40)
    run = made.run()
    assert (run.progress, run.updates, run.segment) == (None, 40, 1)


def test_updates_add_up_over_runs_and_what_is_not_known_is_left_out(made: Made) -> None:
    running(made, 45)
    made.publish(ONE)
    assert updates_of(made.status().runs) == (245, 600)


# --- Slurm's queue ------------------------------------------------------------------------------


def test_the_queue_is_asked_once_and_only_about_jobs_of_unfinished_runs(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "scalewatt.results.status.ask_queue", lambda jobs: asked.append(sorted(jobs))
    )
    running(made)
    submitted(made)
    made.attempt(ONE)
    made.publish(ONE)
    made.status()
    assert asked == [["7", "8"]]


def test_no_squeue_no_answer(made: Made) -> None:
    assert ask_queue(["7"]) is None


def test_a_queue_that_fails_or_hangs_gives_no_answer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(made, "7|RUNNING|N/A|n1|None")
    monkeypatch.setenv("FAIL", "slurm_load_jobs error: Unable to contact slurm controller")
    assert ask_queue(["7"]) is None
    monkeypatch.delenv("FAIL")
    monkeypatch.setenv("HANG", "1")
    monkeypatch.setattr(slurm.ask, "__kwdefaults__", {"timeout_s": 0.5})
    assert ask_queue(["7"]) is None


def test_a_job_that_squeue_has_forgotten_is_gone(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(made)
    monkeypatch.setenv("FAIL", "slurm_load_jobs error: Invalid job id specified")
    found = ask_queue(["7"])
    assert found is not None and found.state("7") == "gone"


def test_the_queue_says_state_end_nodes_and_reason(made: Made) -> None:
    queue(made, "7|RUNNING|2026-11-22T10:00:00|n[1-2]|None", "8|PENDING|N/A||QOSMaxJobs", "broken")
    found = ask_queue(["7", "8", "9"])
    assert found is not None
    assert [found.state(job) for job in ("7", "8", "9")] == ["running", "waiting", "gone"]
    assert (found.place("7"), found.place("8"), found.place("9")) == ("n[1-2]", None, None)
    assert (found.reason("7"), found.reason("8")) == (None, "QOSMaxJobs")
    assert found.ends_s("7") == time.mktime((2026, 11, 22, 10, 0, 0, 0, 0, -1))
    assert found.ends_s("8") is None is found.ends_s(None)


# --- words --------------------------------------------------------------------------------------


def everything(made: Made) -> None:
    """Runs in four states."""
    folder = running(made, 45)
    epochs_of_14_s(folder, 4, step_s=5.0)
    record(folder, {"CUDA:0_POWER": gpu(30), "CUDA:1_POWER": gpu(30), "CPU_BUSY": [9.0] * 30})
    made.publish(ONE)
    made.account(ONE)
    made.attempt(ONE, 2, code=70, reason="torch.OutOfMemoryError: CUDA out of memory. " * 9)
    made.publish(TWO, 2, seed=9)


def test_the_text_says_what_runs_and_what_failed_and_fits_the_width(made: Made) -> None:
    everything(made)
    for every_run in (False, True):
        text = status_text(made.status(), every_run)
        assert "1 done, 1 running, 1 failed, 1 out of date" in text
        assert "epoch 5 of 10, step 5 of 10, train, 320 samples/s" in text
        assert "job 7 on n1, segment 0 since" in text
        assert "torch.OutOfMemoryError: CUDA out of memory." in text
        assert "0.453 kWh so far (0.000951 estimated, 0.452 measured)" in text
        assert max(map(len, text.splitlines())) <= WIDTH
        assert (f"{ONE}       1  done" in text) == every_run
        assert not any(line != line.rstrip() for line in text.splitlines())


def test_long_names_give_way_to_numbers(tmp_path: Path) -> None:
    series = {f"{'images' * 20}{i}": CAMPAIGN["series"]["images"] for i in range(2)}  # type: ignore[index]
    made = Made.create(tmp_path, series=series, figures={"figure2": {"series": list(series)}})
    for line in status_text(made.status()).splitlines():
        assert len(line) <= WIDTH
    assert "…" in status_text(made.status())


def test_unknown_energy_is_named_and_the_sum_is_a_least(made: Made) -> None:
    rows = [{**row, "energy_j": None} for row in WHOLE]
    made.publish()
    made.account(rows=rows)
    text = status_text(made.status())
    assert "at least 0.45 kWh so far" in text
    assert f"more was used than was recorded by:\n  {TWO} repeat 1" in text


def test_the_budget_is_shown_beside_what_was_used(tmp_path: Path) -> None:
    made = Made.create(tmp_path, energy_budget_kwh=12.5)
    assert "0 kWh so far of 12.5" in status_text(made.status())


def test_json_has_all_runs_and_null_for_what_is_not_known(made: Made) -> None:
    everything(made)
    said = json.loads(json.dumps(status_json(made.status()), allow_nan=False))
    assert len(said["runs"]) == said["runs_total"] == sum(said["counts"].values()) == 4
    (series,) = said["series"]
    assert (series["series"], series["runs"], series["counts"]) == ("images", 4, said["counts"])
    keys = {frozenset(run) for run in said["runs"]}
    assert len(keys) == 1
    (done,) = (run for run in said["runs"] if run["state"] == "done")
    assert [done[key] for key in ("epoch", "power_w", "ends_s", "job", "reason")] == [None] * 5


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_bar_is_full_only_when_all_is_done() -> None:
    assert bar(0, 0) == f"[{'.' * 40}]   0 %"
    assert bar(999_999, 1_000_000) == f"[{'#' * 39}.]  99 %"
    assert bar(7, 7) == f"[{'#' * 40}] 100 %"


def test_a_time_of_another_day_has_its_date() -> None:
    noon = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
    assert clock(noon, noon + 60) == "12:00:00"
    assert clock(noon, noon + 86_400) == "2026-11-22 12:00:00"


def test_every_key_of_the_json_and_every_state_is_documented(made: Made) -> None:
    text = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    said = status_json(made.status())
    for key in (*said, *said["runs"][0], *said["series"][0]):
        assert f"`{key}`" in text, key
    for state in said["counts"]:
        assert f"| {state.replace('_', ' ')} |" in text, state


# --- damage -------------------------------------------------------------------------------------

WRONG = [
    b"",
    b"null",
    b"[1]",
    b"{}",
    b"[[]]",
    b'[{"segment": {}, "outcome": []}]',
    b"\xff\x00",
    b"1e999",
]


def test_whatever_damaged_files_hold_there_is_a_status(made: Made) -> None:
    everything(made)
    submitted(made)
    dice = random.Random(3)
    kept = {path: path.read_bytes() for path in sorted(made.folder.rglob("*")) if path.is_file()}
    for path, content in kept.items():
        for other in (*WRONG, content[: len(content) // 2], dice.randbytes(200)):
            path.write_bytes(other)
            assert_is_told(made)
        path.unlink()
        assert_is_told(made)
        path.write_bytes(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_values_the_notes_hold_there_is_a_status(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    made = Made.create(tmp_path_factory.mktemp("odd"))
    folder = running(made, 45)
    epochs_of_14_s(folder, 4, step_s=5.0)
    submitted(made)
    names = ["progress.json", "position.json", "segments.json", "holder.json", "segment-000.json"]
    paths = [*(folder / name for name in names), *(made.work / "attempts").glob("*.json")]
    path = data.draw(st.sampled_from(paths))
    said = json.loads(path.read_text())
    one = said[0] if isinstance(said, list) else said
    one[data.draw(st.sampled_from(sorted(one)))] = data.draw(JSON)
    path.write_text(json.dumps(said))
    assert_is_told(made)


def assert_is_told(made: Made) -> None:
    status = made.status()
    assert len(status.runs) == 4
    json.dumps(status_json(status), allow_nan=False)
    assert max(map(len, status_text(status).splitlines())) <= WIDTH


def test_files_that_come_and_go_meanwhile_do_no_harm(made: Made) -> None:
    folder = running(made, 45)
    done = threading.Event()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while not done.is_set():
                running(made, 45)
                epochs_of_14_s(folder, 4, step_s=5.0)
                record(folder, {"CUDA:0_POWER": gpu(30), "CUDA:1_POWER": gpu(30)})
                made.publish(ONE)
                made.account(ONE)
                for path in (folder, made.results / "runs" / ONE, made.results / "energy"):
                    shutil.rmtree(path, ignore_errors=True)
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(60):
            assert_is_told(made)
    finally:
        done.set()
        other.join()
    assert not errors


def test_it_needs_neither_torch_nor_perun() -> None:
    code = (
        "import sys, scalewatt.results.show; print(sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "'pyarrow'" in loaded
    for package in ("torch", "perun", "mpi4py", "snakemake"):
        assert f"'{package}'" not in loaded
