"""The wheel in empty environments, without a checkout, on each Python that is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
RECORDING = PROJECT / "tests" / "unit" / "recordings" / "perun-1.0.0-amd.hdf5"
UV = Path(sys.executable).with_name("uv")
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

SMALL = {
    "name": "small",
    "protocol": "paper",
    "sampling_period_s": 1.0,
    "datasets": {
        "images": {
            "format": "imagenet",
            "source": "data_root",
            "classes": 1000,
            "train_samples": 1281167,
            "validation_samples": 50000,
        }
    },
    "models": {"resnet50": {"dataset": "images", "epochs": 2}},
    "series": {
        "lbs256": {
            "label": "LBS 256",
            "model": "resnet50",
            "device": "a100",
            "gpus": [4, 8, 16],
            "local_batch_size": 256,
        }
    },
    "figures": {"figure2": {"series": ["lbs256"]}},
}
"""A campaign that the published scaling model can simulate."""


def python_of(version: str) -> str:
    """The path of a Python of this machine; skips where there is none."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    candidates = [shutil.which(f"python{version}"), *of_pyenv.glob(f"{version}.*/bin/python")]
    for python in filter(None, candidates):  # a shim of pyenv's may lead nowhere
        if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return str(python)
    pytest.skip(f"no Python {version} here")


