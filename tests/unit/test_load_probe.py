"""A load probe: power at steps of load, from stand-in counters and real load on the cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import psutil
import pytest
import yaml

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.energies.integration.rated_power import FACTOR, cpu_power_w
from scalewatt.execution import load_probe
from scalewatt.execution.load_probe import busy_cores, curve_text, measure_load_curve

RANGE_UJ = 65_532_610_987


def powercap(root: Path, names: dict[str, str], start_uj: int = 0) -> Path:
    for entry, name in names.items():
        (root / entry).mkdir(parents=True)
        (root / entry / "name").write_text(f"{name}\n")
        (root / entry / "energy_uj").write_text(f"{start_uj}\n")
        (root / entry / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return root


TWO = {
    "intel-rapl:0": "package-0",
    "intel-rapl:1": "package-1",
    "intel-rapl:0:0": "dram",
    "intel-rapl:2": "psys",
}


@contextmanager
def counting(root: Path, watts: float, start_uj: int = 0) -> Iterator[None]:
    """Let every counter of a stand-in folder gain so many W, and wrap at its range."""
    stop = threading.Event()
    begin = time.monotonic()

    def count() -> None:
        while not stop.wait(0.01):
            gained = int((time.monotonic() - begin) * watts * 1e6)
            for file in root.glob("*/energy_uj"):
                new = file.with_name("new")
                new.write_text(f"{(start_uj + gained) % RANGE_UJ}\n")
                os.replace(new, file)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Told:
    """In place of the kernel's busy share, which others on this machine share: what is asked in turn."""

    shares: ClassVar[list[float]] = []

    def __call__(self) -> float:
        return self.shares.pop(0)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(load_probe, "BusyShare", Told)
    Told.shares = [0.4, 11.0, 51.0, 99.0]
    return Told.shares


class CountingClock:
    """In place of `time`: a sleep lasts as long as asked, and counters gain exactly what is drawn in it."""

    def __init__(self, root: Path, watts: float, start_uj: int) -> None:
        self.root, self.watts, self.start_uj, self.now_s = root, watts, start_uj, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        gained = int(self.now_s * self.watts * 1e6)
        for file in self.root.glob("*/energy_uj"):
            file.write_text(f"{(self.start_uj + gained) % RANGE_UJ}\n")


