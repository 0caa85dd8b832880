"""Any table, by a YAML that names its columns: wide and long, units, clocks, and what is refused."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import (
    Made,
    check_counters,
    check_powers,
    codes,
    joules,
    local,
    made,
    of_gpu,
    written,
)

from scalewatt.common.errors import InputError
from scalewatt.energies.integrate import validate
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.detect import find_format, read_foreign
from scalewatt.recordings.series import Recording
from scalewatt.recordings.tables import Options
from scalewatt.recordings.transition import to_blocks

POWER_UNITS = {"W": 1.0, "mW": 1e-3, "kW": 1e3, "uW": 1e-6}
ENERGY_UNITS = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6, "uJ": 1e-6}
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read(
    text: str, rules: dict, time_zone: str | None = None, folder: Path | None = None
) -> Recording:
    """Read a table by rules."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made_folder:
            return read(text, rules, time_zone, Path(made_folder))
    columns = written(folder, yaml.safe_dump(rules), "columns.yaml")
    path = written(folder, text, "n1.csv")
    return read_foreign(path, Options(time_zone=time_zone, columns=columns))


def cell(value: float | None, decimal: str) -> str:
    return "" if value is None else f"{value:.17g}".replace(".", decimal)


@settings(max_examples=60, deadline=None)
@given(
    made(),
    st.sampled_from(sorted(POWER_UNITS)),
    st.sampled_from(sorted(ENERGY_UNITS)),
    st.sampled_from(["iso", "local", "format", *sorted(TIME_UNITS)]),
    st.sampled_from([(",", "."), (";", "."), (";", ","), ("\t", ",")]),
    st.integers(0, 3),
)
def test_a_known_power_in_long_form_is_read_back(
    made: Made, power: str, energy: str, clock: str, style: tuple[str, str], torn: int
) -> None:
    delimiter, decimal = style
    zone = made.zone if clock in ("local", "format") else "UTC"
    forms = {
        "iso": "%Y-%m-%dT%H:%M:%S",
        "local": "%Y-%m-%d %H:%M:%S",
        "format": "%d.%m.%y %H:%M:%S",
    }
    time: dict[str, object] = {"column": "when", "zone": zone}
    if clock in TIME_UNITS:
        time = {"column": "when", "unit": clock}
    elif clock == "format":
        time["format"] = forms[clock] + ".%f"
    lines = [delimiter.join(("note", "when", "card", "power", "used"))]
    for row in made.rows:
        if clock in TIME_UNITS:
            when = cell(row.time_s / TIME_UNITS[clock], decimal)
        else:
            when = local(row.time_s, zone, forms[clock]) + ("Z" if clock == "iso" else "")
        value = None if row.power_w is None else row.power_w / POWER_UNITS[power]
        used = None if row.counter_mj is None else row.counter_mj / 1e3 / ENERGY_UNITS[energy]
        lines.append(
            delimiter.join(("x", when, str(row.gpu), cell(value, decimal), cell(used, decimal)))
        )
    rules = {
        "decimal": decimal,
        "time": time,
        "sensors": [
            {"column": "power", "kind": "gpu", "unit": power, "index_column": "card"},
            {"column": "used", "kind": "gpu", "unit": energy, "index_column": "card"},
        ],
    }
    found = read("\n".join(lines) + "\n" + "2024"[:torn], rules)
    check_powers(found, made)
    check_counters(found, made)
    assert ("damaged" in codes(found)) == (torn > 0)
    assert not any("name no zone" in one["detail"] for one in found.problems)
    assert found.t0_known and found.hosts == ("n1",)


@settings(max_examples=30, deadline=None)
@given(made())
def test_energies_since_the_row_before_add_up_to_a_counter(made: Made) -> None:
    power, time_s = made.power_w[0], made.time_s
    steps = np.concatenate(([9.0], 0.5 * (power[1:] + power[:-1]) * np.diff(time_s)))
    lines = [
        "t,used",
        *(f"{t!r},{e / 3600!r}" for t, e in zip(time_s.tolist(), steps.tolist(), strict=True)),
    ]
    sensor = {"column": "used", "kind": "node", "unit": "Wh", "quantity": "energy"}
    found = read("\n".join(lines) + "\n", {"time": {"column": "t"}, "sensors": [sensor]})
    (one,) = found.series
    assert one.quantity == "counter" and one.device_kind == "node"
    assert joules(one) == pytest.approx(steps[1:].sum(), rel=1e-9)


WIDE = "t,gpu0,gpu1,load,pdu\n1717144753,61,71,50,300\n1717144754,62,72,60,310\n"


