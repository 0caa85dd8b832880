"""What is read beside power: each source on its own, never in the sampler's way."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from energy_files import T0, gpu, write_journal, write_telemetry

from scalewatt.common.files import write_json
from scalewatt.recordings import telemetry as module
from scalewatt.recordings.journal import beside
from scalewatt.recordings.telemetry import (
    Reader,
    TelemetryWriter,
    power_meter,
    read_telemetry,
    working_sources,
)
from scalewatt.recordings.terms import Floats

STAND_IN = Path(__file__).parents[1] / "workflow" / "stand_in_nvml" / "pynvml.py"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Four stand-in GPUs."""
    spec = importlib.util.spec_from_file_location("pynvml", STAND_IN)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def writer(folder: Path, sources: dict[str, Reader]) -> TelemetryWriter:
    path = folder / "s.n1.csv"
    made = TelemetryWriter(path, sources)
    write_json(
        beside(path, ".sensors.json"), {"host": "n1", "sensors": {}, "telemetry": made.sensors}
    )
    return made


def read(folder: Path) -> tuple[Floats, dict[str, Floats], dict[str, str]]:
    """Times, values and units of the telemetry of n1 by column."""
    (block,), flags = read_telemetry([folder / "s.n1.telemetry.csv"])
    assert flags == [] and block.node == "n1"
    about = json.loads((folder / "s.n1.sensors.json").read_text())
    units = {name: facts["unit"] for name, facts in about["telemetry"].items()}
    return block.time_s, dict(zip(block.sensors["name"], block.values.T, strict=True)), units


def test_all_that_the_gpus_say_is_recorded_in_its_unit(nvml: ModuleType, tmp_path: Path) -> None:
    capped = {nvml.THROTTLED_GPU: nvml.SW_POWER_CAP}
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: capped.get(handle, 0)
    writer(tmp_path, working_sources(lambda: 2)).sample()
    _, values, units = read(tmp_path)
    expected = {
        "temperature": (51, "°C"),
        "clock_sm": (1410, "MHz"),
        "clock_memory": (1593, "MHz"),
        "gpu_utilisation": (91, "%"),
        "memory_utilisation": (41, "%"),
        "memory_used": (1 << 30, "B"),
    }
    assert {q: (values[f"{q}:1"][0], units[f"{q}:1"]) for q in expected} == expected
    assert [values[f"throttle_reasons:{i}"][0] for i in range(4)] == [0, 4, 0, 0]
    assert values["energy_total:0"][0] == pytest.approx(100 * time.monotonic(), rel=0.01)
    assert "energy_total:3" not in values, "an old GPU does not state it"
    assert values["concurrent_samplers:0"].tolist() == [2]


def test_a_source_that_breaks_is_missing_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    monkeypatch.setattr(module.time, "time", lambda: T0 + now)

    def broken() -> float:
        if now > 1002:
            raise RuntimeError("GPU is lost")
        return 41.0

    made = writer(tmp_path, {"temperature:0": lambda: 40.0, "temperature:1": broken})
    for second in range(20):
        now = 1000.0 + second
        made.sample()
    time_s, values, _ = read(tmp_path)
    assert time_s.tolist() == [T0 + 1000 + s for s in (0, 5, 10, 15)]
    assert set(values["temperature:0"]) == {40}
    np.testing.assert_equal(values["temperature:1"], [41, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("chip", "files", "watts"),
    [
        ("power_meter", {"power1_average": "812000000\n"}, 812),
        ("acpi_power_meter", {"power1_input": "1200500000"}, 1200.5),
        ("power_meter", {"power1_average": "7000000", "power1_input": "9000000"}, 7),
        ("coretemp", {"power1_average": "7000000"}, None),
        ("power_meter", {"temp1_input": "7000000"}, None),
    ],
)
def test_the_nodes_power_meter_is_found_by_its_chip(
    tmp_path: Path, chip: str, files: dict[str, str], watts: float | None
) -> None:
    (tmp_path / "hwmon0").mkdir()
    folder = tmp_path / "hwmon3"
    folder.mkdir()
    for name, text in {"name": f"{chip}\n", **files}.items():
        (folder / name).write_text(text)
    meter = power_meter(tmp_path)
    assert (meter and meter()) == (watts and pytest.approx(watts))


def test_damage_and_foreign_files_are_flagged_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "s.n1.csv", "n1", {"CUDA:0_POWER": gpu(3)})
    write_telemetry(path, "n1", {"temperature": [[40, 41, 42]]}, [0, 5, 10])
    damaged = tmp_path / "s.n1.telemetry.csv"
    damaged.write_text(damaged.read_text().replace("41", "x41"))
    (tmp_path / "foreign.telemetry.csv").write_text("hello\n")
    files = [damaged, tmp_path / "foreign.telemetry.csv", tmp_path / "none"]
    (block,), flags = read_telemetry(files)
    assert block.values.tolist() == [[40], [42]] and block.time_s.tolist() == [T0, T0 + 10]
    assert [flag["code"] for flag in flags] == ["damaged", "unreadable", "unreadable"]
    assert json.loads((tmp_path / "s.n1.sensors.json").read_text())["sensors"], "as it was"
