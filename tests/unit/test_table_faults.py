"""Tables as they come from the field: each fault is read right, or refused with one clear sentence."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from made_recordings import sensors, written

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options, find_preset

T0 = 1717144753
POWER = {"column": "p", "kind": "gpu", "unit": "W"}
ENERGY = {"column": "e", "kind": "cpu", "unit": "J", "quantity": "energy"}
Case = tuple[str, dict[str, Any] | None, str]


def by_time(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Rules of powers in column p by times in column t; a change is to their sensor."""
    sensor = POWER
    for change in changes:
        sensor = {key: value for key, value in {**sensor, **change}.items() if value is not None}
    return {"time": {"column": "t"}, "sensors": [sensor], **more}


BY_TIME = by_time()
BY_CARD = by_time({"index_column": "card"})


def table(heading: str, rows: Iterable[str]) -> str:
    return "\n".join([heading, *rows, ""])


def read(
    folder: Path, text: str, rules: dict[str, Any] | None = None, encoding: str = "utf-8"
) -> Recording:
    """Read a table by a preset, or by rules."""
    path, columns = folder / "n1.csv", None
    path.write_bytes(text.encode(encoding))
    if rules is not None:
        columns = written(folder, yaml.safe_dump(rules), "columns.yaml")
    return read_foreign(path, Options(time_zone="UTC", columns=columns))


def samples(recording: Recording) -> dict[tuple[str, int], list[list[float]]]:
    """Seconds from T0 with values of each sensor, by node and device."""
    begin_s = T0 if recording.clock_known else 0
    return {
        (s.node, s.index): np.column_stack((s.time_s - begin_s, s.values)).round(6).tolist()
        for s in sensors(recording)
    }


def codes(recording: Recording) -> list[str]:
    return [flag["code"] for flag in recording.flags]


# --- read as it is ----------------------------------------------------------------------------------

TWO = {("n1", 0): [[0, 61], [1, 62]]}
LINES = f"{T0},61\n{T0 + 1},62\n"
DATES = "Tag;Zeit;p\n31.05.2024;08:39:13;61,0\n31.05.2024;08:39:14;62,0\n"
OF_DATES = {"column": ["Tag", "Zeit"], "format": "%d.%m.%Y %H:%M:%S"}
DEGREES = f"t,p,T [°C]\n{T0},61,5\n{T0 + 1},62,5\n"
READ: dict[str, tuple[str, dict[str, Any], str]] = {
    "newest first": (f"t,p\n{T0 + 1},62\n{T0},61\n", BY_TIME, ""),
    "headings again": (f"t,p\n{T0},61\nt,p\n\nt,p\n{T0 + 1},62\n", BY_TIME, ""),
    "lines before": (f"notes\n\nof a tool\nt,p\n{LINES}", BY_TIME, ""),
    "lines to skip": (f"# of, two\n\n#\nt,p\n{LINES}", by_time(skip_lines=3), ""),
    "notes to skip": (f"t,p\n#, of\n{LINES}#, two\n", by_time(skip="#.*"), ""),
    "first row": (f"t,p\n1717-x,60\n{LINES}", BY_TIME, "damaged"),
    "repeats": (table("t,p", [f"{T0 + 1},62"] * 2 + [f"{T0},61"] * 2), BY_TIME, "damaged"),
    "units in cells": (f"t,p\n{T0},61 W\n{T0 + 1},0.062 kW\n", BY_TIME, ""),
    "unit in heading": (f"t,p (mW)\n{T0},61000\n{T0 + 1},62000\n", by_time({"unit": None}), ""),
    "footnote": (f"t,p [1]\n{LINES}", BY_TIME, ""),
    "share of a limit": (f"t,p (%)\n{LINES}", BY_TIME, ""),
    "date and time": (DATES, by_time(decimal=",", time=OF_DATES), ""),
    "quoted": (f't,"p"\n{T0},"61"\n{T0 + 1},"62"\n', BY_TIME, ""),
}


@pytest.mark.parametrize(("text", "rules", "flag"), READ.values(), ids=READ)
def test_tables_as_people_have_them_are_read(
    tmp_path: Path, text: str, rules: dict[str, Any], flag: str
) -> None:
    recording = read(tmp_path, text, rules)
    assert samples(recording) == TWO and codes(recording) == [flag] * bool(flag)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_any_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    assert samples(read(tmp_path, DEGREES, BY_TIME, encoding)) == TWO


