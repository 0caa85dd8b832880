"""Whether a run may be submitted, by its files and Slurm's queue."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from run_files import make_spec

from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import write_json
from scalewatt.run_files.attempt_log import Attempt, attempt_path
from scalewatt.scheduling.submissions import Submissions

SPEC = make_spec()
COMMENT = "rule_train of /work"


class Run:
    """A run of a campaign, and the squeue of its login node."""

    def __init__(self, folder: Path) -> None:
        self.spec = folder / "run" / "spec.json"
        self.spec.parent.mkdir()
        self.spec.write_text(SPEC.text)
        self.work = folder / "work"
        self.workdir = self.work / f"{SPEC.key}-dddddddd"
        self.workdir.mkdir(parents=True)
        self.answer, squeue = folder / "jobs", folder / "bin" / "squeue"
        squeue.parent.mkdir()
        squeue.write_text(
            "#!/bin/sh\n"
            f"case \"$*\" in *' -j '*) job=$(echo \"$*\" | sed 's/.* -j \\([0-9]*\\).*/\\1/')\n"
            f"  grep \"^$job|\" {self.answer} | cut -d '|' -f 2 | grep . || "
            "{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; };;\n"
            f"*) cat {self.answer};; esac\n"
        )
        squeue.chmod(0o755)
        self.queue()
        self.snakemake = Submissions(self.work, 3)

    def queue(self, *jobs: str) -> None:
        """Let these jobs, `id|state|name|comment`, be in the queue."""
        self.answer.write_text("".join(f"{job}\n" for job in jobs))

    def held_by(self, job: str) -> None:
        """Let a job on another node hold the run."""
        holder = {"host": "n3", "pid": 77, "pid_started_s": 1.0, "job": job, "machine": "other/1"}
        write_json(self.workdir / "holder.json", {**holder, "since_s": time.time()})

    def ends(self, job: str, code: int) -> None:
        """Let a job have ended before its training."""
        attempt = Attempt(job, "n2", 5, time.time(), time.time(), code, f"reason of {job}")
        write_json(attempt_path(self.work, SPEC), asdict(attempt))

    def refusal(self) -> str | None:
        return self.snakemake.refusal(self.spec, COMMENT)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return run


def test_a_run_is_refused_while_its_holders_job_runs_and_no_longer(run: Run) -> None:
    assert run.refusal() is None
    run.held_by("10")
    run.queue("10|RUNNING|x|(null)")
    assert "it is being trained by job 10" in str(run.refusal())


def test_a_run_whose_holders_job_is_gone_may_be_submitted(run: Run) -> None:
    run.held_by("10")
    assert run.refusal() is None


def test_a_job_that_was_put_back_into_the_queue_after_its_end_is_waited_for(run: Run) -> None:
    run.snakemake.note(run.spec, "10", None)
    run.snakemake.end(run.spec, "10")
    run.queue("10|PENDING|x|(null)")
    assert "its job 10 is in Slurm's queue (PENDING)" in str(run.refusal())


def test_a_job_that_has_ended_and_is_being_cleared_away_is_not_waited_for(run: Run) -> None:
    run.snakemake.note(run.spec, "10", None)
    run.queue(f"10|COMPLETING|x|{COMMENT}")
    assert "its job 10 is" in str(run.refusal())
    run.snakemake.end(run.spec, "10")
    assert run.refusal() is None


def test_a_job_that_was_noted_by_nobody_is_known_by_its_comment(run: Run) -> None:
    run.queue("10|PENDING|x|rule_train of /elsewhere", f"11|PENDING|x|{COMMENT}")
    assert "its job 11 is in Slurm's queue (PENDING)" in str(run.refusal())


def test_a_run_that_another_held_is_submitted_again_once_its_job_is_gone(run: Run) -> None:
    run.snakemake.note(run.spec, "11", None)
    run.held_by("10")
    run.ends("11", ExitCode.HELD)
    run.queue("10|RUNNING|x|(null)")
    found = run.snakemake.end(run.spec, "11")
    assert not found.again and found.reason == "reason of 11"
    run.queue()
    assert run.snakemake.end(run.spec, "11").again


def test_a_job_is_judged_by_itself_also_where_another_was_noted_since(run: Run) -> None:
    run.snakemake.note(run.spec, "10", None)
    Submissions(run.work, 0).note(run.spec, "99", None)
    segment = {"segment": 0, "outcome": "stopped", "from_updates": 0, "to_updates": 9, "job": "10"}
    write_json(run.workdir / "segments.json", [segment])
    run.ends("99", ExitCode.HELD)
    found = run.snakemake.end(run.spec, "10")
    assert found.again and "stopped at a checkpoint at update 9" in found.reason


def test_only_jobs_of_this_snakemake_count_as_those_that_ended_early(run: Run) -> None:
    for job in range(5):
        Submissions(run.work, 3).note(run.spec, str(job), None)
    run.snakemake.note(run.spec, "10", None)
    found = run.snakemake.end(run.spec, "10")
    assert found.again and "(1 of 3)" in found.reason


def test_a_run_that_another_has_published_meanwhile_is_finished(run: Run) -> None:
    provenance = run.spec.with_name("provenance.json")
    assert not run.snakemake.is_published(run.spec)
    write_json(provenance, {"spec_sha256": SPEC.sha256})
    assert run.snakemake.is_published(run.spec)
    write_json(provenance, {"spec_sha256": "of another spec"})
    assert not run.snakemake.is_published(run.spec)
    write_json(provenance, {"spec_sha256": SPEC.sha256})
    os.utime(provenance, (1e9, 1e9))
    assert not run.snakemake.is_published(run.spec), "it was there when Snakemake chose what to do"


def test_a_trained_run_whose_holder_lives_is_being_published(run: Run) -> None:
    run.held_by("10")
    run.queue("10|RUNNING|x|(null)")
    assert not run.snakemake.is_being_published(run.spec)
    (run.workdir / "result.json").write_text("{}")
    assert run.snakemake.is_being_published(run.spec)
    run.queue()
    assert not run.snakemake.is_being_published(run.spec)


# --- the energy budget, by what is predicted -----------------------------------------------------


def budgeted(run: Run, budget: float, spent: float, whole: float | None) -> Submissions:
    """A Snakemake with a budget in kWh, where each run is predicted to still use `whole`."""
    return Submissions(run.work, 3, budget, lambda: spent, lambda _: whole)


@pytest.mark.parametrize(
    ("spent", "whole", "said"),
    [
        (40, 60, None),
        (40, 60.5, "40 kWh are used, 0 runs under way will use about 0 kWh more and this one 60.5"),
        (99, None, None),  # without a prediction only what is spent counts
        (100, None, "is used up"),
    ],
)
def test_a_run_is_submitted_only_where_its_predicted_energy_is_left(
    run: Run, spent: float, whole: float | None, said: str | None
) -> None:
    refused = budgeted(run, 100, spent, whole).refusal(run.spec, COMMENT)
    assert refused is None if said is None else said in str(refused)
    (run.workdir / "result.json").write_text("{}")
    assert budgeted(run, 100, spent, whole).refusal(run.spec, COMMENT) is None, "it is trained"


def other_run(run: Run, repeat: int) -> Path:
    path = run.spec.parent / f"{repeat}" / "spec.json"
    path.parent.mkdir()
    path.write_text(replace(SPEC, repeat=repeat).text)
    return path


def test_what_was_submitted_and_still_runs_is_not_left_for_another(run: Run) -> None:
    snakemake = budgeted(run, 100, 11, 30)
    for number in (2, 3):
        path = other_run(run, number)
        assert snakemake.refusal(path, f"{COMMENT} {number}") is None
        snakemake.note(path, f"1{number}", None)
    fourth = other_run(run, 4)
    said = str(snakemake.refusal(fourth, f"{COMMENT} 4"))
    assert "11 kWh are used, 2 runs under way will use about 60 kWh more and this one 30" in said
    snakemake.finish(run.spec.parent / "2" / "spec.json")
    assert snakemake.refusal(fourth, f"{COMMENT} 4") is None


def stopped(run: Run, path: Path, job: str) -> None:
    """Let a run's job have stopped at a checkpoint, as at the end of its wall time."""
    workdir = run.work / f"{read_spec(path).key}-dddddddd"
    workdir.mkdir(exist_ok=True)
    segment = {"segment": 0, "outcome": "stopped", "from_updates": 0, "to_updates": 9, "job": job}
    write_json(workdir / "segments.json", [segment])