USED = {
    "time": {"column": "t"},
    "sensors": [{"column": "e", "kind": "gpu", "unit": "J", "quantity": "energy"}],
}


@pytest.mark.parametrize("back_s", [3, 5, 500, -500])
def test_a_stamp_that_is_wrong_loses_no_energy(back_s: int) -> None:
    rows = "".join(f"{1717144753 + s - back_s * (s == 10)},{100 + s % 3}\n" for s in range(40))
    (one,) = read("t,e\n" + rows, USED).series
    assert joules(one) == pytest.approx(sum(100 + s % 3 for s in range(1, 40)))
    assert [flag["code"] for flag in validate(to_blocks([one])[0], 0).flags] == ["clock"]


def test_energies_of_parts_of_seconds_add_up_where_stamps_are_whole_ones() -> None:
    rows = "".join(f"{1717144753 + n // 2},{50 + n / 100}\n" for n in range(40))
    (one,) = read("t,e\n" + rows, USED).series
    # Of the last second the first half alone is of a known time.
    assert joules(one) == pytest.approx(sum(50 + n / 100 for n in range(1, 39)), rel=0.001)


@pytest.mark.parametrize("cell", ["", "NA", "-5"])
def test_an_energy_that_is_unknown_is_not_taken_for_none(cell: str) -> None:
    rows = "".join(f"{1717144753 + s},{cell if s in (10, 20) else 100}\n" for s in range(40))
    (one,) = read("t,e\n" + rows, USED).series
    assert joules(one) == pytest.approx(39 * 100)
    (told,) = validate(to_blocks([one])[0], 0).flags
    assert told["code"] == "counter" and "2 " in told["detail"]


def test_a_row_without_a_time_keeps_its_energy() -> None:
    rows = "".join(f"{1717144753 + s if s != 10 else 'never'},{100 + s % 3}\n" for s in range(40))
    found = read("t,e\n" + rows, USED)
    assert joules(found.series[0]) == pytest.approx(sum(100 + s % 3 for s in range(1, 40)))
    assert codes(found) == {"damaged", "missing_samples"}


def test_an_epoch_counts_no_meter_beside_the_parts(tmp_path: Path) -> None:
    kinds = {"p": "gpu", "meter": "node"}
    sensors = [{"column": name, "kind": kind, "unit": "W"} for name, kind in kinds.items()]
    columns = written(
        tmp_path, yaml.safe_dump({"time": {"column": "t"}, "sensors": sensors}), "columns.yaml"
    )
    rows = "".join(f"{1717144753 + s},{200 + s % 2},900\n" for s in range(61))
    path = written(tmp_path, "t,p,meter\n" + rows, "n1.csv")
    stages = written(
        tmp_path,
        "stage,epoch,start_s,end_s\ntrain,0,1717144753,1717144783\ntrain,1,1717144783,1717144813\n",
        "stages.csv",
    )
    found = describe(path, stages=stages, options=Options(columns=columns))
    assert found["node_energy_j"]
    assert [one["energy_j"] for one in found["epochs"]] == pytest.approx([30 * 200.5] * 2)
    assert sum(one["energy_j"] for one in found["epochs"]) == pytest.approx(found["energy_j"])
    assert not any("node_energy_j" in one for one in found["epochs"])


BY_HOST = {
    "time": {"column": "t"},
    "sensors": [{"column": "p", "kind": "gpu", "unit": "W", "node_column": "h"}],
}


def rows_of(host: str, seconds: int) -> str:
    return "".join(f"{1717144753 + s},{host},{200 + s % 2}\n" for s in range(seconds + 1))


@pytest.mark.parametrize(("seconds", "uneven"), [(60, False), (58, False), (30, True)])
def test_a_node_that_was_recorded_for_less_time_is_told(
    tmp_path: Path, seconds: int, uneven: bool
) -> None:
    columns = written(tmp_path, yaml.safe_dump(BY_HOST), "columns.yaml")
    path = written(tmp_path, "t,h,p\n" + rows_of("n1", 60) + rows_of("n2", seconds))
    found = describe(path, options=Options(columns=columns))
    told = [one["detail"] for one in found["flags"] if one["code"] == "recording_short"]
    assert bool(told) is uneven
    assert not uneven or told[0].startswith("n2: recorded for 30.0 s of the 60.0 s")


