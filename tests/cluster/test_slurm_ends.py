"""However Slurm ends a job, or holds it back, its run is trained once and its energy is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from counted import EPOCHS, PATIENCE_S, UPDATES, CountedRun, counted_project, disturb
from mini_node import wait_for
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]


def scancel(run: CountedRun) -> None:
    run.project.slurm.command("scancel", run.job)
    run.go_on()


def warn(run: CountedRun) -> None:
    """Warn the run's ranks, as Slurm does before the time limit."""
    run.project.slurm.command("scancel", "--signal=USR1", run.job)
    run.go_on()


AS_OUT_OF_MEMORY = """
import ctypes, glob, sys
(path,) = glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")
slurm = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
slurm.slurm_init(None)
SIG_OOM = 253
sys.exit(slurm.slurm_complete_job(int(sys.argv[1]), SIG_OOM))
"""


def end_out_of_memory(run: CountedRun) -> None:
    """End the job as a slurmd with cgroups does, which learns from them that memory was lacking."""
    words = [sys.executable, "-c", AS_OUT_OF_MEMORY, run.job]
    subprocess.run(words, env=run.project.slurm.environment, check=True)
    run.go_on()


def crash(run: CountedRun) -> None:
    """Lose the run's node, and bring it back when Slurm has seen that."""
    node = run.node
    node.crash()
    run.go_on()
    run.project.slurm.wait_until_down(node.name)
    node.restart()


def orphan(run: CountedRun) -> None:
    """Kill the slurmd of the run's node: Slurm gives the job up, whose processes live on."""
    node, job, slurm = run.node, run.job, run.project.slurm
    node.kill()
    slurm.wait_until_down(node.name)
    wait_for(
        lambda: run.queued_job != job and slurm.squeue().get(run.queued_job or "") == "RUNNING",
        "next job, which waits for the run",
        PATIENCE_S,
    )
    run.go_on()


def preempt(run: CountedRun) -> None:
    """Take the run's node from it for a short job of a better partition."""
    job = ("sbatch", "--partition=accelerated", "--exclusive", "--output=/dev/null")
    run.project.slurm.command(*job, f"--nodelist={run.node.name}", "--wrap=sleep 1")
    run.go_on()


Happens = Callable[[CountedRun], None]
Happenings = dict[str, tuple[Happens, list[tuple[str, str]]]]
"""What happens to the run of each device, and how its segments and jobs end."""
PREEMPTED = [("stopped", "PREEMPTED"), ("finished", "COMPLETED")]
CANCELLED = [("stopped", "CANCELLED"), ("finished", "COMPLETED")]
LOST = [("killed", "NODE_FAIL"), ("finished", "COMPLETED")]
ORPHANED = [("finished", "NODE_FAIL")]
OUT_OF_MEMORY = [("stopped", "OUT_OF_MEMORY"), ("finished", "COMPLETED")]


def check_ends(slurm: MiniSlurm, folder: Path, happens: Happenings) -> None:
    """Let something happen to each run, and compare how it ended, and what was recorded."""
    project = counted_project(slurm, folder, {device: {} for device in happens})
    runs = {device: CountedRun(project, device) for device in happens}
    for run in runs.values():
        run.pause()
    snakemake = project.start(*(run.target for run in runs.values()))
    try:
        disturb(snakemake, [(runs[device], what) for device, (what, _) in happens.items()])
        output, _ = snakemake.communicate(timeout=2 * PATIENCE_S)
    finally:
        snakemake.kill()
    assert snakemake.returncode == 0, output
    for device, (_, ends) in happens.items():
        assert runs[device].ends() == ends
        runs[device].assert_truly_recorded()


@pytest.mark.parametrize(
    "happens",
    [
        {"h100": (scancel, CANCELLED), "a100": (end_out_of_memory, OUT_OF_MEMORY)},
        pytest.param(
            {"low": (preempt, PREEMPTED), "scavenge": (preempt, PREEMPTED), "a100": (crash, LOST)},
            marks=pytest.mark.nightly,
        ),
        pytest.param({"a100": (orphan, ORPHANED)}, marks=pytest.mark.nightly),
    ],
    ids=["scancel-memory", "preemption-node", "orphan"],
)
def test_a_job_that_slurm_ends_is_followed_by_another(
    slurm: MiniSlurm, tmp_path: Path, happens: Happenings
) -> None:
    slurm.cancel_all()
    check_ends(slurm, tmp_path, happens)