def test_between_two_segments_a_runs_energy_is_kept_for_it(run: Run) -> None:
    snakemake = budgeted(run, 100, 0, 60)
    second = other_run(run, 2)
    assert snakemake.refusal(run.spec, COMMENT) is None
    snakemake.note(run.spec, "11", None)
    stopped(run, run.spec, "11")
    assert snakemake.end(run.spec, "11").again
    assert "1 run under way will use about 60" in str(snakemake.refusal(second, f"{COMMENT} 2"))
    assert snakemake.refusal(run.spec, COMMENT) is None, "its own next segment is let in"


@pytest.mark.parametrize("how", ["no retries", "judged", "trained", "finished"])
def test_what_a_run_will_not_use_any_more_is_left_for_another(run: Run, how: str) -> None:
    snakemake = budgeted(run, 100, 0, 60)
    second = other_run(run, 2)
    assert snakemake.refusal(run.spec, COMMENT) is None
    if how == "no retries":  # sbatch did not accept it
        snakemake.give_up(run.spec, None, "no such partition", COMMENT)
    else:
        snakemake.note(run.spec, "11", None)
    if how == "judged":
        run.ends("11", 64)
        assert not snakemake.end(run.spec, "11").again
    elif how == "trained":
        (run.workdir / "result.json").write_text("{}")
        snakemake.end(run.spec, "11")
    elif how == "finished":
        snakemake.finish(run.spec)
    assert snakemake.refusal(second, f"{COMMENT} 2") is None


