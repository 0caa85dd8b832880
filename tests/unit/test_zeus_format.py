"""Zeus's logs: energies of windows, and powers. Real files where SCALEWATT_OTHERS names a folder of them."""

from __future__ import annotations

import csv
import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from energy_said import describe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_recordings import sensors

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.energies.integrate import validate
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options
from scalewatt.recordings.totals import Total, outermost

T0 = 1_700_000_000.0
ONE_FILE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
OTHERS = os.environ.get("SCALEWATT_OTHERS")
REAL = sorted(Path(OTHERS, "zeus").glob("window-*.csv")) if OTHERS else []
real = pytest.mark.skipif(not OTHERS, reason="SCALEWATT_OTHERS names no folder with Zeus's files")


def write_windows(path: Path, *windows: tuple[float, str, float, float], start: float = T0) -> Path:
    """Write windows (begin, name, length, energy of GPU 0; GPU 1 uses twice as much)."""
    lines = ["start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy"]
    lines += [f"{start + begin},{name},{s},{j},{2 * j}" for begin, name, s, j in windows]
    path.write_text("\n".join([*lines, ""]))
    return path


def codes(found: dict) -> set[str]:
    return {one["code"] for one in found["flags"]}


def test_one_window_is_the_energy_and_nothing_is_known_within(tmp_path: Path) -> None:
    path = write_windows(tmp_path / "n1.csv", (0, "training", 100.0, 30_000.0))
    stages = tmp_path / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\nstartup,{T0},{T0 + 20}\ntrain,{T0 + 20},{T0 + 90}\n")
    found = describe(path, stages=stages)
    assert found["format"] == "zeus-windows" and found["gpus"] == 2
    assert found["gpu_energy_j"] == pytest.approx(90_000) and found["coverage"] == pytest.approx(1)
    energies = {row["stage"]: row["gpu_energy_j"] for row in found["stages"]}
    assert energies["startup"] is None and energies["train"] is None
    assert codes(found) == {"total_only", "stage_short"}


def test_the_time_between_windows_is_never_filled_in(tmp_path: Path) -> None:
    path = write_windows(tmp_path / "n1.csv", (0, "a", 10.0, 1000.0), (12, "b", 10.0, 3000.0))
    found = describe(path)
    assert found["gpu_energy_j"] is None
    assert found["recorded_energy_kwh"] == pytest.approx(12_000 / 3.6e6)
    assert found["coverage"] == pytest.approx(20 / 22) and "coverage" in codes(found)


def test_a_window_is_chosen_by_its_name(tmp_path: Path) -> None:
    nested = [(5.0, "epoch, first", 10.0, 500.0), (20.0, "epoch 2", 10.0, 700.0)]
    path = write_windows(tmp_path / "n1.csv", *nested, (0.0, "all", 40.0, 2000.0))
    whole = describe(path)
    assert whole["gpu_energy_j"] == pytest.approx(6000)
    (told,) = (one for one in whole["flags"] if "within others" in one["detail"])
    assert "epoch, first, epoch 2" in told["detail"]
    one = describe(path, run_id="epoch, first")
    assert one["gpu_energy_j"] == pytest.approx(1500) and one["run"] == "epoch, first"
    assert one["runtime_s"] == pytest.approx(10)
    with pytest.raises(InputError, match="no window epoch 3; allowed: epoch, first, epoch 2, all"):
        read_foreign(path, Options(run="epoch 3"))


