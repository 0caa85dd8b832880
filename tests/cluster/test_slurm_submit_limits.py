"""Limits on the number of jobs, set by a site's administrator: everything runs, only later."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from mini_project import MiniProject
from minislurm import MiniSlurm, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]

RUNS = [
    f"results/mini/runs/fourcastnet.pretrain-a100-n001-lbs0002-full/{repeat}/provenance.json"
    for repeat in range(1, 4)
]


@pytest.fixture()
def project(slurm: MiniSlurm, tmp_path: Path) -> MiniProject:
    """A campaign of three runs whose data are prepared."""
    slurm.cancel_all()
    project = MiniProject.on(slurm, tmp_path / "project")
    path = project.path / "campaigns" / "mini.yaml"
    content = yaml.safe_load(path.read_text())
    content["series"]["waves"] |= {"gpus": [1], "repeats": len(RUNS)}
    content |= {"series": {"waves": content["series"]["waves"]}, "figures": {}}
    path.write_text(yaml.safe_dump(content))
    project.done("results/mini/datasets/waves.json")
    return project


@contextmanager
def limited(slurm: MiniSlurm, limit: str) -> Iterator[None]:
    """Let the user have a limit; it needs a moment to reach slurmctld."""
    modify = ("sacctmgr", "--immediate", "modify", "user", "root", "set")
    slurm.command(*modify, limit)
    time.sleep(1)
    try:
        yield
    finally:
        slurm.command(*modify, f"{limit.partition('=')[0]}=-1")


def most_at_once(slurm: MiniSlurm, is_over: Callable[[], bool]) -> int:
    """How many jobs waited or ran at once, at most."""
    most = 0
    while not is_over():
        states = slurm.squeue().values()
        most = max(most, sum(state in ("PENDING", "RUNNING") for state in states))
        time.sleep(0.3)
    return most


def test_all_runs_of_a_campaign_finish_under_a_limit_on_jobs(project: MiniProject) -> None:
    with limited(project.slurm, "MaxSubmitJobs=2"):
        process = project.start(*RUNS)
        try:
            running = wait_for(
                lambda: [j for j, state in project.slurm.squeue().items() if state == "RUNNING"],
                "a job",
            )
            project.slurm.command("scancel", running[0])  # it is submitted again, as all others
            most = most_at_once(project.slurm, lambda: process.poll() is not None)
            output, _ = process.communicate()
        finally:
            process.kill()
    assert process.returncode == 0, output
    assert all((project.path / run).exists() for run in RUNS)
    assert most <= 2
    assert "AssocMaxSubmitJobLimit" in output
    assert output.count("waits for its submission") <= len(RUNS) + 1, output


def test_a_time_limit_above_the_accounts_is_refused_at_once(project: MiniProject) -> None:
    """The QOS denies what one job may not ask for; the number of jobs has nothing to do with it."""
    modify = ("sacctmgr", "--immediate", "modify", "qos", "normal", "set")
    project.slurm.command(*modify, "MaxWall=1", "Flags=DenyOnLimit")
    time.sleep(1)
    try:
        code, output = project.snakemake(RUNS[0])
    finally:
        project.slurm.command(*modify, "MaxWall=-1", "Flags-=DenyOnLimit")
    assert code == 1
    assert re.search(r"Slurm refuses --partition=.*: QOSMaxWallDurationPerJobLimit", output), output
