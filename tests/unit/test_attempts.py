"""Notes of submissions and attempts: complete, or none."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import strategies as st
from run_files import make_spec

from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import write_json
from scalewatt.run_files.attempt_log import (
    Attempt,
    attempt_path,
    note_no_retries,
    note_submission,
    noted_attempt,
    read_attempt,
    read_no_retries,
    read_submission,
    submission_path,
)
from scalewatt.run_files.progress_files import (
    done_updates,
    find_workdirs,
    note_position,
)
from scalewatt.run_files.run_lock import LockedError

SPEC = make_spec()


@pytest.fixture(autouse=True)
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")


def test_an_attempt_is_noted_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    before = time.time()
    with noted_attempt(tmp_path, SPEC) as note:
        begun = read_attempt(tmp_path, SPEC)
        assert begun is not None
        assert (begun.job, begun.pid, begun.ended_s, begun.code) == (
            "4711",
            os.getpid(),
            None,
            None,
        )
        note.code, note.reason = 75, None
    ended = read_attempt(tmp_path, SPEC)
    assert ended is not None and ended.ended_s is not None
    assert before <= ended.started_s <= ended.ended_s <= time.time()
    assert (ended.code, ended.reason) == (75, None)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (InputError("a.yaml: gpus: is 3"), ExitCode.REFUSED, "a.yaml: gpus: is 3"),
        (LockedError("held by job 12", None), ExitCode.HELD, "held by job 12"),
        (ValueError("at\nthe end"), ExitCode.FAILED, "ValueError: at the end"),
        (KeyboardInterrupt(), ExitCode.FAILED, "KeyboardInterrupt"),
    ],
)
def test_what_an_attempt_raises_is_noted_and_goes_on(
    tmp_path: Path, error: BaseException, code: int, reason: str
) -> None:
    with pytest.raises(type(error)), noted_attempt(tmp_path, SPEC):
        raise error
    found = read_attempt(tmp_path, SPEC)
    assert found is not None and (found.code, found.reason) == (code, reason)


def test_an_attempt_without_a_code_has_failed(tmp_path: Path) -> None:
    with noted_attempt(tmp_path, SPEC):
        pass
    found = read_attempt(tmp_path, SPEC)
    assert found is not None and found.code == ExitCode.FAILED


def test_an_attempt_that_cannot_be_noted_goes_on(tmp_path: Path) -> None:
    (tmp_path / "attempts").write_text("in the way")
    with noted_attempt(tmp_path, SPEC) as note:
        note.code = 0
    assert read_attempt(tmp_path, SPEC) is None


def test_a_submission_is_noted_with_who_made_it(tmp_path: Path) -> None:
    note_submission(tmp_path, SPEC, "12", "logs/12.log")
    found = read_submission(tmp_path, SPEC)
    assert found is not None
    assert (found.job, found.log, found.pid) == ("12", "logs/12.log", os.getpid())


def test_an_attempt_that_is_refused_leaves_the_holders_note_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with noted_attempt(tmp_path, SPEC):
        holders = read_attempt(tmp_path, SPEC)
        monkeypatch.setenv("SLURM_JOB_ID", "4712")
        with pytest.raises(LockedError), noted_attempt(tmp_path, SPEC):
            assert read_attempt(tmp_path, SPEC) == holders, "it waits"
            raise LockedError("held by job 4711", None)
        assert read_attempt(tmp_path, SPEC) == holders == read_attempt(tmp_path, SPEC, "4711")
        refused = read_attempt(tmp_path, SPEC, "4712")
        assert refused is not None
        assert (refused.code, refused.reason) == (ExitCode.HELD, "held by job 4711")
    assert read_attempt(tmp_path, SPEC, "4713") is None


def test_a_requeued_job_that_its_own_ranks_keep_out_was_refused(tmp_path: Path) -> None:
    write_json(attempt_path(tmp_path, SPEC), asdict(Attempt("4711", "n1", 1, 1.7e9)))
    with pytest.raises(LockedError), noted_attempt(tmp_path, SPEC):
        raise LockedError("held by job 4711", None)
    found = read_attempt(tmp_path, SPEC, "4711")
    assert found is not None and found.code == ExitCode.HELD


@pytest.mark.parametrize("begins", [True, False])
def test_an_attempt_after_a_killed_one_is_noted_once_it_holds_the_run_or_ends(
    tmp_path: Path, begins: bool
) -> None:
    killed = Attempt("4710", "n1", 1, 1.7e9)
    write_json(attempt_path(tmp_path, SPEC), asdict(killed))
    with noted_attempt(tmp_path, SPEC) as note:
        if begins:
            note.begin()
        latest = read_attempt(tmp_path, SPEC)
        assert latest is not None and latest.job == ("4711" if begins else "4710")
        note.code, note.reason = ExitCode.REFUSED, "bad data"
    found = read_attempt(tmp_path, SPEC)
    assert found is not None and (found.job, found.code) == ("4711", ExitCode.REFUSED)


def test_a_run_has_no_further_retries_until_it_is_submitted_or_begun_again(tmp_path: Path) -> None:
    assert read_no_retries(tmp_path, SPEC) is None
    note_no_retries(tmp_path, SPEC, "12", "it makes\nno progress")
    found = read_no_retries(tmp_path, SPEC)
    assert found is not None
    assert (found.job, found.reason) == ("12", "it makes no progress")
    note_submission(tmp_path, SPEC, "13", None)
    assert read_no_retries(tmp_path, SPEC) is None
    note_no_retries(tmp_path, SPEC, None, "no energy is left")
    with noted_attempt(tmp_path, SPEC) as note:
        assert read_no_retries(tmp_path, SPEC) is None
        note_no_retries(tmp_path, SPEC, "4711", "it hangs")
        note.code = 75
    assert read_no_retries(tmp_path, SPEC) is not None, "its end is none after it got no retries"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["job", "host", "pid", "started_s", "ended_s", "code", "reason", "submitted_s", "log", "x"]
)


def test_a_torn_note_is_none(tmp_path: Path) -> None:
    note_submission(tmp_path, SPEC, "12", None)
    path = submission_path(tmp_path, SPEC)
    path.write_bytes(path.read_bytes()[:-9])
    assert read_submission(tmp_path, SPEC) is None


def test_the_working_directory_that_was_used_last_counts(tmp_path: Path) -> None:
    assert find_workdirs(tmp_path, SPEC) == [] and done_updates(tmp_path, SPEC) == 0
    for number, data in enumerate(("dddddddd", "eeeeeeee")):
        workdir = tmp_path / f"{SPEC.key}-{data}"
        workdir.mkdir()
        note_position(workdir, 12 * (number + 1), number + 1, 0)
        os.utime(workdir / "position.json", (1e9 + number, 1e9 + number))
    assert [path.name[-8:] for path in find_workdirs(tmp_path, SPEC)] == ["eeeeeeee", "dddddddd"]
    assert done_updates(tmp_path, SPEC) == 24