@pytest.mark.parametrize("energy", ["-5.0", "0.0", "nan", "inf", "", "x"])
def test_an_energy_that_cannot_be_is_unknown(energy: str, tmp_path: Path) -> None:
    path = tmp_path / "n1.csv"
    head = "start_time,window_name,elapsed_time,gpu0_energy\n"
    path.write_text(
        f"{head}{T0},a,10.0,{energy}\n{T0 + 10},b,10.0,1000\n{T0 + 20},c,10.0,{energy}\n"
    )
    found = read_foreign(path)
    (series,) = sensors(found)
    curve = validate(series.block, series.column).curve
    assert float(curve.between(T0, T0 + 30)) == pytest.approx(1000)
    assert float(curve.covered_s(T0, T0 + 30)) == pytest.approx(10)
    assert {one["code"] for one in found.flags} == {"total_only", "unreadable"}
    assert describe(path)["gpu_energy_j"] is None


@pytest.mark.parametrize("length", ["0", "-3", "nan", "", "1e300"])
def test_a_window_without_a_length_is_refused_or_left_out(length: str, tmp_path: Path) -> None:
    path = tmp_path / "n1.csv"
    head = f"start_time,window_name,elapsed_time,gpu0_energy\n{T0},a,{length},5\n"
    path.write_text(head)
    with pytest.raises(InputError, match="no window with a begin and a length"):
        read_foreign(path)
    path.write_text(f"{head}{T0 + 10},b,10.0,1000\n")
    found = read_foreign(path)
    assert [one["code"] for one in found.flags] == ["damaged", "total_only"]
    assert describe(path)["gpu_energy_j"] == pytest.approx(1000)


@pytest.mark.parametrize(("start", "known"), [(13_588_420.8, False), (T0, True)])
def test_a_monotonic_clock_says_no_time_of_day(start: float, known: bool, tmp_path: Path) -> None:
    found = read_foreign(write_windows(tmp_path / "n1.csv", (0, "a", 5.0, 500.0), start=start))
    assert found.clock_known is known
    times = sensors(found)[0].time_s
    assert times[0] == (T0 if known else 0) and times[1] - times[0] == pytest.approx(5)


@ONE_FILE
@given(data=st.data())
def test_known_totals_are_accounted_for_in_any_order_and_with_gaps(
    data: st.DataObject, tmp_path: Path
) -> None:
    windows, truth, covered, now = [], 0.0, 0.0, 0.0
    for i in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.sampled_from([0.0, 0.5, 40.0]))
        length, power = data.draw(st.floats(0.5, 500)), data.draw(st.floats(20, 700))
        windows.append((now, f"w{i}", length, power * length))
        for inner in range(data.draw(st.integers(0, 2))):
            windows.append((now + length / 4, f"i{i}.{inner}", length / 4, power * length / 4))
        truth += power * length
        covered += length
        now += length
    path = write_windows(tmp_path / "n1.csv", *data.draw(st.permutations(windows)))
    torn = data.draw(st.booleans())
    if torn:
        path.write_text(path.read_text() + f"{T0 + now},last,10.0,2000.0,20")
    found = read_foreign(path)
    first = sensors(found)[0]
    curve = validate(first.block, first.column).curve
    ends = T0, T0 + now
    assert float(curve.between(*ends)) == pytest.approx(truth, rel=1e-5)
    assert float(curve.covered_s(*ends)) == pytest.approx(covered, rel=1e-5)
    assert ("damaged" in {one["code"] for one in found.flags}) == torn


@ONE_FILE
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=12))
def test_the_outermost_windows_never_overlap_and_none_is_lost(spans: list) -> None:
    windows = [
        Total(str(i), float(a), float(a + n), np.array([1.0])) for i, (a, n) in enumerate(spans)
    ]
    try:
        marked = outermost(windows)
    except InputError:
        assert any(
            a.begin_s < b.begin_s < a.end_s < b.end_s
            for a in windows
            for b in windows
            if a is not b
        )
        return
    assert [one.name for one in marked] == [one.name for one in windows]
    outer = sorted((one for one in marked if one.counted), key=lambda one: one.begin_s)
    for one, after in pairwise(outer):
        assert one.end_s <= after.begin_s
    for one in marked:
        assert any(o.begin_s <= one.begin_s and one.end_s <= o.end_s for o in outer)