def test_a_wide_table_has_a_column_for_each_device(tmp_path: Path) -> None:
    rules = {
        "time": {"column": "t"},
        "sensors": [
            {"column": "gpu0", "kind": "gpu", "index": 0, "unit": "W", "limit_w": 400},
            {"column": "gpu1", "kind": "gpu", "index": 1, "unit": "W", "quantity": "mean_power"},
            {"column": "load", "kind": "gpu", "index": 0, "unit": "%"},
            {"column": "pdu", "kind": "node", "unit": "W", "origin": "estimated", "name": "rack 7"},
        ],
    }
    found = read(WIDE, rules, folder=tmp_path)
    assert of_gpu(found, 0).values.tolist() == [61, 62] and of_gpu(found, 0).limit_w == 400
    assert of_gpu(found, 1, "mean_power").values.tolist() == [71, 72]
    assert of_gpu(found, 0, "utilisation").values.tolist() == [0.5, 0.6]
    (node,) = [one for one in found.series if one.device_kind == "node"]
    assert (node.sensor, node.origin, node.values[0]) == ("rack 7", "estimated", 300)
    assert found.series[0].time_s.tolist() == [1717144753, 1717144754] and not found.problems


def test_rows_are_taken_by_what_stands_in_them_and_nodes_by_a_column(tmp_path: Path) -> None:
    text = "1717144753|a|cpu|x1|50\n1717144753|a|gpu|x0|60\n1717144753|b|gpu|x9|70\n1717144753|b|gpu|x0|80\n"
    rules = {
        "header": ["t", "host", "kind", "dev", "v"],
        "delimiter": "|",
        "time": {"column": "t", "unit": "s"},
        "sensors": [
            {
                "column": "v",
                "kind": "gpu",
                "unit": "W",
                "where": {"kind": "gpu"},
                "node_column": "host",
                "index_column": "dev",
            },
            {"column": "v", "kind": "cpu", "unit": "W", "where": {"kind": "cpu"}, "node": "a"},
        ],
    }
    found = read(text, rules, folder=tmp_path)
    said = [
        (one.node, one.device_kind, one.device_index, one.values.tolist()) for one in found.series
    ]
    assert sorted(said) == [
        ("a", "cpu", 0, [50.0]),
        ("a", "gpu", 0, [60.0]),
        ("b", "gpu", 0, [80.0]),
        ("b", "gpu", 9, [70.0]),
    ]


@pytest.mark.parametrize(
    ("time", "first", "known"),
    [
        ({"column": "t", "unit": "s", "since": "begin"}, 5.0, False),
        ({"column": "t", "unit": "ms", "since": "2024-05-31T08:39:13Z"}, 1_717_144_753.005, True),
        ({"column": "t", "unit": "min", "since": "2024-05-31 10:39:13"}, 1_717_145_053.0, True),
        ({"period_s": 0.5}, 0.0, False),
        ({"period_s": 0.5, "since": "2024-05-31 10:39:13"}, 1_717_144_753.0, True),
        ({"column": "date", "unit": "excel"}, 1_717_144_753.0, True),
        ({"column": "iso", "unit": "iso"}, 1_717_144_753.0, True),
        ({"column": "us", "format": "%m/%d/%Y %I:%M:%S %p"}, 1_717_144_753.0, True),
    ],
)
def test_times_of_many_kinds(tmp_path: Path, time: dict, first: float, known: bool) -> None:
    text = (
        "t,date,iso,us,p\n5,45443.443900463,2024-05-31 10:39:13,05/31/2024 10:39:13 AM,61\n"
        "6,45443.443912037,2024-05-31 10:39:14,05/31/2024 10:39:14 AM,62\n"
    )
    rules = {"time": time, "sensors": [{"column": "p", "kind": "gpu", "unit": "W"}]}
    found = read(text, rules, "Europe/Berlin", tmp_path)
    assert found.series[0].time_s[0] == pytest.approx(first, abs=0.002)
    assert found.t0_known is known
    assert codes(found) == ({"time_assumed"} if "period_s" in time else set())


@pytest.mark.parametrize(
    ("stamp", "second"),
    [
        ("2024-05-31 10:39:13+02", 13.0),
        ("2024-05-31T10:39:13 +0200", 13.0),
        ("2024-05-31 08:39:13 UTC", 13.0),
        ("2024-05-31T08:39:13z", 13.0),
        ("2024-05-31T08:39:13,250Z", 13.25),
        ("2024-05-31 10:39:13,250", 13.25),
        ("2024-05-31 10:39+02", 0.0),
    ],
)
def test_offsets_and_decimals_of_dates_are_read_as_people_write_them(
    stamp: str, second: float
) -> None:
    found = read(f"t;p\n{stamp};61\n2024-05-31 10-02;62\n", RULES, "Europe/Berlin")
    assert found.series[0].time_s.tolist() == [1_717_144_740 + second]
    assert codes(found) == {"damaged"}