@dataclass(frozen=True)
class Installed:
    """An environment at `prefix` that has the wheel, and the user's folder."""

    prefix: Path
    folder: Path

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment as a user whose Python has nothing else."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = f"{self.prefix / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [self.prefix / "bin" / words[0], *words[1:]],
            cwd=folder or self.folder,
            env={**kept, "PATH": path, "PYTHONNOUSERSITE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def done(self, *words: str, folder: Path | None = None) -> str:
        """Run a command, which must succeed; all it printed."""
        told = self.run(*words, folder=folder)
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout + told.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout by way of the source archive."""
    base = tmp_path_factory.mktemp("build")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        if (PROJECT / name).is_file():
            (base / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, base / "copy" / name)
    (base / "copy" / "COMMIT").write_text("0123456789ab\n")
    done = subprocess.run(
        [
            *(UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable),
            *("--out-dir", base / "dist", base / "copy"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (base / "dist").glob("*.whl")
    return found


def installed(wheel: Path, extras: str, version: str, base: Path) -> Installed:
    """Install the wheel, with extras, beside nothing."""
    python = python_of(version)
    prefix, folder = base / "environment", base / "user"
    folder.mkdir()
    subprocess.run([UV, "venv", "--quiet", "--python", python, prefix], check=True)
    done = subprocess.run(
        [
            *(UV, "pip", "install", "--quiet", "--python", prefix / "bin" / "python"),
            f"scalewatt{extras} @ {wheel.as_uri()}",
        ],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    return Installed(prefix, folder)


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13"])
def base(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The wheel without extras."""
    return installed(wheel, "", request.param, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def workflow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with the extra `workflow`, and a project with the small campaign."""
    found = installed(wheel, "[workflow]", "3.12", tmp_path_factory.mktemp("workflow"))
    found.done("scalewatt", "init", "study")
    campaign = found.folder / "study" / "campaigns" / "small.yaml"
    campaign.write_text(yaml.safe_dump(SMALL))
    return found


def test_the_wheel_has_the_projects_files_and_says_of_which_commit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        commit = archive.read("scalewatt/project/COMMIT").decode()
    assert commit == "0123456789ab\n"
    folder = "scalewatt/project"
    for name in (
        "Snakefile",
        "config.yaml",
        "reference/claims.csv",
        "docs/index.md",
        "envs/lock.txt",
    ):
        assert f"{folder}/{name}" in names
    assert "scalewatt/py.typed" in names
    tracked = (PROJECT / "workflow").rglob("*.*")
    for path in tracked:
        if "__pycache__" not in path.parts:
            assert f"{folder}/{path.relative_to(PROJECT)}" in names
    assert not any("tests/" in name for name in names)


def test_an_install_without_extras_is_small_and_has_no_torch(base: Installed) -> None:
    size = subprocess.run(["du", "-sm", base.prefix], capture_output=True, text=True, check=True)
    assert int(size.stdout.split()[0]) < 450
    absent = "torch", "mpi4py", "snakemake", "matplotlib"
    code = f"import importlib.util as u; print([n for n in {absent} if u.find_spec(n)])"
    assert base.done("python", "-c", code) == "[]\n"


def test_a_recording_is_read_and_a_campaign_planned(base: Installed) -> None:
    told = base.done("scalewatt", "energy", str(RECORDING), "--json")
    rows = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert rows and all(row["energy_kwh"] > 0 for row in rows)
    told = base.done("scalewatt", "init", "study")
    assert "Snakefile" in told
    study = base.folder / "study"
    assert "kWh" in base.done("scalewatt", "plan", "--profile", "profiles/simulate", folder=study)
    for words in (
        ("campaign", "config.yaml"),
        ("status", "--profile", "profiles/simulate"),
        ("register", "--help"),
        ("export", "--help"),
    ):
        base.done("scalewatt", *words, folder=study)
    code = "import scalewatt as s; print(s.energy.__name__, s.read_recording.__name__)"
    assert base.done("python", "-c", code) == "energy read_recording\n"


def test_a_project_is_never_written_over_another(base: Installed) -> None:
    taken = base.folder / "taken"
    taken.mkdir()
    (taken / "notes").write_text("mine")
    told = base.run("scalewatt", "init", "taken")
    assert told.returncode == 1
    assert "taken: exists; expected a new folder, or an empty one" in told.stderr
    assert [path.name for path in taken.iterdir()] == ["notes"]


def test_what_an_extra_would_bring_is_named(base: Installed) -> None:
    table = base.folder / "table.parquet"
    table.write_bytes(b"")
    told = base.run("scalewatt", "figure", "2", "--table", str(table), "--out", "figure2")
    assert told.returncode == 1
    assert re.search(r"needs \w+, .* pip install 'scalewatt\[figures\]'", told.stderr), told.stderr


def test_the_doctor_advises_what_an_installed_package_can_do(base: Installed) -> None:
    told = base.run("scalewatt", "doctor")
    assert "Traceback" not in told.stderr and "the doctor failed" not in told.stdout
    assert "fix: pip install 'scalewatt[workflow,train]'" in told.stdout
    assert "make setup" not in told.stdout.replace("a checkout and its make setup", "")


def test_a_project_runs_its_campaign_to_the_report(workflow: Installed) -> None:
    study = workflow.folder / "study"
    given = ("--config", "campaign=campaigns/small.yaml")
    workflow.done("snakemake", "--profile", "profiles/simulate", "all", *given, folder=study)
    results = study / "results" / "small-simulated"
    assert (results / "figures" / "figure2.pdf").stat().st_size
    assert "LBS 256" in (results / "report.html").read_text()
    spec = next(results.glob("runs/*/1/provenance.json"))
    assert json.loads(spec.read_text())["commit"] == "0123456789ab"
    again = workflow.done(
        "snakemake", "--profile", "profiles/simulate", "-n", "all", *given, folder=study
    )
    assert "Nothing to be done" in again


def test_a_projects_results_are_packed_and_read_elsewhere(workflow: Installed) -> None:
    study = workflow.folder / "study"
    workflow.done(
        *("scalewatt", "export", "--profile", "profiles/simulate"),
        *("campaigns/small.yaml", "--out", "small.crate.zip"),
        folder=study,
    )
    workflow.done("scalewatt", "init", "other")
    other = workflow.folder / "other"
    paper = (
        "results/paper-simulated/tables/figure2.parquet"  # beside which the paper's values stand
    )
    workflow.done("snakemake", "--profile", "profiles/simulate", "-n", paper, folder=other)
    workflow.done("scalewatt", "import", str(study / "small.crate.zip"), folder=other)
    assert (other / "results" / "small-simulated" / "tables" / "runs.parquet").is_file()