def test_windows_that_cross_are_refused_unless_one_is_named(tmp_path: Path) -> None:
    path = write_windows(tmp_path / "n1.csv", (0, "a", 1.0, 100.0), (0.5, "b", 100.0, 10_000.0))
    with pytest.raises(
        InputError, match=r"n1\.csv: its windows a and b cross; name one with --run"
    ):
        describe(path)
    assert describe(path, run_id="b")["gpu_energy_j"] == pytest.approx(30_000)


def test_a_monotonic_clock_that_began_anew_hides_no_window(tmp_path: Path) -> None:
    first = [(10.0 * i, f"e{i}", 10.0, 1000.0) for i in range(3)]
    again = [(10.0 * i, f"f{i}", 10.0, 1000.0) for i in range(3)]
    path = write_windows(tmp_path / "n1.csv", *first, *again, start=1000.0)
    with pytest.raises(InputError, match=r"its clock goes back .* several programs"):
        read_foreign(path)
    whole = (0.0, "all", 30.0, 3000.0)
    nested = write_windows(tmp_path / "n2.csv", *first, whole, start=1000.0)
    assert describe(nested)["gpu_energy_j"] == pytest.approx(9000)


POWERS = [(T0 + 0.1 * i + 1e-4, 100.0 + i % 7, 250.0 + i % 3) for i in range(50)]


def test_powers_without_a_heading_are_read_by_the_pages_yaml(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/recordings.md").read_text()
    (rules,) = re.findall(r"```yaml\n(header: \[time, power0.*?)```", page, re.DOTALL)
    columns, path = tmp_path / "columns.yaml", tmp_path / "n1.csv"
    columns.write_text(rules)
    path.write_text("".join(f"{','.join(map(str, row))}\n" for row in POWERS))
    times, *powers = np.array(POWERS).T
    truth = float(np.trapezoid(sum(powers), times))
    found = describe(path, options=Options(columns=columns))
    assert found["energy_j"] == pytest.approx(truth) and found["gpus"] == 2


@real
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_windows_have_the_energies_of_their_lines(path: Path) -> None:
    with path.open() as file:
        lines = list(csv.DictReader(file))
    gpus = [name for name in lines[0] if name.endswith("_energy")]
    truth = sum(float(line[gpu]) for line in lines for gpu in gpus)
    found = describe(path)
    assert found["recorded_energy_kwh"] == pytest.approx(truth / 3.6e6, rel=1e-9)
    assert found["gpu_energy_j"] is None and found["gpus"] == len(gpus)
    for line in lines:
        one = describe(path, run_id=line["window_name"])
        assert one["gpu_energy_j"] == pytest.approx(sum(float(line[gpu]) for gpu in gpus), rel=1e-9)
        assert one["runtime_s"] == pytest.approx(float(line["elapsed_time"]), rel=1e-6)
    assert not read_foreign(path).clock_known


def test_each_window_is_listed_with_its_energy_where_the_whole_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = [(0, "a", 10.0, 1000.0), (100, "b", 10.0, 2000.0), (102, "in b", 2.0, 0.0)]
    path = write_windows(tmp_path / "n1.csv", *windows)
    found = describe(path)
    assert found["energy_j"] is None
    listed = [(w["window"], w["energy_j"], w["counted"]) for w in found["windows"]]
    assert listed == [("a", 3000.0, True), ("b", 6000.0, True), ("in b", None, False)]
    first = found["windows"][0]
    assert (first["gpu_0_j"], first["gpu_1_j"]) == (1000.0, 2000.0)
    assert found["windows"][1]["start_s"] == T0 + 100
    assert main(["energy", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["windows", "3", *["(--run", "NAME", "for", "those", "of", "one", "name)"]] in lines
    assert ["b", "2000.0", "4000.0", "10.000", "6000.0"] in lines
    assert describe(path, run_id="b")["energy_j"] == pytest.approx(6000)
