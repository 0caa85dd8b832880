"""`scalewatt gpu-check`: a rehearsal of all checks, and checks that notice what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import environment

HERE = Path(__file__).parent
NVML = HERE / "stand_in_nvml"
NOT_REHEARSED = {"compile", "shared_gpu_4", "out_of_memory"}
NEED_NVML = {"power_and_counter", "sampler_cost"}

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def rehearse(out: Path, *only: str, first: Path | None = None) -> tuple[int, dict[str, dict], str]:
    """Run a rehearsal; its exit code, the checks by name, and what it printed."""
    path = os.pathsep.join(map(str, filter(None, [first, os.environ.get("PYTHONPATH")])))
    names = ["--only", *only] if only else []
    command = [sys.executable, "-m", "scalewatt.cli", "gpu-check", "--rehearse"]
    done = subprocess.run(
        [*command, *names, "--out", str(out)],
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (out / "checks.json").exists(), done.stderr
    content = json.loads((out / "checks.json").read_text())
    return done.returncode, {one["name"]: one for one in content["checks"]}, done.stdout


def test_a_rehearsal_passes_all_checks_that_it_can_make(tmp_path: Path) -> None:
    code, checks, printed = rehearse(tmp_path / "out", first=NVML)
    failed = {name: one for name, one in checks.items() if one["verdict"] == "failed"}
    assert not failed and code == 0, printed
    skipped = {name for name, one in checks.items() if one["verdict"] == "skipped"}
    assert skipped == NOT_REHEARSED
    assert all(checks[name]["reason"] for name in skipped)
    assert all(one["measured"] for name, one in checks.items() if name not in skipped)
    assert "energy null" in checks["gpu_faults"]["measured"]
    assert "2 ranks a node on 1 GPUs" in checks["shared_gpu_2"]["measured"]
    page = (tmp_path / "out" / "checks.md").read_text()
    assert all(f"| {name} | " in page for name in checks)


def test_without_nvml_the_checks_of_power_are_skipped(tmp_path: Path) -> None:
    code, checks, _ = rehearse(tmp_path / "out", *sorted(NEED_NVML))
    assert code == 0
    for name in NEED_NVML:
        assert checks[name]["verdict"] == "skipped"
        assert "NVML does not answer" in checks[name]["reason"]


@pytest.mark.nightly
def test_a_training_that_resumes_wrongly_fails_its_check(tmp_path: Path) -> None:
    code, checks, _ = rehearse(tmp_path / "out", "amp_resume", first=HERE / "wrong_resume")
    assert code == 1
    found = checks["amp_resume"]
    assert found["verdict"] == "failed" and "parts differ" in found["measured"]
    assert (tmp_path / "out" / "amp_resume.log").exists()