def test_power_of_a_socket_is_measured_across_a_wrap(
    tmp_path: Path, told: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = RANGE_UJ - 80_000_000
    root = powercap(tmp_path, TWO, start)
    monkeypatch.setattr(load_probe, "time", CountingClock(root, 40.0, start))
    curve = measure_load_curve(1.0, 0.2, powercap=root, hwmon=tmp_path)
    assert [load for load, _ in curve.points] == [0.4, 11.0, 51.0, 99.0]
    assert [watts for _, watts in curve.points] == pytest.approx([40] * 4, rel=1e-6)
    assert curve.sockets == 2 and "RAPL, 2 package" in curve.source and told == []


def test_what_is_printed_is_what_a_cluster_file_takes(tmp_path: Path, told: list[float]) -> None:
    root = powercap(tmp_path, {"intel-rapl:0": "package-0"})
    with counting(root, 100.0):
        curve = measure_load_curve(1.0, 0.1, powercap=root, hwmon=tmp_path)
    text = curve_text(curve, 1.0, 0.1)
    assert all(line.startswith("#") for line in text.splitlines()[:2])
    found = yaml.safe_load(text)
    check_rated_powers({"cpu": {"idle_w": 1, "rated_w": 2, **found}}, "x")
    assert found["sockets"] == 1 and len(found["load_w"]) == 4 and "factor" not in found


def test_a_nodes_meter_stands_in_and_says_so(tmp_path: Path, told: list[float]) -> None:
    chip = tmp_path / "hwmon0"
    chip.mkdir()
    (chip / "name").write_text("power_meter\n")
    (chip / "power1_average").write_text("300000000\n")
    curve = measure_load_curve(1.0, 0.0, powercap=tmp_path / "none", hwmon=tmp_path)
    assert [watts * curve.sockets for _, watts in curve.points] == pytest.approx([300] * 4)
    assert "fans" in curve.source


def test_a_curve_of_a_whole_node_is_no_surer_than_an_estimate_without_one(
    tmp_path: Path, told: list[float]
) -> None:
    (tmp_path / "hwmon0").mkdir()
    (tmp_path / "hwmon0" / "name").write_text("power_meter\n")
    (tmp_path / "hwmon0" / "power1_average").write_text("300000000\n")
    curve = measure_load_curve(1.0, 0.0, powercap=tmp_path / "none", hwmon=tmp_path)
    found = yaml.safe_load(curve_text(curve, 1.0, 0.0))
    check_rated_powers({"cpu": {"idle_w": 1, "rated_w": 2, **found}}, "x")
    power, low, high = cpu_power_w(np.array([0.5]), found)
    assert high / power == pytest.approx(FACTOR) and low / power == pytest.approx(1 / FACTOR)


def test_without_counters_and_meter_it_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no power can be read here"):
        measure_load_curve(1.0, 0.0, powercap=tmp_path, hwmon=tmp_path)
    monkeypatch.setattr(load_probe, "_meter", lambda *_: load_probe.RaplMeter(tmp_path))
    root = powercap(tmp_path / "dram alone", {"intel-rapl:0:0": "dram"})
    assert load_probe.RaplMeter(root).sockets == 0
    monkeypatch.undo()
    if load_probe.RaplMeter(load_probe.POWERCAP).sockets == 0:
        assert main(["probe", "--load"]) != 0
        (line,) = capsys.readouterr().err.splitlines()
        assert "no power can be read here" in line


def test_a_node_that_is_busy_with_something_else_is_refused(
    tmp_path: Path, told: list[float]
) -> None:
    root = powercap(tmp_path, {"intel-rapl:0": "package-0"})
    told[0] = 40.0
    with (
        counting(root, 50.0),
        pytest.raises(InputError, match="40 % busy where 0 % was asked for"),
    ):
        measure_load_curve(1.0, 0.0, powercap=root, hwmon=tmp_path)


def test_loads_that_do_not_rise_are_refused(tmp_path: Path, told: list[float]) -> None:
    root = powercap(tmp_path, {"intel-rapl:0": "package-0"})
    told[:2] = [10.0, 9.0]
    with counting(root, 50.0), pytest.raises(InputError, match="did not rise"):
        measure_load_curve(1.0, 0.0, powercap=root, hwmon=tmp_path)


@pytest.mark.parametrize("seconds", [0.5, 121.0, float("nan")])
def test_a_time_without_sense_is_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--seconds: .*allowed with --load: 1 to 120"):
        measure_load_curve(seconds, 0.0, powercap=tmp_path)


def test_all_cores_are_busy_for_the_share_that_was_asked() -> None:
    shares = []
    for asked in (0.0, 0.2, 1.0):
        with busy_cores(asked):
            children = [
                one
                for one in psutil.Process().children()
                if one.status() != psutil.STATUS_ZOMBIE and "1.0001" in " ".join(one.cmdline())
            ]
            assert len(children) == (len(os.sched_getaffinity(0)) if asked else 0)
            time.sleep(0.3)
            before = sum(sum(one.cpu_times()[:2]) for one in children)
            begin = time.monotonic()
            time.sleep(1.0)
            used = sum(sum(one.cpu_times()[:2]) for one in children) - before
            shares.append(used / (time.monotonic() - begin) / max(len(children), 1))
        assert not any(one.is_running() for one in children)
    # Other tests take their part of the cores, so that all of the time is not to be had.
    assert shares[0] == 0 and 0.05 < shares[1] < 0.35 and shares[2] > 1.2 * shares[1]


def test_a_probe_needs_a_device_or_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) != 0
    assert "device and cluster and out missing" in capsys.readouterr().err
    assert main(["probe", "--load", "local"]) != 0
    assert "device is given" in capsys.readouterr().err
