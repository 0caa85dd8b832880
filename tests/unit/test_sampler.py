"""The live callback in a process of its own, as perun's sampler runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from workspace import first_on_path

from scalewatt.monitoring.sampler import JournalWriter, describe_sensors
from scalewatt.recordings import telemetry_sources
from scalewatt.recordings.concurrent_samplers import (
    GROUP_VARIABLE,
    ConcurrentSamplers,
    read_samplers,
)
from scalewatt.recordings.journal import read_journal
from scalewatt.recordings.telemetry import read_telemetry

HOST = socket.gethostname()
STAND_IN = Path(__file__).parents[1] / "workflow" / "stand_in_nvml"

# A rank that forks a sampler, which samples until it is ended.
RANK = """
import os, sys, time
from pathlib import Path
import numpy as np
from scalewatt.monitoring.sampler import JournalWriter
folder, host, samples = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
rank = os.getpid()
sensors = {
    "CUDA:0_POWER": {"device_kind": "gpu", "device_index": 0, "unit": "W", "dtype": "<u4",
                     "mag": 1e-3, "valid_max": 400000, "uuid": "GPU-1"},
    "RAM_USAGE": {"device_kind": "ram", "device_index": -1, "unit": "B"},
}
sampler = os.fork()
if sampler == 0:
    callback = JournalWriter(folder, "segment-000", 0.05, rank, sensors, "mine repeat 1")()
    for i in range(samples):
        power = "lost" if i == 2 else np.uint32(100_000 + i)
        callback({f"{host}_CUDA:0_POWER": power, f"{host}_cpu_0_package-0": np.uint64(i),
                  f"{host}_RAM_USAGE": np.uint64(7), f"{host}_odd": None})
        time.sleep(0.05)
    os._exit(0)
print(sampler, flush=True)
if samples < 1000:
    os.waitpid(sampler, 0)
else:
    time.sleep(600)
"""


def start(folder: Path, samples: int) -> tuple[subprocess.Popen[str], int]:
    """Start a rank; it and its sampler's process id."""
    environment = {**os.environ, GROUP_VARIABLE: str(folder / "samplers")}
    environment["PYTHONPATH"] = first_on_path(STAND_IN)
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), HOST, str(samples)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert rank.stdout is not None
    return rank, int(rank.stdout.readline())


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Any) -> None:
    """Wait until it holds; the test's own time-out ends what never does."""
    while not condition():
        time.sleep(0.02)


def test_every_sample_is_on_disk_with_what_the_sensors_are(tmp_path: Path) -> None:
    rank, _ = start(tmp_path, 5)
    assert rank.wait() == 0
    recording = read_journal(tmp_path / f"segment-000.{HOST}.journal")
    assert recording.hosts == (HOST,) and recording.sampling_period_s == 0.05
    cpu, gpu = recording.series
    assert (cpu.sensor, gpu.sensor) == ("cpu_0_package-0", "CUDA:0_POWER")
    assert (gpu.limit_w, gpu.uuid) == (400, "GPU-1")
    np.testing.assert_allclose(gpu.values, [100, 100.001, np.nan, 100.003, 100.004])
    assert np.all(np.diff(gpu.time_s) > 0.04)
    assert recording.problems == ()


def test_concurrent_samplers_are_counted_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    met = [
        ConcurrentSamplers("other repeat 3", HOST),
        ConcurrentSamplers("elsewhere repeat 1", f"{HOST}-2"),
    ]
    rank, _ = start(tmp_path, 5)
    assert rank.wait() == 0 and len(met) == 2
    (said,) = read_samplers(tmp_path.glob("*.samplers.jsonl"))
    assert (said["run"], said["host"], said["pid"]) == ("other repeat 3", HOST, os.getpid())
    series, _ = read_telemetry(tmp_path / f"segment-000.{HOST}.telemetry")
    (count,) = [one for one in series if one.quantity == "concurrent_samplers"]
    assert count.values[0] == 1


@pytest.mark.parametrize("frozen", [False, True])
def test_no_sampler_survives_its_rank(tmp_path: Path, frozen: bool) -> None:
    rank, sampler = start(tmp_path, 10**6)
    try:
        wait_for(lambda: list(tmp_path.glob("*.journal")))
        if frozen:
            os.kill(sampler, signal.SIGSTOP)
        rank.kill()
        rank.communicate()
        wait_for(lambda: not is_alive(sampler))
    finally:
        rank.kill()
    assert read_journal(next(tmp_path.glob("*.journal"))).series[0].time_s.size >= 1


def test_nothing_that_fails_ends_the_sampler_and_it_reports_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    other = ConcurrentSamplers("other repeat 3", HOST)
    folder = tmp_path / "later"
    bad = {"CUDA:0_POWER": {"device_kind": "gpu", "unit": "W", "dtype": "object", "mag": object()}}
    callback = JournalWriter(folder, "s", 1.0, os.getppid(), bad, "a").callback(HOST)
    for values in ({}, {f"{HOST}_CUDA:0_POWER": 1}, {f"{HOST}_cpu_0_package-0": 5}):
        callback(values)
    said = capsys.readouterr().err.splitlines()
    what = ("a sample", "the other samplers of this node", "telemetry")
    assert len(said) == len(what)
    for line, each in zip(said, what, strict=True):
        start = f"scalewatt: {HOST}: {each} could not be recorded: FileNotFoundError"
        assert line.startswith(start)
    assert other.others() is not None and not folder.exists()
    folder.mkdir()
    sound = JournalWriter(folder, "s", 1.0, os.getppid(), {}, "a").callback(HOST)
    for value in (np.uint32(1), "odd", None, np.uint32(2)):
        sound({f"{HOST}_CUDA:0_POWER": value})
    values = read_journal(folder / f"s.{HOST}.journal").series[0].values
    np.testing.assert_allclose(values, [0.001, np.nan, np.nan, 0.002])


