"""Formats of files by their content, and the files of a folder as one recording, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from energy_files import codes
from foreign_samples import FILES, options
from made_recordings import sensors, written

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options
from scalewatt.registration.recordings import read_recording
from scalewatt.registration.run_descriptions import describe

# --- files of a folder ------------------------------------------------------------------------------


def smi(
    begin: int,
    end: int,
    uuid: str | None = "GPU-a",
    index: int = 0,
    watts: float = 100,
    gpus: int = 1,
) -> str:
    """Rows of some GPUs in some seconds after 10:00, `watts` and a little."""
    rows = (
        f"2024/05/31 10:{s // 60:02d}:{s % 60:02d}.000, {index + i}, "
        f"{uuid and f'{uuid}, '}{watts + s % 7:.2f} W\n"
        for s in range(begin, end)
        for i in range(gpus)
    )
    return f"timestamp, index, {uuid and 'uuid, '}power.draw [W]\n" + "".join(rows)


def true_j(begin: int, end: int, watts: float = 100) -> float:
    return sum(watts + (s % 7 + (s + 1) % 7) / 2 for s in range(begin, end - 1))


@pytest.mark.parametrize(("uuid", "begin"), [("GPU-a", 100), ("[N/A]", 100), ("[N/A]", 99)])
def test_the_files_of_one_node_are_one_recording_in_order_of_time(
    tmp_path: Path, uuid: str, begin: int
) -> None:
    written(tmp_path, smi(0, 100, uuid), "n1.part2.csv")
    written(tmp_path, smi(begin, 200, uuid), "n1.part1.csv")
    account = scalewatt.energy(tmp_path, time_zone="UTC")
    assert (account.hosts, account.gpus, len(account.flags)) == (["n1"], 1, 0)
    assert account.joules() == pytest.approx(true_j(0, 200))


def test_the_time_between_two_files_of_a_node_is_a_gap(tmp_path: Path) -> None:
    written(tmp_path, smi(0, 100), "n1.part1.csv")
    written(tmp_path, smi(400, 500), "n1.part2.csv")
    account = scalewatt.energy(tmp_path, time_zone="UTC")
    assert codes(account.flags) == {"gap", "coverage"} and account.joules() is None
    recorded_j = true_j(0, 100) + true_j(400, 500)
    assert account.joules(column="recorded_j") == pytest.approx(recorded_j)


def windows(start: float) -> str:
    """Totals of one window of 100 s."""
    return f"start_time,window_name,elapsed_time,gpu0_energy\n{start},a,100.0,10000.0\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (smi(0, 60, "", watts=200, gpus=2), smi(0, 60, "", watts=400, gpus=2)),
        (smi(0, 60, ""), smi(0, 60, "")),
        (smi(0, 30, "", watts=200), smi(25, 35, "", watts=400)),
        (windows(1717144000.0), windows(1717144050.0)),
        (windows(1000.0), windows(2000.0)),
    ],
    ids=["samples", "equal samples", "a part", "totals", "totals by a monotonic clock"],
)
def test_files_of_two_nodes_are_never_taken_for_one_sensors(
    tmp_path: Path, first: str, second: str
) -> None:
    paths = [written(tmp_path, text, f"gpu.n{n}.csv") for n, text in ((1, first), (2, second))]
    facts = {"model": "vit", "device": "h100", "gpus": 2, "local_batch_size": 8, "samples": 100}
    about = describe("runs.yaml", tmp_path, tmp_path, {**facts, "time_zone": "UTC"})
    for read in (
        lambda: scalewatt.energy(tmp_path, time_zone="UTC"),
        lambda: read_recording(about),
    ):
        with pytest.raises(InputError) as refused:
            read()
        assert all(str(path) in str(refused.value) for path in paths)


@pytest.mark.parametrize(
    ("names", "uuid", "index", "why"),
    [
        (("n1.csv", "n1.txt"), "GPU-b", 0, "GPU 0 of n1 is GPU-b, .*n1.csv GPU 0 of n1 is GPU-a"),
        (("a.csv", "b.csv"), "GPU-a", 0, "GPU 0 of b is GPU-a, and in .*a.csv GPU 0 of a"),
        (("n1.csv", "n1.txt"), "GPU-a", 1, "GPU 1 of n1 is GPU-a, .*n1.csv GPU 0 of n1"),
    ],
)
def test_files_that_disagree_on_which_gpu_is_which_are_refused(
    tmp_path: Path, names: tuple[str, str], uuid: str, index: int, why: str
) -> None:
    written(tmp_path, smi(0, 50), names[0])
    path = written(tmp_path, smi(0, 50, uuid, index), names[1])
    with pytest.raises(InputError, match=f"^{path}: .*{why}"):
        scalewatt.energy(tmp_path, time_zone="UTC")


@pytest.mark.parametrize("kind", sorted(set(FILES) - {"prometheus"}))
def test_rows_that_come_twice_are_left_out_and_flagged(tmp_path: Path, kind: str) -> None:
    lines = FILES[kind].splitlines(keepends=True)
    known = Options(**options(tmp_path, kind))
    once = read_foreign(written(tmp_path, "".join(lines)), known)
    twice = "".join(line * (1 + (n > 2)) for n, line in enumerate(lines))
    repeated = read_foreign(written(tmp_path, twice), known)
    for sensor, same in zip(sensors(once), sensors(repeated), strict=True):
        assert sensor.time_s.tolist() == same.time_s.tolist()
        assert sensor.values.tolist() == same.values.tolist()
        assert sensor.validated.flags == same.validated.flags
    assert codes(repeated.flags) == {"damaged"}
