"""The doctor on a real Slurm: what a login node says, and a job with the cluster file's launcher."""

from __future__ import annotations

import json
import os
import shlex
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
DOCTOR = [sys.executable, "-m", "scalewatt.cli", "doctor", "--json", "--profile", "profile"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    return tmp_path


def environment(slurm: MiniSlurm, **variables: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**slurm.environment, "PATH": path, **variables}


def checks(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(text)["checks"]}


def test_a_login_node_says_what_slurm_answers(slurm: MiniSlurm, folder: Path) -> None:
    given = environment(slurm, DOCTORS_ACCOUNT=ACCOUNT)
    done = subprocess.run(DOCTOR, cwd=folder, env=given, capture_output=True, text=True)
    found = checks(done.stdout)
    assert "pmi2" in found["slurm_pmi"]["facts"]["plugins"]
    assert found["slurm_partitions"]["outcome"] == "ok"
    assert found["slurm_account"]["outcome"] == "ok"
    assert "cpuonly" in found["slurm_job"]["fix"][0]


def test_an_account_that_is_not_set_is_named_and_ends_with_1(
    slurm: MiniSlurm, folder: Path
) -> None:
    given = environment(slurm)
    given.pop("DOCTORS_ACCOUNT", None)
    done = subprocess.run(DOCTOR, cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 1
    account = checks(done.stdout)["slurm_account"]
    assert account["outcome"] == "missing"
    yours = account["facts"]["accounts"]
    assert ACCOUNT in yours
    assert account["fix"] == [f"export DOCTORS_ACCOUNT={yours[0]}"]


def test_in_a_job_the_launcher_makes_a_world_of_two(slurm: MiniSlurm, folder: Path) -> None:
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {' '.join(DOCTOR)}\n")
    subprocess.run(
        [
            *("sbatch", "--wait", "--partition=cpuonly", "--nodes=1", "--ntasks=2", "--time=2"),
            *(f"--account={ACCOUNT}", f"--chdir={folder}", "--output=said.json", str(script)),
        ],
        env=environment(slurm, DOCTORS_ACCOUNT=ACCOUNT),
        check=True,
        capture_output=True,
    )
    found = checks((folder / "said.json").read_text())
    assert found["slurm_job"]["outcome"] == "ok"
    assert found["mpi"]["facts"]["is_cluster_launcher"]
    assert [world["size"] for world in found["mpi"]["facts"]["worlds"]] == [2]


def test_in_a_step_that_holds_the_node_mpiexec_makes_a_world_of_two(
    slurm: MiniSlurm, folder: Path
) -> None:
    content = {**CLUSTER, "launcher": "mpiexec -n {gpus}"}
    (folder / "profile" / "cluster.yaml").write_text(yaml.safe_dump(content))
    step = ["srun", "--partition=cpuonly", "--nodes=1", "--ntasks=1", "bash", "-c"]
    done = subprocess.run(
        [*step, shlex.join(DOCTOR)],
        cwd=folder,
        env=environment(slurm, DOCTORS_ACCOUNT=ACCOUNT),
        capture_output=True,
        text=True,
    )
    found = checks(done.stdout)["mpi"]
    assert found["outcome"] == "ok", found
    assert found["facts"]["is_cluster_launcher"]
