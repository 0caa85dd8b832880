"""Slurm's queue: its jobs, which of them are of a run, and what its refusals mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from status_files import Made, queue, submitted

from scalewatt.slurm.slurm_commands import (
    NoAnswerError,
    QueuedJob,
    ask,
    job_of_run,
    may_pass,
    never_starts,
    queued_jobs,
)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (None, "squeue is not found"),
        ("FAIL", "squeue failed (Unable to contact slurm controller)"),
        ("HANG", "squeue gave no answer in 0.5 s"),
    ],
)
def test_a_queue_that_fails_or_hangs_gives_no_answer(
    variable: str | None, words: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        queue(made, "7|RUNNING|n1|None|a|/|")
        monkeypatch.setenv(variable, "Unable to contact slurm controller")
        monkeypatch.setattr(ask, "__kwdefaults__", {"timeout_s": 0.5, "times": None})
    with pytest.raises(NoAnswerError) as error:
        queued_jobs()
    assert str(error.value) == words


def test_the_queue_says_state_nodes_reason_and_comment(made: Made) -> None:
    queue(
        made,
        "7|RUNNING|n[1-2]|None|uuid|/home|a comment | with bars",
        "8|PENDING||QOSMaxJobs|uuid|/home|",
        "broken",
    )
    with open(made.folder / "bin" / "answer", "ab") as answer:
        answer.write(b"6|REQUEUED|n\xff1|None|uuid|/home|\n")
    jobs = queued_jobs()
    assert list(jobs) == ["7", "8", "6"]
    seven, eight, six = jobs.values()
    assert [job.is_waiting for job in jobs.values()] == [False, True, True]
    assert (seven.nodes, six.nodes, seven.comment) == ("n[1-2]", "n\\xff1", "a comment | with bars")
    assert (seven.waits_for, eight.waits_for) == (None, "QOSMaxJobs")


@pytest.mark.parametrize("name", ["SQUEUE_STATES", "SQUEUE_PARTITION", "SLURM_TIME_FORMAT"])
def test_what_a_user_has_squeue_print_for_people_hides_no_job(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(made)
    monkeypatch.setenv(name, "RUNNING")
    assert list(queued_jobs()) == ["8"]


@pytest.mark.parametrize(
    ("comment", "folder", "is_its_job"),
    [
        ("rule_train_wildcards_results_demo_net_2", "here", True),
        ("rule_train_command_wildcards_results_demo_reproduction_net_2", "here", True),
        ("rule_train_wildcards_results_other_net_2", "here", False),
        ("rule_train_wildcards_results_demo_net_22", "here", False),
        ("rule_train_wildcards_results_demo_a_net_2", "here", False),
        ("rule_energy_wildcards_results_demo_net_2", "here", False),
        ("rule_train_wildcards_results_demo_net_2", "elsewhere", False),
    ],
)
def test_a_runs_job_is_known_by_its_comment_and_the_folder_of_its_snakemake(
    tmp_path: Path, comment: str, folder: str, is_its_job: bool
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "here")
    job = QueuedJob("7", "PENDING", "", "", "uuid", str(tmp_path / folder), comment)
    result = job_of_run({"7": job}, tmp_path / "link", "demo", "net", 2)
    assert result == (job if is_its_job else None)


STUCK = """JobHeldUser JobHeldAdmin DependencyNeverSatisfied PartitionTimeLimit BadConstraints
QOSMaxWallDurationPerJobLimit AssocGrpCPUMinutesLimit"""
PASSING = "Priority Resources QOSMaxJobsPerUserLimit AssocGrpCPURunMinutesLimit BeginTime"


def test_a_job_that_never_starts_by_itself_is_known_by_slurms_reason() -> None:
    assert all(map(never_starts, [*STUCK.split(), "launch failed requeued held"]))
    assert not any(map(never_starts, [*PASSING.split(), None]))


SENTENCE = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)"
)
LIMITS_OF_JOBS = "AssocMaxSubmitJobLimit QOSMaxJobsPerUserLimit QOSGrpSubmitJobsLimit"
LIMITS_OF_A_JOB = "QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMinGRES AssocGrpGRES"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((f"sbatch: error: {limit} {SENTENCE}", True) for limit in LIMITS_OF_JOBS.split()),
        *((f"sbatch: error: {limit} {SENTENCE}", False) for limit in LIMITS_OF_A_JOB.split()),
        (SENTENCE, True),
        ("sbatch: error: Slurm job queue full, sleeping and retrying", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Batch job submission failed: Invalid account", False),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid", False),
    ],
)
def test_a_limit_on_the_number_of_jobs_passes_and_one_on_a_job_never(
    message: str, expected: bool
) -> None:
    assert may_pass(message) is expected
