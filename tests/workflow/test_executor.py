"""The executor of measured trainings: real Snakemake, real plugin, Slurm's programs played."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.processes import machine_id, process_started_s
from scalewatt.run_files.attempt_log import read_no_retries, read_submission, submission_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SNAKEFILE = """
from pathlib import Path
from scalewatt.scheduling import submissions
submissions._ANSWER_AGE_S = config.get("answer_age_s", submissions._ANSWER_AGE_S)
if "wait_s" in config:
    from snakemake_executor_plugin_scalewatt_slurm import waiting_line
    waiting_line.WAITS_S, waiting_line.PATIENCE_S = (config["wait_s"],), 2
def spent():
    with open("asked", "a") as asked:
        asked.write("once ")
    return float(Path("spent").read_text())
SUBMISSIONS = submissions.Submissions(
    Path("work"), 2, config.get("budget"), spent, lambda spec: config.get("whole")
)
SUBMISSIONS_AGAIN = submissions.Submissions(Path("work.reproduce"), 2)
ASKS = dict(slurm_partition="accelerated", gres="gpu:4", runtime=9, mem_mb=0, mpi="")
rule train:
    input: spec="{run}/spec.json"
    output: "{run}/done"
    message: "train {wildcards.run} (in pieces)"
    resources: **ASKS
    shell: "false"
rule run_again:
    input: spec="{run}/spec.json"
    output: "{run}/again"
    message: "train {wildcards.run} again (in pieces)"
    resources: **ASKS
    shell: "false"
rule probe:
    output: "{run}/probe"
    message: "probe {wildcards.run}"
    resources: **ASKS
    shell: "false"
rule other:
    output: "{run}/other"
    retries: 1
    message: "prepare {wildcards.run}"
    resources: **ASKS
    shell: "false"
"""
FAKE_RUN = f"{sys.executable} {Path(__file__).parent / 'fake_run.py'}"
INVALID = "Batch job submission failed: Invalid account"
POLICY = (
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
    "and/or time limits)"
)
FULL = f"QOSMaxSubmitJobPerUserLimit\nsbatch: error: {POLICY}"
SILENT = "Batch job submission failed: Socket timed out on send/recv operation"


class Project:
    """A workflow of three rules, and the Slurm that its jobs go to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.slurm = folder, FakeSlurm(folder / "slurm")
        (folder / "Snakefile").write_text(SNAKEFILE)
        (folder / "spent").write_text("0")

    def run(self, name: str) -> RunSpec:
        """Write the spec of a run of 90 updates."""
        spec = RunSpec(
            configuration=name, repeat=1, model="m", phase="train", device="a", gpus=1, nodes=1,
            ranks_per_node=1, local_batch_size=1, global_batch_size=1, dataset={},
            dataset_fraction="1", dataset_samples=90, validation_samples=None, protocol="paper",
            epochs=1, seed=0, sampling_period_s=1, settings={},
        )  # fmt: skip
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "spec.json").write_text(spec.text)
        return spec

    def start(self, *targets: str, jobs: int = 99, **config: Any) -> subprocess.Popen[str]:
        """Start Snakemake on targets, as a profile would; with `variables` in its environment."""
        variables = config.pop("variables", {})
        settings = [f"{key}={value}" for key, value in config.items()]
        command = [
            *(
                sys.executable,
                "-m",
                "snakemake",
                "--executor",
                "scalewatt-slurm",
                "--jobs",
                str(jobs),
            ),
            *("--scalewatt-slurm-init-seconds-before-status-checks", "1", "--retries", "50"),
            *("--keep-going", "--latency-wait", "0", "--nolock"),
            *(["--config", *settings] if settings else []),
            *("--", *targets),
        ]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.slurm.environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def hold(project: Project, spec: RunSpec) -> None:
    """Let this very process hold the run."""
    workdir = project.folder / "work" / f"{spec.key}-data"
    workdir.mkdir(parents=True)
    holder = {
        **{"host": socket.gethostname(), "pid": os.getpid(), "job": None, "since_s": time.time()},
        **{"pid_started_s": process_started_s(os.getpid()), "machine": machine_id()},
    }
    (workdir / "holder.json").write_text(json.dumps(holder))