def test_of_two_values_at_a_time_the_first_counts_and_it_is_said(tmp_path: Path) -> None:
    rows = [f"{T0 + n},{60 + n}" for n in range(30)]
    rows.insert(5, f"{T0 + 4},999")
    rows.insert(9, rows[8])
    recording = read(tmp_path, table("t,p", rows), BY_TIME)
    assert samples(recording)[("n1", 0)] == [[n, 60 + n] for n in range(30)]
    (detail,) = (flag["detail"] for flag in recording.flags)
    assert detail.endswith("left out: 2, of which contradict: 1")
    assert codes(recording) == ["damaged"]


# --- devices and nodes ------------------------------------------------------------------------------


def smi(*rows: str, fields: str = "") -> str:
    lines = (f"2024/05/31 08:39:{row}" for row in rows)
    return table(f"timestamp, {fields}power.draw [W]", lines)


def test_a_column_of_the_host_tells_nodes_apart(tmp_path: Path) -> None:
    rows = [f"13.000, {gpu}, {host}, {60 + gpu} W" for host in ("a", "b") for gpu in (0, 1)]
    recording = read(tmp_path, smi(*rows, fields="index, HOSTNAME, "))
    every = {(host, gpu): [[0, 60 + gpu]] for host in ("a", "b") for gpu in (0, 1)}
    assert samples(recording) == every


def test_rows_in_pairs_of_like_values_are_of_one_device_and_that_is_said(tmp_path: Path) -> None:
    lines = (f"{T0 + n // 2 + 0.01 * (n % 2)},{60 + n * n % 7}" for n in range(40))
    recording = read(tmp_path, table("t,p", lines), BY_TIME)
    assert codes(recording) == ["assumed"]
    assert "a column of them" in recording.flags[0]["detail"]
    steady = (
        f"{T0 + 3 * n // 2},{60 + n * n % 7}" for n in range(40)
    )  # every 1.5 s, in whole seconds
    assert read(tmp_path, table("t,p", steady), BY_TIME).flags == ()


def test_rows_of_cards_are_numbered_by_their_names_and_uuids_are_not(tmp_path: Path) -> None:
    cards = read(tmp_path, f"t,p,card\n{T0},61,gpu3\n{T0},62,gpu1\n", BY_CARD)
    assert samples(cards) == {("n1", 1): [[0, 62]], ("n1", 3): [[0, 61]]}
    uuids = read(tmp_path, f"t,p,card\n{T0},61,GPU-7-821\n{T0},62,GPU-7-9999\n", BY_CARD)
    assert samples(uuids) == {("n1", 0): [[0, 61]], ("n1", 1): [[0, 62]]}


def test_beside_gpus_with_uuids_a_column_may_be_of_their_node(tmp_path: Path) -> None:
    lines = (f"{T0 + n},{g},GPU-{g},{100 + g},900" for n in range(3) for g in (0, 1))
    columns = [{**POWER, "index_column": "card"}, {"column": "q", "kind": "node", "unit": "W"}]
    rules = {"time": {"column": "t"}, "uuid_column": "uuid", "sensors": columns}
    recording = read(tmp_path, table("t,card,uuid,p,q", lines), rules)
    powers = {(s.kind, s.index): s.values.tolist() for s in sensors(recording)}
    assert powers == {("gpu", 0): [100] * 3, ("gpu", 1): [101] * 3, ("node", 0): [900] * 3}


def test_a_damaged_index_is_no_gpu(tmp_path: Path) -> None:
    rows = [f"{T0 + n},61,{card}" for n in range(9) for card in (0, 1)]
    recording = read(tmp_path, table("t,p,card", [*rows, f"{T0 + 9},61,i1"]), BY_CARD)
    assert [s.index for s in sensors(recording)] == [0, 1] and codes(recording) == ["damaged"]


@pytest.mark.parametrize("lost", [3, 5, None])
def test_rows_of_gpus_in_turn_are_numbered(tmp_path: Path, lost: int | None) -> None:
    rows = [f"{13 + n // 8}.00{n % 8}, {60 + n} W" for n in range(40) if n != lost]
    if lost is not None:
        with pytest.raises(InputError, match=r"39 rows do not come 8 at a time \(gpus\)"):
            read(tmp_path, smi(*rows), {"gpus": 8})
        return
    powers = [sensor.values.tolist() for sensor in sensors(read(tmp_path, smi(*rows), {"gpus": 8}))]
    assert powers == [[60 + gpu + 8 * n for n in range(5)] for gpu in range(8)]


def ten_a_second(seconds: int) -> str:
    return table("t,p", (f"{T0 + n // 10},{60 + n}" for n in range(10 * seconds)))


