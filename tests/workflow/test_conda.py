"""`--sdm conda`: each rule's command runs in the environment that its `conda:` names.

A stand-in for conda, which makes venvs, shows that the workflow and the environments' files fit together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Workspace

pytestmark = [
    pytest.mark.lock,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="they have Python 3.11"),
]

STAND_IN = Path(__file__).parent / "stand_in_conda" / "bin"
CONDA = ("--sdm", "conda")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stand-in on the path, which links packages."""
    monkeypatch.setenv("STAND_IN_CONDA", str(tmp_path))
    monkeypatch.setenv("STAND_IN_LINKS", "1")
    monkeypatch.setenv("PATH", str(STAND_IN), prepend=":")


def environments(workspace: Workspace) -> dict[str, Path]:
    """{file's name: its environment's folder}."""
    folder = workspace.path / ".snakemake" / "conda"
    prefixes = [flag.with_suffix("") for flag in folder.glob("*.env_setup_done")]
    contents = {path.with_suffix(".yaml").read_bytes(): path for path in prefixes}
    files = (workspace.path / "envs").glob("*.yaml")
    return {file.stem: contents[text] for file in files if (text := file.read_bytes()) in contents}


def ran(prefix: Path) -> str:
    """The commands that ran in a linked environment, a line each."""
    file = prefix / "ran.txt"
    return file.read_text() if file.exists() else ""


def test_a_figure_is_made_in_the_environment_that_its_rules_name(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "project")
    workspace.done("figure1", *CONDA)
    made = environments(workspace)
    assert set(made) == {"analysis"}
    assert (workspace.results / "figures" / "figure1.png").exists()

    changed = workspace.path / "envs" / "analysis.yaml"
    changed.write_text(changed.read_text().replace("nodefaults", "nodefaults # changed"))
    workspace.done("figure1", *CONDA, "--conda-create-envs-only")
    assert environments(workspace)["analysis"] != made["analysis"], (
        "another file, another environment"
    )


def test_without_conda_commands_run_with_snakemakes_python_whatever_is_activated(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    other = tmp_path / "other"
    other.mkdir()
    (other / "python").write_text("#!/bin/sh\nexit 3\n")
    (other / "python").chmod(0o755)
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "figure1"]
    subprocess.run(
        command,
        cwd=workspace.path,
        env={**os.environ, "PATH": f"{other}:/usr/bin:/bin"},
        check=True,
    )
    assert (workspace.results / "figures" / "figure1.png").exists()


@pytest.mark.long
def test_trainings_run_in_the_environment_with_torch_and_their_tables_in_the_other(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    run = "fourcastnet.pretrain-local-n001-lbs0002-full/1"
    workspace.done(f"results/tiny/energy/{run}.parquet", *CONDA)
    made = environments(workspace)
    assert " train " in ran(made["training"]) and " prepare " in ran(made["training"])
    assert " train " not in ran(made["analysis"])
    provenance = json.loads((workspace.results / "runs" / run / "provenance.json").read_text())
    assert "torch" in provenance["packages_installed"]
    assert "snakemake" not in provenance["packages_installed"]
    assert provenance["lock"]["differences"] == []
