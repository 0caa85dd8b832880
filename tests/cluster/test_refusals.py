"""What cannot work is said once, clearly, and burns no jobs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]

TWO = "results/mini/runs/fourcastnet.pretrain-a100-n002-lbs0002-full/1/provenance.json"


@pytest.fixture(scope="module")
def prepared(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """A project whose small dataset is prepared."""
    project = MiniProject.on(slurm, tmp_path_factory.mktemp("prepared") / "project")
    project.done("results/mini/datasets/waves.json")
    return project


@pytest.fixture()
def project(prepared: MiniProject, tmp_path: Path) -> MiniProject:
    """A copy of it, with an empty queue."""
    prepared.slurm.cancel_all()
    shutil.copytree(prepared.path, tmp_path / "project")
    return MiniProject(tmp_path / "project", slurm=prepared.slurm)


def notes(output: str) -> list[str]:
    """What was said, without the announcements of jobs."""
    return [line for line in output.splitlines() if not re.match(r"\s*\d+:\d\d  \[", line)]


def trainings(project: MiniProject) -> int:
    """How many jobs were submitted for trainings, by Slurm's accounting."""
    text = project.slurm.command("sacct", "-nPX", "-S", "now-1day", "-o", "WorkDir,Partition")
    return text.splitlines().count(f"{project.path}|accelerated")


def test_all_that_slurm_cannot_give_is_said_before_anything_is_submitted(
    project: MiniProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINI_ACCOUNT", raising=False)
    before = project.slurm.states()
    project.change("cluster", account="$MINI_ACCOUNT")
    project.change_devices(gpus_per_node=8, cpus_per_rank=4)
    project.change("profile", **{"default-resources": ["slurm_partition='cpuonyl'", "runtime=9"]})
    code, output = project.snakemake(TWO, "results/mini/datasets/scans.json")
    assert code == 1
    text = "\n".join(notes(output))
    assert "profiles/mini/cluster.yaml: account: MINI_ACCOUNT is not set" in text
    assert re.search(r"Slurm refuses .*--gres=gpu:8 .*: Requested node configuration is not", text)
    assert re.search(r"Slurm refuses --partition=cpuonyl .*: Invalid partition", text, re.I)
    assert "Traceback" not in output
    assert project.slurm.states() == before
    assert not trainings(project)
