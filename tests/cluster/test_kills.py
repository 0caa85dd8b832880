"""Jobs, ranks, samplers and nodes that die in the middle of an epoch: nothing is lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from disturbed import (
    PATIENCE_S,
    Run,
    assert_lost_at_most_an_epoch,
    assert_nothing_twice,
    assert_same_results,
    copied,
    prepared,
)
from mini_project import MiniProject
from minislurm import MiniSlurm, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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


def scancel(run: Run) -> None:
    run.project.slurm.command("scancel", run.job)


def kill_rank(run: Run) -> None:
    run.ranks()[-1].kill()


def kill_sampler(run: Run) -> None:
    for sampler in run.samplers():
        sampler.kill()


HAPPENS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "scancel": (1, scancel),
    "rank": (2, kill_rank),
    "sampler": (3, kill_sampler),
}
"""What happens to which repeat."""


@pytest.fixture(scope="module")
def gone_on(base: MiniProject, tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    """Three runs are disturbed side by side, a fourth is not, under one Snakemake."""
    project = copied(base, tmp_path_factory.mktemp("gone_on") / "project")
    runs = {what: Run(project, repeat=repeat) for what, (repeat, _) in HAPPENS.items()}
    alone = Run(project, "h100")
    snakemake = project.start(*(run.target for run in (*runs.values(), alone)))
    safe = {}
    try:
        for what, run in runs.items():
            safe[what] = run.wait_in_epoch()
            HAPPENS[what][1](run)
        output, _ = snakemake.communicate(timeout=2 * PATIENCE_S)
    finally:
        if snakemake.poll() is None:
            snakemake.terminate()
            print(snakemake.communicate()[0])
    return Disturbed(project, safe, snakemake.returncode, output)


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
    assert_nothing_twice(run)
    assert_lost_at_most_an_epoch(run, gone_on.safe_updates[what])
    assert len(run.segments) == 2
