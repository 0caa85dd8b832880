"""Journals of JSON lines whose header or lines say what nobody can mean."""

from __future__ import annotations

import json
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, codes, counter, gpu, write_journal, write_record_journal

from scalewatt.common.errors import InputError
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.journal import is_journal, last_sample_s, read_journal
from scalewatt.recordings.series import SensorSeries

SENSOR = "CUDA:1_POWER"
HUGE = "9" * 400
WATTS = 120.0


def read_one(path: Path) -> SensorSeries:
    (series,) = read_journal(path).series
    return series


def with_header(path: Path, **declared: Any) -> Path:
    """A journal whose header says this of its one sensor, an NVML one of mW."""
    facts = {"device_kind": "gpu", "device_index": 1, "unit": "W", "mag": 1e-3} | declared
    header = {"journal": 1, "host": "n1", "sampling_period_s": 1.0, "sensors": {SENSOR: facts}}
    write_journal(path, "n1", {SENSOR: gpu(5, WATTS)}, header=False)
    path.write_text(json.dumps(header) + "\n" + path.read_text())
    return path


NO_UNIT = [["W"], {"W": 1}, 5, None]
NO_INDEX = [float("nan"), float("inf"), 10**400, 1e300, 2.5, -7, "one", [1], None]
NO_MAGNITUDE = [float("nan"), float("inf"), 10**400, "milli", [1e-3]]


@pytest.mark.parametrize(
    ("key", "value"),
    [("unit", v) for v in NO_UNIT]
    + [("device_index", v) for v in NO_INDEX]
    + [("mag", v) for v in NO_MAGNITUDE],
    ids=lambda one: str(one)[:12],
)
def test_what_a_header_says_in_no_words_is_known_by_the_sensors_name(
    tmp_path: Path, key: str, value: Any
) -> None:
    series = read_one(with_header(tmp_path / "j", **{key: value}))
    assert (series.device_kind, series.device_index, series.quantity) == ("gpu", 1, "power")
    assert series.values == pytest.approx([WATTS] * 5)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, "many"], ids=["nan", "inf", "huge", "word"]
)
def test_a_limit_that_is_no_number_is_none(tmp_path: Path, value: Any) -> None:
    assert read_one(with_header(tmp_path / "j", valid_max=value)).limit_w is None


@pytest.mark.parametrize("period", ["NaN", "Infinity", HUGE])
def test_a_period_that_is_no_number_is_unknown(tmp_path: Path, period: str) -> None:
    path = with_header(tmp_path / "j")
    path.write_text(path.read_text().replace('period_s": 1.0', f'period_s": {period}'))
    assert read_journal(path).sampling_period_s is None


@pytest.mark.parametrize(
    "time", ["Infinity", "-Infinity", "NaN", HUGE, "1e200", '"now"', "[]", "true"]
)
def test_a_line_without_a_time_is_counted_and_left_out(tmp_path: Path, time: str) -> None:
    path = tmp_path / "j"
    write_journal(path, "n1", {SENSOR: gpu(5, WATTS)})
    text = path.read_text()
    path.write_text(text.replace(f'"t": {T0 + 2}', f'"t": {time}'))
    assert path.read_text() != text
    recording = read_journal(path)
    assert recording.series[0].time_s == pytest.approx(T0 + np.array([0, 1, 3, 4]))
    assert codes(recording.problems) == {"journal_damaged"}


@pytest.mark.parametrize("time", ["Infinity", "NaN", HUGE])
def test_the_last_sample_is_the_last_one_with_a_time(tmp_path: Path, time: str) -> None:
    path = tmp_path / "j"
    write_journal(path, "n1", {SENSOR: gpu(5, WATTS)})
    path.write_text(path.read_text().replace(f'"t": {T0 + 4}', f'"t": {time}'))
    assert last_sample_s(path) == T0 + 3


@pytest.mark.parametrize("value", ["Infinity", "NaN", HUGE, '"120"', "[]", "true", "null"])
def test_a_value_that_is_no_number_is_missing(tmp_path: Path, value: str) -> None:
    path = tmp_path / "j"
    raw = 1000 * WATTS + np.arange(5)
    write_journal(path, "n1", {SENSOR: raw})
    text = path.read_text()
    path.write_text(text.replace(f": {raw[2]}", f": {value}"))
    assert path.read_text() != text
    series = read_one(path)
    assert np.isnan(series.values).tolist() == [False, False, True, False, False]
    assert describe(path)["gpu_energy_kwh"] * 3.6e6 == pytest.approx(4 * WATTS, rel=1e-3)


