"""`--sdm conda`: each rule's command runs in the environment that its `conda:` names.

Where conda exists it is asked itself. A stand-in for it, which makes venvs, shows everywhere that the
workflow, the environments' files and their scripts fit together.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Workspace

from scalewatt.provenance.package_lock import locked_versions, normalised

pytestmark = [pytest.mark.lock, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
LINKED = f'#!/bin/sh\nexec {sys.executable} {HERE / "linked_install.py"} "$@"\n'
CONDA = ("--sdm", "conda")


def environments(workspace: Workspace) -> dict[str, Path]:
    """{name: its folder} of the finished environments; one of each at most."""
    folder = workspace.path / ".snakemake" / "conda"
    found = [flag.with_suffix("") for flag in folder.glob("*.env_setup_done")]
    named = {stamp(path)["environment"]: path for path in found}
    assert len(named) == len(found)
    return named


def stamp(prefix: Path) -> dict[str, str]:
    return json.loads((prefix / "scalewatt-environment.json").read_text())


def ran(prefix: Path) -> list[str]:
    """The commands of scalewatt that ran in a linked environment."""
    file = prefix / "ran.txt"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def change_lock(workspace: Workspace) -> None:
    with (workspace.path / "envs" / "lock.txt").open("a") as lock:
        lock.write("# changed\n")


@pytest.fixture(scope="module")
def conda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in's folder; for this module its `conda` is the one on the path."""
    if not (HERE / "stand_in_conda" / "bin" / "conda").exists():
        pytest.fail("the stand-in is missing")
    return tmp_path_factory.mktemp("stand-in-conda")


@pytest.fixture
def stand_in(conda: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in on the path, its venvs without pip."""
    return place(conda, monkeypatch, "--without-pip")


def place(conda: Path, patch: pytest.MonkeyPatch, options: str) -> Path:
    (conda / "options.txt").write_text(options)
    patch.setenv("STAND_IN_CONDA", str(conda))
    patch.setenv("PATH", str(HERE / "stand_in_conda" / "bin"), prepend=":")
    return conda


def with_linked_packages(path: Path) -> Workspace:
    """A working copy whose environments link their packages from this Python's."""
    workspace = Workspace.create(path)
    (workspace.path / "envs" / "install.sh").write_text(LINKED)
    return workspace


@pytest.fixture(scope="module")
def drawn(conda: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Figure 1, which needs no run, made with `--sdm conda`."""
    workspace = with_linked_packages(tmp_path_factory.mktemp("conda") / "project")
    with pytest.MonkeyPatch.context() as patch:
        place(conda, patch, "--without-pip")
        workspace.done("figure1", *CONDA)
    return workspace


def test_a_figure_is_made_in_the_environment_that_its_rules_name(drawn: Workspace) -> None:
    made = environments(drawn)
    assert set(made) == {"analysis"}
    assert ran(made["analysis"]) == ["table", "figure"]
    assert (drawn.results / "figures" / "figure1.png").exists()


@pytest.mark.long
def test_another_lock_is_another_environment(
    drawn: Workspace, stand_in: Path, tmp_path: Path
) -> None:
    workspace = with_linked_packages(tmp_path / "project")
    folder = workspace.path / ".snakemake" / "conda"
    arguments = ("figure1", *CONDA, "--conda-create-envs-only")
    workspace.done(*arguments)
    (first,) = environments(workspace).values()

    change_lock(workspace)
    subprocess.run([workspace.path / "envs" / "renew.sh"], check=True)
    workspace.done(*arguments)
    flags = {flag.with_suffix("") for flag in folder.glob("*.env_setup_done")}
    (second,) = flags - {first}
    assert stamp(first)["environment"] == stamp(second)["environment"] == "analysis"
    assert stamp(first)["lock_sha256"] != stamp(second)["lock_sha256"]


@pytest.mark.long
def test_a_lock_that_was_changed_by_hand_is_refused_and_leaves_no_environment(
    stand_in: Path, tmp_path: Path
) -> None:
    workspace = with_linked_packages(tmp_path / "project")
    change_lock(workspace)
    code, output = workspace.snakemake("figure1", *CONDA)
    assert code != 0
    assert "envs/analysis.post-deploy.sh: was made for other files" in output
    assert "run envs/renew.sh" in output
    assert environments(workspace) == {}
    assert not workspace.results.exists()


@pytest.mark.long
def test_trainings_run_in_the_environment_with_torch_and_their_tables_in_the_other(
    stand_in: Path, tmp_path: Path
) -> None:
    workspace = with_linked_packages(tmp_path / "project")
    run = "resnet50-local-n002-lbs0016-full/1"
    workspace.done(f"results/tiny/energy/{run}.parquet", *CONDA)
    made = environments(workspace)
    assert sorted(ran(made["training"])) == ["prepare", "train"]
    assert ran(made["analysis"]) == ["account"]
    assert (workspace.results / "runs" / run / "provenance.json").exists()


@pytest.mark.long
def test_the_installer_brings_the_versions_of_the_lock_without_torch(
    conda: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real installer, with the package index or its cache."""
    place(conda, monkeypatch, "")
    workspace = Workspace.create(tmp_path / "project")
    shutil.copy2(HERE.parents[1] / "pyproject.toml", workspace.path)
    workspace.done("figure1", *CONDA)
    python = environments(workspace)["analysis"] / "bin" / "python"
    list_ = [python, "-m", "pip", "list", "--format=json"]
    listed = subprocess.run(list_, capture_output=True, text=True, check=True).stdout
    versions = {normalised(one["name"]): one["version"] for one in json.loads(listed)}
    lock = locked_versions()
    found = {name: version for name, version in versions.items() if name in lock}
    assert len(found) > 50 and "torch" not in found
    assert {name: lock[name] for name in found} == found
