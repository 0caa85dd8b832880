"""Power logs of MLPerf Training: small written ones with every fault, and the real ones where they are."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import Made, codes, joules, made, written

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.energies.accounting.node_energy import whole_kind
from scalewatt.energies.accounting.rows import EnergyRows
from scalewatt.energies.accounting.run_inputs import PlannedRun
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.energies.integration.integrate import validate
from scalewatt.energies.integration.stage_intervals import tile_window
from scalewatt.energies.views.describe import describe
from scalewatt.notebooks import energy
from scalewatt.recordings.formats.detect import find_format, read_foreign, read_together
from scalewatt.recordings.formats.format import Options
from scalewatt.recordings.formats.mlperf_log import read_mlperf_log
from scalewatt.recordings.series import NODE, SensorSeries

T0_MS = 1_715_000_000_000


def event(time_ms: float, key: str, value: object = None, **metadata: object) -> str:
    """Return one line of a log."""
    content = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key}
    return ":::MLLOG " + json.dumps(content | {"value": value, "metadata": metadata})


def reading(second: float, watts: object) -> str:
    return event(T0_MS + round(1000 * second), "power_reading", watts)


def log(folder: Path, *lines: str, end: str = "\n") -> Path:
    return written(folder, "\n".join(lines) + end, "node_0.txt")


START, STOP = "power_measurement_start", "power_measurement_stop"


@settings(max_examples=40, deadline=None)
@given(made(), st.integers(0, 3), st.integers(0, 60))
def test_a_known_power_is_read_back(made: Made, prefix: int, torn: int) -> None:
    rows = [row for row in made.rows if row.gpu == 0]
    lines = [event(round(row.time_s * 1000), "power_reading", row.power_w) for row in rows]
    before = ["", "0: ", " 12: ", "[node] "][prefix]
    text = "\n".join(f"{before}{line}\nother output, {n}" for n, line in enumerate(lines)) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), text + lines[-1][: min(torn, len(lines[-1]) - 1)])
        found = read_foreign(path)
    (one,) = found.series
    times, powers = made.kept(0)
    valued = np.isfinite(one.values)
    kept = dict(zip(one.time_s[valued].tolist(), one.values[valued].tolist(), strict=True))
    assert list(kept) == pytest.approx(times.tolist(), abs=1e-3)
    assert list(kept.values()) == powers.tolist()
    assert joules(one) == pytest.approx(np.trapezoid(powers, times), rel=1e-6, abs=1.0)
    twice = len(set(rows)) < len(rows)
    assert (
        codes(found) <= {"torn_end", "duplicate_rows"}
        and ("duplicate_rows" in codes(found)) == twice
    )
    assert ("torn_end" in codes(found)) == (torn >= len(":::MLLOG"))
    assert (one.device_kind, one.quantity, one.origin) == ("node", "power", "measured")


def test_damaged_lines_are_counted_and_a_torn_one_apart(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        reading(0, 4000),
        ':::MLLOG {"time_ms": 1, "key": ',
        ":::MLLOG []",
        ":::MLLOG {}",
        event(-5, "power_reading", 1),
        event(10**40, "power_reading", 1),
        reading(2, 4100),
        reading(4, 4200)[:-20],
        end="",
    )
    found = read_foreign(path)
    assert found.series[0].values.tolist() == [4000, 4100]
    said = {one["code"]: one["detail"] for one in found.problems}
    assert set(said) == {"damaged_lines", "torn_end"} and ": 5 lines" in said["damaged_lines"]


def test_a_reading_that_is_no_number_is_missing(tmp_path: Path) -> None:
    path = log(tmp_path, *(reading(n, v) for n, v in enumerate((4000, None, "x", True, [], 4100))))
    (one,) = read_foreign(path).series
    np.testing.assert_array_equal(one.values, [4000, *[np.nan] * 4, 4100])


def test_a_stop_stamped_before_the_last_reading_is_flagged(tmp_path: Path) -> None:
    readings = [reading(second, 4000) for second in (0, 2, 4)]
    for stop_s, wrong in ((0, True), (4, False), (9, False)):
        lines = [event(T0_MS, START), *readings, event(T0_MS + 1000 * stop_s, STOP)]
        found = read_foreign(log(tmp_path, *lines))
        assert (codes(found) == {"stop_stamp_wrong"}) is wrong
        # The readings alone say how long it is.
        assert found.series[0].time_s[-1] == T0_MS / 1e3 + 4


def test_times_that_go_back_are_passed_on_and_left_out_later(tmp_path: Path) -> None:
    times = (0, 2, 4, 3, 6, 8)
    (one,) = read_foreign(
        log(tmp_path, *(reading(second, 4000 + second) for second in times))
    ).series
    assert (one.time_s - T0_MS / 1e3).tolist() == [float(second) for second in times]
    checked = validate(one)
    assert [flag["code"] for flag in checked.flags] == ["clock_backwards"]
    assert joules(one) == pytest.approx(8 * 4004)


def test_an_estimate_of_the_switches_is_one_constant(tmp_path: Path) -> None:
    path = log(tmp_path, event(1, "interconnect_power_est", 6528, switch_id="all"))
    (one,) = read_foreign(path).series
    assert (one.device_kind, one.origin, one.values.tolist()) == ("network", "estimated", [6528.0])
    assert [flag["code"] for flag in one.flags] == ["constant_estimate"]


def test_a_log_without_power_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no power_reading and no interconnect_power_est"):
        read_foreign(log(tmp_path, event(T0_MS, START), event(T0_MS, STOP)))


def test_the_log_of_a_run_is_no_power_log(tmp_path: Path) -> None:
    path = log(tmp_path, event(T0_MS, "run_start"), event(T0_MS + 5, "run_stop", status="success"))
    assert find_format(path) is None


def test_nodes_are_read_together(tmp_path: Path) -> None:
    for node in (0, 1):
        written(
            tmp_path, "\n".join(reading(s, 4000 + node) for s in (0, 2)) + "\n", f"node_{node}.txt"
        )
    found = read_together([(tmp_path / f"node_{n}.txt", Options(node=f"n{n}")) for n in (1, 0)])
    assert found.hosts == ("n0", "n1") and found.format == "mlperf-power"


@pytest.mark.parametrize(
    ("nodes", "readings", "with_stages"),
    [(8, 1, False), (64, 1, False), (64, 1, True), (64, 3, True)],
)
def test_a_node_whose_log_was_lost_leaves_the_runs_energy_unknown(
    tmp_path: Path, nodes: int, readings: int, with_stages: bool
) -> None:
    begin = T0_MS / 1e3
    stages = written(tmp_path, f"stage,start_s,end_s\ntrain,{begin},{begin + 100}\n", "stages.csv")
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = [reading(second, 4000 + second) for second in range(0, 101, 2)]
    for node in range(nodes):
        kept = lines if node else lines[:readings]
        written(folder, "\n".join(kept) + "\n", f"node_{node:02d}.txt")
    found = describe(folder, stages=stages if with_stages else None)
    assert found["energy_scope"] == "node" and found["energy_j"] is None
    assert found["energy_low_kwh"] is found["energy_high_kwh"] is None
    least = (nodes - 1) * 100 * 4050 / 3.6e6
    assert least <= found["recorded_energy_kwh"] < least * 1.01
    (said,) = (one["detail"] for one in found["flags"] if one["code"] == "coverage")
    assert said.startswith("node_00: ")
    written(folder, "\n".join(lines) + "\n", "node_00.txt")
    assert describe(folder)["energy_j"] == pytest.approx(nodes * 100 * 4050)


@pytest.mark.parametrize(("killed_s", "known"), [(4, True), (40, False)])
def test_a_start_that_was_soon_killed_costs_no_energy_of_whole_nodes(
    killed_s: int, known: bool
) -> None:
    rows = EnergyRows()
    for segment, begin, end, readings in ((0, 0.0, killed_s, 1), (1, 100.0, 300.0, 101)):
        times = np.linspace(begin, end, readings) if readings > 1 else np.array([begin])
        meter = SensorSeries("n1", "meter", NODE, 0, "power", times, np.full(readings, 500.0))
        kind = whole_kind("n1", NODE, [meter], (begin, float(end)))
        rows.add(
            segment, kind, tile_window([], (begin, float(end)))[0], (0.0, 0.0), 0.0, kind.flags
        )
    energy_j = EnergyTotals(rows.tables(PlannedRun()).energy, with_staging=True).joules(NODE)
    assert energy_j == (pytest.approx(200 * 500) if known else None)


def test_a_switch_is_no_host_of_a_recording(tmp_path: Path) -> None:
    written(tmp_path, "\n".join(reading(s, 4000 + s) for s in range(20)) + "\n", "node_0.txt")
    written(tmp_path, event(T0_MS, "interconnect_power_est", 500) + "\n", "sw_0.txt")
    found = describe(tmp_path)
    assert found["hosts"] == ["node_0"]
    assert found["network_energy_j"] == pytest.approx(19 * 500)


def test_how_many_gpus_a_meter_counts_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path, *(reading(s, 4000 + s) for s in range(20)))
    found = describe(path)
    assert found["energy_scope"] == "node" and found["gpus"] is None
    assert main(["energy", str(path)]) == 0
    assert "hosts     node_0; GPUs -\n" in capsys.readouterr().out


def test_a_constant_estimate_of_switches_resolves_the_shortest_stage(tmp_path: Path) -> None:
    readings = "\n".join(reading(s, 4000 + s % 7) for s in range(0, 101, 2)) + "\n"
    folder = tmp_path / "logs"
    folder.mkdir()
    written(folder, readings, "node_0.txt")
    written(folder, event(T0_MS, "interconnect_power_est", 500) + "\n", "sw_0.txt")
    begin = T0_MS / 1e3
    rows = f"train,{begin},{begin + 98}\nvalidate,{begin + 98},{begin + 100}\n"
    stages = written(tmp_path, "stage,start_s,end_s\n" + rows, "stages.csv")
    found = energy(folder, stages)
    short = found[found.short]
    assert set(zip(short.device_kind, short.stage, strict=True)) == {("node", "validate")}
    (said,) = (one["detail"] for one in found.attrs["flags"] if one["code"] == "stage_short")
    assert "pieces of 2 s on average, node resolved to 2 s" in said
    switches = found[(found.device_kind == "network") & (found.stage == "validate")]
    assert switches.energy_j.tolist() == pytest.approx([1000])


def test_the_estimates_of_several_switches_add_up(tmp_path: Path) -> None:
    written(tmp_path, "\n".join(reading(s, 4000 + s) for s in range(20)) + "\n", "node_0.txt")
    estimates = (("s1", 500), ("s2", 300), ("s1", 500))
    lines = [event(T0_MS, "interconnect_power_est", w, switch_id=s) for s, w in estimates]
    written(tmp_path, "\n".join(lines) + "\n", "sw_0.txt")
    found = describe(tmp_path)
    assert found["network_energy_j"] == pytest.approx(19 * 800)
    told = [one["detail"] for one in found["flags"] if one["code"] == "constant_estimate"]
    assert [detail.split(": ")[1] for detail in told] == ["s1", "s2"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_log_that_a_shell_of_windows_wrote_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "node_0.txt"
    path.write_bytes("\r\n".join([reading(0, 4000), reading(2, 4100), ""]).encode(encoding))
    found = read_foreign(path)
    assert found.format == "mlperf-power" and found.series[0].values.tolist() == [4000, 4100]


# --- the real ones --------------------------------------------------------------------------------


def real() -> Path:
    folder = os.environ.get("SCALEWATT_MLPERF")
    if not folder:
        pytest.skip("SCALEWATT_MLPERF does not name the folder of MLPerf's results with power")
    return Path(folder)


STOP_IS_THE_START = {("1", "bert"), ("1", "llama2_70b_lora"), ("8", "resnet"), ("8", "ssd")}
"""Nodes and benchmarks whose logs stamp the stop with about the time of the start."""


def runs() -> list[dict[str, str]]:
    """Return the expected figures of one run of each benchmark and system."""
    with (real() / "expected.csv").open(newline="") as file:
        found = {(row["system"], row["benchmark"]): row for row in csv.DictReader(file)}
    assert len(found) > 5
    return list(found.values())


def node_files(run: dict[str, str]) -> list[Path]:
    folder = (
        real() / run["set"] / "results" / run["system"] / run["benchmark"] / "power" / run["run"]
    )
    return sorted(folder.glob("node_*.txt"))


def test_the_energy_of_real_runs_is_that_of_an_independent_reading() -> None:
    for run in runs():
        paths = node_files(run)
        assert len(paths) == int(run["node_files"])
        found = read_together([(path, Options(node=path.stem)) for path in paths])
        assert found.hosts == tuple(sorted(path.stem for path in paths)) and found.t0_known
        window = float(run["run_start"]), float(run["run_stop"])
        energy = sum(float(validate(one).curve.between(*window)) for one in found.series)
        assert energy == pytest.approx(float(run["window_j"]), rel=1e-3), run["run"]
        assert sum(one.time_s.size for one in found.series) == int(run["readings"])
        assert codes(found) <= {"stop_stamp_wrong"}
        assert ("stop_stamp_wrong" in codes(found)) == (
            (run["system"].partition("x")[0], run["benchmark"]) in STOP_IS_THE_START
        )


def test_a_real_log_in_any_pieces_is_read_or_refused(tmp_path: Path) -> None:
    content = node_files(runs()[0])[0].read_bytes()
    whole = len(read_mlperf_log(written(tmp_path, content.decode())).of("power_reading"))
    for end in range(0, len(content), 997):
        path = tmp_path / "cut"
        path.write_bytes(content[:end])
        try:
            found = read_foreign(path)
        except InputError:
            assert end < 1000
            continue
        (one,) = found.series
        assert abs(one.time_s.size - whole * end / len(content)) < 5
        assert codes(found) <= {"torn_end", "stop_stamp_wrong"}
