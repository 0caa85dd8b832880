"""The executor of a cluster's jobs: real Snakemake, real plugin, Slurm's programs played."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm
from workspace import start_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SNAKEFILE = """
import snakemake_executor_plugin_scalewatt_slurm as executor
executor.WAIT_S = executor.MOST_WAIT_S = float(config.get("wait_s", 0.5))
made_ready = executor.slurm.Executor.__post_init__
def __post_init__(self, **settings):
    import time
    time.sleep(float(config.get("start_s", 0.0)))
    made_ready(self, **settings)
executor.slurm.Executor.__post_init__ = __post_init__
rule train:
    output: "{run}/done"
    message: "train {wildcards.run} (in pieces)"
    resources: slurm_partition="accelerated", slurm_account="test", gres="gpu:4", runtime=9, mem_mb=0, mpi=""
    retries: 2
    shell: "false"
"""
INVALID = "Batch job submission failed: Invalid account"
POLICY = (
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)"
)
FULL = f"QOSMaxSubmitJobPerUserLimit\nsbatch: error: {POLICY}"
SILENT = "Batch job submission failed: Socket timed out on send/recv operation"


@dataclass(frozen=True)
class Ended:
    """A Snakemake that has ended."""

    folder: Path
    slurm: FakeSlurm
    code: int
    output: str

    @property
    def submitted(self) -> Counter[str]:
        """How often sbatch was called for each run."""
        calls = self.slurm.calls("sbatch")
        return Counter(re.findall(r"--comment rule_train_wildcards_(\S+)", "\n".join(calls)))

    def lines(self, name: str) -> list[str]:
        """What was reported of a run, without the announcements of its jobs."""
        return [line for line in self.output.splitlines() if line.startswith(f"train {name}: ")]

    def is_done(self, name: str) -> bool:
        return (self.folder / name / "done").exists()


class Project:
    """A workflow of one rule, and the Slurm that its jobs go to."""

    def __init__(self, folder: Path, runs: dict[str, list[dict[str, Any]]], **config: Any) -> None:
        self.folder, self.slurm = folder, FakeSlurm(folder / "slurm")
        self.targets = [f"{name}/done" for name in runs]
        self.slurm.plan({f"rule_train_wildcards_{name}": turns for name, turns in runs.items()})
        (folder / "Snakefile").write_text(SNAKEFILE)
        settings = [f"{key}={value}" for key, value in config.items()]
        polls = ("--scalewatt-slurm-init-seconds-before-status-checks", "1")
        self.command = [
            *(sys.executable, "-m", "snakemake", "--executor", "scalewatt-slurm", "--jobs", "99"),
            *(*polls, "--keep-going", "--latency-wait", "0", "--nolock"),
            *(["--config", *settings] if settings else []),
            *("--", *self.targets),
        ]

    def run(self, until: Callable[[], bool] | None = None) -> Ended:
        """Run Snakemake, and end it by Ctrl-C once something holds."""
        chosen = {"SACCT_FORMAT": "JobName", "SQUEUE_STATES": "PENDING"}
        process = start_process(
            self.command, cwd=self.folder, env=self.slurm.environment() | chosen
        )
        try:
            while until is not None and not until():
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.1)
            if until is not None:
                process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=150)
        finally:
            process.kill()
        return Ended(self.folder, self.slurm, process.returncode, output)


def finishes(name: str) -> dict[str, Any]:
    """A job that makes a run's output."""
    return {"do": f"mkdir -p {name}; touch {name}/done"}


