"""Tables as they come from the field: each fault is read right, or refused with one clear sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from made_recordings import written

from scalewatt.common.errors import InputError
from scalewatt.energies.integrate import validate
from scalewatt.recordings.block import Recording
from scalewatt.recordings.tables import Options, decoded, find_preset, read_table

T0 = 1717144753
POWER = {"column": "p", "kind": "gpu", "unit": "W"}
ENERGY = {"column": "e", "kind": "cpu", "unit": "J", "quantity": "energy"}


def read(folder: Path, text: str, rules: dict | None = None, encoding: str = "utf-8") -> Recording:
    """Read a table by a preset, or by rules."""
    path, columns = folder / "n1.csv", None
    path.write_bytes(text.encode(encoding))
    if rules is not None:
        columns = written(folder, yaml.safe_dump(rules), "columns.yaml")
    options = Options(time_zone="UTC", columns=columns)
    preset = find_preset(decoded(path.read_bytes()), options)
    assert preset is not None
    return read_table(path, preset, options)


def samples(recording: Recording) -> dict[tuple[str, int], list[list[float]]]:
    """Seconds from T0, and the value of the first sensor, of each block by node and device."""
    return {
        (node, int(block.sensors["index"][0])): np.column_stack(
            (block.time_s - T0 if recording.clock_known else block.time_s, block.values[:, 0])
        )
        .round(6)
        .tolist()
        for node, blocks in recording.nodes.items()
        for block in blocks
    }


def codes(recording: Recording) -> list[str]:
    return [one["code"] for one in recording.flags]


TWO = {("n1", 0): [[0, 61], [1, 62]]}
BY_TIME = {"time": {"column": "t"}, "sensors": [POWER]}
CARD = {**POWER, "index_column": "card"}
CARDS = {**BY_TIME, "sensors": [CARD]}


@pytest.mark.parametrize(
    ("text", "rules", "encoding"),
    [
        (f"t,p\n{T0 + 1},62\n{T0},61\n", BY_TIME, "utf-8"),
        (f"t,p\n{T0},61\nt,p\n\nt,p\n{T0 + 1},62\n", BY_TIME, "utf-8"),
        (f"notes\n\nof a tool\nt,p\n{T0},61\n{T0 + 1},62\n", BY_TIME, "utf-8"),
        (f"t,p\n{T0},61 W\n{T0 + 1},0.062 kW\n", {**BY_TIME, "sensors": [{**POWER}]}, "utf-8"),
        (
            f"t,p (mW)\n{T0},61000\n{T0 + 1},62000\n",
            {**BY_TIME, "sensors": [{"column": "p", "kind": "gpu"}]},
            "utf-8",
        ),
        (
            f"t,p,u\n{T0},61000,mW\n{T0 + 1},62,W\n",
            {**BY_TIME, "sensors": [{"column": "p", "kind": "gpu", "unit_column": "u"}]},
            "utf-8",
        ),
        (
            "Tag;Zeit;p\n31.05.2024;08:39:13;61,0\n31.05.2024;08:39:14;62,0\n",
            {
                "decimal": ",",
                "time": {"column": ["Tag", "Zeit"], "format": "%d.%m.%Y %H:%M:%S"},
                "sensors": [POWER],
            },
            "utf-8",
        ),
        (f"t,p,T [°C]\n{T0},61,5\n{T0 + 1},62,5\n", BY_TIME, "latin-1"),
        (f"t,p,T [°C]\n{T0},61,5\n{T0 + 1},62,5\n", BY_TIME, "utf-16"),
        (f't,"p"\n{T0},"61"\n{T0 + 1},"62"\n', BY_TIME, "utf-8"),
        (f"# of, two\n\n#\nt,p\n{T0},61\n{T0 + 1},62\n", {**BY_TIME, "skip_lines": 3}, "utf-8"),
    ],
    ids=[
        *("newest first", "headings again", "lines before", "units in cells", "unit in heading"),
        *("unit in a column", "date and time", "Latin-1", "UTF-16", "quoted", "lines to skip"),
    ],
)
def test_tables_as_people_have_them_are_read(
    tmp_path: Path, text: str, rules: dict, encoding: str
) -> None:
    recording = read(tmp_path, text, rules, encoding)
    assert samples(recording) == TWO and recording.flags == ()


SMI = "timestamp, {}power.draw [W]\n"


def smi(*rows: str, fields: str = "index, ") -> str:
    lines = (f"2024/05/31 08:39:{row}\n" for row in rows)
    return SMI.format(fields) + "".join(lines)


def test_a_column_of_the_host_tells_nodes_apart(tmp_path: Path) -> None:
    rows = [f"13.000, {gpu}, {host}, {60 + gpu} W" for host in ("a", "b") for gpu in (0, 1)]
    found = samples(read(tmp_path, smi(*rows, fields="index, HOSTNAME, ")))
    assert found == {(host, gpu): [[0, 60 + gpu]] for host in ("a", "b") for gpu in (0, 1)}


def ten_a_second(seconds: int) -> str:
    return "t,p\n" + "".join(f"{T0 + n // 10},{60 + n}\n" for n in range(10 * seconds))


def test_samples_that_carry_whole_seconds_are_spread_in_them_where_told(tmp_path: Path) -> None:
    told = {**BY_TIME, "time": {"column": "t", "spread": True}}
    found = samples(read(tmp_path, ten_a_second(3), told))
    assert found == {("n1", 0): [[n / 10, 60 + n] for n in range(30)]}


@pytest.mark.parametrize("which", ["three", "five", "all"])
def test_rows_of_gpus_in_turn_are_numbered(tmp_path: Path, which: str) -> None:
    rows = [f"{13 + n // 8}.00{n % 8}, {60 + n} W" for n in range(40)]
    text = smi(*rows, fields="")
    path = written(tmp_path, text)
    columns = written(tmp_path, "gpus: 8\n", "columns.yaml")
    options = Options(node="n1", time_zone="UTC", columns=columns)
    preset = find_preset(text, options)
    assert preset is not None
    if which != "all":
        lines = text.splitlines(keepends=True)
        del lines[{"three": 3, "five": 5}[which]]
        path.write_text("".join(lines))
        with pytest.raises(InputError, match=r"39 rows do not come 8 at a time \(gpus\)"):
            read_table(path, preset, options)
        return
    found = samples(read_table(path, preset, options))
    assert {key: [value for _, value in rows] for key, rows in found.items()} == {
        ("n1", gpu): [60 + gpu + 8 * n for n in range(5)] for gpu in range(8)
    }


def test_of_two_values_at_a_time_the_first_counts_and_it_is_said(tmp_path: Path) -> None:
    rows = [f"{T0 + n},{60 + n}" for n in range(30)]
    rows.insert(5, f"{T0 + 4},999")
    rows.insert(9, rows[8])
    recording = read(tmp_path, "\n".join(["t,p", *rows, ""]), BY_TIME)
    assert samples(recording)[("n1", 0)] == [[n, 60 + n] for n in range(30)]
    repeats, contradicts = (one["detail"] for one in recording.flags)
    assert "1 samples repeat" in repeats and "contradict: 1; the first counts" in contradicts
    assert codes(recording) == ["duplicate", "duplicate"]


@pytest.mark.parametrize(
    ("text", "rules", "why"),
    [
        (ten_a_second(3), BY_TIME, r"several values at one time; .*spread: true"),
        (
            "t,where,p\n"
            + "".join(f"{T0 + n},{h},{60 + n + 9 * h}\n" for h in (0, 1) for n in range(9)),
            BY_TIME,
            "several values at one time; name index_column, node_column or where",
        ),
        (
            "t,where,p\n" + "".join(f"{T0 + n},{h},60\n" for n in range(9) for h in (0, 1)),
            BY_TIME,
            "9 rows repeat others in time and value, and differ in what is not read",
        ),
        (
            smi(*(f"{13 + n}.{g}00, 6{g}.00 W" for n in range(9) for g in range(2)), fields=""),
            None,
            "rows of several GPUs, and nothing tells whose",
        ),
        (
            "t,p,card\n"
            + "".join(f"{T0 + n}.{g},{60 + g},A100\n" for n in range(9) for g in (0, 1)),
            {**BY_TIME, "sensors": [CARD]},
            "rows of several GPUs, and nothing tells whose",
        ),
        (
            "t,host,p\n" + "".join(f"{T0 + n / 2},n{n % 2},60\n" for n in range(9)),
            BY_TIME,
            'column "host" has 2 values and is not used',
        ),
        (
            f"t,p\n{T0},61\n",
            {**BY_TIME, "sensors": [{"column": "p", "kind": "gpu"}]},
            "no unit in its",
        ),
        (
            f"t,p [mW]\n{T0},61\n",
            BY_TIME,
            "has the unit mW in its heading, and W described",
        ),
        (
            f"{T0},61,0\n",
            {
                **BY_TIME,
                "header": ["t", "p", "card"],
                "sensors": [{**POWER, "index_column": "crad"}],
            },
            "no column \"crad\"; .*did you mean 'card'",
        ),
        (f"t,p\n{T0},61 hp\n", BY_TIME, 'without a number in W, such as "61 hp"'),
        ('{"a": [\n1]}\n', BY_TIME, "is JSON; expected a table"),
    ],
)
def test_what_nothing_tells_is_refused(
    tmp_path: Path, text: str, rules: dict | None, why: str
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
    tmp_path: Path, time: dict, expected: list, flagged: bool
) -> None:
    text = f"t,d,e\n{T0},5,50\n{T0 + 10},10,100\n{T0 + 30},20,200\n"
    recording = read(tmp_path, text, {"time": {"column": "t", **time}, "sensors": [ENERGY]})
    assert samples(recording) == {("n1", 0): expected}
    assert codes(recording) == ["missing_samples"] * flagged


# --- what a file leaves open -----------------------------------------------------------------------


def energy_of(recording: Recording) -> tuple[float, float]:
    """Energy in J and known time in s of the only sensor."""
    ((block,),) = recording.nodes.values()
    curve = validate(block, 0).curve
    return curve.between(-np.inf, np.inf), curve.covered_s(-np.inf, np.inf)


def test_time_between_two_intervals_is_not_covered(tmp_path: Path) -> None:
    rows = [(T0, 1, 100), (T0 + 1, 1, 100), (T0 + 200, 1, 400), (T0 + 201, 1, 400)]
    text = "timestamp;tag;duration;package_0\n"
    text += "".join(f"{at};a;{lasts};{joules * 10**6}\n" for at, lasts, joules in rows)
    energy_j, known_s = energy_of(read(tmp_path, text))
    assert (energy_j, known_s) == pytest.approx((1000.0, 4.0))


@pytest.mark.parametrize(
    ("text", "rules", "flagged"),
    [
        (f"{T0 - 1},60\nt,p\n{T0},61\n{T0 + 1},62\n", BY_TIME, ["damaged"]),
        (f"t,p\n{T0},61 w\n{T0 + 1},0.062 KW\n", BY_TIME, []),
        (f"t,p [1]\n{T0},61\n{T0 + 1},62\n", BY_TIME, []),
        (f"t,p (%)\n{T0},61\n{T0 + 1},62\n", BY_TIME, []),
        (f"t,p\n1717-x,60\n{T0},61\n{T0 + 1},62\n", BY_TIME, ["damaged"]),
        (f"t,p\n{T0 + 1},62\n{T0 + 1},62\n{T0},61\n{T0},61\n", BY_TIME, ["duplicate"]),
    ],
    ids=["rows above", "case of units", "footnote", "share of a limit", "first row", "repeats"],
)
def test_what_is_plain_is_read_and_the_rest_flagged(
    tmp_path: Path, text: str, rules: dict, flagged: list
) -> None:
    recording = read(tmp_path, text, rules)
    assert samples(recording) == TWO and codes(recording) == flagged


@pytest.mark.parametrize(
    ("rows", "rules", "why"),
    [
        (
            [f"{T0 + n},{60 + n} {'KX' if n % 5 == 0 else 'W'}" for n in range(20)],
            BY_TIME,
            'without a number in W, such as "60 KX"',
        ),
        (
            [f"{T0 + n},6{n}" if n % 3 == 0 else f"{T0 + n}" for n in range(9)],
            BY_TIME,
            "6 of 9 lines hold no sample that can be read",
        ),
        (
            [f"{T0 + n},0.0{8 + n % 2}" for n in range(20)],
            {**BY_TIME, "sensors": [{**POWER, "unit": "Wh"}]},
            "falls too often for a counter; state `quantity: energy`",
        ),
    ],
)
def test_what_would_be_wrong_in_silence_is_refused(
    tmp_path: Path, rows: list[str], rules: dict, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, "\n".join(["t,p", *rows, ""]), rules)


def test_the_only_row_needs_no_line_end(tmp_path: Path) -> None:
    recording = read(tmp_path, f"t,p\n{T0},61", BY_TIME)
    assert samples(recording) == {("n1", 0): [[0, 61]]} and not recording.flags


def test_rows_of_cards_are_numbered_by_their_names_and_uuids_are_not(tmp_path: Path) -> None:
    cards = read(tmp_path, f"t,p,card\n{T0},61,gpu3\n{T0},62,gpu1\n", CARDS)
    assert samples(cards) == {("n1", 1): [[0, 62]], ("n1", 3): [[0, 61]]}
    uuids = read(tmp_path, f"t,p,card\n{T0},61,GPU-7-821\n{T0},62,GPU-7-9999\n", CARDS)
    assert samples(uuids) == {("n1", 0): [[0, 61]], ("n1", 1): [[0, 62]]}


def test_steps_of_slurm_with_the_same_samples_are_those_of_their_node(tmp_path: Path) -> None:
    rows = [f"{step},n1,{n},{T0 + n},{60 + n}" for step in ("batch", "0") for n in range(9)]
    recording = read(tmp_path, "\n".join(["Step,Node,ElapsedTime,EpochTime,Power", *rows, ""]))
    assert samples(recording) == {("n1", 0): [[n, 60 + n] for n in range(9)]}
    assert codes(recording) == ["assumed", "duplicate"]


def test_second_dies_of_a_wide_table_are_left_out(tmp_path: Path) -> None:
    rows = [f"{T0 + n},61,0,62,0,300" for n in range(3)]
    heading = "timestamps,rocm:0,rocm:1,rocm:2,rocm:3,gh:Module Power Socket 1"
    ((block,),) = read(tmp_path, "\n".join([heading, *rows, ""])).nodes.values()
    sensors = block.sensors[["kind", "index"]].to_numpy().tolist()
    assert sensors == [["gpu", 0], ["gpu", 2], ["node", 1]]


@pytest.mark.parametrize("event", ["power/energy-pkg/", "power/energy-ram/"])
def test_events_of_perf_stat_may_be_recorded_alone(tmp_path: Path, event: str) -> None:
    rows = "".join(f"     {n}.000,{60 + n}.00,Joules,{event},1000,100.00,,\n" for n in (1, 2, 3))
    assert len(read(tmp_path, rows).nodes["n1"]) == 1


@pytest.mark.parametrize("labels", ["{}, {}", "{1}, {0}"])
def test_grafanas_hosts_are_those_of_the_gpus(tmp_path: Path, labels: str) -> None:
    names = labels.format('instance=""10.0.0.1:9400""', 'Hostname=""n1""')
    series = f'DCGM_FI_DEV_POWER_USAGE{{gpu=""0"", {names}, UUID=""GPU-1""}}'
    text = f'"Time","{series}"\n2024-05-31 08:39:13,61 W\n2024-05-31 08:39:14,62 W\n'
    recording = read(tmp_path, text)
    assert samples(recording) == TWO
    assert recording.nodes["n1"][0].sensors["uuid"].tolist() == ["GPU-1"]
    alone = read(tmp_path, text.replace("Hostname", "host"))
    assert list(alone.nodes) == ["10.0.0.1"]
