"""Environments: the lock, the conda environments, the container and the Makefile say the same."""

from __future__ import annotations

import hashlib
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVS = ROOT / "envs"
LOCK = (ENVS / "lock.txt").read_text()
SUBSET: dict[str, Any] = runpy.run_path(str(ENVS / "subset.py"))
NAMES = ("training", "analysis")

PAPERS_PINS = {"torch": "2.7.0", "torchvision": "0.22.0"}
DEPARTURES = {"perun": "==1.0.0", "mpi4py": "==4.1.*", "mpich": "==5.*"}

PINNED = re.compile(
    r"([a-z0-9][a-z0-9.-]*)==([^ \\;]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)"
)


def requirements(name: str) -> list[Requirement]:
    """What a .in file asks for."""
    lines = (line.partition("#")[0].strip() for line in (ENVS / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def locked() -> dict[str, str]:
    """{package: version} of the lock."""
    return {found[1]: found[2] for found in PINNED.finditer(LOCK)}


def analysis() -> set[str]:
    """The packages of the analysis environment."""
    return set(SUBSET["subset"](LOCK, SUBSET["names_of"]((ENVS / "analysis.in").read_text())))


def conda_file(name: str) -> dict[str, Any]:
    return yaml.safe_load((ENVS / f"{name}.yaml").read_text())


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of envs/, to be changed."""
    shutil.copytree(ENVS, tmp_path / "checkout" / "envs")
    shutil.copy2(ROOT / "pyproject.toml", tmp_path / "checkout")
    return tmp_path / "checkout"


# --- the lock -------------------------------------------------------------------------------------


def test_every_package_of_the_lock_has_hashes_and_nothing_names_an_index() -> None:
    rest = re.sub(r"^ *#.*\n", "", PINNED.sub("", LOCK), flags=re.MULTILINE)
    assert rest.strip() == ""
    assert len(locked()) > 100
    commands = re.sub(r"^ *#.*$", "", LOCK, flags=re.MULTILINE)
    assert "://" not in LOCK
    assert "index" not in commands


def test_what_is_asked_for_is_in_the_lock_in_a_version_that_was_asked_for() -> None:
    versions = locked()
    for wanted in requirements("requirements.in"):
        assert wanted.specifier.contains(versions[wanted.name]), wanted


def test_the_papers_versions_are_pinned_and_departures_are_those_stated() -> None:
    versions = locked()
    assert {name: versions[name] for name in PAPERS_PINS} == PAPERS_PINS
    comments = (ENVS / "training.yaml").read_text()
    for name, wanted in DEPARTURES.items():
        assert SpecifierSet(wanted).contains(versions[name]), name
    assert "torch 2.7.0, torchvision 0.22.0" in comments
    assert "1.0.0 in place of 0.8.10" in comments
    assert "mpi4py 4.1 and MPICH 5" in comments


def test_all_environments_have_the_python_of_the_paper_and_the_lock() -> None:
    assert "--python-version 3.11 " in LOCK.partition("\naio")[0]
    for name in NAMES:
        wanted = conda_file(name)
        assert wanted["dependencies"] == ["python=3.11.*", "pip"]
        assert wanted["channels"] == ["conda-forge", "nodefaults"]
        assert wanted["variables"] == {"PYTHONNOUSERSITE": "1"}
    assert re.search(r"^From: python:3\.11-", (ENVS / "scalewatt.def").read_text(), re.MULTILINE)


# --- installing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["."], "expected PREFIX training|analysis"),
        ([".", "trainings"], "unknown environment 'trainings'; allowed: training, analysis"),
        (["nowhere", "analysis"], "nowhere has no bin/python"),
    ],
)
def test_the_installer_refuses_what_it_does_not_know(
    checkout: Path, arguments: list[str], words: str
) -> None:
    done = run("envs/install.sh", *arguments, cwd=checkout)
    assert done.returncode == 1
    assert words in done.stderr


def test_an_installation_that_fails_is_no_environment(checkout: Path) -> None:
    prefix = checkout / "env"
    (prefix / "bin").mkdir(parents=True)
    python = prefix / "bin" / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')  # a Python 3.11 whose pip fails
    python.chmod(0o755)
    (prefix / "scalewatt-environment.json").write_text("{}")
    assert run("envs/install.sh", "env", "training", cwd=checkout).returncode != 0
    assert not (prefix / "scalewatt-environment.json").exists()


# --- what Snakemake tells environments apart by ---------------------------------------------------


def test_the_scripts_name_the_lock_of_this_checkout() -> None:
    for name in NAMES:
        script = (ENVS / f"{name}.post-deploy.sh").read_text()
        sums = dict(re.findall(r"^([0-9a-f]{64})  (\S+)$", script, flags=re.MULTILINE))
        named = {path: sum_ for sum_, path in sums.items()}
        assert "envs/lock.txt" in named
        assert ("envs/analysis.in" in named) == (name == "analysis")
        for path, sum_ in named.items():
            content = (ROOT / path).read_bytes()
            assert sum_ == hashlib.sha256(content).hexdigest(), f"{path}: run envs/renew.sh"


def test_another_lock_makes_other_scripts_and_nothing_else(checkout: Path) -> None:
    with (checkout / "envs" / "lock.txt").open("a") as lock:
        lock.write("# changed\n")
    before = {path: path.read_bytes() for path in (checkout / "envs").iterdir() if path.is_file()}
    assert run("envs/renew.sh", cwd=checkout).returncode == 0
    after = {path: path.read_bytes() for path in (checkout / "envs").iterdir() if path.is_file()}
    assert set(after) == set(before)
    changed = {path.name for path, content in after.items() if content != before[path]}
    assert changed == {"training.post-deploy.sh", "analysis.post-deploy.sh"}
    sum_ = hashlib.sha256((checkout / "envs" / "lock.txt").read_bytes()).hexdigest()
    for name in changed:
        script = checkout / "envs" / name
        assert f"\n{sum_}  envs/lock.txt\n" in script.read_text()
        assert script.stat().st_mode & 0o111


@pytest.mark.parametrize("name", NAMES)
def test_a_script_made_for_another_lock_installs_nothing(checkout: Path, name: str) -> None:
    (checkout / "envs" / "install.sh").write_text("#!/bin/sh\ntouch installed\n")
    with (checkout / "envs" / "lock.txt").open("a") as lock:
        lock.write("# changed\n")
    done = run("bash", ENVS / f"{name}.post-deploy.sh", cwd=checkout, CONDA_PREFIX="env")
    assert done.returncode == 1
    assert "envs/lock.txt" in done.stderr
    assert "run envs/renew.sh" in done.stderr
    assert not (checkout / "installed").exists()


# --- parts of the lock ----------------------------------------------------------------------------


def test_a_part_has_the_lines_of_the_lock_in_its_order() -> None:
    part = SUBSET["subset"](LOCK, ["matplotlib"])
    assert list(part) == [name for name in locked() if name in part]
    assert {"matplotlib", "numpy", "pillow"} <= set(part)
    assert all(text in LOCK for text in part.values())
    assert "torch" not in part


# --- the container --------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """The container's definition: {section: its lines}."""
    parts = re.split(r"^%(\w+)\n", (ENVS / "scalewatt.def").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def copied_files() -> dict[str, str]:
    """{path in the checkout: path in the container}."""
    lines = [line.split() for line in sections()["files"].splitlines() if line.strip()]
    return {source: target for source, target in lines}


def test_the_container_has_all_that_the_package_and_the_workflow_read(tmp_path: Path) -> None:
    inside = tmp_path / "container"
    for source, target in copied_files().items():
        to = inside / target.removeprefix("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / source, to)
    root = inside / "opt" / "scalewatt"
    command = (sys.executable, "-m", "scalewatt.cli", "campaign", "--cluster")
    files = ("profiles/horeka/cluster.yaml", "config.yaml")
    done = run(*command, *files, cwd=root, PYTHONPATH=str(root / "src"))
    assert done.returncode == 0, done.stderr
    assert "175" in done.stdout
    assert (root / "envs" / "lock.txt").read_bytes() == LOCK.encode()
    assert (root / "Snakefile").exists()
