"""The live callback in a process of its own, as perun's sampler runs it."""

from __future__ import annotations

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
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import last_stamps, read_journal
from scalewatt.recordings.telemetry import GROUP_VARIABLE, announce_sampler, read_telemetry

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
    "cpu_0_package-0": {"kind": "cpu", "index": 0, "unit": "J", "mag": 1e-6},
    "CUDA:0_POWER": {"kind": "gpu", "index": 0, "unit": "W", "mag": 1e-3,
                     "valid_max": 400000, "uuid": "GPU-1"},
    "CPU_USAGE_0": {"kind": "cpu", "index": 0, "unit": "%"},
}
sampler = os.fork()
if sampler == 0:
    callback = JournalWriter(folder, "segment-000", 0.05, rank, sensors)()
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


def block(folder: Path, stem: str = "segment-000") -> Block:
    """The only block of the journal."""
    ((block,),) = read_journal([folder / f"{stem}.{HOST}.csv"]).nodes.values()
    return block


def test_every_sample_is_on_disk_with_what_the_sensors_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples, and how many others measure on the node."""
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    others = [announce_sampler(HOST), announce_sampler(f"{HOST}-2")]
    rank, _ = start(tmp_path, 5)
    assert rank.wait() == 0 and len(others) == 2
    power = block(tmp_path)
    assert power.node == HOST
    assert power.sensors["name"].tolist() == ["cpu_0_package-0", "CUDA:0_POWER"]
    assert power.sensors.loc[1, ["limit_w", "uuid"]].tolist() == [400, "GPU-1"]
    np.testing.assert_allclose(power.values[:, 1], [100, 100.001, np.nan, 100.003, 100.004])
    assert np.all(np.diff(power.time_s) > 0.04)
    (telemetry,), _ = read_telemetry(tmp_path.glob("*.telemetry.csv"))
    (column,) = telemetry.sensors.index[telemetry.sensors["quantity"] == "concurrent_samplers"]
    assert telemetry.values[0, column] == 1


@pytest.mark.parametrize("frozen", [False, True])
def test_no_sampler_survives_its_rank(tmp_path: Path, frozen: bool) -> None:
    rank, sampler = start(tmp_path, 10**6)
    try:
        wait_for(lambda: any(map(last_stamps, tmp_path.glob("segment-000.*.csv"))))
        if frozen:
            os.kill(sampler, signal.SIGSTOP)
        rank.kill()
        rank.communicate()
        wait_for(lambda: not is_alive(sampler))
    finally:
        rank.kill()
    assert block(tmp_path).time_s.size >= 1


def test_nothing_that_fails_ends_the_sampler_and_it_reports_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path / "samplers"))
    folder = tmp_path / "later"
    power = {"CUDA:0_POWER": {"kind": "gpu", "index": 0, "unit": "W", "mag": 1e-3}}
    (tmp_path / "file").touch()
    callback = JournalWriter(tmp_path / "file", "s", 1, os.getppid(), power).callback(HOST)
    for value in (1, 2, 3):
        callback({f"{HOST}_CUDA:0_POWER": value})
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"scalewatt: {HOST}: a sample could not be recorded: ")
    callback = JournalWriter(folder, "s", 1.0, os.getppid(), power).callback(HOST)
    for kind in ("telemetry.csv", "total.json"):
        (folder / f"s.{HOST}.{kind}").mkdir(parents=True)
    for value in (np.uint32(1), "odd", None, np.uint32(2)):
        callback({f"{HOST}_CUDA:0_POWER": value})
    printed = capsys.readouterr().err
    what = ("telemetry", "the energy so far")
    assert len(printed.splitlines()) == len(what) and all(each in printed for each in what)
    np.testing.assert_allclose(block(folder, "s").values[:, 0], [0.001, np.nan, np.nan, 0.002])


def sensor(unit: str, top: Any, dtype: str, **metadata: str) -> SimpleNamespace:
    """A sensor as perun describes it."""
    kind = SimpleNamespace(dtype=np.dtype(dtype), max=top, mag=SimpleNamespace(value=1e-3))
    kind.unit = SimpleNamespace(value=unit)
    return SimpleNamespace(dataType=kind, metadata=metadata)


class MadeBackend:
    """A backend of made sensors (kind, unit, sensor); those that are None cannot be had."""

    def __init__(self, sensors: dict[str, tuple[str, str, Any]]) -> None:
        self.sensors = sensors
        self.asked: set[str] = set()

    def availableSensors(self) -> dict[str, Any]:
        if not self.sensors:
            raise RuntimeError("driver gone")
        return {
            name: ("made", SimpleNamespace(value=kind), SimpleNamespace(value=unit))
            for name, (kind, unit, _) in self.sensors.items()
        }

    def getSensors(self, names: set[str]) -> list[Any]:
        self.asked |= set(names)
        if any(self.sensors[name][2] is None for name in names):
            raise RuntimeError("lost")
        return [self.sensors[name][2] for name in names]


def test_sensors_are_described_as_perun_does_and_a_bad_one_spoils_no_other() -> None:
    limited = sensor("W", np.uint32(400_000), "uint32", uuid="GPU-1", name="A100")
    backend = MadeBackend(
        {
            "CUDA:3_POWER": ("gpu", "W", limited),
            "CUDA:4_POWER": ("gpu", "W", None),
            "CUDA:5_POWER": ("gpu", "W", sensor("W", np.uint32(2**32 - 1), "uint32")),
            "CUDA:3_MEM": ("gpu", "B", None),
            "RAM_USAGE": ("ram", "B", None),
        }
    )
    described = describe_sensors([MadeBackend({}), backend])
    power = {"kind": "gpu", "unit": "W", "mag": 1e-3}
    of_limit = {"valid_max": 400_000, "uuid": "GPU-1", "device_name": "A100"}
    assert described == {
        "CUDA:3_POWER": {**power, **of_limit, "index": 3},
        "CUDA:5_POWER": {**power, "index": 5},
    }
    assert backend.asked == {"CUDA:3_POWER", "CUDA:4_POWER", "CUDA:5_POWER"}
    json.dumps(described, allow_nan=False)


def test_devices_whose_sensors_state_no_number_are_numbered_after_the_others() -> None:
    power = sensor("W", np.uint32(2**32 - 1), "uint32")
    names = {"ROCM:0x2b_POWER": "gpu", "ROCM:0x1a_POWER": "gpu", "cpu_1_package-1": "cpu"}
    backend = MadeBackend({name: (kind, "W", power) for name, kind in names.items()})
    backend.sensors["CPU_BUSY"] = ("cpu", "%", power)
    described = describe_sensors([backend])
    assert {name: facts["index"] for name, facts in described.items()} == {
        "cpu_1_package-1": 1, "CPU_BUSY": 2, "ROCM:0x1a_POWER": 0, "ROCM:0x2b_POWER": 1,
    }  # fmt: skip