@pytest.mark.parametrize("hours", [1, 4])
def test_a_sample_takes_at_most_a_hundred_bytes_with_all_telemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    spec = importlib.util.spec_from_file_location("pynvml", STAND_IN / "pynvml.py")
    assert spec is not None and spec.loader is not None
    nvml = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nvml)
    nvml.OLD_GPU = None
    meter = tmp_path / "hwmon0"
    meter.mkdir()
    (meter / "name").write_text("power_meter\n")
    (meter / "power1_average").write_text("1500000000\n")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(telemetry_sources, "HWMON", tmp_path)
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: 1.8e9 + now[0])
    gpu_facts = {"device_kind": "gpu", "unit": "W", "mag": 1e-3, "valid_max": 400_000}
    gpu_facts |= {"uuid": "GPU-" + 36 * "0", "device_name": "NVIDIA A100-SXM4-40GB", "dtype": "<u4"}
    rapl_facts = {"device_kind": "cpu", "unit": "J", "mag": 1e-6, "valid_max": 262_143_328_850}
    rapl_facts |= {"device_name": "Intel(R) Xeon(R) Platinum 8368 CPU @ 2.40GHz", "dtype": "<u8"}
    sensors = {f"CUDA:{i}_POWER": {**gpu_facts, "device_index": i} for i in range(4)}
    for i in range(2):
        sensors[f"cpu_{i}_package-{i}"] = {**rapl_facts, "device_index": i}
        sensors[f"ram_{i}_dram"] = {**rapl_facts, "device_index": i, "device_kind": "ram"}
    callback = JournalWriter(tmp_path, "s", 1.0, os.getppid(), sensors, "a").callback(HOST)
    values = {f"{HOST}_{name}": 100_000 for name in sensors} | {f"{HOST}_CPU_BUSY": np.float32(9)}
    for second in range(hours * 3600):
        now[0] = float(second)
        callback(values)
    journal, telemetry = tmp_path / f"s.{HOST}.journal", tmp_path / f"s.{HOST}.telemetry"
    assert read_journal(journal).series[0].time_s.size == hours * 3600
    series, _ = read_telemetry(telemetry)
    assert len(series) == 4 * 10 + 2 and series[0].time_s.size == hours * 720
    assert (journal.stat().st_size + telemetry.stat().st_size) / (hours * 3600) <= 100


def sensor(unit: str, top: Any, dtype: str, **metadata: str) -> SimpleNamespace:
    """A sensor as perun describes it."""
    kind = SimpleNamespace(dtype=np.dtype(dtype), max=top, mag=SimpleNamespace(value=1e-3))
    kind.unit = SimpleNamespace(value=unit)
    return SimpleNamespace(dataType=kind, metadata=metadata)


class MadeBackend:
    """A backend of made sensors; those that are None cannot be had."""

    def __init__(self, sensors: dict[str, tuple[str, str, Any]]) -> None:
        self.sensors = sensors
        self.asked: list[str] = []

    def availableSensors(self) -> dict[str, Any]:
        """All sensors."""
        return {
            name: ("made", SimpleNamespace(value=kind), SimpleNamespace(value=unit))
            for name, (kind, unit, _) in self.sensors.items()
        }

    def getSensors(self, names: set[str]) -> list[Any]:
        """The sensors asked for."""
        self.asked += names
        found = [self.sensors[name][2] for name in names]
        if None in found:
            raise RuntimeError("lost")
        return found


class BrokenBackend:
    """A backend that cannot even say what it has."""

    def availableSensors(self) -> dict[str, Any]:
        """Fails."""
        raise RuntimeError("driver gone")


def test_sensors_are_described_as_perun_does_and_a_bad_one_spoils_no_other() -> None:
    backend = MadeBackend(
        {
            "CUDA:3_POWER": (
                "gpu",
                "W",
                sensor("W", np.uint32(400_000), "uint32", uuid="GPU-1", name="A100"),
            ),
            "CUDA:4_POWER": ("gpu", "W", None),
            "CUDA:5_POWER": ("gpu", "W", sensor("W", np.uint32(2**32 - 1), "uint32")),
            "CUDA:3_MEM": ("gpu", "B", None),
            "RAM_USAGE": ("ram", "B", None),
        }
    )
    described = describe_sensors([BrokenBackend(), backend])
    assert described["CUDA:3_POWER"] == {
        "device_kind": "gpu",
        "device_index": 3,
        "unit": "W",
        "dtype": "<u4",
        "mag": 1e-3,
        "valid_max": 400_000,
        "uuid": "GPU-1",
        "device_name": "A100",
    }
    assert "CUDA:4_POWER" not in described
    assert "valid_max" not in described["CUDA:5_POWER"]
    assert described["RAM_USAGE"]["unit"] == "B"
    assert set(backend.asked) == {"CUDA:3_POWER", "CUDA:4_POWER", "CUDA:5_POWER"}
    json.dumps(described, allow_nan=False)
