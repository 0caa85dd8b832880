"""Tables of samples: known powers and energies are read back from what tools and people write of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from energy_files import codes
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import (
    Made,
    check_counters,
    check_powers,
    local,
    made,
    of_gpu,
    sensors,
    written,
)

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

T0 = 1717144753
SENSOR = {"column": "p", "kind": "gpu", "unit": "W"}
RULES = {"time": {"column": "t"}, "sensors": [SENSOR]}


def read(text: str, rules: dict | None = None, zone: str | None = "UTC") -> Recording:
    """Read a table, by rules or by the preset that knows it."""
    with tempfile.TemporaryDirectory() as made_folder:
        folder, columns = Path(made_folder), None
        if rules is not None:
            columns = written(folder, yaml.safe_dump(rules), "columns.yaml")
        path = written(folder, text, "n1.csv")
        return read_foreign(path, Options(time_zone=zone, columns=columns))


# --- what is known is read back -------------------------------------------------------------------

Written = tuple[list[str], list[str], dict | None, bool]
"""Headings, rows, the user's description, and True if energies are among the values."""


def as_nvidia_smi(made: Made, data: st.DataObject) -> Written:
    fields = data.draw(st.permutations(["timestamp", "index", "uuid", "name", "power.draw [W]"]))
    units, energy = data.draw(st.booleans()), data.draw(st.booleans())
    fields += ["total_energy_consumption [mJ]"] * energy
    missing = data.draw(st.sampled_from(["[N/A]", "[Not Supported]", "[Unknown Error]"]))
    rows = []
    for row in made.rows:
        power = missing if row.power_w is None else f"{row.power_w:.2f}" + " W" * units
        used = "[N/A]" if row.counter_mj is None else f"{row.counter_mj}" + " mJ" * units
        cells = {
            "timestamp": local(row.time_s, made.zone, "%Y/%m/%d %H:%M:%S"),
            "index": str(row.gpu),
            "uuid": f"GPU-{row.gpu:08d}-1234",
            "name": "NVIDIA A100-SXM4-40GB",
            "power.draw [W]": power,
            "total_energy_consumption [mJ]": used,
        }
        rows.append(", ".join(cells[name] for name in fields))
    again = data.draw(st.integers(0, len(rows) - 1), label="heading again before")
    return [], [", ".join(fields), *rows[:again], ", ".join(fields), *rows[again:]], None, energy


POWER_UNITS = {"W": 1.0, "mW": 1e-3, "kW": 1e3, "uW": 1e-6}
ENERGY_UNITS = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6, "uJ": 1e-6}
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0, "d": 86400.0}
FORMS = {"iso": "%Y-%m-%dT%H:%M:%S", "local": "%Y-%m-%d %H:%M:%S", "format": "%d.%m.%y %H:%M:%S"}


def as_table(made: Made, data: st.DataObject) -> Written:
    power = data.draw(st.sampled_from(sorted(POWER_UNITS)))
    energy = data.draw(st.sampled_from(sorted(ENERGY_UNITS)))
    clock = data.draw(st.sampled_from([*FORMS, *sorted(TIME_UNITS)]))
    styles = [(",", "."), (";", "."), (";", ","), ("\t", ",")]
    delimiter, decimal = data.draw(st.sampled_from(styles))
    zone = "UTC" if clock == "iso" else made.zone
    when: dict[str, Any] = {"column": "when", "zone": zone}
    if clock in TIME_UNITS:
        when = {"column": "when", "unit": clock}
    elif clock == "format":
        when["format"] = FORMS[clock] + ".%f"

    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:.17g}".replace(".", decimal)

    rows = []
    for row in made.rows:
        if clock in TIME_UNITS:
            at = cell(row.time_s / TIME_UNITS[clock])
        else:
            at = local(row.time_s, zone, FORMS[clock]) + "Z" * (clock == "iso")
        value = None if row.power_w is None else row.power_w / POWER_UNITS[power]
        used = None if row.counter_mj is None else row.counter_mj / 1e3 / ENERGY_UNITS[energy]
        rows.append(delimiter.join(("x", at, str(row.gpu), cell(value), cell(used))))
    of_card = {"kind": "gpu", "index_column": "card"}
    sensors = [
        {"column": "power", "unit": power, **of_card},
        {"column": "used", "unit": energy, **of_card},
    ]
    rules = {"decimal": decimal, "time": when, "sensors": sensors}
    return [delimiter.join(("note", "when", "card", "power", "used"))], rows, rules, True


