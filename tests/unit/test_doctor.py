"""The doctor's checks and its conclusion, on made machines and on this one."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from workspace import first_on_path

from scalewatt.campaign.cluster import load_cluster
from scalewatt.cli import main
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.doctor import checks
from scalewatt.doctor import examine as examine_module
from scalewatt.doctor.checks import FAIL, OK, WARN, Check, Site, fail, ok, run, warn
from scalewatt.doctor.examine import CHECKS, as_text, energy_of, examine, obstacles_of, run_check
from scalewatt.recordings.telemetry import GROUP_VARIABLE, announce_sampler
from scalewatt.slurm.slurm_commands import NoAnswerError

STAND_IN_NVML = Path(__file__).parents[1] / "workflow" / "stand_in_nvml"
CPU = {"sockets": 1, "idle_w": 50, "rated_w": 150}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_PARTITION"):
        monkeypatch.delenv(name, raising=False)


def site(folder: Path, cluster: dict[str, Any] | None = None, **device: Any) -> Site:
    """A machine with its root, and a profile of one device, in a folder."""
    entry = {"gpus_per_node": 4, "cpus_per_rank": 1, "torch_device": "auto", "cpu": CPU}
    content = {
        "cluster": "made",
        "launcher": "mpiexec -n {gpus}",
        "work_root": str(folder / "work"),
        "devices": {"local": entry | device},
    }
    file = folder / "profile" / "cluster.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content | (cluster or {})))
    return Site(str(file), load_cluster(file), folder)


@dataclass
class Given:
    """What a made machine has."""

    programs: dict[str, str] = field(default_factory=dict)
    """Scripts, the first on PATH."""
    files: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def site(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
        """Make the machine in a folder."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "bin").mkdir()
        for name, script in self.programs.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o755)
        path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
        for name, value in {"PATH": path, **self.variables}.items():
            monkeypatch.setenv(name, value)
        return site(folder, self.cluster, **self.device)


def with_gpu(row: str) -> Given:
    return Given({"nvidia-smi": f"echo '{row}'"}, device={"torch_device": "cuda"})


NO_DRIVER = {"nvidia-smi": "echo 'Driver/library version mismatch'; exit 18"}
CUDA = {"torch_device": "cuda"}
POWERCAP, HWMON = "sys/class/powercap/intel-rapl:", "sys/class/hwmon/hwmon1"
RAPL = {
    f"{POWERCAP}0/name": "package-0",
    f"{POWERCAP}0/energy_uj": "12345",
    f"{POWERCAP}0:0/name": "dram",
    f"{POWERCAP}0:0/energy_uj": "12345",
    f"{POWERCAP}0:1/name": "core",  # perun does not read it
    f"{POWERCAP}0:1/energy_uj": "",
}
GRACE = {
    f"{HWMON}/device/power1_oem_info": "CPU Power Socket 0",
    f"{HWMON}/device/power1_average": "90000000",
    f"{HWMON}/device/power2_oem_info": "SysIO Power Socket 0",
    f"{HWMON}/device/power2_average": "",
}


LOGIN_NODE = {
    "sbatch": "exit 0",
    "srun": "printf 'MPI plugin types are...\n\tnone\n\tpmi2\n'",
}
FULL = "allocation failure: Requested node configuration is not available"
SLURM = {"launcher": "srun --mpi=pmi2 --ntasks={gpus}"}
DEVICE = {"partition": "accelerated", "gres": "gpu", "time_limit_min": 60}


def launched(script: str) -> Given:
    return Given({"launch": script}, cluster={"launcher": "launch -n {gpus}"})


def on_slurm(
    programs: dict[str, str] | None = None, device: dict[str, Any] | None = None, **cluster: Any
) -> Given:
    return Given(LOGIN_NODE | (programs or {}), {}, SLURM | cluster, DEVICE | (device or {}))