def test_samples_that_carry_whole_seconds_are_spread_in_them_where_told(tmp_path: Path) -> None:
    spread = by_time(time={"column": "t", "spread": True})
    recording = read(tmp_path, ten_a_second(3), spread)
    assert samples(recording) == {("n1", 0): [[n / 10, 60 + n] for n in range(30)]}


def test_steps_of_slurm_with_the_same_samples_are_those_of_their_node(tmp_path: Path) -> None:
    rows = [f"{step},n1,{n},{T0 + n},{60 + n}" for step in ("batch", "0") for n in range(9)]
    recording = read(tmp_path, table("Step,Node,ElapsedTime,EpochTime,Power", rows))
    assert samples(recording) == {("n1", 0): [[n, 60 + n] for n in range(9)]}
    assert codes(recording) == ["damaged"]


@pytest.mark.parametrize("labels", ["{}, {}", "{1}, {0}"])
def test_grafanas_hosts_are_those_of_the_gpus(tmp_path: Path, labels: str) -> None:
    names = labels.format('instance=""10.0.0.1:9400""', 'Hostname=""n1""')
    series = f'DCGM_FI_DEV_POWER_USAGE{{gpu=""0"", {names}, UUID=""GPU-1""}}'
    text = f'"Time","{series}"\n2024-05-31 08:39:13,61 W\n2024-05-31 08:39:14,62 W\n'
    recording = read(tmp_path, text)
    assert samples(recording) == TWO and sensors(recording)[0].uuid == "GPU-1"
    alone = read(tmp_path, text.replace("Hostname", "host"))
    assert list(alone.nodes) == ["10.0.0.1"]


def test_times_of_the_hour_that_comes_twice_are_refused(tmp_path: Path) -> None:
    rules = by_time(time={"column": "t", "zone": "Europe/Berlin"})
    rows = [f"2024-10-27 {hour:02d}:10:00,61" for hour in (1, 2, 2, 3)]
    with pytest.raises(InputError, match="hour that comes twice in autumn; expected unix times"):
        read(tmp_path, table("t,p", rows), rules)
    in_time = read(tmp_path, table("t,p", [rows[0], rows[3]]), rules)
    assert np.diff(sensors(in_time)[0].time_s) == 10800


WIDE = {"sensors": [{"pattern": r"gpu(?P<index>\d+)", "kind": "gpu", "unit": "W"}]}
GRAFANAS = [f'"DCGM_FI_DEV_POWER_USAGE{{gpu=""{gpu}"", Hostname=""n1""}}"' for gpu in (0, 1)]


@pytest.mark.parametrize(
    ("heading", "unit", "rules"),
    [(f'"Time",{",".join(GRAFANAS)}', " W", None), ("t,gpu0,gpu1", "", BY_TIME | WIDE)],
)
def test_a_device_whose_cells_are_all_empty_does_not_vanish(
    tmp_path: Path, heading: str, unit: str, rules: dict[str, Any] | None
) -> None:
    recording = read(tmp_path, table(heading, (f"{T0 + n},61{unit}," for n in range(3))), rules)
    valued = [(s.index, int(np.isfinite(s.values).sum())) for s in sensors(recording)]
    assert valued == [(0, 3), (1, 0)]


# --- energies of intervals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "expected", "flagged"),
    [
        ({}, [[0, 1], [10, 101], [30, 301]], True),
        ({"duration": "d"}, [[-5, 1], [0, 51], [10, 151], [30, 351]], False),
        (  # between the intervals the counter begins anew
            {"duration": "d", "stamp": "begin"},
            [[0, 3], [5, 53], [10, 2], [20, 102], [30, 1], [50, 201]],
            False,
        ),
        ({"stamp": "begin"}, [[0, 1], [10, 51], [30, 151]], True),
        (
            {"since": "begin", "unit": "s"},
            [[0, 1], [T0, 51], [T0 + 10, 151], [T0 + 30, 351]],
            False,
        ),
    ],
)
def test_an_interval_counts_if_both_its_ends_are_known(
    tmp_path: Path, time: dict[str, str], expected: list[list[float]], flagged: bool
) -> None:
    text = f"t,d,e\n{T0},5,50\n{T0 + 10},10,100\n{T0 + 30},20,200\n"
    recording = read(tmp_path, text, {"time": {"column": "t", **time}, "sensors": [ENERGY]})
    assert samples(recording) == {("n1", 0): expected}
    assert codes(recording) == ["missing_samples"] * flagged