WRITERS: dict[str, Callable[[Made, st.DataObject], Written]] = {
    "nvidia-smi": as_nvidia_smi,
    "csv": as_table,
}


@pytest.mark.parametrize("tool", WRITERS)
@settings(max_examples=12, deadline=None)
@given(made(), st.data(), st.integers(0, 20))
def test_a_known_power_is_read_back(tool: str, made: Made, data: st.DataObject, torn: int) -> None:
    heading, rows, rules, energy = WRITERS[tool](made, data)
    recording = read("\n".join([*heading, *rows]) + "\n" + rows[-1][:torn], rules, made.zone)
    check_powers(recording, made)
    if energy:
        check_counters(recording, made)
    is_torn = any("ends within a line" in each["detail"] for each in recording.flags)
    assert is_torn == (torn > 0)
    assert recording.format == tool and recording.clock_known and tuple(recording.nodes) == ("n1",)


# --- energies of intervals ------------------------------------------------------------------------

USED = {"time": {"column": "t"}, "sensors": [{**SENSOR, "unit": "J", "quantity": "energy"}]}


@settings(max_examples=8, deadline=None)
@given(made())
def test_energies_since_the_row_before_add_up_to_a_counter(made: Made) -> None:
    power, time_s = made.power_w[0], made.time_s
    steps = np.concatenate(([9.0], 0.5 * (power[1:] + power[:-1]) * np.diff(time_s)))
    rows = zip(time_s.tolist(), (steps / 3600).tolist(), strict=True)
    sensor = {**SENSOR, "kind": "node", "unit": "Wh", "quantity": "energy"}
    text = "t,p\n" + "".join(f"{at!r},{used!r}\n" for at, used in rows)
    (counter,) = sensors(read(text, {**USED, "sensors": [sensor]}))
    assert (counter.quantity, counter.kind) == ("counter", "node")
    assert counter.energy_j == pytest.approx(steps[1:].sum(), rel=1e-9)


# --- times, units and devices ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "first", "known"),
    [
        ({"column": "t", "unit": "s", "since": "begin"}, 5.0, False),
        ({"column": "iso"}, T0, True),
        ({"column": "us", "format": "%m/%d/%Y %I:%M:%S %p"}, T0, True),
        ({"column": "day"}, 38353.0, False),
    ],
)
def test_times_of_many_kinds(rule: dict, first: float, known: bool) -> None:
    text = (
        "t,iso,us,day,p\n5,2024-05-31 10:39:13,05/31/2024 10:39:13 AM,10:39:13,1\n"
        "6,2024-05-31 10:39:14,05/31/2024 10:39:14 AM,10:39:14,2\n"
    )
    recording = read(text, {"time": rule, "sensors": [SENSOR]}, "Europe/Berlin")
    assert sensors(recording)[0].time_s[0] == pytest.approx(first, abs=0.002)
    assert recording.clock_known is known
    assert recording.flags == ()


@pytest.mark.parametrize(
    ("stamp", "second"),
    [
        ("2024-05-31 10:39:13+02", 13.0),
        ("2024-05-31T10:39:13 +0200", 13.0),
        ("2024-05-31 08:39:13 UTC", 13.0),
        ("2024-05-31T08:39:13z", 13.0),
        ("2024-05-31T08:39:13,250Z", 13.25),
        ("2024-05-31 10:39:13,250", 13.25),
        ("20240531 10:39:13", 13.0),
        ("2024-05-31 10:39+02", 0.0),
    ],
)
def test_dates_are_read_as_people_write_them(stamp: str, second: float) -> None:
    recording = read(f"t;p\n{stamp};61\n2024-05-31 10-02;62\n", RULES, "Europe/Berlin")
    assert sensors(recording)[0].time_s.tolist() == [1_717_144_740 + second]
    assert codes(recording.flags) == {"damaged"}


SMI = "timestamp, index, power.draw [W]\n"


def test_times_without_a_zone_are_this_machines_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        recording = read(SMI + "2024/05/31 10:39:13.123, 0, 6 W\n", None, None)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [sensor["code"] for sensor in recording.flags] == ["time_assumed"]
    assert sensors(recording)[0].time_s[0] == pytest.approx(
        1_717_119_553.123, abs=1e-4
    )  # 01:39 UTC


ROW = "2024/05/31 08:39:13.123"
LATER = "2024/05/31 08:39:14.123"