@pytest.mark.parametrize(
    ("check", "given", "outcome", "words"),
    [
        (checks.gpus, with_gpu("A100, 550.1, 61.20, Disabled"), OK, "1 × A100, driver 550.1, now"),
        (checks.gpus, with_gpu("A100, 550.1, [N/A], [N/A]"), FAIL, "unknown (null)"),
        (checks.gpus, with_gpu("A100, 550.1, 61.20, Enabled"), WARN, "MIG"),
        (checks.gpus, Given(NO_DRIVER), OK, "no NVIDIA GPU"),
        (checks.gpus, Given({"nvidia-smi": "exit 127"}), OK, "(nvidia-smi is not installed)"),
        (checks.gpus, Given(NO_DRIVER, device=CUDA), FAIL, "no NVIDIA GPU"),
        (checks.cpu_counters, Given(files=RAPL), OK, "can be read: 2"),
        (checks.cpu_counters, Given(files=GRACE), OK, "can be read: 1"),
        (checks.cpu_counters, Given(files=RAPL | {f"{POWERCAP}0/energy_uj": ""}), WARN, "estimated"),
        (checks.cpu_counters, Given(), WARN, "no /sys/class/powercap/intel-rapl:*"),
        (checks.mpi, launched('shift 2; "$@" | sed s/1/2/'), OK, "a world of 2"),
        (checks.mpi, launched('shift 2; "$@"; "$@"'), FAIL, "a world of 1"),
        (checks.mpi, launched("echo 'step creation disabled' >&2; exit 1"), WARN, "step creation"),
        (checks.slurm, on_slurm(), OK, "of each device: accelerated, account by default"),
        (checks.slurm, on_slurm({"sbatch": f"echo '{FULL}' >&2; exit 1"}), FAIL, "--gres=gpu:4"),
        (checks.slurm, on_slurm({"sbatch": "echo timed out >&2; exit 1"}), FAIL, "not checked"),
        (checks.slurm, on_slurm(account="$NO_PROJECT"), FAIL, "NO_PROJECT is not set; export"),
        (checks.slurm, on_slurm(account="HK-2"), OK, "account HK-2; sensors are this node's"),
    ],
)  # fmt: skip
def test_a_check_says_what_a_machine_has(
    check: Callable[[Site], Check],
    given: Given,
    outcome: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run_check(check, given.site(tmp_path, monkeypatch))
    assert result.outcome == outcome and words in result.text


def test_perun_is_not_tested_where_a_run_is_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path))
    measuring = announce_sampler(socket.gethostname())
    check = checks.perun(site(tmp_path))
    assert check.outcome == WARN and "while a run is being measured" in check.text
    assert measuring is not None


# --- folders --------------------------------------------------------------------------------------

TRIED = {"exists": True, "tried": "/w", "error": None, "free_gib": 50.0}


@pytest.mark.parametrize(
    ("name", "change", "outcome", "words"),
    [
        ("work", {}, OK, "50 GiB"),
        ("work", {"exists": False}, OK, "created when needed"),
        ("work", {"free_gib": 0.5}, FAIL, "min_free_gib"),
        ("data", {"free_gib": 0.5}, OK, "0 GiB"),
        ("results", {"error": "Permission denied"}, FAIL, "Permission denied"),
    ],
)
def test_a_folder_is_judged_by_space_and_rights(
    name: str,
    change: dict[str, Any],
    outcome: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "call", lambda *_: TRIED | change)
    result = checks.folder(site(tmp_path), name)
    assert result is not None and result.outcome == outcome and words in result.text


def test_trying_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    answer = checks.probe_folder(str(tmp_path / "new" / "work"))
    assert (answer["exists"], answer["tried"], answer["error"]) == (False, str(tmp_path), None)
    assert list(tmp_path.iterdir()) == []


# --- conclusion -----------------------------------------------------------------------------------


def sampled(**origins: str | None) -> Check:
    """What perun's samples gave."""
    kinds = {
        kind: {"origin": origin, "sensors": ["SENSOR"] if origin else []}
        for kind, origin in origins.items()
    }
    return ok("", kinds=kinds)


ESTIMATED_CPU = sampled(gpu=None, cpu="estimated", ram=None)
GPU, NO_GPU, SILENT_GPU = ok("", count=1), ok("", count=0), warn("no power", count=1)


