"""What Slurm's queue says, or does not."""

from __future__ import annotations

import time

import pytest
from status_files import (
    Made,
    queue,
    submitted,
)

from scalewatt.slurm import slurm_commands as slurm
from scalewatt.slurm.job_queue import GONE, ask_queue
from scalewatt.tracking.status_text import status_text


def test_a_queue_that_fails_or_hangs_gives_no_answer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask_queue(["7"]) is None, "there is no squeue"
    queue(made, "7|RUNNING|N/A|n1|None")
    monkeypatch.setenv("FAIL", "slurm_load_jobs error: Unable to contact slurm controller")
    assert ask_queue(["7"]) is None
    monkeypatch.delenv("FAIL")
    monkeypatch.setenv("HANG", "1")
    monkeypatch.setattr(slurm.ask, "__kwdefaults__", {"timeout_s": 0.5, "times": None})
    assert ask_queue(["7"]) is None


def test_a_job_that_squeue_has_forgotten_is_gone(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(made)
    monkeypatch.setenv("FAIL", "slurm_load_jobs error: Invalid job id specified")
    found = ask_queue(["7"])
    assert found is not None and "7" not in found


def test_the_queue_says_state_end_nodes_and_reason(made: Made) -> None:
    queue(made, "7|RUNNING|2026-11-22T10:00:00|n[1-2]|None", "8|PENDING|N/A||QOSMaxJobs", "broken")
    with open(made.folder / "bin" / "answer", "ab") as answer:
        answer.write(b"6|RUNNING|N/A|n\xff1|None\n")
    found = ask_queue(["7", "8", "9"])
    assert found is not None
    seven, eight, nine = (found.get(job, GONE) for job in ("7", "8", "9"))
    assert (seven.state, eight.state, nine.state) == ("running", "waiting", "gone")
    assert (seven.node_list, eight.node_list, nine.node_list) == ("n[1-2]", "", "")
    assert (seven.waits_for, eight.waits_for) == (None, "QOSMaxJobs")
    assert found["6"].node_list == "n\\xff1"
    assert seven.ends_s == time.mktime((2026, 11, 22, 10, 0, 0, 0, 0, -1))
    assert eight.ends_s is None is nine.ends_s


@pytest.mark.parametrize("name", ["SQUEUE_STATES", "SQUEUE_PARTITION", "SLURM_TIME_FORMAT"])
def test_what_a_user_has_squeue_print_for_people_hides_no_job(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(made, "8|PENDING|N/A||Priority")
    submitted(made)
    monkeypatch.setenv(name, "RUNNING")
    assert made.run().state.state == "queued"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        *((one, True) for one in ("JobHeldUser", "JobHeldAdmin", "DependencyNeverSatisfied")),
        *((one, True) for one in ("PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit")),
        *((one, True) for one in ("AssocGrpCPUMinutesLimit", "launch failed requeued held")),
        *((one, False) for one in ("Priority", "Resources", "QOSMaxJobsPerUserLimit", "None")),
    ],
)
def test_a_job_that_never_starts_by_itself_is_shown_with_slurms_reason(
    reason: str, shown: bool, made: Made
) -> None:
    queue(made, f"8|PENDING|N/A||{reason}")
    submitted(made)
    text = status_text(made.status())
    assert (f"    job 8: {reason}" in text) is shown
    assert ("not to start by itself" in text) is shown