SENSOR = {"column": "p", "kind": "gpu", "unit": "W"}
RULES = {"time": {"column": "t"}, "sensors": [SENSOR]}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (
            {"time": {"period_s": 1e300}, "sensors": [SENSOR]},
            "does not fit; allowed: at most 86400",
        ),
        (
            RULES | {"sensors": [SENSOR | {"unit": "hp"}]},
            "sensors.0..unit: .hp. is not known; allowed: nW",
        ),
        (
            RULES | {"sensors": [SENSOR | {"unt": "W"}]},
            "unknown key 'unt'; allowed: .*did you mean 'unit'",
        ),
        (
            RULES | {"sensors": [{"column": "p", "unit": "W"}]},
            "missing key 'kind'; expected: gpu, cpu",
        ),
        (RULES | {"sensors": []}, "sensors"),
        ({"sensors": [SENSOR]}, "expected 'time' and 'sensors'"),
        (RULES | {"time": {}}, "time' and 'sensors'"),
        (
            RULES | {"time": {"zone": "UTC"}},
            "its rows have no times; record them, or state the period",
        ),
        (RULES | {"time": {"column": "when"}}, 'no column "when"; allowed: t, p'),
        (RULES | {"time": {"column": "t", "zone": "Mars"}}, 'time.zone: "Mars" is no time zone'),
        (
            RULES | {"time": {"column": "t", "since": "noon", "unit": "s"}},
            'time.since: "noon" is no time',
        ),
        ({"time": {"period_s": 1, "since": "unix"}, "sensors": [SENSOR]}, '"unix" is no time'),
        (
            RULES | {"time": {"column": "p", "unit": "s"}},
            "no unix times in s; say what it counts from",
        ),
        (RULES | {"time": {"column": "p"}}, "has no unix times, or dates .*; state its unit"),
        (RULES | {"time": {"column": "t", "unit": "iso"}}, "has no dates"),
        (RULES | {"sensors": [SENSOR, SENSOR]}, "both power of gpu 0 of n1; give each its index"),
        (
            RULES | {"sensors": [SENSOR | {"quantity": "counter"}]},
            "is in W, and no counter; allowed: power",
        ),
        (RULES | {"sensors": [SENSOR | {"where": {"t": "x"}}]}, "no row has"),
        (RULES | {"skip_lines": 9}, "holds no row"),
        (RULES | {"delimiter": "||"}, "delimiter"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path, rules: dict, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        read("t,p\n1717144753,61\n1717144754,62\n", rules, folder=tmp_path)
    assert "\n" not in str(refused.value) and str(tmp_path) in str(refused.value)


def test_lines_to_skip_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    text = "# made by hand, with commas\n\n# of, two\nt,p\n1717144753,61\n"
    assert read(text, RULES | {"skip_lines": 3}, folder=tmp_path).series[0].values.tolist() == [61]


def test_a_table_is_told_by_its_description_alone(tmp_path: Path) -> None:
    path = written(tmp_path, WIDE)
    assert find_format(path) is None
    columns = written(tmp_path, yaml.safe_dump(RULES), "columns.yaml")
    found = find_format(path, Options(columns=columns))
    assert found is not None and found["name"] == "csv"
    with pytest.raises(InputError, match="a YAML file, given with --columns"):
        read_foreign(path)


PAGE = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text(encoding="utf-8")


def test_the_pages_tables_are_read_by_the_pages_yaml(tmp_path: Path) -> None:
    examples = re.findall(r"```csv\n(.*?)```\s+```yaml\n(.*?)```", PAGE, re.DOTALL)
    wide, long = (read(text, yaml.safe_load(rules), folder=tmp_path) for text, rules in examples)
    said = {(one.device_kind, one.device_index): one.values.tolist() for one in wide.series}
    assert said == {("gpu", 0): [61.2, 61.9], ("gpu", 1): [70.1, 70.4], ("node", 0): [402, 403]}
    assert {one.time_s[0] for one in (*wide.series, *long.series)} == {1_717_144_753.0}
    assert long.hosts == ("n1",)
    assert of_gpu(long, 0, "counter").values.tolist() == [812_500, 812_900]
    assert of_gpu(long, 0, "utilisation").values.tolist() == [0.97, 0.98]
    assert not wide.problems and not long.problems