def queue(project: Project, spec: RunSpec) -> None:
    """Let another Snakemake have submitted the run."""
    path = submission_path(project.folder / "work", spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {"job": "77", "log": None, "submitted_s": 1.7e9, "host": "login9", "pid": 4321}
    path.write_text(json.dumps(note))
    project.slurm.holds("77", "PENDING")


def ends(name: str, *words: object, state: str = "FAILED") -> dict[str, Any]:
    """One job of a run: what fake_run.py notes, and what Slurm says of it."""
    return {"do": " ".join(map(str, (FAKE_RUN, name, *words))), "states": [state]}


RUNS: dict[str, list[dict[str, Any]]] = {
    "finishes": [ends("finishes", state="COMPLETED")],
    "wrong": [{"refuse": INVALID}],
    "wrong-too": [{"refuse": INVALID}],
    "unheard": [
        ends("unheard", state="COMPLETED")
        | {"refuse": SILENT, "accepted": True, "queue": ["RUNNING"]},
    ],
    "published": [{"refuse": SILENT, "do": f"{FAKE_RUN} published published"}],
    "held": [{}],
    "queued": [{}],
    "elsewhere": [{}],
    "pieces": [
        *(ends("pieces", 75, "stopped", at, at + 30, state="TIMEOUT") for at in (0, 30)),
        ends("pieces", 0, "finished", 60, 90, state="COMPLETED"),
    ],
    "stuck": [ends("stuck", 75, "stopped", 30, 30)],
    "crashes": [ends("crashes", 70, "failed", 30, 30)],
    "refused": [ends("refused", 64)],
    "lost": [{}, ends("lost", state="COMPLETED")],
    "completing": [
        ends("completing", state="COMPLETED")
        | {"states": ["NODE_FAIL", "NODE_FAIL", "COMPLETED"], "queue": ["COMPLETING"]}
    ],
}
OTHERS: dict[str, list[dict[str, Any]]] = {
    "fails": [{"states": ["FAILED"]}],
    "missing": [{}, {"do": "mkdir -p missing; touch missing/other"}],
    "silent": [
        *({"refuse": SILENT} for _ in range(2)),
        {"do": "mkdir -p silent; touch silent/other"},
    ],
    "overlooked": [
        {
            **{"states": ["RUNNING", "RUNNING", "COMPLETED"]},
            "do": "mkdir -p overlooked; touch overlooked/other",
        }
    ],
    "node": [{"states": ["NODE_FAIL"]}, {"do": "mkdir -p node; touch node/other"}],
    "requeued": [
        {
            **{"states": ["NODE_FAIL", "COMPLETED"], "queue": ["PENDING"]},
            "do": "mkdir -p requeued; touch requeued/other",
        }
    ],
    "preempted": [
        {"states": ["PREEMPTED"]},
        {"do": "mkdir -p preempted; touch preempted/other"},
    ],
    "cancelled": [
        {"states": ["CANCELLED by 0"]},
        {"do": "mkdir -p cancelled; touch cancelled/other"},
    ],
}


@dataclass(frozen=True)
class Ended:
    """A Snakemake that has ended."""

    project: Project
    code: int
    output: str

    @property
    def submitted(self) -> Counter[str]:
        """How often sbatch was called for each run."""
        calls = self.project.slurm.calls("sbatch")
        return Counter(re.findall(r"--comment rule_\w+_wildcards_(\S+)", "\n".join(calls)))

    def of(self, name: str) -> list[str]:
        """What was said of a run, without the announcements of its jobs."""
        started = re.compile(rf"(train|prepare|probe) {name}: ")
        return [line for line in self.output.splitlines() if started.match(line)]

    def is_done(self, name: str) -> bool:
        return any((self.project.folder / name / file).exists() for file in ("done", "other"))


def ended(process: subprocess.Popen[str], project: Project) -> Ended:
    try:
        output, _ = process.communicate(timeout=150)
    finally:
        process.kill()
    return Ended(project, process.returncode, output)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All kinds of ends, side by side."""
    project = Project(tmp_path_factory.mktemp("campaign"))
    specs = {name: project.run(name) for name in RUNS}
    hold(project, specs["held"])
    queue(project, specs["queued"])
    comment = f"rule_train_wildcards_elsewhere of {project.folder / 'work'}"
    project.slurm.holds("78", "RUNNING", comment)
    project.slurm.fails({"sacct -X --parsable2": 7, "JobIDRaw,State": 2})
    trains = {f"rule_train_wildcards_{name}": turns for name, turns in RUNS.items()}
    others = {f"rule_other_wildcards_{name}": turns for name, turns in OTHERS.items()}
    project.slurm.plan(trains | others)
    targets = [f"{name}/done" for name in RUNS] + [f"{name}/other" for name in OTHERS]
    return ended(project.start(*targets), project)


def test_snakemake_fails_in_the_end_and_says_little(campaign: Ended) -> None:
    assert campaign.code == 1
    noise = ("No job memory", "guess", "sbatch call", "Error in rule", "Traceback")
    assert not [word for word in noise if word in campaign.output], campaign.output


AGAIN, GONE = "submitted again", "and no longer in Slurm's queue"


@pytest.mark.parametrize(
    ("name", "done", "submitted", "said"),
    [
        ("finishes", True, 1, []),
        # Slurm does not answer, or answers too late, or its accounting does not
        ("silent", True, 3, [f"sbatch: error: {SILENT}; tried again for 10 min"]),
        ("unheard", True, 1, None),
        ("overlooked", True, 1, []),
        # another has it
        ("published", True, 1, None),
        ("held", False, 0, [f"not submitted: it is being trained by process {os.getpid()}"]),
        ("queued", False, 0, ["not submitted: its job 77 is in Slurm's queue (PENDING)"]),
        ("elsewhere", False, 0, ["not submitted: its job 78 is in Slurm's queue (RUNNING)"]),
        # outputs are missing
        ("missing", True, 2, [AGAIN]),
        ("lost", True, 2, [AGAIN]),
        # segments, crashes, refusals
        ("pieces", True, 3, ["update 30 of 90); submitted", "update 60 of 90); submitted"]),
        ("stuck", False, 2, [AGAIN, "not submitted again: it makes no progress"]),
        ("crashes", False, 3, ["30 of 90 (1 of 2)); submitted", AGAIN, "failed 3 times in a row"]),
        ("refused", False, 1, ["not submitted again: reason of refused; log: "]),
        ("fails", False, 2, [AGAIN, ""]),
        # nodes that fail, are taken away, or may come back
        ("node", True, 2, None),
        ("requeued", True, 1, []),
        ("completing", True, 1, []),
        ("preempted", True, 2, [f"PREEMPTED, {GONE}"]),
        ("cancelled", True, 2, [f"CANCELLED, {GONE}"]),
    ],
)
def test_a_job_is_submitted_as_often_as_is_of_use_and_its_user_told_why(
    campaign: Ended, name: str, done: bool, submitted: int, said: list[str] | None
) -> None:
    assert (campaign.is_done(name), campaign.submitted[name]) == (done, submitted)
    if said is not None:
        lines = campaign.of(name)
        assert len(lines) == len(said), lines
        assert all(part in line for line, part in zip(lines, said, strict=True)), lines


def test_who_holds_a_run_and_how_to_end_it_is_said(campaign: Ended) -> None:
    (held,), (queued,) = campaign.of("held"), campaign.of("queued")
    assert f"end it (kill {os.getpid()} on {socket.gethostname()})" in held
    assert "process 4321 on login9" in queued and "end it (scancel 77)" in queued


def test_what_sbatch_refuses_is_shown_once_and_not_tried_again(campaign: Ended) -> None:
    assert campaign.submitted["wrong"] == campaign.submitted["wrong-too"] == 1
    assert campaign.output.count(INVALID) == 1
    said = campaign.of("wrong") + campaign.of("wrong-too")
    assert sum("for the same reason as the one before" in line for line in said) == 1


def test_after_a_node_failed_no_node_is_excluded(campaign: Ended) -> None:
    assert all("--exclude" not in call for call in campaign.project.slurm.calls("sbatch"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("stuck", "it makes no progress: its last 2 segments stopped at update 30 of 90"),
        ("crashes", "failed 3 times in a row"),
        ("wrong", f"sbatch: error: {INVALID}"),
        ("wrong-too", f"sbatch: error: {INVALID}"),
        ("held", None),
        ("queued", None),
        ("pieces", None),
    ],
)
def test_submissions_and_runs_without_further_retries_are_noted(
    campaign: Ended, name: str, reason: str | None
) -> None:
    work, spec = campaign.project.folder / "work", campaign.project.run(name)
    note, submission = read_no_retries(work, spec), read_submission(work, spec)
    assert (note is None) == (reason is None), "who has it goes on"
    if note is not None:
        assert note.reason.startswith(reason or "")
        assert note.job == (submission.job if submission else None)
    if campaign.submitted[name] and not name.startswith("wrong"):
        assert submission is not None and submission.job in campaign.project.slurm.states()


def test_a_spent_budget_stops_submission_of_runs_and_probes_only(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("a")
    (tmp_path / "spent").write_text("12.5")
    project.slurm.plan({"rule_other_wildcards_a": [{"do": "mkdir -p a; touch a/other"}]})
    last = ended(project.start("a/done", "a/probe", "a/other", budget=12.5), project)
    assert last.code == 1
    assert last.output.count("12.5 of 12.5 kWh") == 1
    assert last.output.count("not submitted: ") == 2
    assert last.is_done("a"), "preparing data goes on"
    assert len(project.slurm.calls("sbatch")) == 1
    note = read_no_retries(tmp_path / "work", project.run("a"))
    assert note is not None and "12.5 of 12.5 kWh" in note.reason


def test_a_run_made_again_is_a_training_of_its_own_and_in_no_budget(tmp_path: Path) -> None:
    project = Project(tmp_path)
    spec = project.run("twice")
    hold(project, spec)  # the campaign's own
    (tmp_path / "spent").write_text("5")
    pieces = [("75", "stopped", 0, 30), ("0", "finished", 30, 90)]
    turns = [ends("twice", *piece, state="COMPLETED") for piece in pieces]
    turns[0]["states"] = ["TIMEOUT"]
    for turn in turns:
        turn["do"] = f"FAKE_WORK=work.reproduce {turn['do']}"
    turns[1]["do"] += " && touch twice/again"
    project.slurm.plan({"rule_run_again_wildcards_twice": turns})
    found = ended(project.start("twice/again", budget=1), project)
    assert found.code == 0, found.output
    assert found.submitted["twice"] == 2
    assert read_submission(tmp_path / "work.reproduce", spec) is not None
    assert read_submission(tmp_path / "work", spec) is None


def test_an_error_that_nobody_foresaw_is_said_and_not_waited_for(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("a")
    (tmp_path / "spent").write_text("much")
    last = ended(project.start("a/done", budget=1), project)
    assert last.code == 1
    (said,) = last.of("a")
    assert said == "train a: not submitted: ValueError: could not convert string to float: 'much'"
    assert project.slurm.calls("sbatch") == []


def runs_that(project: Project, *turns: dict[str, Any], names: str = "abcd") -> list[str]:
    """Let runs have jobs with these turns, then one that finishes; their targets."""
    for name in names:
        project.run(name)
    project.slurm.plan(
        {f"rule_train_wildcards_{n}": [*turns, ends(n, state="COMPLETED")] for n in names}
    )
    return [f"{name}/done" for name in names]


def test_a_limit_on_the_number_of_jobs_is_waited_for_and_said_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    targets = runs_that(project, *({"refuse": FULL} for _ in range(3)))
    project.slurm.holds("77", "RUNNING")
    last = ended(project.start(*targets, wait_s=0.5), project)
    assert last.code == 0, last.output
    assert all(last.is_done(name) for name in "abcd")
    assert last.output.count("QOSMaxSubmitJobPerUserLimit") == 1
    assert last.output.count("waits, Slurm takes no further job now") == 1
    assert last.output.count("Slurm takes jobs again") == 1
    assert "not submitted" not in last.output


def test_a_limit_that_slurm_does_not_name_holds_up_no_other_job(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in "ab":
        project.run(name)
    project.slurm.holds("77", "RUNNING")
    turns = {"a": [{"refuse": POLICY}], "b": [{"refuse": POLICY}, ends("b", state="COMPLETED")]}
    project.slurm.plan({f"rule_train_wildcards_{name}": turns[name] for name in "ab"})
    process = project.start("a/done", "b/done", wait_s=0.3)
    try:
        while not (tmp_path / "b/done").exists() and process.poll() is None:
            time.sleep(0.1)
        assert process.poll() is None, "a still waits"
        process.send_signal(signal.SIGINT)
        ended(process, project)
    finally:
        process.kill()


def test_a_limit_that_holds_without_any_job_in_the_queue_ends_as_a_refusal(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (target,) = runs_that(project, *({"refuse": FULL} for _ in range(99)), names="a")
    last = ended(project.start(target, wait_s=0.3), project)
    assert last.code == 1
    assert "not submitted: sbatch: error: QOSMaxSubmitJobPerUserLimit" in last.output
    assert "after your last job has left Slurm's queue" in last.output


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_waits_for_a_slot_is_not_submitted_once_snakemake_is_told_to_end(
    tmp_path: Path, sent: signal.Signals
) -> None:
    project = Project(tmp_path)
    targets = runs_that(project, *({"refuse": FULL} for _ in range(99)))
    project.slurm.holds("77", "RUNNING")
    process = project.start(*targets, wait_s=30)
    try:
        while not project.slurm.calls("sbatch") and process.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        began_s = time.monotonic()
        process.send_signal(sent)
        last = ended(process, project)
    finally:
        process.kill()
    assert time.monotonic() - began_s < 15
    assert list(project.slurm.states()) == ["77"]
    assert last.submitted.total() <= 4, last.output
    for name in "abcd":
        assert read_no_retries(tmp_path / "work", project.run(name)) is None


def test_ctrl_c_cancels_the_jobs_that_were_submitted(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("a")
    running = {"states": ["RUNNING"], "queue": ["RUNNING"]}
    project.slurm.plan({"rule_train_wildcards_a": [running]})
    process = project.start("a/done", budget=0.1)
    try:
        while not project.slurm.calls("sacct") and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        last = ended(process, project)
    finally:
        process.kill()
    assert last.code != 0
    assert project.slurm.states() == {"1000": "CANCELLED"}, last.output


@pytest.mark.parametrize(
    ("package", "found", "expected"),
    [
        ("snakemake-executor-plugin-slurm", "2.9.0", "2.8.x"),
        ("snakemake-executor-plugin-slurm", "2.80.1", "2.8.x"),
        ("snakemake-interface-executor-plugins", "10.0.0", "9.x"),
    ],
)
def test_another_version_than_the_executor_was_made_for_is_named_before_any_job_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, found: str, expected: str
) -> None:
    project = Project(tmp_path / "project")
    (target,) = runs_that(project, names="a")
    metadata = tmp_path / "newer" / f"{package.replace('-', '_')}-{found}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {found}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "newer"))
    last = ended(project.start(target), project)
    assert last.code == 1
    assert (
        f"{package} is {found}: the executor scalewatt-slurm is made for {expected}" in last.output
    )
    assert "Traceback" not in last.output
    assert project.slurm.calls("sbatch") == []