def test_rows_of_several_nodes_are_not_taken_for_one_gpu() -> None:
    heading = "timestamp, index, uuid, power.draw [W]\n"
    rows = (f"{stamp}, 0, GPU-{n}, {n}1.00 W\n" for stamp in (ROW, LATER) for n in (6, 7))
    with pytest.raises(InputError, match=r"index 0 is 2 GPUs \(GPU-6, GPU-7\): rows of several"):
        read(heading + "".join(rows))
    names = ("[Unknown Error]", "GPU-6", "GPU-?")  # of a damaged name there is one row
    rows = (f"2024/05/31 08:39:{10 + n}.000, 0, {name}, 6 W\n" for n, name in enumerate(names))
    (sensor,) = sensors(read(heading + "".join(rows)))
    assert sensor.time_s.size == 3 and sensor.uuid == "GPU-6"


def test_a_table_without_a_heading_needs_the_names_of_its_fields() -> None:
    text = f"{ROW}, 3, 61.23\n{LATER}, 3, 71.23\n"
    with pytest.raises(InputError, match=r"header: \[timestamp, index, power.draw\]"):
        read(text)
    recording = read(text, {"header": ["timestamp", "index", "power.draw"]})
    np.testing.assert_array_equal(of_gpu(recording, 3).values, [61.23, 71.23])


def test_dcgms_numbers_that_stand_for_a_missing_value_are_none() -> None:
    text = (
        "#Entity  POWER                TOTEC\n"
        f"{T0}.0 GPU 0  140737488355328.000  9223372036854775794\n"
        f"{T0 + 1}.0 GPU 0  61.0                 5551899580\n"
    )
    recording = read(text)
    np.testing.assert_array_equal(of_gpu(recording, 0).values, [np.nan, 61.0])
    np.testing.assert_array_equal(of_gpu(recording, 0, "counter").values, [np.nan, 5551899.58])


# --- accounts of tables ---------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "uneven"), [(60, False), (58, False), (30, True)])
def test_a_node_that_was_recorded_for_less_time_is_told(
    tmp_path: Path, seconds: int, uneven: bool
) -> None:
    rules = {**RULES, "sensors": [{**SENSOR, "node_column": "h"}]}
    columns = written(tmp_path, yaml.safe_dump(rules), "columns.yaml")
    lengths = {"n1": 60, "n2": seconds}
    rows = [f"{T0 + s},{h},{200 + s % 2}\n" for h, n in lengths.items() for s in range(n + 1)]
    path = written(tmp_path, "t,h,p\n" + "".join(rows))
    flags = scalewatt.energy(path, columns=columns).flags
    details = flags.loc[flags["code"] == "coverage", "detail"].tolist()
    assert len(details) == uneven
    assert not uneven or details[0].startswith("n2: recorded for 30.0 s of the 60.0 s")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"sensors": [SENSOR | {"unit": "hp"}]},
            "sensors.0..unit: .hp. does not fit; allowed: W, J or Wh",
        ),
        ({"sensors": [SENSOR | {"unt": "W"}]}, "unknown key 'unt'; did you mean 'unit'"),
        ({"sensors": [{"column": "p", "unit": "W"}]}, "missing key 'kind'"),
        ({"sensors": []}, "sensors"),
        ({"time": None}, "expected 'time' and 'sensors'"),
        ({"time": {"zone": "UTC"}}, "its rows have no times; record them"),
        ({"time": {"column": "when"}}, 'no column "when"; allowed: t, p'),
        ({"time": {"column": "t", "zone": "Mars"}}, 'time.zone: "Mars" is not a time zone'),
        ({"time": {"column": "t", "since": "noon"}}, 'since: "noon" .* allowed: unix, begin'),
        (
            {"time": {"column": "p", "unit": "s"}},
            "no unix times in s; if it counts from the begin, say so",
        ),
        ({"time": {"column": "p"}}, "has no unix times, or dates .*; state its unit"),
        ({"sensors": [SENSOR | {"quantity": "counter"}]}, "in W, not counter; allowed: power"),
        ({"sensors": [SENSOR | {"where": {"t": "x"}}]}, "no row has"),
        ({"skip": r"\d.*"}, "holds no row"),
        ({"delimiter": "||"}, "delimiter"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(change: dict, why: str) -> None:
    rules = {key: value for key, value in {**RULES, **change}.items() if value is not None}
    with pytest.raises(InputError, match=why) as refused:
        read(f"t,p\n{T0},61\n{T0 + 1},62\n", rules)
    assert "\n" not in str(refused.value) and "/" in str(refused.value)
