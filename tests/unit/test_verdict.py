"""A run is submitted again where that is of use, and not for ever."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_files import make_spec

from scalewatt.common import files
from scalewatt.common.files import write_json
from scalewatt.run_files.attempt_log import (
    Attempt,
    attempt_path,
)
from scalewatt.run_files.progress_files import note_position
from scalewatt.scheduling.retry_policy import Verdict, verdict

SPEC = make_spec()
RETRIES = 3


class Work:
    """A campaign's folder with one run, as its jobs leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workdir = folder / f"{SPEC.key}-dddddddd"
        self.segments: list[dict[str, Any]] = []
        self.jobs: list[str] = []
        self.held = True

    def job(
        self,
        outcome: str | None = None,
        updates: tuple[int | None, int | None] = (0, 0),
        code: int | None = None,
        detail: str | None = None,
        *,
        attempts: bool = True,
    ) -> Verdict:
        """A job of the run: submitted, perhaps begun, perhaps with a segment, ended, judged."""
        job = str(int(self.jobs[-1]) + 1 if self.jobs else 4001)
        self.jobs.append(job)
        if attempts:
            attempt = Attempt(job, "n1", 7, time.time(), time.time(), code, detail)
            write_json(attempt_path(self.folder, SPEC), asdict(attempt))
        if outcome is not None:
            number, (began, ended) = len(self.segments), updates
            segment = {"segment": number, "started_s": time.time(), "job": job, "outcome": outcome}
            segment |= {"from_updates": began, "to_updates": ended, "detail": detail}
            segment["code"] = code
            self.segments.append(segment)
            self.workdir.mkdir(exist_ok=True)
            write_json(self.workdir / "segments.json", self.segments)
        return self.judged()

    def judged(self) -> Verdict:
        return verdict(self.folder, SPEC, self.jobs, RETRIES, lambda: self.held)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_a_run_that_stopped_at_a_further_checkpoint_goes_on(work: Work) -> None:
    for number in range(20):
        found = work.job("stopped", (number, number + 1), 75)
        assert found.again, found
        assert f"update {number + 1} of 48" in found.reason


def test_two_segments_that_stop_without_progress_are_the_last(work: Work) -> None:
    assert work.job("stopped", (0, 12), 75).again
    assert work.job("stopped", (12, 12), 75).again
    found = work.job("stopped", (12, 12), 75)
    assert not found.again
    assert "no progress" in found.reason and "12 of 48" in found.reason and "2 seg" in found.reason


def test_progress_between_two_stops_is_enough(work: Work) -> None:
    for _ in range(3):
        assert work.job("stopped", (12, 12), 75).again
        assert work.job("killed", (12, 13), None).again


def test_a_segment_left_open_counts_with_what_its_checkpoint_holds(work: Work) -> None:
    assert work.job("running", (0, None)).again
    note_position(work.workdir, 12, 1, 0)
    assert work.judged().again
    assert "update 12" in work.judged().reason
    work.segments[-1] |= {"outcome": "killed", "to_updates": 12}
    assert work.job("running", (12, None)).again
    assert "killed at update 12 of 48 (2 of 3)" in work.judged().reason


@pytest.mark.parametrize("progress", [0, 5])
@pytest.mark.parametrize("outcome", ["failed", "killed"])
def test_a_crash_is_retried_so_often_and_no_more(work: Work, progress: int, outcome: str) -> None:
    verdicts = [work.job(outcome, (0, progress), 70, "ValueError: at the same place")]
    verdicts += [
        work.job(outcome, (progress, progress), 70, "ValueError: at the same place")
        for _ in range(RETRIES)
    ]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]
    assert f"{RETRIES + 1} times" in verdicts[-1].reason
    assert "ValueError: at the same place" in verdicts[-1].reason


def test_progress_gives_a_crashing_run_new_retries(work: Work) -> None:
    for number in range(10):
        assert work.job("failed", (number, number), 70).again
        assert work.job("stopped", (number, number + 1), 75).again


def test_a_run_whose_holder_has_ended_since_is_tried_a_few_times(work: Work) -> None:
    work.held = False
    verdicts = [work.job(None, code=73, detail="job 12 holds it") for _ in range(RETRIES + 1)]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]


