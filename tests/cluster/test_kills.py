"""Whatever dies in the middle of an epoch, nothing safe is lost and nothing is counted twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from disturbed import (
    PATIENCE_S,
    Run,
    assert_nothing_safe_was_lost,
    assert_nothing_twice,
    assert_same_results,
    copied,
    prepared,
)
from mini_node import Node, wait_for
from mini_project import MiniProject
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.nightly]


@pytest.fixture(scope="module")
def base(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """The project that all others are copies of."""
    slurm.cancel_all()
    return prepared(slurm, tmp_path_factory.mktemp("kills") / "base")


@dataclass(frozen=True)
class Disturbed:
    """What came of one call of Snakemake during which runs were disturbed."""

    project: MiniProject
    safe_updates: dict[str, int]
    """By what happened: updates in a checkpoint just before."""
    code: int
    output: str


@contextmanager
def snakemake(project: MiniProject, *runs: Run) -> Iterator[subprocess.Popen[str]]:
    """Snakemake at work on runs, to be ended by the block or at its end."""
    process = project.start(*(run.target for run in runs))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # TERM would wait for its jobs
            print(process.communicate(timeout=PATIENCE_S)[0])


def ended(project: MiniProject, process: subprocess.Popen[str], safe: dict[str, int]) -> Disturbed:
    """Wait for Snakemake to end by itself."""
    output, _ = process.communicate(timeout=2 * PATIENCE_S)
    return Disturbed(project, safe, process.returncode, output)


def scancel(run: Run) -> None:
    run.project.slurm.command("scancel", run.job)


def kill_rank(run: Run) -> None:
    run.ranks()[-1].kill()


def kill_sampler(run: Run) -> None:
    (sampler,) = run.samplers()
    sampler.kill()


HAPPENS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "scancel": (1, scancel),
    "rank": (2, kill_rank),
    "sampler": (3, kill_sampler),
}
"""What happens to which repeat."""


@pytest.fixture(scope="module")
def gone_on(base: MiniProject, tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    """Three runs are disturbed side by side, a fourth is not."""
    project = copied(base, tmp_path_factory.mktemp("gone_on") / "project")
    runs = {what: Run(project, repeat=repeat) for what, (repeat, _) in HAPPENS.items()}
    safe = {}
    with snakemake(project, *runs.values(), Run(project, "h100")) as process:
        for what, run in runs.items():
            safe[what] = run.wait_in_epoch(process)
            HAPPENS[what][1](run)
        return ended(project, process, safe)


@pytest.fixture(scope="module")
def undisturbed(gone_on: Disturbed) -> Run:
    """The run to which nothing happened."""
    run = Run(gone_on.project, "h100")
    assert [s["outcome"] for s in run.segments] == ["finished"], gone_on.output
    assert_nothing_twice(run)
    return run


@pytest.mark.parametrize("what", HAPPENS)
def test_the_same_snakemake_brings_a_disturbed_run_to_its_end(
    gone_on: Disturbed, undisturbed: Run, what: str
) -> None:
    assert gone_on.code == 0, gone_on.output
    run = Run(gone_on.project, repeat=HAPPENS[what][0])
    assert_same_results(run, undisturbed)
    assert_nothing_twice(run, recording_lost=what == "sampler")
    assert_nothing_safe_was_lost(run, gone_on.safe_updates[what])
    assert len(run.segments) == 2


LOST = {"slurmd": ("a100", 1), "node": ("a100", 2), "preempted": ("a100-low", 1)}
"""What happens to which device and repeat."""


def preempt(run: Run) -> None:
    """Take the run's node from it for a short job of a better partition."""
    job = ("sbatch", "--partition=accelerated", "--exclusive", "--output=/dev/null")
    run.project.slurm.command(*job, f"--nodelist={run.node.name}", "--wrap=sleep 1")


def outlive(run: Run, safe_updates: int) -> list[psutil.Process]:
    """Wait until ranks that Slurm has lost go on; freeze them, lest they are through too soon."""
    wait_for(lambda: run.safe_updates > safe_updates, "another checkpoint", PATIENCE_S)
    ranks = run.ranks()
    for rank in ranks:
        rank.suspend()
    return ranks


def clean(node: Node) -> None:
    """Remove what killed ranks left in a node's memory, as a cluster's epilog does.

    MPICH names it by Slurm's job and step: a job put back onto its node would start with it.
    """
    for path in Path(f"/proc/{node.init}/root/dev/shm").glob("mpich_shm_*"):
        path.unlink()