@pytest.mark.parametrize(
    ("gpus", "perun", "origin", "scope", "obstacles"),
    [
        (GPU, sampled(gpu="measured", cpu="estimated", ram=None), "mixed", "gpu+cpu", []),
        (GPU, sampled(gpu="measured", cpu="measured", ram=None), "measured", "gpu+cpu", []),
        (SILENT_GPU, ESTIMATED_CPU, None, None, ["gpus"]),
        (NO_GPU, ESTIMATED_CPU, "estimated", "cpu", []),
        (NO_GPU, sampled(gpu=None, cpu="estimated", ram="estimated"), "estimated", "cpu+ram", []),
        (NO_GPU, sampled(gpu=None, cpu=None, ram=None), None, None, ["cpu_counters"]),
        (ok("", count=2), sampled(gpu="measured", cpu="measured", ram=None), None, None, ["gpus"]),
        (NO_GPU, fail("not installed"), None, None, ["perun"]),
    ],
)
def test_origin_scope_and_obstacles_follow_from_the_checks(
    gpus: Check,
    perun: Check,
    origin: str | None,
    scope: str | None,
    obstacles: list[str],
    tmp_path: Path,
) -> None:
    made, checks = site(tmp_path, ram={"power_w": 30}), {"gpus": gpus, "perun": perun}
    energy = energy_of(checks, made)
    assert (energy["origin"], energy["scope"]) == (origin, scope)
    assert obstacles_of(checks, made, energy) == obstacles


def test_sensors_of_a_login_node_keep_nobody_from_submitting(tmp_path: Path) -> None:
    checks = {"gpus": SILENT_GPU, "perun": ESTIMATED_CPU}
    made = site(tmp_path, SLURM, **DEVICE)
    assert obstacles_of(checks, made, energy_of(checks, made)) == []


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_command_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 1)
    begin_s = time.monotonic()
    with pytest.raises(NoAnswerError, match="sh gave no answer in 1 s"):
        run("sh", "-c", f"(sleep 4; touch {tmp_path}/later) & wait")
    assert time.monotonic() - begin_s < 4
    time.sleep(5)
    assert not (tmp_path / "later").exists()


def test_the_text_begins_with_the_conclusion_and_a_command_is_never_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = "sudo chmod a+r " + " ".join(f"/sys/class/powercap/intel-rapl:{n}" for n in range(6))
    checks = {"gpus": NO_GPU, "perun": ESTIMATED_CPU, "mpi": fail("none", fix)}
    functions = {name: lambda site, check=check: check for name, check in checks.items()}
    monkeypatch.setattr(examine_module, "CHECKS", functions)
    lines = as_text(examine(site(tmp_path).name)).splitlines()
    assert lines[2] == "Runs cannot be made yet because of mpi, see below."
    assert "energy is: CPU estimated (energy_origin estimated, scope cpu)" in lines[3]
    assert lines[-1].endswith(f"fix: {fix}")


def test_every_check_is_in_the_documents_table() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (PROJECT_ROOT / "docs/install.md").read_text(), re.M)
    assert set(CHECKS) <= {word for row in rows for word in re.findall(r"`(\S+)`", row)}


@pytest.mark.slow
def test_the_command_has_perun_sample_this_machine_and_stand_in_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "LIMIT_S", 200)
    monkeypatch.setenv("PYTHONPATH", first_on_path(STAND_IN_NVML))
    # Other tests may measure runs on this machine just now.
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    monkeypatch.chdir(tmp_path)
    rows = "; ".join(["echo 'GPU, 550.1, 100.00, Disabled'"] * 4)
    made = Given({"nvidia-smi": rows}).site(tmp_path, monkeypatch)
    code = main(["doctor", "--json", "--site", made.name])
    report = json.loads(capsys.readouterr().out)
    by_name = {check["name"]: check for check in report["checks"]}
    assert "CUDA:3_POWER (700 W, measured)" in by_name["perun"]["text"]
    assert "a world of 2" in by_name["mpi"]["text"]
    kinds = {kind: part["origin"] for kind, part in report["energy"]["kinds"].items()}
    assert kinds["gpu"] == "measured" and kinds["cpu"] in ("measured", "estimated")
    assert report["energy"]["scope"].startswith("gpu+cpu")
    assert code == (0 if report["can_run"] else 1)
    assert {path.name for path in tmp_path.iterdir()} == {"profile", "bin"}