@pytest.mark.nightly
def test_where_the_site_wants_that_a_warned_and_a_lost_job_go_on_as_the_same_job(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    project = counted_project(slurm, tmp_path, {"h100": {}, "a100": {}})
    project.change("cluster", requeue=True)
    warned, lost = runs = [CountedRun(project, "h100"), CountedRun(project, "a100")]
    for run in runs:
        run.pause()
    snakemake = project.start(*(run.target for run in runs))
    try:
        disturb(snakemake, [(warned, warn), (lost, crash)])
        output, _ = snakemake.communicate(timeout=2 * PATIENCE_S)
    finally:
        snakemake.kill()
    assert snakemake.returncode == 0, output
    for run, outcome in ((warned, "stopped"), (lost, "killed")):
        assert [segment["outcome"] for segment in run.segments] == [outcome, "finished"]
        assert len({segment["job"] for segment in run.segments}) == 1
        run.assert_truly_recorded()


def test_what_ctrl_c_a_kill_and_a_hold_leave_is_finished_by_the_next_snakemake_once(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    project = counted_project(slurm, tmp_path, {"h100": {"repeats": 2}})
    first, second = runs = [CountedRun(project, "h100", repeat) for repeat in (1, 2)]
    targets = [run.target for run in runs]

    # Ctrl-C: the job that runs stops at its checkpoint, the one that waits never begins.
    first.pause()
    snakemake = project.start(*targets)
    first.wait_paused(snakemake)
    waiting = wait_for(lambda: second.queued_job, "second job")
    os.killpg(snakemake.pid, signal.SIGINT)
    first.go_on()
    assert snakemake.wait(PATIENCE_S) != 0, snakemake.communicate()[0]
    wait_for(slurm.idle, "idle nodes")
    assert "CANCELLED" in slurm.sacct(waiting)[-1]["State"] and second.segments == []
    assert first.ends() == [("stopped", "CANCELLED")]

    # Killed: both jobs live on, and the next Snakemake names them instead of submitting others.
    first.pause()
    snakemake = project.start(*targets)
    wait_for(lambda: len(first.segments) == 2 and first.is_paused, "second pause", PATIENCE_S)
    waiting = wait_for(lambda: second.queued_job, "second job")
    slurm.command("scontrol", "uhold", waiting)
    snakemake.kill()
    snakemake.communicate()
    assert project.snakemake("--unlock")[0] == 0
    code, output = project.snakemake(*targets)
    assert code == 1
    for run, state in ((first, "RUNNING"), (second, "PENDING")):
        job = run.queued_job
        assert f"repeat {run.repeat}: its job {job} is in Slurm's queue ({state})" in output
    assert "JobHeldUser" in second.said_by_status()["reason"]

    # Released, they finish alone; what they left is published.
    first.go_on()
    slurm.command("scontrol", "release", waiting)
    wait_for(lambda: not (first.queued_job or second.queued_job), "end of the jobs", PATIENCE_S)
    project.done(*targets)
    assert first.ends() == [("stopped", "CANCELLED"), ("finished", "COMPLETED")]
    assert second.ends() == [("finished", "COMPLETED")]
    assert second.segments[0]["job"] == waiting
    for run in runs:
        run.assert_truly_recorded()


@pytest.mark.nightly
def test_a_minute_without_slurmctld_costs_no_job(slurm: MiniSlurm, tmp_path: Path) -> None:
    """One run ends meanwhile, another trains on, and a third waits for its node."""
    slurm.cancel_all()
    project = counted_project(slurm, tmp_path, {"h100": {"repeats": 2}, "a100": {}})
    ended, waiting = CountedRun(project, "h100", 1), CountedRun(project, "h100", 2)
    runs = [ended, waiting, longer := CountedRun(project, "a100")]
    ended.pause()
    longer.pause()
    snakemake = project.start(*(run.target for run in runs))
    try:
        for run in (ended, longer):
            run.wait_paused(snakemake)
        wait_for(lambda: waiting.queued_job, "job that waits")
        with slurm.without_controller():
            ended.go_on()
            time.sleep(60)
            assert ended.trained[-1][1:3] == (EPOCHS - 1, UPDATES)
        longer.go_on()
        output, _ = snakemake.communicate(timeout=2 * PATIENCE_S)
    finally:
        snakemake.kill()
    assert snakemake.returncode == 0, output
    for run in runs:
        assert run.ends() == [("finished", "COMPLETED")]
        run.assert_truly_recorded()


@pytest.mark.nightly
def test_a_lost_job_of_a_slurm_that_requeues_none_is_followed_by_another(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    slurm.cancel_all()
    with slurm.configured("JobRequeue=0"):  # 1 is Slurm's default
        check_ends(slurm, tmp_path, {"a100": (crash, LOST)})
