"""Zeus's logs: energies of windows, which may nest, cross, or leave time between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from energy_files import codes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_recordings import sensors

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.recordings.detect import read_foreign

T0 = 1_700_000_000.0
HEAD = "start_time,window_name,elapsed_time,gpu0_energy"
one_file = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write_windows(path: Path, *windows: tuple[float, str, float, float], start: float = T0) -> Path:
    """Write windows (begin, name, length, energy of GPU 0; GPU 1 uses twice as much)."""
    lines = [f"{start + begin},{name},{s},{j},{2 * j}" for begin, name, s, j in windows]
    path.write_text("\n".join([f"{HEAD},gpu1_energy", *lines, ""]))
    return path


def test_one_window_is_the_energy_and_nothing_is_known_within(tmp_path: Path) -> None:
    path = write_windows(tmp_path / "n1.csv", (0, "training", 100.0, 30_000.0))
    stages = tmp_path / "stages.csv"
    stages.write_text(f"stage,start_s,end_s\nstartup,{T0},{T0 + 20}\ntrain,{T0 + 20},{T0 + 90}\n")
    account = scalewatt.energy(path, stages)
    assert (account.format, account.gpus) == ("zeus-windows", 2)
    assert (account.joules("gpu"), account.coverage) == pytest.approx((90_000, 1))
    in_window = account.stages.query("stage in ['startup', 'train'] and device_kind == 'gpu'")
    assert in_window["short"].all()
    assert codes(account.flags) == {"total_only", "stage_short"}


def test_a_window_is_chosen_by_its_name(tmp_path: Path) -> None:
    nested = [(5.0, "epoch, first", 10.0, 500.0), (20.0, "epoch 2", 10.0, 700.0)]
    path = write_windows(tmp_path / "n1.csv", *nested, (0.0, "all", 40.0, 2000.0))
    whole = scalewatt.energy(path)
    assert whole.joules("gpu") == pytest.approx(6000)
    (detail,) = (detail for detail in whole.flags["detail"] if "within others" in detail)
    assert "epoch, first, epoch 2" in detail
    window = scalewatt.energy(path, run="epoch, first")
    assert (window.run, window.joules("gpu")) == ("epoch, first", pytest.approx(1500))
    assert window.runtime_s == pytest.approx(10)
    with pytest.raises(InputError, match="no window epoch 3; allowed: epoch, first, epoch 2, all"):
        scalewatt.energy(path, run="epoch 3")


def test_lines_before_the_heading_and_a_heading_that_comes_again_are_no_windows(
    tmp_path: Path,
) -> None:
    path = write_windows(tmp_path / "n1.csv", (0.0, "a", 10.0, 500.0), (10.0, "b", 10.0, 700.0))
    heading, first, second = path.read_text().splitlines()
    path.write_text("\n".join(["# a note", heading, first, heading, second, ""]))
    account = scalewatt.energy(path)
    assert account.joules("gpu") == pytest.approx(3600)
    assert "damaged" not in codes(account.flags)


def test_a_column_of_energies_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n1.csv"
    path.write_text(f"{HEAD},gpu0_energy\n{T0},a,10.0,1000,2000\n")
    with pytest.raises(InputError, match=r"gpu0_energy.? twice; expected each"):
        scalewatt.energy(path)


@pytest.mark.parametrize("energy", ["-5.0", "0.0", "nan", "inf", "", "x"])
def test_an_energy_that_cannot_be_is_unknown(energy: str, tmp_path: Path) -> None:
    path = tmp_path / "n1.csv"
    lines = [f"{T0},a,10.0,{energy}", f"{T0 + 10},b,10.0,1000", f"{T0 + 20},c,10.0,{energy}"]
    path.write_text("\n".join([HEAD, *lines, ""]))
    account = scalewatt.energy(path)
    assert account.joules("gpu") is None
    assert account.joules("gpu", "recorded_j") == pytest.approx(1000)
    assert account.devices["covered_s"].sum() == pytest.approx(10)
    assert {"total_only", "unreadable"} <= codes(account.flags)


@pytest.mark.parametrize("length", ["0", "-3", "nan", "", "1e300"])
def test_a_window_without_a_length_is_refused_or_left_out(length: str, tmp_path: Path) -> None:
    path = tmp_path / "n1.csv"
    path.write_text(f"{HEAD}\n{T0},a,{length},5\n")
    with pytest.raises(InputError, match="no window with a begin and a length"):
        scalewatt.energy(path)
    path.write_text(path.read_text() + f"{T0 + 10},b,10.0,1000\n")
    account = scalewatt.energy(path)
    assert account.joules("gpu") == pytest.approx(1000)
    assert codes(account.flags) == {"damaged", "total_only"}


@pytest.mark.parametrize(("start", "known"), [(13_588_420.8, False), (T0, True)])
def test_a_monotonic_clock_says_no_time_of_day(start: float, known: bool, tmp_path: Path) -> None:
    recording = read_foreign(write_windows(tmp_path / "n1.csv", (0, "a", 5.0, 500.0), start=start))
    assert recording.clock_known is known
    times = sensors(recording)[0].time_s
    assert times[0] == (T0 if known else 0) and times[1] - times[0] == pytest.approx(5)


@one_file
@given(spans=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=12))
def test_the_outermost_windows_never_overlap_and_none_is_lost(
    spans: list[tuple[int, int]], tmp_path: Path
) -> None:
    windows = [(float(begin), f"w{i}", float(n), 10.0 * n) for i, (begin, n) in enumerate(spans)]
    path = write_windows(tmp_path / "n1.csv", *windows)
    try:
        account = scalewatt.energy(path)
    except InputError as refused:
        assert "crosses another; name one with --run" in str(refused)
        ends = [(begin, begin + length) for begin, length in spans]
        assert any(a < c < b < d for a, b in ends for c, d in ends)
        return
    seconds = {second for begin, length in spans for second in range(begin, begin + length)}
    assert account.joules("gpu", "recorded_j") == pytest.approx(30 * len(seconds))


def test_a_monotonic_clock_that_began_anew_hides_no_window(tmp_path: Path) -> None:
    first, again = ([(10.0 * i, f"{of}{i}", 10.0, 1000.0) for i in range(3)] for of in "ef")
    path = write_windows(tmp_path / "n1.csv", *first, *again, start=1000.0)
    with pytest.raises(InputError, match=r"its clock goes back .* each program"):
        scalewatt.energy(path)
    path = write_windows(tmp_path / "n2.csv", *first, (0.0, "all", 30.0, 3000.0), start=1000.0)
    assert scalewatt.energy(path).joules("gpu") == pytest.approx(9000)
