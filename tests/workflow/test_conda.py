"""`--sdm conda`: each rule's command runs in the environment that its `conda:` names.

Where conda exists it is asked itself. A stand-in for it, which makes venvs, shows everywhere that the
workflow, the environments' files and their scripts fit together.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_simulated import CAMPAIGN as SIMULATED
from workspace import Workspace, environment

pytestmark = [pytest.mark.lock, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
LINKED = f'#!/bin/sh\nexec {sys.executable} {HERE / "linked_install.py"} "$@"\n'
NO_CONDA = "conda is not on this machine; the stand-in's tests show the wiring"
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


def test_conda_is_asked_for_one_environment_by_its_file(drawn: Workspace, conda: Path) -> None:
    calls = (conda / "calls.txt").read_text().splitlines()
    prefix = environments(drawn)["analysis"]
    (created,) = [call for call in calls if call.startswith("env create")]
    assert f"--file {prefix}.yaml --prefix {prefix}" in created
    copied = Path(f"{prefix}.yaml").read_text()
    assert copied == (drawn.path / "envs" / "analysis.yaml").read_text()
    assert (prefix / "variables.sh").read_text() == "export PYTHONNOUSERSITE=1\n"


def test_what_was_made_with_conda_is_not_made_again_without(drawn: Workspace) -> None:
    assert drawn.jobs("figure1") == {}


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
def test_all_of_a_campaign_but_trainings_is_made_without_torch(
    stand_in: Path, tmp_path: Path
) -> None:
    workspace = with_linked_packages(tmp_path / "project")
    (workspace.path / "campaigns" / "small.yaml").write_text(SIMULATED)
    chosen = ("--config", "campaign=campaigns/small.yaml")
    code, output = workspace.snakemake("all", *CONDA, *chosen, profile="simulate")
    assert code == 0, output
    made = environments(workspace)
    assert set(made) == {"analysis"}
    assert not list(made["analysis"].glob("lib/python*/site-packages/torch"))
    steps = {"simulate", "account", "table", "figure", "run-pages", "claims", "plan", "report"}
    assert steps <= set(ran(made["analysis"]))


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
def test_what_is_installed_is_the_same_as_in_the_environment_of_make(
    conda: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real installer, with the package index or its cache."""
    place(conda, monkeypatch, "")
    workspace = Workspace.create(tmp_path / "project")
    shutil.copy2(HERE.parents[1] / "pyproject.toml", workspace.path)
    workspace.done("figure1", *CONDA)
    prefix = environments(workspace)["analysis"]
    python = prefix / "bin" / "python"
    assert 50 < packages_as_here(prefix) < 100
    # As a reader does who set it up by hand.
    lines = f". {prefix}/bin/activate && command -v scalewatt && scalewatt campaign config.yaml"
    done = subprocess.run(
        ["bash", "-euc", lines], cwd=workspace.path, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{prefix}/bin/scalewatt\n")
    code = "import importlib.util as u; assert u.find_spec('torch') is None; import scalewatt"
    subprocess.run([python, "-c", f"{code}; print(scalewatt.__file__)"], check=True, cwd=tmp_path)
    # Another version is fixed by what the doctor prints.
    other = [python, "-m", "pip", "install", "--quiet", "--no-deps", "tabulate==0.9.0"]
    subprocess.run(other, check=True)
    check = examined(prefix, workspace.path)
    assert "tabulate 0.9.0" in check["found"]
    subprocess.run(["bash", "-euc", "\n".join(check["fix"])], cwd=workspace.path, check=True)
    assert examined(prefix, workspace.path)["outcome"] == "ok"


@pytest.mark.long
@pytest.mark.nightly
def test_what_is_installed_for_trainings_is_the_same_as_in_the_environment_of_make(
    tmp_path: Path,
) -> None:
    """The real installer for all of the lock, a minute and 6 GB that are removed again."""
    workspace = Workspace.create(tmp_path / "project")
    shutil.copy2(HERE.parents[1] / "pyproject.toml", workspace.path)
    prefix = tmp_path / "env"
    try:
        subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
        install = workspace.path / "envs" / "install.sh"
        subprocess.run([install, prefix, "training"], check=True)
        assert packages_as_here(prefix) > 100
        assert stamp(prefix)["environment"] == "training"
    finally:
        shutil.rmtree(prefix, ignore_errors=True)


def examined(prefix: Path, project: Path) -> dict[str, Any]:
    """What the doctor of an environment says of its packages."""
    command = [prefix / "bin" / "scalewatt", "doctor", "--json"]
    said = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False).stdout
    return next(one for one in json.loads(said)["checks"] if one["name"] == "packages")


def packages_as_here(prefix: Path) -> int:
    """How many packages of the lock an environment has; all have the files of this Python's."""
    (here,) = Path(sys.prefix).glob("lib/python*/site-packages")
    found = prefix.glob("lib/python*/site-packages/*.dist-info")
    installed = [path for path in found if is_locked(path)]
    for path in installed:
        assert recorded(path) == recorded(here / path.name), path.name
    return len(installed)


def is_locked(metadata: Path) -> bool:
    """Whether a package is the lock's, not this project or what a venv begins with."""
    return not metadata.name.startswith(("scalewatt-", "pip-"))


def recorded(metadata: Path) -> dict[str, str]:
    """{file: hash} of a package; programs begin with their Python's path, caches and notes differ."""
    with (metadata / "RECORD").open(newline="") as record:
        rows = list(csv.reader(record))
    own = ("../", f"{metadata.name}/")
    return {
        path: sum_
        for path, sum_, _ in rows
        if not path.startswith(own) and not path.endswith(".pyc")
    }


@pytest.mark.long
@pytest.mark.skipif(shutil.which("conda", path=environment()["PATH"]) is None, reason=NO_CONDA)
def test_conda_itself_makes_the_environment_and_the_figure(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "project")
    shutil.copy2(HERE.parents[1] / "pyproject.toml", workspace.path)
    workspace.done("figure1", *CONDA)
    made = environments(workspace)
    assert set(made) == {"analysis"}
    assert (made["analysis"] / "conda-meta").is_dir()
    assert (workspace.results / "figures" / "figure1.png").exists()