@pytest.mark.parametrize(("outcome", "code"), [(None, 64), (None, 73), ("refused", 64)])
def test_a_run_that_was_refused_is_not_submitted_again_and_says_why(
    work: Work, outcome: str | None, code: int
) -> None:
    assert not work.judged().again, "no scheduler accepted it"
    found = work.job(outcome, code=code, detail="job 12 on n3 holds it")
    assert found == Verdict(False, "job 12 on n3 holds it")


def test_jobs_that_end_before_the_training_are_tried_a_few_times(work: Work) -> None:
    verdicts = [work.job(attempts=number % 2 == 0) for number in range(RETRIES + 1)]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]
    assert "4 jobs in a row" in verdicts[-1].reason


def test_jobs_that_never_began_are_forgotten_once_one_has(work: Work) -> None:
    for _ in range(RETRIES):
        work.job(attempts=False)
    work.job("stopped", (0, 3), 75)
    work.job(attempts=False)
    assert "(1 of 3)" in work.judged().reason


def test_a_full_disk_is_not_tried_again(work: Work) -> None:
    reason = "no space is left on the file system of /work: make room and start the run again"
    assert work.job(None, code=70, detail=reason) == Verdict(False, reason)
    assert work.job("failed", (0, 3), 70, reason) == Verdict(False, reason)


@pytest.mark.parametrize("outcome", ["failed", None])
def test_jobs_of_an_earlier_snakemake_do_not_count(work: Work, outcome: str | None) -> None:
    for _ in range(RETRIES + 1):
        work.job(outcome, (0, 0), 70)
    assert not work.judged().again
    work.jobs = work.jobs[-1:]
    assert work.job(outcome, (0, 0), 70).again


def test_jobs_of_others_do_not_count(work: Work) -> None:
    work.job("stopped", (0, 12), 75)
    ours, work.jobs = work.jobs, ["9000"]
    work.job("failed", (12, 12), 70)
    work.job(None, code=73, detail="held")
    work.jobs = ours
    assert work.judged() == Verdict(True, "stopped at a checkpoint at update 12 of 48")


def test_of_jobs_side_by_side_the_one_that_ended_counts(work: Work) -> None:
    work.job("stopped", (0, 12), 75)
    work.job("failed", (12, 12), 70)
    work.jobs.reverse()
    assert "stopped at a checkpoint" in work.judged().reason


def test_a_full_disk_is_not_tried_again_where_nothing_could_say_so(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.job("running", (12, None)).again
    monkeypatch.setattr(files, "ROOM_BYTES", 1 << 80)
    assert work.job(attempts=False) == Verdict(False, files.full_text(work.folder))


def test_a_run_that_cannot_be_recorded_gets_no_retries_whatever_its_progress(work: Work) -> None:
    lost = "n1: the sampler has ended"
    verdicts = [
        work.job("monitor_lost", (number, number + 1), 70, lost) for number in range(RETRIES + 1)
    ]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]
    assert "energy was not recorded" in verdicts[-1].reason and lost in verdicts[-1].reason
    assert "4 jobs in a row" in verdicts[-1].reason


def test_a_commands_stop_is_believed_and_its_crashes_are_counted(work: Work) -> None:
    for _ in range(5):
        assert work.job("stopped", (None, None), 75).again
    verdicts = [work.job("failed", (None, None), 70) for _ in range(RETRIES + 1)]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]


def test_a_finished_run_that_is_not_published_is_tried_a_few_times(work: Work) -> None:
    assert work.job("finished", (0, 48), 0).again
    verdicts = [work.job(None, code=0) for _ in range(RETRIES + 1)]
    assert [one.again for one in verdicts] == [True] * RETRIES + [False]


ENDS = st.sampled_from(["stopped", "killed", "failed", "monitor_lost"])


@given(ends=st.lists(ENDS, min_size=1, max_size=8))
def test_without_progress_a_run_always_comes_to_its_end(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str]
) -> None:
    work = Work(tmp_path_factory.mktemp("work"))
    again = 0
    while work.job(ends[again % len(ends)], (7, 7), 75).again:
        again += 1
        assert again <= RETRIES, "a run without progress is submitted too often"


@given(steps=st.lists(st.tuples(ENDS, st.integers(1, 9)), min_size=1, max_size=8))
def test_with_progress_a_run_always_goes_on(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    work, done = Work(tmp_path_factory.mktemp("work")), 0
    for outcome, more in steps:
        assert work.job(outcome, (done, done + more), 75).again
        done += more
