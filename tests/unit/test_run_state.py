"""What a run does, by its marker, its record and Slurm's queue."""

from __future__ import annotations

import time
from typing import Any

import pytest
from status_files import Made, begin_segment, queue, running, stopped, submitted

from scalewatt.common.files import NO_ROOM, write_json
from scalewatt.run_files.lock import SILENT_S
from scalewatt.run_files.record import note_outcome, note_position
from scalewatt.tracking.status import GONE_SILENT_S


def state(made: Made) -> tuple[str, str | None]:
    run = made.run()
    return run["state"], run["reason"]


# --- results --------------------------------------------------------------------------------------


def test_a_finished_run_is_done(made: Made) -> None:
    made.publish()
    run = made.run()
    assert (run["state"], run["updates"], run["updates_total"]) == ("done", 100, 100)


def test_a_finished_run_of_another_spec_is_out_of_date(made: Made) -> None:
    made.publish(seed=5)
    run = made.run()
    assert (run["state"], run["updates"]) == ("out_of_date", None)
    running(made)
    assert made.run()["state"] == "running", "it is trained again"


# --- the queue ------------------------------------------------------------------------------------


def test_a_submitted_run_is_queued_and_says_why_it_waits(made: Made) -> None:
    submitted(made, reason="Resources")
    run = made.run()
    assert (run["state"], run["job"], run["reason"]) == ("queued", "8", "Resources")
    stopped(made)
    assert made.run()["state"] == "queued"


def test_a_job_that_was_put_back_into_the_queue_is_queued(made: Made) -> None:
    made.held(running(made), silent_s=SILENT_S + 10)
    submitted(made, job="7", reason="BeginTime")
    assert state(made) == ("queued", "its job was put back into the queue (BeginTime)")


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_run_whose_job_is_in_no_queue_is_in_the_state_that_it_recorded(
    made: Made, is_asked: bool
) -> None:
    stopped(made)
    if is_asked:
        queue(made)
    assert made.status()["queue_answered"] is is_asked
    assert ("Slurm's queue gives no answer" in made.text()) is not is_asked
    assert made.run()["state"] == "stopped"


# --- the holder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent_s", "word", "is_said"),
    [
        (0, "running", False),
        (GONE_SILENT_S + 20, "running", True),
        (SILENT_S + 60, "failed", False),
    ],
)
def test_a_holder_elsewhere_lives_by_its_signs_of_life(
    made: Made, silent_s: float, word: str, is_said: bool
) -> None:
    made.held(running(made), silent_s=silent_s)
    run = made.run()
    assert run["state"] == word
    assert (run["silent_s"] is not None) is is_said
    assert ("no sign of life for" in made.text()) is is_said


# --- what the last segment left -------------------------------------------------------------------

KILLED = "it was killed, or its node was lost"


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([{"outcome": "stopped", "to_updates": 40}], ("stopped", None)),
        (
            [{"outcome": "stopped", "to_updates": 0}] * 2,
            ("failed", "no progress in 2 segments in a row"),
        ),
        ([{"outcome": "monitor_lost", "detail": "n1: ended"}], ("stopped", "n1: ended")),
        ([{"outcome": "refused", "detail": "n1 has one GPU"}], ("refused", "n1 has one GPU")),
        ([{"outcome": "failed", "detail": "MemoryError"}], ("failed", "MemoryError")),
        ([{"outcome": "failed", "detail": f"{NO_ROOM} of /work"}], ("failed", NO_ROOM)),
        ([{"outcome": "failed", "detail": "a"}] * 4, ("failed", "4 segments in a row, the last")),
        ([{"outcome": "killed"}], ("failed", KILLED)),
        ([{"outcome": "running"}], ("failed", KILLED)),
    ],
)
def test_the_last_segment_tells_how_a_run_stands_and_why(
    made: Made, segments: list[dict[str, Any]], expected: tuple[str, str | None]
) -> None:
    folder = made.work_folder()
    for number, segment in enumerate(segments):
        begin_segment(folder, number, **segment)
    (folder / "train.log").touch()
    run = made.run()
    assert run["state"] == expected[0] and (expected[1] or "") in (run["reason"] or "")
    assert (run["job"], run["log"]) == ("7", str(folder / "train.log"))
    assert time.time() - (run["since_s"] or 0) < 60


def test_a_run_that_was_refused_before_any_rank_says_why(made: Made) -> None:
    folder = made.work_folder()
    refused = {"since": 0, "segments": [], "refusal": "the budget is used up"}
    write_json(folder / "run.json", refused)
    assert state(made) == ("refused", "the budget is used up")
    assert "the budget is used up" in made.text()


def test_a_launcher_that_was_killed_leaves_what_its_ranks_have_recorded(made: Made) -> None:
    folder = made.work_folder()
    for number in range(4):
        begin_segment(folder, number, "killed" if number < 3 else "running")
    assert state(made)[0] == "failed" and "no progress in 4" in (state(made)[1] or "")
    note_position(folder, 40, 4, 0)
    assert state(made) == ("failed", KILLED), "it goes on from its checkpoint"
    note_outcome(folder, 3, {"outcome": "stopped", "losses": []}, lambda: None)
    assert state(made) == ("stopped", None)