def test_two_runs_that_fit_only_alone_are_not_both_let_in_before_one_is_noted(run: Run) -> None:
    snakemake = budgeted(run, 100, 0, 60)
    assert snakemake.refusal(run.spec, COMMENT) is None
    said = str(snakemake.refusal(other_run(run, 2), f"{COMMENT} 2"))
    assert "1 run under way will use about 60 kWh more and this one 60" in said
    assert snakemake.refusal(run.spec, COMMENT) is None, "asked again after a silent sbatch"


def test_of_runs_asked_for_at_once_as_many_are_let_in_as_fit(run: Run) -> None:
    together = threading.Barrier(4)

    def slow_kwh(_: RunSpec) -> float:
        time.sleep(0.01)
        return 30.0

    snakemake = Submissions(run.work, 3, 100, lambda: 0.0, slow_kwh)
    paths = [other_run(run, number) for number in range(2, 14)]

    def asked(path: Path) -> bool:
        if path in paths[:4]:
            together.wait(10)
        return snakemake.refusal(path, str(path)) is None

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(asked, paths)) == 3


def test_runs_whose_energy_nobody_knows_are_counted_and_named(run: Run) -> None:
    def kwh(spec: RunSpec) -> float | None:
        return None if spec.repeat in (2, 3) else 60.0

    snakemake = Submissions(run.work, 3, 100, lambda: 10.0, kwh)
    for number in (2, 3, 4):
        assert snakemake.refusal(other_run(run, number), f"{COMMENT} {number}") is None
    said = str(snakemake.refusal(run.spec, COMMENT))
    id_ = SPEC.configuration
    assert (
        "1 run under way will use about 60 kWh more (and 2 runs whose energy is unknown: "
        f"{id_} repeat 2, {id_} repeat 3) and this one 60: at least 130 of 100 kWh" in said
    )


def test_jobs_that_another_snakemake_submitted_count_as_long_as_they_are_in_the_queue(
    run: Run,
) -> None:
    path = other_run(run, 2)
    Submissions(run.work, 3).note(path, "12", None)
    of_it = Submissions(run.work, 3).comment("rule_train_wildcards_2")
    run.queue(f"12|PENDING|x|{of_it}")
    assert "1 run under way will use about 60 kWh more" in str(
        beside_another(run).refusal(run.spec)
    )
    run.queue()
    assert beside_another(run).refusal(run.spec) is None


def beside_another(run: Run) -> Submissions:
    """A Snakemake of a campaign of two runs, with a budget for one of them."""
    both = {one.key: one for one in (SPEC, replace(SPEC, repeat=2))}
    return Submissions(run.work, 3, 100, lambda: 10.0, lambda _: 60.0, lambda: both)
