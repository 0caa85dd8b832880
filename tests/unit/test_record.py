"""A run's working directory: its name, its segments in run.json, its position in progress.json."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_files import NAME, make_spec

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.run_files.inventory import find_workdirs
from scalewatt.run_files.record import (
    STARTED_BY,
    WorkDir,
    done_updates,
    note_outcome,
    note_position,
    open_workdir,
    read_ended_run,
    read_run,
)

pytestmark = pytest.mark.usefixtures("outside_of_slurm")
SPEC = make_spec()
DATA = "d" * 64
COMMAND = make_spec(dataset={"name": "command", "format": "command"})


# --- the folder ---------------------------------------------------------------------------------


def test_the_folder_is_keyed_by_the_hashes_of_spec_and_data_and_keeps_what_it_has(
    tmp_path: Path,
) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert work.path == tmp_path / f"{NAME}-1-{SPEC.sha256[:12]}-dddddddd"
        assert work.perun.is_dir() and not work.finished
        assert read_spec(work.path / "spec.json") == SPEC
        (work.path / "checkpoint.pt").write_text("state")
    with (
        open_workdir(tmp_path, SPEC, DATA) as first,
        open_workdir(tmp_path, make_spec(epochs=5), DATA) as second,
        open_workdir(tmp_path, make_spec(repeat=2), DATA) as third,
        open_workdir(tmp_path, SPEC, "e" * 64) as fourth,
    ):
        assert len({work.path for work in (first, second, third, fourth)}) == 4
        assert (first.path / "checkpoint.pt").read_text() == "state"


def test_a_command_that_is_trained_is_opened_whatever_its_files_have_become(tmp_path: Path) -> None:
    with open_workdir(tmp_path, COMMAND, None, {"a.py": "1" * 64}) as begun:
        pass
    with open_workdir(tmp_path, COMMAND, None, {"a.py": "2" * 64}) as afresh:
        assert afresh.path != begun.path
    (begun.path / "result.json").touch()
    with open_workdir(tmp_path, COMMAND, None, {"a.py": "3" * 64}) as work:
        assert work.path == begun.path and work.finished


def test_the_folder_that_was_used_last_counts(tmp_path: Path) -> None:
    assert find_workdirs(tmp_path, SPEC) == [] and done_updates(tmp_path, SPEC) == 0
    for number, data in enumerate(("dddddddd", "eeeeeeee")):
        workdir = tmp_path / f"{SPEC.key}-{data}"
        workdir.mkdir()
        note_position(workdir, 12 * (number + 1), number + 1, 0)
        os.utime(workdir / "progress.json", (1e9 + number, 1e9 + number))
    assert [path.name[-8:] for path in find_workdirs(tmp_path, SPEC)] == ["eeeeeeee", "dddddddd"]
    assert done_updates(tmp_path, SPEC) == 24
    # Of a finished one nothing is left but to train other data.
    (workdir / "result.json").touch()
    assert done_updates(tmp_path, SPEC) == 0


# --- run.json -----------------------------------------------------------------------------------


def outcomes(work: WorkDir) -> list[str]:
    return [segment["outcome"] for segment in work.record()["segments"]]


def updates(work: WorkDir) -> list[tuple[int | None, int | None]]:
    return [
        (segment["from_updates"], segment["to_updates"]) for segment in work.record()["segments"]
    ]


def test_segments_are_counted_and_keep_outcome_code_reason_job_software_and_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [("stopped", None, 75), ("failed", "why", 70), ("finished", None, 0)]
    for number, end in enumerate(ends):
        monkeypatch.setenv("SLURM_JOB_ID", f"{number}")
        with open_workdir(tmp_path, SPEC, DATA) as work:
            assert work.begin_segment({"scratch": None}, {"commit": "c"}) == number
            note_position(work.path, 12 * (number + 1), number + 1, 0)
            work.end_segment(*end)
            assert work.record()["order"] == {"segment": number, "scratch": None}
    segments = work.record()["segments"]
    assert [(s["outcome"], s.get("detail"), s["code"]) for s in segments] == ends
    assert [(s["segment"], s["job"]) for s in segments] == [(0, "0"), (1, "1"), (2, "2")]
    assert updates(work) == [(0, 12), (12, 24), (24, 36)]
    assert all(
        s["started_s"] <= s["ended_s"] and s["software"] == {"commit": "c"} for s in segments
    )


def test_a_segment_left_open_was_killed_or_ended_as_rank_0_wrote(tmp_path: Path) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.begin_segment({}, {})
        note_position(work.path, 7, 0, 7)
        note_outcome(work.path, 0, {"outcome": "stopped", "losses": []}, lambda: None)
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.open_record()
        work.begin_segment({}, {})
        note_position(work.path, 9, 0, 9)
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert outcomes(work) == ["stopped", "running"]
        ended = read_ended_run(work.path, SPEC)["segments"]
        work.open_record()
        assert work.record()["segments"] == ended, "as Snakemake and status see it before"
        assert outcomes(work) == ["stopped", "killed"]
        assert updates(work) == [(0, 7), (7, 9)]
        assert [s["ended_s"] for s in work.record()["segments"]] == [None, None]


def test_ranks_that_end_after_their_launcher_failed_say_how_the_segment_ended(
    tmp_path: Path,
) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.begin_segment({}, {})
        work.end_segment("failed", "srun: error: Node failure on n1")
        work.open_record()
        assert outcomes(work) == ["failed"]
        note_outcome(work.path, 0, {"outcome": "finished", "losses": []}, lambda: None)
        work.open_record()
        assert outcomes(work) == ["finished"]


def test_updates_are_unknown_of_a_command_and_of_a_checkpoint_without_its_position(
    tmp_path: Path,
) -> None:
    with open_workdir(tmp_path, COMMAND, None, {}) as work:
        work.begin_segment({}, {})
        work.end_segment("stopped")
        assert updates(work) == [(None, None)]
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.begin_segment({}, {})
        (work.path / "checkpoint.pt").touch()
        work.end_segment("failed")
        assert updates(work) == [(0, None)]


@pytest.mark.parametrize(
    ("starters", "is_anew"), [("ab", True), ("aa", False), ("a-", True), ("--", True)]
)
def test_tries_of_one_snakemake_count_together_and_those_of_others_or_by_hand_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starters: str, is_anew: bool
) -> None:
    for number, starter in enumerate(starters):
        monkeypatch.delenv(STARTED_BY, raising=False)
        if starter != "-":
            monkeypatch.setenv(STARTED_BY, starter)
        with open_workdir(tmp_path, SPEC, DATA) as work:
            work.open_record()
            if number == 0:
                work.begin_segment({}, {})
                work.end_segment("stopped")
                work.refuse("used up")
    run = read_run(work.path)
    assert (run["since"], run["refusal"]) == ((1, None) if is_anew else (0, "used up"))


@pytest.mark.parametrize("content", [b"", b"[]"])
def test_segments_of_a_damaged_record_are_not_forgotten(tmp_path: Path, content: bytes) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        (work.path / "run.json").write_bytes(content)
        assert read_run(work.path)["segments"] == []
        for change in (work.open_record, lambda: work.begin_segment({}, {})):
            with pytest.raises(InputError, match=r"run\.json"):
                change()
        assert (work.path / "run.json").read_bytes() == content
