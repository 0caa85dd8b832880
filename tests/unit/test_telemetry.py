"""What is read beside power: each source on its own, never in the sampler's way."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from energy_files import T0

from scalewatt.recordings import telemetry as module
from scalewatt.recordings.record_file import Field, RecordWriter
from scalewatt.recordings.telemetry import (
    TelemetrySeries,
    TelemetryWriter,
    read_telemetry,
)
from scalewatt.recordings.telemetry_sources import (
    Source,
    hwmon_sources,
    working_sources,
)

STAND_IN = Path(__file__).parents[1] / "workflow" / "stand_in_nvml" / "pynvml.py"
FACTS = {"host": "n1", "sampling_period_s": 1.0}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Four stand-in GPUs."""
    spec = importlib.util.spec_from_file_location("pynvml", STAND_IN)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


class Clock:
    """Stands in for the monotonic clock of the writer; reading a source takes `cost_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost_s: float = 0.0) -> None:
        self.now, self.cost_s = 1000.0, cost_s
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "time", lambda: T0 + self.now)

    def read(self) -> tuple[float]:
        """One reading of the temperature."""
        self.now += self.cost_s
        return (40.0,)


def temperature(read: Callable[[], Any], device: int = 0) -> Source:
    """A GPU's temperature."""
    return Source(("temperature",), device, read)


def by_name(series: list[TelemetrySeries]) -> dict[tuple[str, int], TelemetrySeries]:
    """Series by quantity and device."""
    return {(one.quantity, one.device_index): one for one in series}


def record(folder: Path, sources: list[Source]) -> dict[tuple[str, int], TelemetrySeries]:
    """Write one record of all sources and read it."""
    TelemetryWriter(folder, "s.n1", FACTS, sources).sample()
    series, flags = read_telemetry(folder / "s.n1.telemetry")
    assert flags == []
    return by_name(series)


def test_all_that_the_gpus_say_is_recorded_in_its_unit(nvml: ModuleType, tmp_path: Path) -> None:
    capped = {nvml.THROTTLED_GPU: nvml.SW_POWER_CAP}
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: capped.get(handle, 0)
    found = record(tmp_path, working_sources(lambda: 2))
    expected = {
        "temperature": (51, "°C"),
        "clock_sm": (1410, "MHz"),
        "clock_memory": (1593, "MHz"),
        "gpu_utilisation": (91, "%"),
        "memory_utilisation": (41, "%"),
        "memory_used": (1 << 30, "B"),
        "power_instant": (201, "W"),
        "power_average": (200, "W"),
    }
    for quantity, (value, unit) in expected.items():
        one = found[quantity, 1]
        assert (one.node, one.device_kind, one.unit) == ("n1", "gpu", unit)
        assert one.values.tolist() == [pytest.approx(value)]
    assert [found["throttle_reasons", i].values[0] for i in range(4)] == [0, 4, 0, 0]
    energy = found["energy_total", 0]
    assert energy.unit == "J"
    assert energy.values[0] == pytest.approx(100 * time.monotonic(), rel=0.01)
    assert found["concurrent_samplers", 0].device_kind == "node"
    assert found["concurrent_samplers", 0].values.tolist() == [2]


def test_a_source_that_breaks_is_missing_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def broken() -> tuple[float]:
        if clock.now > 1001:
            raise RuntimeError("GPU is lost")
        return (41.0,)

    writer = TelemetryWriter(
        tmp_path, "s.n1", FACTS, [temperature(clock.read), temperature(broken, 1)]
    )
    for _ in range(2):
        writer.sample()
        clock.now += 5
    found = by_name(read_telemetry(tmp_path / "s.n1.telemetry")[0])
    np.testing.assert_equal(found["temperature", 0].values, [40, 40])
    np.testing.assert_equal(found["temperature", 1].values, [41, np.nan])


@pytest.mark.parametrize(
    ("cost_s", "interval_s"), [(0.0, 5), (0.004, 5), (0.0101, 11), (0.03, 30), (5.0, 60)]
)
def test_a_costly_reading_is_repeated_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost_s: float, interval_s: float
) -> None:
    clock = Clock(monkeypatch, cost_s)
    writer = TelemetryWriter(tmp_path, "s.n1", FACTS, [temperature(clock.read)])
    for second in range(200):
        clock.now = 1000.0 + second
        writer.sample()
    (series,), _ = read_telemetry(tmp_path / "s.n1.telemetry")
    assert np.diff(series.time_s - cost_s) == pytest.approx(interval_s)
    assert series.time_s[0] == pytest.approx(T0 + 1000 + cost_s)


@pytest.mark.parametrize(
    ("chip", "files", "watts"),
    [
        ("power_meter", {"power1_average": "812000000\n"}, 812),
        ("acpi_power_meter", {"power1_input": "1200500000"}, 1200),
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
    found = hwmon_sources(tmp_path)
    assert [source.read() for source in found] == (
        [] if watts is None else [(pytest.approx(watts, abs=0.6),)]
    )


def test_telemetry_of_several_hosts_and_files_is_joined(tmp_path: Path) -> None:
    for host, start in [("n2", T0), ("n1", T0 + 10), ("n1", T0)]:
        facts = {"device_kind": "gpu", "device_index": [0, 3], "unit": "°C", "mag": 1.0}
        header = {"telemetry": 2, "host": host, "sensors": {"temperature": facts}}
        fields = [Field("temperature", "<u1", 2)]
        writer = RecordWriter(tmp_path, f"s.{host}", "telemetry", header, fields)
        for i in range(2):
            writer.append(start + 5 * i, start - T0 + 5 * i, [40 + start - T0 + i, None])
    series, flags = read_telemetry(tmp_path.glob("*.telemetry"))
    assert flags == [] and len(series) == 4
    first = series[0]
    assert (first.node, first.device_index) == ("n1", 0)
    assert first.time_s == pytest.approx([T0, T0 + 5, T0 + 10, T0 + 15])
    assert first.values.tolist() == [40, 41, 50, 51]
    assert np.isnan(series[1].values).all() and series[1].device_index == 3


def test_damage_and_foreign_files_are_flagged_and_the_rest_is_read(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path, "s.n1", FACTS, [temperature(lambda: (40.0,))])
    for _ in range(3):
        writer._last_s = -np.inf
        writer.sample()
    path = tmp_path / "s.n1.telemetry"
    data = bytearray(path.read_bytes())
    data[data.index(b"\n") + 3] ^= 1
    path.write_bytes(data)
    foreign = tmp_path / "foreign.telemetry"
    foreign.write_text("hello\n")
    RecordWriter(tmp_path, "j", "telemetry", {"journal": 2, "host": "n1"}, []).append(1, 1, [])
    (series,), flags = read_telemetry([path, foreign, tmp_path / "j.telemetry", tmp_path / "none"])
    assert series.values.tolist() == [40, 40]
    assert [one["code"] for one in flags] == ["damaged"] + 3 * ["unreadable"]
