"""The doctor's checks of sensors and its conclusion, on simulated machines and on this one."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from doctor_files import counters, one_of, profile
from workspace import first_on_path

from scalewatt.cli import main
from scalewatt.doctor import examine as module
from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, UNKNOWN, Check, Limits, Machine
from scalewatt.doctor.examine import Examination, conclude, examination_text, run_checks
from scalewatt.doctor.sensor_checks import (
    assess_counters,
    assess_gpus,
    assess_torch,
    check_counters,
    check_meters,
    find_counters,
    pci_devices,
)
from scalewatt.doctor.software_checks import assess_sampling, check_perun
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.recordings.concurrent_samplers import GROUP_VARIABLE, ConcurrentSamplers

STAND_IN_NVML = Path(__file__).parents[1] / "workflow" / "stand_in_nvml"
LONG = Limits(whole_s=200.0, command_s=100.0, child_s=150.0)


# --- sensors ------------------------------------------------------------------------------------

NO_NVML = {"stage": "driver", "error": "NVML Shared Library Not Found"}
RAPL = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram", "intel-rapl:0:1": "core"}


def test_without_gpus_nothing_is_wrong_where_runs_use_the_cpu() -> None:
    check = assess_gpus(NO_NVML, 0, needed=False)
    assert (check.outcome, check.fix) == (MISSING, ())
    assert assess_torch({"version": "2", "cuda": "12.6"}, 0, None, None, False).outcome == OK


def test_a_gpu_on_the_bus_without_a_driver_needs_one(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    for slot, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1002", "0x120000")]
    ):
        (bus / str(slot)).mkdir(parents=True)
        (bus / str(slot) / "vendor").write_text(f"{vendor}\n")
        (bus / str(slot) / "class").write_text(f"{kind}\n")
    assert dict(pci_devices(bus)) == {"0x10de": 1, "0x1002": 1}
    check = assess_gpus(NO_NVML, 1, needed=True)
    assert check.outcome == MISSING and check.needed
    assert "driver" in check.fix[0] and "--gpus all" in check.ask[1]


@pytest.mark.slow
def test_gpus_are_found_through_nvml_in_a_process_of_its_own() -> None:
    programs = Subprocesses(
        sys.executable, {**os.environ, "PYTHONPATH": first_on_path(STAND_IN_NVML)}
    )
    (nvml,) = programs.run(Machine().probe("nvml"), 60.0).objects
    gpus = assess_gpus(nvml, 0, needed=False)
    assert gpus.outcome == OK
    assert [gpu["power_w"] for gpu in gpus.facts["gpus"]] == [100, 200, 150, 250]
    assert "4 × Stand-in GPU" in gpus.found and "700 W" in gpus.found
    assert "no counter of total energy" in gpus.found


GPU = {
    "index": 0, "name": "A100", "uuid": "GPU-1", "power_w": 60.0, "power_error": None,
    "energy_error": None, "mig": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "outcome", "fix", "ask"),
    [
        ({}, OK, (), False),
        ({"power_w": None, "power_error": "Not Supported"}, MISSING, (), True),
        ({"power_w": 0.0}, MISSING, (), True),
        ({"mig": True}, LIMITED, ("sudo nvidia-smi -i 0 -mig 0",), False),
    ],
)
def test_a_gpu_is_assessed_by_its_power(
    change: dict[str, Any], outcome: str, fix: tuple[str, ...], ask: bool
) -> None:
    check = assess_gpus({"driver": "550", "cuda": 12040, "gpus": [GPU | change]}, 1, False)
    assert (check.outcome, check.fix, bool(check.ask)) == (outcome, fix, ask)


@pytest.mark.parametrize(
    ("build", "driver_cuda", "used", "words"),
    [
        ({"version": "2.7.0+cpu", "cuda": None}, 12040, None, "built without CUDA"),
        ({"version": "2.7.0", "cuda": "12.6"}, 11040, None, "knows CUDA 11 only"),
        ({"version": "2.7.0", "cuda": "12.6"}, 12040, Answer("0\n"), "0 of 1 GPUs"),
    ],
)
def test_a_torch_that_cannot_use_the_gpus_is_named(
    build: dict[str, str | None], driver_cuda: int, used: Answer | None, words: str
) -> None:
    check = assess_torch(build, 1, used, driver_cuda, needed=True)
    assert check.outcome == MISSING and words in check.found and (check.fix or check.ask)


def test_counters_that_can_be_read_are_measured(tmp_path: Path) -> None:
    counters(tmp_path, RAPL)
    rapl = one_of(check_counters(Machine(tmp_path)), "rapl")
    assert rapl.outcome == OK
    assert "1 CPU package(s), 1 memory domain(s)" in rapl.found and "262 kJ" in rapl.found


def test_counters_of_root_are_limited_and_the_command_opens_them(tmp_path: Path) -> None:
    folder = counters(tmp_path, RAPL)
    for entry in RAPL:
        (folder / entry / "energy_uj").chmod(0o400)

    def read(path: Path) -> str:
        """As anybody but the owner."""
        if not path.stat().st_mode & stat.S_IROTH:
            raise PermissionError(13, "Permission denied", str(path))
        return path.read_text()

    rapl = assess_counters(find_counters(folder, read), True, False, False)
    me = pwd.getpwuid(os.getuid()).pw_name
    assert rapl.outcome == LIMITED
    assert f"2 of 2 cannot be read (-r--------, owner {me}: Permission denied)" in rapl.found
    assert rapl.fix == ("sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",)
    assert "CVE-2020-8694" in rapl.ask[0]

    command = rapl.fix[0].removeprefix("sudo ").replace(" /sys/", f" {tmp_path}/sys/")
    subprocess.run(["sh", "-c", command], check=True)
    assert assess_counters(find_counters(folder, read), True, False, False).outcome == OK


@pytest.mark.parametrize(
    ("virtual", "masked", "words"),
    [(True, False, "not virtual"), (False, True, "systempaths"), (False, False, "modprobe")],
)
def test_without_counters_the_fix_depends_on_the_reason(
    virtual: bool, masked: bool, words: str, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"flags : fpu{' hypervisor' if virtual else ''} vme\n")
    if masked:
        (tmp_path / "sys/class/powercap").mkdir(parents=True)
        (tmp_path / "sys/class/powercap/intel-rapl:0").symlink_to("nowhere")
    (rapl,) = check_counters(Machine(tmp_path))
    assert rapl.outcome == MISSING and words in " ".join((*rapl.fix, *rapl.ask))


def test_graces_sensors_are_found_by_their_labels(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/hwmon/hwmon3/device"
    device.mkdir(parents=True)
    for number, label in ((1, "CPU Power Socket 0"), (2, "SysIO Power Socket 0")):
        (device / f"power{number}_average").write_text("90000000\n")
        (device / f"power{number}_oem_info").write_text(f"{label}\n")
    grace = one_of(check_counters(Machine(tmp_path)), "grace")
    assert grace.outcome == OK and grace.found.startswith("1 power sensor")


@pytest.mark.parametrize(
    ("average", "outcome", "found"),
    [
        (None, MISSING, "no hwmon"),
        ("812000000\n", OK, "hwmon 812 W"),
        ("-\n", LIMITED, "hwmon: it gives no number"),
        ("0\n", LIMITED, "hwmon: it states no power"),
    ],
)
def test_the_nodes_meter_is_shown_with_its_reading_or_why_there_is_none(
    tmp_path: Path, average: str | None, outcome: str, found: str
) -> None:
    if average is not None:
        chip = tmp_path / "sys/class/hwmon/hwmon1"
        chip.mkdir(parents=True)
        (chip / "name").write_text("power_meter\n")
        (chip / "power1_average").write_text(average)
    (check,) = check_meters(Machine(tmp_path, {}))
    assert (check.outcome, check.found, check.needed) == (outcome, found, False)


def test_perun_that_leaves_nothing_not_found_and_one_that_hangs_is_unknown() -> None:
    failed = assess_sampling("1.0.0", Answer(problem="python failed (no MPI)"))
    assert failed.outcome == MISSING and "no MPI" in failed.found and failed.needed
    assert assess_sampling("1.0.0", Answer(problem="…", timed_out=True)).outcome == UNKNOWN
    silent = {"sensor": "cpu_0_package-0", "mean": None, "unit": "W"}
    nothing = assess_sampling("1.0.0", Answer(json.dumps({"sensors": [silent], "kinds": {}})))
    assert nothing.outcome == MISSING


def test_perun_is_not_tested_where_a_run_is_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path))
    measuring = ConcurrentSamplers("some run repeat 1", socket.gethostname())
    nobody = Subprocesses("nothing here", {"PATH": ""})
    (perun,) = check_perun(Machine(), nobody, {})
    assert perun.outcome == UNKNOWN and "some run repeat 1 is being measured" in perun.found
    assert measuring.others() == [], "the doctor announces no sampler"


# --- conclusion ---------------------------------------------------------------------------------

KINDS = {
    "gpu": {"origin": "measured", "sensors": ["CUDA:0_POWER"]},
    "cpu": {"origin": "estimated", "sensors": ["CPU_BUSY"]},
    "ram": {"origin": None, "sensors": []},
}
ONE_GPU = assess_gpus({"driver": "550", "cuda": 12040, "gpus": [GPU]}, 1, True)
PERUN = Check("perun", OK, "", needed=True, facts={"kinds": KINDS})
NO_GPU = assess_gpus(NO_NVML, 0, needed=False)
PERUN_CPU = replace(PERUN, facts={"kinds": {k: v for k, v in KINDS.items() if k != "gpu"}})


NO_POWER = assess_gpus({"driver": "1", "cuda": 1, "gpus": [GPU | {"power_w": None}]}, 1, False)
SILENT_GPU = replace(PERUN, facts={"kinds": {**KINDS, "gpu": {"origin": None, "sensors": []}}})
SILENT_MPI = Check("mpi", UNKNOWN, "no answer", needed=True)
NO_MPI = Check("mpi", MISSING, "not there", needed=True)


@pytest.mark.parametrize(
    ("checks", "device", "elsewhere", "origin", "scope", "can_run", "reasons"),
    [
        ([ONE_GPU, PERUN], {}, False, "mixed", "gpu+cpu", True, ()),
        ([NO_POWER, SILENT_GPU], {}, False, None, None, False, ("gpus",)),
        ([NO_POWER, SILENT_GPU], {}, True, None, None, True, ()),
        ([NO_GPU, PERUN_CPU], {"ram": {"power_w": 30}}, False, "estimated", "cpu+ram", True, ()),
        ([NO_GPU, PERUN_CPU], {}, False, "estimated", "cpu", True, ()),
        ([NO_GPU, PERUN_CPU, SILENT_MPI], {}, False, "estimated", "cpu", None, ("mpi",)),
        ([NO_GPU, PERUN_CPU, SILENT_MPI, NO_MPI], {}, False, "estimated", "cpu", False, ("mpi",)),
    ],
)
def test_origin_scope_and_whether_runs_can_be_made_follow_from_the_checks(
    tmp_path: Path,
    checks: list[Check],
    device: dict[str, Any],
    elsewhere: bool,
    origin: str | None,
    scope: str | None,
    can_run: bool | None,
    reasons: tuple[str, ...],
) -> None:
    made = profile(tmp_path, **device).cluster.devices["local"]
    found = conclude(checks, made, elsewhere)
    assert (found.origin, found.scope) == (origin, scope)
    assert (found.can_run, found.reasons) == (can_run, reasons)


def test_a_cpu_without_rated_power_and_counters_is_unknown(tmp_path: Path) -> None:
    unrated = replace(profile(tmp_path).cluster.devices["local"], cpu={})
    found = conclude([NO_GPU, PERUN_CPU], unrated, elsewhere=False).kinds["cpu"]
    assert found.origin is None and found.is_there
    assert "the cluster file has no rated power (key cpu)" in found.why


# --- the whole ----------------------------------------------------------------------------------


def test_checks_that_fail_or_never_end_are_unknown_and_the_others_reported() -> None:
    over = threading.Event()

    def hang() -> list[Check]:
        over.wait()
        return []

    def fail() -> list[Check]:
        raise ValueError("strange")

    good = Check("good", OK, "")
    planned = {("a", "b"): hang, ("c",): fail, ("good",): lambda: [good]}
    try:
        found = run_checks(planned, time.monotonic() + 0.3)
    finally:
        over.set()
    assert [check.name for check in found] == ["a", "b", "c", "good"]
    assert [check.outcome for check in found] == [UNKNOWN] * 3 + [OK]
    assert "ValueError: strange" in found[2].found


@pytest.mark.slow
def test_programs_end_with_all_that_they_started_when_the_time_is_up(tmp_path: Path) -> None:
    began_s = time.monotonic()
    programs = Subprocesses(sys.executable, {"PATH": os.environ["PATH"]}, began_s + 1.0)
    script = f"sleep 300 & echo $! > {tmp_path}/pid; wait"
    planned = {
        ("hangs",): lambda: [Check("hangs", OK, str(programs.run(["sh", "-c", script], 50.0)))]
    }
    (hung,) = run_checks(planned, began_s + 10.0)
    assert "timed_out=True" in hung.found
    with suppress(psutil.NoSuchProcess):
        child = psutil.Process(int((tmp_path / "pid").read_text()))
        while child.status() != psutil.STATUS_ZOMBIE:  # killed, and perhaps not over yet
            time.sleep(0.05)
    assert programs.run(["true"], 5.0).timed_out, "nothing more is started"


def examined(tmp_path: Path, *checks: Check) -> Examination:
    """An examination with these checks, as the command makes it."""
    made = profile(tmp_path / "profile")
    found = conclude(checks, made.cluster.devices["local"], elsewhere=False)
    return Examination("host", made, "local", checks, found, 1.0)


def test_the_text_begins_with_the_conclusion_and_a_command_is_never_broken(tmp_path: Path) -> None:
    fix = "sudo chmod a+r " + " ".join(f"/sys/class/powercap/intel-rapl:{n}" for n in range(6))
    absent = Check("mpi", MISSING, "not there", "no run", (fix,), needed=True, ask=("support",))
    found = examined(tmp_path, NO_GPU, PERUN_CPU, absent)
    lines = examination_text(found).splitlines()
    assert lines[2] == "Runs cannot be made yet because of mpi, see below."
    assert "energy is: CPU estimated (energy_origin estimated, scope cpu)" in lines[3]
    assert any(line.endswith(f"fix: {fix}") for line in lines)
    assert lines[-1].endswith("ask: support")
    assert found.exit_code == 1


def test_only_what_is_known_to_be_missing_is_an_error(tmp_path: Path) -> None:
    assert examined(tmp_path, NO_GPU, PERUN_CPU, SILENT_MPI).exit_code == 0
    assert examined(tmp_path, NO_GPU, PERUN_CPU, NO_MPI).exit_code == 1


@pytest.mark.slow
def test_the_command_examines_this_machine_and_perun_really_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "Machine", lambda: Machine(limits=LONG))
    # Other tests may measure runs on this machine just now.
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    monkeypatch.chdir(tmp_path)
    made = profile(tmp_path / "profile")
    code = main(["doctor", "--json", "--profile", str(made.folder)])
    said = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in said["checks"]}
    assert "CPU_BUSY" in checks["perun"]["found"]
    assert "a world of 2" in checks["mpi"]["found"]
    assert said["energy"]["kinds"]["cpu"]["origin"] in ("measured", "estimated")
    assert code == (0 if said["can_run"] else 1)
    keys = {"name", "outcome", "needed", "found", "means", "fix", "ask", "facts"}
    assert all(set(check) == keys for check in said["checks"])
    assert [path.name for path in tmp_path.iterdir()] == ["profile"]


def test_a_profile_that_is_not_there_is_an_input_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--profile", str(tmp_path)]) == 1
    assert "cluster.yaml" in capsys.readouterr().err
