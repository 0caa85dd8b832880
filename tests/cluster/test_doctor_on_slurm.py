"""The doctor on a real Slurm: what a login node says, and a job with the cluster file's launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from minislurm import MiniSlurm
from slurm_files import ACCOUNT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CLUSTER = {
    "cluster": "mini",
    "account": "$DOCTORS_ACCOUNT",
    "launcher": "srun --mpi=pmi2 --nodes={nodes} --ntasks={gpus}",
    "devices": {
        "cpu": {
            "gpus_per_node": 2,
            "cpus_per_rank": 1,
            "torch_device": "cpu",
            "partition": "cpuonly",
            "time_limit_min": 60,
            "cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150},
        }
    },
}
DOCTOR = [
    sys.executable,
    "-m",
    "scalewatt.cli",
    "doctor",
    "--json",
    "--site",
    "profile/cluster.yaml",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profile").mkdir()
    site = tmp_path / "profile" / "cluster.yaml"
    site.write_text(yaml.safe_dump(CLUSTER))
    return tmp_path


def doctor(slurm: MiniSlurm, folder: Path, *begin: str, **variables: str) -> dict[str, Any]:
    """The doctor's checks by name, with its exit code as `code`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given = {**slurm.environment, "PATH": path, **variables}
    done = subprocess.run([*begin, *DOCTOR], cwd=folder, env=given, capture_output=True, text=True)
    checks = json.loads(done.stdout)["checks"]
    return {"code": done.returncode, **{check["name"]: check for check in checks}}


def test_a_login_node_says_what_slurm_answers(slurm: MiniSlurm, folder: Path) -> None:
    report = doctor(slurm, folder, DOCTORS_ACCOUNT=ACCOUNT)
    assert report["slurm"]["outcome"] == "ok"
    assert "run the doctor in a job" in report["slurm"]["text"]

    report = doctor(slurm, folder, DOCTORS_ACCOUNT="")
    account = report["slurm"]
    assert report["code"] == 1
    assert account["outcome"] == "fail"
    assert "export DOCTORS_ACCOUNT=" in account["text"]


@pytest.mark.parametrize(
    ("launcher", "ranks"), [(CLUSTER["launcher"], 2), ("mpiexec -n {gpus}", 1)]
)
def test_in_a_job_the_launcher_makes_a_world_of_two(
    launcher: str, ranks: int, slurm: MiniSlurm, folder: Path
) -> None:
    content = yaml.safe_dump({**CLUSTER, "launcher": launcher})
    (folder / "profile" / "cluster.yaml").write_text(content)
    job = ["--partition=cpuonly", "--nodes=1", f"--ntasks={ranks}", f"--account={ACCOUNT}"]
    begin = ["salloc", *job] if ranks > 1 else ["srun", *job]
    report = doctor(slurm, folder, *begin, DOCTORS_ACCOUNT=ACCOUNT)
    assert report["slurm"]["outcome"] == "ok"
    words = launcher.format(nodes=1, gpus=2)
    assert f"`{words}` makes a world of 2" in report["mpi"]["text"]