def test_a_journal_is_known_by_its_first_words(tmp_path: Path) -> None:
    for name, text, known in [
        ("header", '{"journal": 2, "host"', True),
        ("sample", '{"t": 1.0', True),
        ("spaces", " " * 20 + '{"mono": 1.0', True),
        ("telemetry", '{"telemetry": 1, "host"', False),
        ("marks", '{"segment": 0, "stage"', False),
        ("title", '{"title": 1', False),
        ("nothing", "", False),
    ]:
        (tmp_path / name).write_text(text)
        assert is_journal(tmp_path / name) is known, name
    assert not is_journal(tmp_path / "none") and not is_journal(tmp_path)


NODE = {"CUDA:0_POWER": gpu(9), "CUDA:1_POWER": gpu(9, 300), "cpu_0_package-0": counter(9, 100)}


def without_checksum(path: Path, version: int) -> Path:
    """Make the header one of format 2, as the sampler wrote it once; or what says that it is of 3."""
    line, _, rows = path.read_bytes().partition(b"\n")
    line = re.sub(rb',"header_crc32":"[0-9a-f]+"', b"", line)
    path.write_bytes(line.replace(b'"journal":2', b'"journal":%d' % version) + b"\n" + rows)
    return path


def meaning(path: Path) -> list[tuple[Any, ...]]:
    """Return all that energy follows from."""
    facts = attrgetter(
        *("node", "sensor", "device_kind", "device_index", "quantity", "valid_max", "limit_w")
    )
    return [(*facts(s), s.values.tolist(), s.time_s.tolist()) for s in read_journal(path).series]


def test_no_bit_of_a_header_changes_unseen(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", NODE, version=3)
    content = path.read_bytes()
    for at in range(content.index(b"\n") + 1):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        with pytest.raises(InputError):
            read_journal(path)


def test_a_header_of_the_format_before_is_read_without_a_checksum(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", NODE)
    true = meaning(path)
    assert meaning(without_checksum(path, 2)) == true


def test_a_header_without_the_checksum_of_its_format_is_refused(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", NODE)
    with pytest.raises(InputError, match="it has no checksum: it is damaged"):
        read_journal(without_checksum(path, 3))


IMPOSSIBLE = {
    "a magnitude that is no known power of ten": ({"mag": 0.003}, "'mag': 0.003; allowed: a power"),
    "no magnitude at all": ({"mag": 0}, "'mag': 0; allowed: a power"),
    "power of an unknown kind": ({"device_kind": "fpu"}, "'device_kind': 'fpu'; allowed: gpu, cpu"),
    "the kind of another sensor": ({"device_kind": "cpu"}, "'W' of a 'cpu'; allowed by its name"),
    "a unit that is none of power": (
        {"unit": "V"},
        "'V' of a 'gpu'; allowed by its name: W of a gpu",
    ),
    "no kind": ({"device_kind": None}, "'device_kind': None; allowed: gpu"),
}


@pytest.mark.parametrize(("says", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_header_is_refused_that_says(tmp_path: Path, says: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        read_journal(with_header(tmp_path / "j", **says))
    assert SENSOR in str(caught.value) and str(tmp_path / "j") in str(caught.value)


def test_a_sensor_that_is_described_and_has_no_samples_is_missed(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", NODE)
    content = without_checksum(path, 2).read_bytes()
    fields = content.rindex(b"CUDA:1_POWER")
    path.write_bytes(content[:fields] + b"CUDE" + content[fields + 4 :])
    with pytest.raises(InputError, match="describes 'CUDA:1_POWER', of which it has no samples"):
        read_journal(path)


def test_a_sensor_that_lines_of_json_describe_and_lack_is_flagged_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    path = with_header(tmp_path / "j")
    text = path.read_text()
    path.write_text(text.replace(SENSOR, "CUDA:2_POWER", 1))
    recording = read_journal(path)
    assert recording.series[0].sensor == SENSOR
    (found,) = recording.problems
    assert (found["code"], found["device"]) == ("unreadable_sensor", "CUDA:2_POWER")


def test_a_sample_at_the_beginning_of_all_time_is_a_sample(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", "n1", {SENSOR: gpu(3, WATTS)}, start=0.0)
    recording = read_journal(tmp_path / "j")
    assert (recording.series[0].time_s == [0.0, 1.0, 2.0]).all()
    assert recording.problems == ()
