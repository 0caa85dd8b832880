"""The wheel in an empty environment, away from the checkout, on each Python that is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
RECORDING = PROJECT / "tests" / "unit" / "recordings" / "perun-1.0.0-amd.hdf5"
UV = Path(sys.executable).with_name("uv")
SCANS = (
    '{"name": "scans", "format": "imagenet", "source": "embedded", "train_samples": 384, '
    '"validation_samples": 96, "classes": 10}'
)
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Installed:
    """An environment at `prefix` that has the wheel, and the user's folder."""

    prefix: Path
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment as a user whose Python has nothing else."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(
            [self.prefix / "bin" / words[0], *words[1:]],
            cwd=self.folder,
            env={**kept, "PYTHONNOUSERSITE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def done(self, *words: str) -> str:
        """What a command printed, which must succeed."""
        ended = self.run(*words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def checked(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout by way of the source archive."""
    base = tmp_path_factory.mktemp("build")
    checked("git", "clone", "--quiet", PROJECT, base / "clone")
    changed = subprocess.run(["git", "diff", "HEAD", "--binary"], cwd=PROJECT, capture_output=True)
    apply = ["git", "apply", "--allow-empty"]
    subprocess.run(apply, cwd=base / "clone", input=changed.stdout, check=True)
    build = (UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable)
    checked(*build, "--out-dir", base / "dist", base / "clone")
    (wheel,) = (base / "dist").glob("*.whl")
    return wheel


@pytest.fixture(
    scope="module", params=["3.11", pytest.param("3.12", marks=pytest.mark.nightly), "3.13"]
)
def base(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """The wheel without extras."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    pythons = [shutil.which(f"python{request.param}"), *pyenv.glob(f"{request.param}.*/bin/python")]
    works = [  # a shim of pyenv's may lead nowhere
        python
        for python in filter(None, pythons)
        if not subprocess.run([python, "-c", ""]).returncode
    ]
    if not works:
        pytest.skip(f"no Python {request.param} here")
    folder = tmp_path_factory.mktemp("base")
    (folder / "user").mkdir()
    prefix = folder / "environment"
    checked(UV, "venv", "--quiet", "--python", works[0], prefix)
    checked(UV, "pip", "install", "--quiet", "--python", prefix / "bin" / "python", wheel)
    return Installed(prefix, folder / "user")


def test_an_install_without_extras_is_small_and_has_no_torch(base: Installed) -> None:
    size = subprocess.run(["du", "-sm", base.prefix], capture_output=True, text=True, check=True)
    assert int(size.stdout.split()[0]) < 450
    absent = "torch", "mpi4py", "snakemake", "matplotlib"
    code = f"import importlib.util as u; print([n for n in {absent} if u.find_spec(n)])"
    assert base.done("python", "-c", code) == "[]\n"


def test_recordings_plans_and_claims_work_away_from_a_clone(base: Installed) -> None:
    energy = json.loads(base.done("scalewatt", "energy", str(RECORDING), "--json"))
    assert energy["totals"][-1]["energy_j"] > 0
    plan = json.loads(base.done("scalewatt", "plan", "--site", "horeka", "--json"))
    assert plan["campaign"] == "paper"
    assert "runs: 175" in base.done("scalewatt", "campaign")
    assert "runs: 19" in base.done("scalewatt", "campaign", "campaigns/demo.yaml")
    assert len(json.loads(base.done("scalewatt", "claims", "--json"))) == 160
    code = "import scalewatt as s; print(s.energy.__name__, s.read_recording.__name__)"
    assert base.done("python", "-c", code) == "energy read_recording\n"


def test_what_an_extra_would_bring_is_named(base: Installed) -> None:
    ended = base.run("scalewatt", "prepare", "--folder", "scans", "--definition", SCANS)
    assert ended.returncode == 1
    words = r"\w+ is not installed here; `pip install 'scalewatt\[figures,workflow,train\]'`"
    assert re.search(words, ended.stderr)


def test_the_doctor_advises_what_an_installed_package_can_do(base: Installed) -> None:
    ended = base.run("scalewatt", "doctor")
    assert "Traceback" not in ended.stderr and "the doctor failed" not in ended.stdout
    assert "fix: pip install 'scalewatt[workflow,train]'" in ended.stdout
