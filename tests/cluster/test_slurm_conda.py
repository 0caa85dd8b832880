"""`--sdm conda` on Slurm: jobs run in the environments that the login node made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]

STAND_IN = Path(__file__).parents[1] / "workflow" / "stand_in_conda" / "bin"
RUN = "resnet50-h100-n001-lbs0016-full/1"


@pytest.mark.nightly
def test_a_training_on_a_node_runs_in_the_environment_with_torch(
    slurm: MiniSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = MiniProject.on(slurm, tmp_path / "project")
    monkeypatch.setenv("STAND_IN_CONDA", str(tmp_path))
    monkeypatch.setenv("STAND_IN_LINKS", "1")
    monkeypatch.setenv("PATH", str(STAND_IN), prepend=":")

    code, output = project.snakemake(f"results/mini/energy/{RUN}.parquet", "--sdm", "conda")
    assert code == 0, output
    ran = [note.read_text() for note in project.path.glob(".snakemake/conda/*/ran.txt")]
    assert sum(" train " in text for text in ran) == 1
    provenance = project.path / "results" / "mini" / "runs" / RUN / "provenance.json"
    assert "snakemake" not in json.loads(provenance.read_text())["packages_installed"]