def test_time_between_two_intervals_is_not_covered(tmp_path: Path) -> None:
    rows = [(T0, 1, 100), (T0 + 1, 1, 100), (T0 + 200, 1, 400), (T0 + 201, 1, 400)]
    lines = (f"{at};a;{lasts};{joules * 10**6}" for at, lasts, joules in rows)
    path = written(tmp_path, table("timestamp;tag;duration;package_0", lines), "n1.csv")
    account = scalewatt.energy(path, time_zone="UTC")
    assert account.joules("cpu", "recorded_j") == pytest.approx(1000)
    assert account.devices["covered_s"].sum() == pytest.approx(4)


# --- refused ----------------------------------------------------------------------------------------

PAIRS = [(n, h) for n in range(9) for h in (0, 1)]
WITH_HEADER = by_time({"index_column": "crad"}, header=["t", "p", "card"])
REFUSED: dict[str, Case] = {
    "ten a second": (ten_a_second(3), BY_TIME, r"several values at one time; .*spread: true"),
    "two places": (
        table("t,where,p", (f"{T0 + n},{h},{60 + n + 9 * h}" for n, h in PAIRS)),
        BY_TIME,
        "several values at one time; name index_column, node_column or where",
    ),
    "two nodes": (
        table("t,p", (f"{T0 + n + 0.37 * h},{650 - 530 * h + n % 3}" for n, h in PAIRS)),
        BY_TIME,
        "two values in turn, as of two nodes",
    ),
    "decimal commas": (
        table(
            "t;p", (f"{T0 + n};6{'' if n % 10 else 1},5".replace("61,5", "61") for n in range(20))
        ),
        BY_TIME,
        'without a number in W, such as "6,5"; see `unit` and `decimal`',
    ),
    "two GPUs": (
        smi(*(f"{13 + n}.{g}00, 6{g}.00 W" for n, g in PAIRS)),
        None,
        "rows of several GPUs, and nothing tells whose",
    ),
    "two GPUs of a model": (
        table("t,p,card", (f"{T0 + n}.{g},{60 + g},A100" for n, g in PAIRS)),
        BY_CARD,
        "rows of several GPUs, and nothing tells whose",
    ),
    "two GPUs by their UUIDs alone": (
        table("t,p,card", (f"{T0 + n}.{g},{60 + g},GPU-{g}" for n, g in PAIRS)),
        by_time(uuid_column="card"),
        'column "p" is of 2 GPUs; name the column of their UUIDs as index_column',
    ),
    "hosts": (
        table("t,host,p", (f"{T0 + n / 2},n{n % 2},60" for n in range(9))),
        BY_TIME,
        'column "host" has 2 values and is not used',
    ),
    "no unit": (f"t,p\n{T0},61\n", by_time({"unit": None}), "no unit in its"),
    "two units": (f"t,p [mJ]\n{T0},61\n", BY_TIME, "without a number in W"),
    "no column": (f"{T0},61,0\n", WITH_HEADER, "no column \"crad\"; .*did you mean 'card'"),
    "another unit": (f"t,p\n{T0},61 hp\n", BY_TIME, 'without a number in W, such as "61 hp"'),
    "units of some": (
        table("t,p", (f"{T0 + n},{60 + n} {'W' if n % 5 else 'KX'}" for n in range(20))),
        BY_TIME,
        'without a number in W, such as "60 KX"',
    ),
    "lines cut off": (
        table("t,p", (f"{T0 + n}" if n % 3 else f"{T0 + n},6{n}" for n in range(9))),
        BY_TIME,
        "6 of 9 lines hold no sample that can be read",
    ),
    "another heading": (f"t,p\n{LINES}p,t\n61,{T0 + 2}\n", BY_TIME, "has two headings that differ"),
}


@pytest.mark.parametrize(("text", "rules", "why"), REFUSED.values(), ids=REFUSED)
def test_what_nothing_tells_is_refused(
    tmp_path: Path, text: str, rules: dict[str, Any] | None, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, text, rules)


@pytest.mark.parametrize(
    "text",
    [
        f"{T0}.000,45,90,1410\n{T0 + 1}.000,46,91,1410\n",
        f"time,temperature,load\n{T0},45,90\n",
        f"timestamp,index,total_energy_consumption\n{T0},0,20909145.914\n",
        '{"status": "success"}\n',
    ],
)
def test_a_table_that_no_preset_knows_gets_no_meaning_and_no_unit(text: str) -> None:
    assert find_preset(text) is None