RUNS: dict[str, list[dict[str, Any]]] = {
    "finishes": [finishes("finishes")],
    "silent": [{"refuse": SILENT}, {"refuse": SILENT}, finishes("silent")],
    "unheard": [
        finishes("unheard")
        | {"refuse": SILENT, "accepted": True, "states": [*["RUNNING"] * 9, "COMPLETED"]}
        | {"queue": "RUNNING"},
    ],
    "full": [*({"refuse": FULL} for _ in range(4)), finishes("full")],
    "wrong": [{"refuse": INVALID}],
    "fails": [{"states": ["FAILED"]}],
    "lost": [{}, finishes("lost")],
    "overlooked": [finishes("overlooked") | {"states": ["RUNNING", "RUNNING", "COMPLETED"]}],
    "node": [{"states": ["NODE_FAIL"]}, finishes("node")],
    "requeued": [finishes("requeued") | {"states": ["NODE_FAIL", "COMPLETED"], "queue": "PENDING"}],
    "completing": [
        finishes("completing")
        | {"states": ["NODE_FAIL", "NODE_FAIL", "COMPLETED"], "queue": "COMPLETING"}
    ],
    "preempted": [{"states": ["PREEMPTED"]}, finishes("preempted")],
    "cancelled": [{"states": ["CANCELLED by 0"]}, finishes("cancelled")],
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All kinds of ends, side by side."""
    project = Project(tmp_path_factory.mktemp("campaign"), RUNS)
    project.slurm.fails({"squeue -h -u": 2, "JobID,State": 2})
    return project.run()


@pytest.mark.parametrize(
    ("name", "done", "submitted", "reported"),
    [
        ("finishes", True, 1, []),
        # Slurm does not answer, answers too late, or has too many jobs: no retry is used up.
        ("silent", True, 3, [SILENT]),
        ("unheard", True, 1, ["waits for its submission"]),
        ("full", True, 5, ["QOSMaxSubmitJobPerUserLimit"]),
        ("overlooked", True, 1, []),
        ("wrong", False, 1, []),
        # outputs are missing
        ("lost", True, 2, []),
        ("fails", False, 3, ["submitted again", "submitted again"]),
        # nodes that fail, are taken away, or may come back
        ("node", True, 2, ["submitted again"]),
        ("requeued", True, 1, []),
        ("completing", True, 1, []),
        ("preempted", True, 2, ["PREEMPTED; submitted again"]),
        ("cancelled", True, 2, ["submitted again"]),
    ],
)
def test_a_job_is_submitted_as_often_as_is_of_use_and_the_user_reads_why(
    campaign: Ended, name: str, done: bool, submitted: int, reported: list[str]
) -> None:
    assert (campaign.is_done(name), campaign.submitted[name]) == (done, submitted), campaign.output
    lines = campaign.lines(name)
    assert len(lines) == len(reported), lines
    assert all(part in line for line, part in zip(lines, reported, strict=True)), lines


def test_snakemake_fails_in_the_end_without_a_traceback(campaign: Ended) -> None:
    assert campaign.code == 1
    assert "Traceback" not in campaign.output


def test_after_a_node_failed_no_node_is_excluded(campaign: Ended) -> None:
    assert all("--exclude" not in call for call in campaign.slurm.calls("sbatch"))


def test_what_a_user_has_slurm_print_for_people_changes_no_answer(campaign: Ended) -> None:
    assert not (campaign.slurm.root / "blinded").exists()


def test_without_accounting_slurmctld_tells_how_jobs_ended(tmp_path: Path) -> None:
    project = Project(
        tmp_path, {"a": [finishes("a")], "b": [{"states": ["TIMEOUT"]}, finishes("b")]}
    )
    project.slurm.fails({"sacct -X": 10**6})
    ended = project.run()
    assert ended.code == 0 and ended.submitted == {"a": 1, "b": 2}, ended.output
    assert "TIMEOUT; submitted again" in "".join(ended.lines("b"))


def test_an_executor_that_starts_slowly_is_not_asked_for_jobs_before(tmp_path: Path) -> None:
    ended = Project(tmp_path, {"a": [finishes("a")]}, start_s=2).run()
    assert ended.code == 0 and "no attribute" not in ended.output, ended.output


def test_a_limit_that_slurm_does_not_name_holds_up_no_other_job(tmp_path: Path) -> None:
    turns = {"a": [{"refuse": POLICY}], "b": [{"refuse": POLICY}, finishes("b")]}
    project = Project(tmp_path, turns, wait_s=0.3)
    ended = project.run(until=(tmp_path / "b" / "done").exists)
    assert ended.is_done("b") and not ended.is_done("a")


def test_what_waits_for_its_submission_is_not_submitted_after_ctrl_c(tmp_path: Path) -> None:
    project = Project(tmp_path, {name: [{"refuse": FULL}] for name in "abcd"}, wait_s=30)
    began_s = time.monotonic()
    ended = project.run(until=lambda: len(project.slurm.calls("sbatch")) == 4)
    assert time.monotonic() - began_s < 25
    assert project.slurm.states() == {} and ended.submitted.total() == 4, ended.output


def test_ctrl_c_cancels_the_jobs_that_were_submitted(tmp_path: Path) -> None:
    project = Project(tmp_path, {"a": [{"states": ["RUNNING"], "queue": "RUNNING"}]})
    ended = project.run(until=lambda: bool(project.slurm.calls("squeue")))
    assert ended.code != 0
    assert project.slurm.states() == {"1000": "CANCELLED"}, ended.output
