"""`--sdm conda` on Slurm: jobs run in the environments that the login node made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]

WORKFLOW_TESTS = Path(__file__).parents[1] / "workflow"
RUN = "resnet50-h100-n001-lbs0016-full/1"


@pytest.mark.nightly
def test_a_training_on_a_node_runs_in_the_environment_with_torch(
    slurm: MiniSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = MiniProject.on(slurm, tmp_path / "project")
    install = f'#!/bin/sh\nexec {sys.executable} {WORKFLOW_TESTS / "linked_install.py"} "$@"\n'
    (project.path / "envs" / "install.sh").write_text(install)
    (tmp_path / "options.txt").write_text("--without-pip")
    monkeypatch.setenv("STAND_IN_CONDA", str(tmp_path))
    monkeypatch.setenv("PATH", str(WORKFLOW_TESTS / "stand_in_conda" / "bin"), prepend=":")

    code, output = project.snakemake(f"results/mini/energy/{RUN}.parquet", "--sdm", "conda")
    assert code == 0, output
    notes = project.path.glob(".snakemake/conda/*/ran.txt")
    called = [[line.split()[0] for line in note.read_text().splitlines()] for note in notes]
    assert sorted(sorted(commands) for commands in called) == [["account"], ["prepare", "train"]]
    assert (project.path / "results" / "mini" / "runs" / RUN / "provenance.json").exists()