@pytest.fixture(scope="module")
def requeued(
    undisturbed: Run, base: MiniProject, tmp_path_factory: pytest.TempPathFactory
) -> Disturbed:
    """The jobs of three runs are put back into the queue: two nodes go down, one is taken away."""
    slurm = base.slurm
    project = copied(base, tmp_path_factory.mktemp("requeued") / "project")
    project.change("cluster", requeue=True)
    runs = {what: Run(project, *run) for what, run in LOST.items()}
    with snakemake(project, *runs.values()) as process:
        safe = {what: run.wait_in_epoch(process) for what, run in runs.items()}
        down = [runs["slurmd"].node, runs["node"].node]
        down[1].crash()
        preempt(runs["preempted"])
        down[0].kill()
        orphans = outlive(runs["slurmd"], safe["slurmd"])
        for node in down:
            slurm.wait_until_down(node.name)
        for orphan in orphans:
            orphan.resume()
        for node in down:
            node.restart()
            clean(node)
        return ended(project, process, safe)


@pytest.mark.parametrize("what", LOST)
def test_a_requeued_job_goes_on_whatever_is_left_of_its_earlier_start(
    requeued: Disturbed, undisturbed: Run, what: str
) -> None:
    assert requeued.code == 0, requeued.output
    run = Run(requeued.project, *LOST[what])
    assert_same_results(run, undisturbed)
    assert_nothing_twice(run)
    assert_nothing_safe_was_lost(run, requeued.safe_updates[what])
    assert len({segment["job"] for segment in run.segments}) == 1


def test_a_job_that_outlives_its_snakemake_is_named_by_the_next_and_finishes_the_run_alone(
    undisturbed: Run, base: MiniProject, tmp_path: Path
) -> None:
    project = copied(base, tmp_path / "project")
    run = Run(project)
    with snakemake(project, run) as process:
        run.wait_in_epoch(process)
        process.kill()
        process.communicate()
        ranks = run.ranks()
    job = run.job
    for rank in ranks:
        rank.suspend()  # however fast this machine is, they are there when the next one looks
    try:
        assert project.snakemake("--unlock")[0] == 0
        code, output = project.snakemake(run.target)
    finally:
        for rank in ranks:
            rank.resume()
    assert code == 1
    named = f"{run.configuration} repeat 1: its job {job} is in Slurm's queue (RUNNING)"
    assert f"{named}; wait for it or end it (scancel {job})" in output
    assert "Traceback" not in output
    queue = project.slurm.squeue
    wait_for(lambda: queue().get(job) not in ("RUNNING", "COMPLETING"), "end", PATIENCE_S)
    code, output = project.snakemake(run.target)
    assert code == 0, output
    assert_same_results(run, undisturbed)
    assert_nothing_twice(run)
    assert [segment["job"] for segment in run.segments] == [job]


@pytest.fixture()
def small_disk(base: MiniProject, tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB that the login node and node a1 see."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "none", disk], check=True)
    try:
        # What is mounted is seen by nodes that start afterwards.
        base.slurm.nodes["a1"].crash()
        base.slurm.cancel_all()
        yield disk
    finally:
        base.slurm.cancel_all()
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(path: Path) -> None:
    """Write until no space is left."""
    with pytest.raises(OSError, match="No space left"), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))


def test_a_full_disk_ends_a_run_with_its_checkpoint_whole_and_one_message(
    undisturbed: Run, base: MiniProject, small_disk: Path, tmp_path: Path
) -> None:
    project = copied(base, tmp_path / "project")
    project.change("cluster", work_root=str(small_disk), exclude_nodes=["a2", "a3"])
    run = Run(project)
    with snakemake(project, run) as process:
        safe = run.wait_in_epoch(process)
        fill(small_disk / "filler")
        full = ended(project, process, {"disk": safe})
    assert full.code == 1
    assert "no space is left on the file system" in full.output
    (small_disk / "filler").unlink()
    code, output = project.snakemake(run.target)
    assert code == 0, output
    assert_same_results(run, undisturbed)
    assert_nothing_twice(run, recording_lost=True)
    assert_nothing_safe_was_lost(run, safe)
    assert len(run.segments) == 2


def test_a_run_that_slurm_warns_goes_on_in_the_same_job_where_the_site_wants_that(
    undisturbed: Run, base: MiniProject, tmp_path: Path
) -> None:
    project = copied(base, tmp_path / "project")
    project.change("cluster", requeue=True)
    run = Run(project)
    with snakemake(project, run) as process:
        safe = run.wait_in_epoch(process)
        job = run.job
        project.slurm.command("scancel", "--signal=USR1", job)
        warned = ended(project, process, {"warned": safe})
    assert warned.code == 0, warned.output
    assert_same_results(run, undisturbed)
    assert_nothing_twice(run)
    assert_nothing_safe_was_lost(run, safe)
    assert [segment["job"] for segment in run.segments] == [job, job]
    assert [segment["outcome"] for segment in run.segments] == ["stopped", "finished"]
