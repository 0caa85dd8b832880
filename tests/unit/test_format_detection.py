"""Which format a file is of: by what is in it, whatever it is named; and hostile text, which is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from energy_said import describe
from foreign_samples import FILES, N, options
from made_recordings import sensors, written

from scalewatt.common.errors import InputError
from scalewatt.energies.integrate import validate
from scalewatt.recordings.detect import find_format, read_foreign
from scalewatt.recordings.tables import Options
from scalewatt.registration.foreign_discovery import open_foreign


@pytest.mark.parametrize("kind", sorted(FILES))
def test_a_format_is_told_by_its_content_and_is_one_alone(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, FILES[kind], "whatever.bin")
    found = find_format(path, options(tmp_path, kind))
    assert found is not None and found["name"] == kind.partition(" ")[0]
    recording = read_foreign(path, options(tmp_path, kind))
    assert recording.format == found["name"] and recording.flags == ()
    assert sum(one.time_s.size for one in sensors(recording)) >= N


@pytest.mark.parametrize("kind", sorted(set(FILES) - {"prometheus query"}))
def test_rows_that_come_twice_are_left_out_and_flagged(tmp_path: Path, kind: str) -> None:
    lines = FILES[kind].splitlines(keepends=True)
    once = read_foreign(written(tmp_path, "".join(lines)), options(tmp_path, kind))
    twice = "".join(line * (1 + (n > 2)) for n, line in enumerate(lines))
    found = read_foreign(written(tmp_path, twice), options(tmp_path, kind))
    for one, same in zip(sensors(once), sensors(found), strict=True):
        assert one.time_s.tolist() == same.time_s.tolist()
        assert one.values.tolist() == same.values.tolist()
        assert validate(same.block, same.column).flags == validate(one.block, one.column).flags
    assert {one["code"] for one in found.flags} == {"duplicate"}


def smi_part(begin: int, end: int, uuid: str = "GPU-a", index: int = 0) -> str:
    """Powers of one GPU in some seconds after 10:00, 100 W and a little."""
    rows = (
        f"2024/05/31 10:{s // 60:02d}:{s % 60:02d}.000, {index}, {uuid}, {100 + s % 7}.00 W\n"
        for s in range(begin, end)
    )
    return "timestamp, index, uuid, power.draw [W]\n" + "".join(rows)


UTC = Options(time_zone="UTC")


def true_j(begin: int, end: int) -> float:
    return sum(100.0 + (s % 7 + (s + 1) % 7) / 2 for s in range(begin, end - 1))


@pytest.mark.parametrize("uuid", ["GPU-a", "[N/A]"])
def test_the_files_of_one_node_are_one_recording_in_order_of_time(
    tmp_path: Path, uuid: str
) -> None:
    written(tmp_path, smi_part(0, 100, uuid), "n1.part2.csv")
    written(tmp_path, smi_part(100, 200, uuid), "n1.part1.csv")
    found = describe(tmp_path, options=UTC)
    assert found["hosts"] == ["n1"] and found["gpus"] == 1 and found["flags"] == []
    assert found["energy_j"] == pytest.approx(true_j(0, 200))


def test_the_time_between_two_files_of_a_node_is_a_gap(tmp_path: Path) -> None:
    written(tmp_path, smi_part(0, 100), "n1.part1.csv")
    written(tmp_path, smi_part(400, 500), "n1.part2.csv")
    found = describe(tmp_path, options=UTC)
    assert {one["code"] for one in found["flags"]} == {"gap", "coverage"}
    assert found["energy_j"] is None
    recorded = true_j(0, 100) + true_j(400, 500)
    assert found["recorded_energy_kwh"] == pytest.approx(recorded / 3.6e6)


def windows(start: float) -> str:
    """Totals of one window of 100 s."""
    return f"start_time,window_name,elapsed_time,gpu0_energy\n{start},a,100.0,10000.0\n"


def smi_without_uuid(seconds: int, gpus: int, watts: float, begin: int = 0) -> str:
    rows = (
        f"2024/05/31 10:39:{s:02d}.000, {i}, {watts + s % 7:.2f} W\n"
        for s in range(begin, begin + seconds)
        for i in range(gpus)
    )
    return "timestamp, index, power.draw [W]\n" + "".join(rows)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (smi_without_uuid(60, 2, 200), smi_without_uuid(60, 2, 400)),
        (smi_without_uuid(60, 1, 200), smi_without_uuid(60, 1, 200)),
        (smi_without_uuid(30, 1, 200), smi_without_uuid(10, 1, 400, 25)),
        (windows(1717144000.0), windows(1717144050.0)),
        (windows(1000.0), windows(2000.0)),
    ],
    ids=["samples", "equal samples", "a part", "totals", "totals by a monotonic clock"],
)
def test_files_of_two_nodes_are_never_taken_for_one_sensors(
    tmp_path: Path, first: str, second: str
) -> None:
    one, other = written(tmp_path, first, "gpu.n1.csv"), written(tmp_path, second, "gpu.n2.csv")
    for read in (describe, open_foreign):
        with pytest.raises(InputError) as refused:
            read(tmp_path, options=UTC)
        assert str(one) in str(refused.value) and str(other) in str(refused.value)


def test_files_of_two_nodes_named_by_them_are_two_nodes(tmp_path: Path) -> None:
    for node, watts in (("n1", 200), ("n2", 400)):
        written(tmp_path, smi_without_uuid(60, 2, watts), f"{node}.csv")
    found = describe(tmp_path, options=UTC)
    mean = sum(s % 7 + (s + 1) % 7 for s in range(59)) / 2 / 59
    assert found["hosts"] == ["n1", "n2"]
    assert found["energy_j"] == pytest.approx(2 * 59 * (600 + 2 * mean))


@pytest.mark.parametrize(
    ("names", "uuids", "indices", "why"),
    [
        (
            ("n1.csv", "n1.txt"),
            ("GPU-a", "GPU-b"),
            (0, 0),
            "GPU 0 of n1 is GPU-b, .*n1.csv GPU 0 of n1 is GPU-a",
        ),
        (
            ("a.csv", "b.csv"),
            ("GPU-a", "GPU-a"),
            (0, 0),
            "GPU 0 of b is GPU-a, and in .*a.csv GPU 0 of a",
        ),
        (
            ("n1.csv", "n1.txt"),
            ("GPU-a", "GPU-a"),
            (0, 1),
            "GPU 1 of n1 is GPU-a, .*n1.csv GPU 0 of n1",
        ),
    ],
)
def test_files_that_disagree_on_which_gpu_is_which_are_refused(
    tmp_path: Path,
    names: tuple[str, str],
    uuids: tuple[str, str],
    indices: tuple[int, int],
    why: str,
) -> None:
    for name, uuid, index in zip(names, uuids, indices, strict=True):
        written(tmp_path, smi_part(0, 50, uuid, index), name)
    with pytest.raises(InputError, match=why) as refused:
        describe(tmp_path, options=UTC)
    assert str(refused.value).startswith(f"{tmp_path / names[1]}: ")
