"""The node's meters on Cray machines: made files of their form, of one moment or torn, moving or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalewatt.recordings.meters.cray_counters import CrayCounters, accelerator_files, node_file
from scalewatt.recordings.telemetry_sources import cray_sources


class Node:
    """A made node at `watts`, whose files are renewed ten times a second; `stamped` with their time."""

    def __init__(self, folder: Path, watts: float = 500.0, stamped: bool = True) -> None:
        self.folder, self.watts, self.stamped = folder, watts, stamped
        folder.mkdir(exist_ok=True)
        self.now_s = 0.0
        self.renew()

    def clock(self) -> float:
        return self.now_s

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.renew()

    def renew(self) -> None:
        end = f" {1697543215000000 + int(self.now_s * 1e6)} us" if self.stamped else ""
        texts = {
            "freshness": str(int(1000 + 10 * self.now_s)),
            "generation": "3",
            "power": f"{self.watts:.0f} W{end}",
            "energy": f"{1234567 + self.watts * self.now_s:.0f} J{end}",
            "cpu_energy": f"{100 * self.now_s:.0f} J{end}",
            "accel0_energy": f"{5000 + 200 * self.now_s:.0f} J{end}",
            "accel1_energy": f"{7000 + 100 * self.now_s:.0f} J{end}",
            "accel2_energy": f"0 J{end}",
        }
        for name, text in texts.items():
            (self.folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize("stamped", [True, False])
def test_the_nodes_counter_gives_its_power_with_and_without_time_stamps(
    tmp_path: Path, stamped: bool
) -> None:
    node = Node(tmp_path / "pm", stamped=stamped)
    read = CrayCounters(node.folder, ("energy", "power"), node.clock)
    (first, _) = read()
    node.after(5)
    (last, watts) = read()
    assert first is not None and last is not None
    assert (last - first, watts) == (5 * 500, 500)


def test_files_of_two_moments_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "pm")
    read = CrayCounters(node.folder, ("energy", "power"), node.clock)
    text, renewed = Path.read_text, []

    def renewing(path: Path, *args: Any, **named: Any) -> str:
        found = text(path, *args, **named)
        if path.name == "energy" and len(renewed) < 2:
            renewed.append(found)
            node.watts = 900.0  # between the counter and the power
            node.after(0.1)
        return found

    monkeypatch.setattr(Path, "read_text", renewing)
    assert read() == [1234567 + 180, 900] and len(renewed) == 2


def test_a_node_whose_files_never_hold_still_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path / "pm")
    text = Path.read_text

    def renewing(path: Path, *args: Any, **named: Any) -> str:
        node.after(0.1)
        return text(path, *args, **named)

    monkeypatch.setattr(Path, "read_text", renewing)
    assert CrayCounters(node.folder, ("energy",), node.clock)() == [None]


def test_counters_that_stand_still_give_nothing_until_they_move(tmp_path: Path) -> None:
    node = Node(tmp_path / "pm")
    read = CrayCounters(node.folder, ("energy", "power"), node.clock)
    assert read() == [1234567, 500]
    node.now_s += 1.0  # not renewed
    assert read() == [1234567, 500]
    node.now_s += 4.0
    assert read() == [None, None]
    node.after(0.0)
    assert read() == [1234567 + 2500, 500]


def test_an_energy_that_does_not_grow_is_none_though_others_are_renewed(tmp_path: Path) -> None:
    node = Node(tmp_path / "pm", watts=0.0, stamped=False)
    read = CrayCounters(node.folder, ("energy", "power"), node.clock)
    read()
    node.after(5)
    assert read() == [None, 0]


@pytest.mark.parametrize(
    "text",
    ["", "12", "12 W", "x J", "-5 J", "1.5 kJ", "12 J 17 us 3", "12 J 17 ms", "nan J", "\xff"],
)
def test_what_is_no_energy_gives_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "freshness").write_text("1")
    (tmp_path / "energy").write_bytes(text.encode("latin-1"))
    assert CrayCounters(tmp_path, ("energy",))() == [None]
    assert node_file(tmp_path) is None


def test_without_freshness_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "energy").write_text("12 J")
    assert CrayCounters(tmp_path, ("energy",))() == [None]


def test_accelerators_are_those_that_have_used_energy(tmp_path: Path) -> None:
    node = Node(tmp_path / "pm")
    assert accelerator_files(node.folder) == {0: "accel0_energy", 1: "accel1_energy"}
    (node.folder / "accel_energy").write_text("12000 J 1 us\n")
    assert accelerator_files(node.folder) == {0: "accel0_energy", 1: "accel1_energy"}


def test_one_accelerator_without_a_number_is_the_first(tmp_path: Path) -> None:
    (tmp_path / "accel_energy").write_text("12000 J\n")
    assert accelerator_files(tmp_path) == {0: "accel_energy"}


def test_the_counter_is_preferred_to_the_power(tmp_path: Path) -> None:
    node = Node(tmp_path / "pm")
    found = [(one.quantities, one.device_index) for one in cray_sources(node.folder)]
    accelerators = [(("accelerator_energy_cray",), i) for i in (0, 1)]
    assert found == [(("node_energy_cray",), 0), *accelerators]
    (node.folder / "energy").unlink()
    assert cray_sources(node.folder)[0].quantities == ("node_power_cray",)
    assert cray_sources(tmp_path / "none") == []
