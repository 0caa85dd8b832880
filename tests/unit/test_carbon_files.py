"""Files of carbon intensity: what counts when, gaps, what is refused; ElectricityMaps' and ENTSO-E's."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import schema
from scalewatt.results.carbon.generation_mix import FACTORS, UNKNOWN
from scalewatt.results.carbon.intensity import CarbonIntensity, of_times
from scalewatt.results.carbon.intensity_files import read_intensity

HOUR = 3600.0
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def read(folder: Path, text: str) -> CarbonIntensity:
    path = folder / "grid.csv"
    path.write_text(text, encoding="utf-8")
    return read_intensity(path)


def hours(*values: float | str) -> str:
    """The file of our own form with one value an hour of 2026."""
    rows = (f"{NEW_YEAR + HOUR * n:.0f},{value}" for n, value in enumerate(values))
    return "\n".join(["time,g_per_kwh", *rows]) + "\n"


# --- what counts when ---------------------------------------------------------------------------


def test_a_value_counts_from_its_time_until_the_next(tmp_path: Path) -> None:
    found = read(tmp_path, hours(100, 200, 300))
    at = NEW_YEAR + np.array([-1, 0, HOUR - 1, HOUR, 2 * HOUR, 3 * HOUR - 1, 3 * HOUR])
    assert found.at(at).tolist() == pytest.approx(
        [np.nan, 100, 100, 200, 300, 300, np.nan], nan_ok=True
    )


def test_beyond_the_regular_step_nothing_is_covered(tmp_path: Path) -> None:
    rows = [0, 1, 2, 5, 6]
    text = "time,g_per_kwh\n" + "".join(f"{NEW_YEAR + HOUR * n:.0f},{n}\n" for n in rows)
    found = read(tmp_path, text)
    at = NEW_YEAR + HOUR * np.array([2.5, 3.5, 4.9, 5.0, 6.9])
    assert found.at(at).tolist() == pytest.approx([2, np.nan, np.nan, 5, 6], nan_ok=True)


def test_a_value_that_is_not_known_is_a_gap(tmp_path: Path) -> None:
    found = read(tmp_path, hours(100, "", 300, 400))
    assert np.isnan(found.at(NEW_YEAR + 1.5 * HOUR))
    assert found.at(NEW_YEAR + 2.5 * HOUR) == 300


def test_times_may_be_dates_with_a_zone(tmp_path: Path) -> None:
    text = "time,g_per_kwh\n2026-01-01T01:00:00+01:00,1\n2026-01-01T01:00:00Z,2\n"
    assert read(tmp_path, text).cover_s == (NEW_YEAR, NEW_YEAR + 2 * HOUR)


def test_the_mean_over_a_step_is_that_of_both_sides_by_their_time() -> None:
    found = of_times(np.array([0.0, 100, 200]), np.array([100.0, 400, 50]), "a", "b")
    assert found.mean([50, 0, 90], [150, 200, 90]).tolist() == [250, 250, 100]
    assert np.isnan(found.mean([250], [301])).all() and np.isnan(found.mean([-1], [10])).all()


@given(
    st.lists(st.floats(0, 1500), min_size=2, max_size=30),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_mean_lies_between_the_least_and_the_largest_and_adds_up(
    values: list[float], cut: tuple[float, float]
) -> None:
    time_s = 1.7e9 + 900 * np.arange(len(values))
    found = of_times(time_s, np.array(values), "a", "b")
    begin, end = found.cover_s
    first, last = sorted(begin + (end - begin) * one for one in cut)
    middle = 0.5 * (first + last)
    whole, left, right = (
        float(found.mean(a, b)) for a, b in ((first, last), (first, middle), (middle, last))
    )
    if last < end and last - first > 1e-3:
        assert min(values) - 1e-6 <= whole <= max(values) + 1e-6
        assert whole == pytest.approx(0.5 * (left + right), rel=1e-6, abs=1e-4)


@given(st.floats(0, 1500), st.floats(0, 1), st.floats(0, 1))
def test_the_mean_of_a_constant_file_is_the_constant(value: float, one: float, two: float) -> None:
    found = of_times(1.7e9 + 300.0 * np.arange(500), np.full(500, value), "a", "b")
    begin, end = found.cover_s
    first, last = sorted((begin + one * (end - begin - 1), begin + two * (end - begin - 1)))
    assert float(found.mean(first, last)) == pytest.approx(value, rel=1e-12)


# --- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "no known columns": ("when,how much\n1,2\n3,4\n", ["when", "time and g_per_kwh"]),
    "one row": (hours(1), ["1 row;", "two or more"]),
    "a time without a zone": (
        "time,g_per_kwh\n2026-01-01T00:00:00,1\n2026-01-01T01:00:00,2\n",
        ["line 2", "2026-01-01T00:00:00", "with a zone"],
    ),
    "one time without a zone": (
        "time,g_per_kwh\n2026-01-01T00:00:00Z,1\n2026-01-01T01:00:00,2\n",
        ["line 3", "with a zone"],
    ),
    "a time twice": (
        "time,g_per_kwh\n1767225600,1\n1767229200,2\n1767229200,2\n",
        ["line 4", "2026-01-01 01:00 UTC", "stands there twice"],
    ),
    "times that go back": (
        "time,g_per_kwh\n1767225600,1\n1767232800,2\n1767229200,2\n",
        ["line 4", "is not after 2026-01-01 02:00 UTC", "in order of time"],
    ),
    "a value below 0": (hours(1, -2, 3), ["line 3", "'-2'", "0 to 10000"]),
    "a value beyond what one value may be": (
        hours(300, 300000, 300),
        ["line 3", "'300000'", "g per kWh", "0 to 10000"],
    ),
    "kg per kWh": (
        hours(0.3, 0, "", 0.42),
        ["0.42", "look like kg per kWh", "allowed: g CO2e per kWh"],
    ),
    "kg per kWh of the dirtiest grid": (hours(1.3, 1.999), ["look like kg per kWh"]),
    "a value without end": (hours(1, 2, "inf"), ["line 4", "'inf'"]),
    "a value that is no number": (hours(1, 2, "nan"), ["line 4", "'nan'"]),
    "no value": (hours("", "", ""), ["has no value"]),
    "a decimal comma between commas": (
        "time,g_per_kwh\n1767225600,300\n1767229200,300,5\n",
        ["line 3", "has 3 cells", "the first line names 2 columns", "a point for decimals"],
    ),
    "a decimal comma between semicolons": (
        "time;g_per_kwh\n1767225600;300,5\n1767229200;1\n",
        ["line 2", "'300,5'", "a point for decimals"],
    ),
    "a row that is cut off": (
        "time,g_per_kwh\n1767225600,300\n1767229200\n1767232800,300\n",
        ["line 3", "has 1 cell,", "the first line names 2 columns", "empty where it is not known"],
    ),
    "a wrong row behind an empty line": (
        "time,g_per_kwh\n1767225600,300\n\n1767229200,-1\n",
        ["line 4", "'-1'"],
    ),
    "wrong columns and one row": (
        "when,how much\n1,2\n",
        ["has the columns when, how much", "allowed: the columns time and g_per_kwh"],
    ),
    "wrong columns and rows of other lengths": (
        "when,how much\n1,2,3\n4\n",
        ["has the columns when, how much", "allowed: the columns time and g_per_kwh"],
    ),
    "a column twice": (
        "time,g_per_kwh,G_per_kWh\n1767225600,1,2\n1767229200,1,2\n",
        ["g_per_kwh", "stands there twice"],
    ),
    "nothing": ("", ["is empty"]),
    "direct emissions alone": (
        "Datetime (UTC),Carbon Intensity gCO₂eq/kWh (direct)\n2026-01-01 00:00:00,1\n2026-01-01 01:00:00,2\n",
        ["(Life cycle)"],
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_the_line_and_what_is_allowed(
    text: str, said: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert str(tmp_path / "grid.csv") in str(error.value)
    assert [one for one in said if one not in str(error.value)] == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: does not exist; expected a CSV"):
        read_intensity(tmp_path / "none.csv")


def test_a_folder_is_called_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"grid\.csv: is a folder; expected a CSV"):
        (tmp_path / "grid.csv").mkdir()
        read_intensity(tmp_path / "grid.csv")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "grid.csv")
    with pytest.raises(InputError, match=r"grid\.csv: cannot be read \(it is no plain file\)"):
        read_intensity(tmp_path / "grid.csv")


def test_separators_at_the_end_of_lines_are_no_cells(tmp_path: Path) -> None:
    text = hours(100, "", 300).replace(",", ";")
    named, unnamed = text.replace("\n", ";\n"), text.replace("\n", ";;\n").replace(";;", "", 1)
    for one in (named, unnamed):
        found = read(tmp_path, one)
        assert found.g_per_kwh.tolist() == pytest.approx([100, np.nan, 300], nan_ok=True)


def test_the_bounds_are_those_of_one_value(tmp_path: Path) -> None:
    one = schema("cluster")["properties"]["carbon_intensity"]["properties"]["value"]
    found = read(tmp_path, hours(one["minimum"], one["maximum"]))
    assert found.g_per_kwh.tolist() == [one["minimum"], one["maximum"]]


@pytest.mark.parametrize("values", [(0.3, 2), (0, 0.5, 12), (0, 0, 0)], ids=str)
def test_clean_hours_and_zeros_throughout_are_no_kg_per_kwh(
    values: tuple[float, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, hours(*values)).g_per_kwh.tolist() == list(values)


# --- ElectricityMaps ------------------------------------------------------------------------------

OLDER = """\
Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),Carbon Intensity gCO₂eq/kWh \
(LCA),Low Carbon Percentage,Renewable Percentage,Data Source,Data Estimated,Data Estimation Method
2026-01-01 00:00:00,Germany,Germany,DE,250.1,300.5,60,55,entsoe.eu,false,
2026-01-01 01:00:00,Germany,Germany,DE,260.1,310.5,60,55,entsoe.eu,false,
"""
NEWER = """\
Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),Carbon intensity gCO₂eq/kWh \
(Life cycle),Carbon-free energy percentage (CFE%),Renewable energy percentage (RE%),Data source,\
Data estimated,Data estimation method
2026-01-01 00:00:00,Sweden,Sweden,SE,2.54,30.02,99.42,60.13,svk.se,false,
2026-01-01 01:00:00,Sweden,Sweden,SE,2.54,31.02,99.42,60.13,svk.se,true,TIME_SLICER_AVERAGE
"""


@pytest.mark.parametrize(("text", "values"), [(OLDER, [300.5, 310.5]), (NEWER, [30.02, 31.02])])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a byte order mark"])
def test_electricitymaps_life_cycle_column_is_read(
    text: str, values: list[float], mark: str, tmp_path: Path
) -> None:
    found = read(tmp_path, mark + text)
    assert found.g_per_kwh.tolist() == values
    assert found.cover_s == (NEW_YEAR, NEW_YEAR + 2 * HOUR)


# --- ENTSO-E --------------------------------------------------------------------------------------

WIDE = """\
"Area","MTU","Biomass  - Actual Aggregated [MW]","Fossil Gas  - Actual Aggregated [MW]",\
"Hydro Pumped Storage  - Actual Aggregated [MW]","Hydro Pumped Storage  - Actual Consumption [MW]",\
"Marine  - Actual Aggregated [MW]","Wind Onshore  - Actual Aggregated [MW]"
"Germany (DE)","01.01.2026 00:00 - 01.01.2026 00:15 (UTC)","0","100","500","-","n/e","300"
"Germany (DE)","01.01.2026 00:15 - 01.01.2026 00:30 (UTC)","100","100","-","-","n/e","-"
"Germany (DE)","01.01.2026 00:30 - 01.01.2026 00:45 (UTC)","100","0","0","-","n/e","0"
"""
LONG = """\
"MTU (CET/CEST)","Area","Production Type","Generation (MW)"
"01/01/2026 01:00:00 - 01/01/2026 02:00:00","BZN|DE-LU","Fossil Gas","100"
"01/01/2026 01:00:00 - 01/01/2026 02:00:00","BZN|DE-LU","Wind Onshore","300"
"01/01/2026 02:00:00 - 01/01/2026 03:00:00","BZN|DE-LU","Fossil Gas","0"
"01/01/2026 02:00:00 - 01/01/2026 03:00:00","BZN|DE-LU","Wind Onshore","300"
"""
LIBRARY = "\n".join(
    "\t".join(row)
    for row in (
        *[
            [
                *("DateTime(UTC)", "ResolutionCode", "AreaCode", "AreaTypeCode", "ProductionType"),
                *("ActualGenerationOutput[MW]", "ActualConsumption[MW]"),
            ]
        ],
        ["2026-01-01 00:00:00", "PT15M", "10Y1001A1001A83F", "CTY", "Nuclear", "50.0", ""],
        ["2026-01-01 00:15:00", "PT15M", "10Y1001A1001A83F", "CTY", "Nuclear", "50.0", ""],
        ["2026-01-01 00:00:00", "PT15M", "10Y1001A1001A83F", "CTY", "Solar", "50.0", ""],
        ["2026-01-01 00:15:00", "PT15M", "10Y1001A1001A83F", "CTY", "Solar", "0.0", ""],
    )
)


def test_entsoes_wide_form_gives_the_mean_by_generation(tmp_path: Path) -> None:
    found = read(tmp_path, WIDE)
    at = NEW_YEAR + 900 * np.array([0.5, 1.5, 2.5])
    mixed = (100 * 490 + 300 * 11) / 400
    assert found.at(at).tolist() == pytest.approx([mixed, np.nan, 230], nan_ok=True)


def test_entsoes_long_form_is_read_in_its_zone(tmp_path: Path) -> None:
    found = read(tmp_path, LONG)
    assert found.cover_s == (NEW_YEAR, NEW_YEAR + 2 * HOUR)
    assert found.g_per_kwh.tolist() == pytest.approx([(100 * 490 + 300 * 11) / 400, 11])


def test_the_form_of_entsoes_file_library_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, LIBRARY)
    assert found.cover_s == (NEW_YEAR, NEW_YEAR + HOUR / 2)
    assert found.g_per_kwh.tolist() == pytest.approx([(12 + 48) / 2, 12])


AUTUMN = datetime(2025, 10, 26, tzinfo=UTC).timestamp()
"""Two hours of clock time 02:00 to 03:00 follow: the first of UTC, then the second."""


def test_the_hour_that_comes_twice_is_told_by_its_marks(tmp_path: Path) -> None:
    rows = [
        ("26/10/2025 02:00:00 (CEST)", "26/10/2025 02:00:00 (CET)", 10),
        ("26/10/2025 02:00:00 (CET)", "26/10/2025 03:00:00 (CET)", 20),
        ("26/10/2025 03:00:00", "26/10/2025 04:00:00", 30),
    ]
    lines = [
        f'"{a} - {b}","X","{kind}","{mw if kind == "Fossil Gas" else 100 - mw}"'
        for a, b, mw in rows
        for kind in ("Fossil Gas", "Nuclear")
    ]
    found = read(tmp_path, "\n".join([LONG.splitlines()[0], *lines]))
    assert found.edges_s.tolist() == [AUTUMN, AUTUMN + HOUR, AUTUMN + 2 * HOUR, AUTUMN + 3 * HOUR]
    assert found.g_per_kwh[1] == pytest.approx(0.2 * 490 + 0.8 * 12)


def test_the_hour_that_comes_twice_without_marks_is_told_by_the_order(tmp_path: Path) -> None:
    lines = [
        f'"DE","26.10.2025 0{a}:00 - 26.10.2025 0{a + 1}:00 (CET/CEST)","{mw}"'
        for a, mw in ((1, 10), (2, 10), (2, 20), (3, 30))
    ]
    head = '"Area","MTU","Nuclear  - Actual Aggregated [MW]"'
    found = read(tmp_path, "\n".join([head, *lines]))
    assert np.diff(found.edges_s).tolist() == [HOUR] * 4
    assert found.cover_s[0] == AUTUMN - HOUR


def test_the_hour_that_is_skipped_in_spring_is_left_out(tmp_path: Path) -> None:
    lines = [
        f'"DE","29.03.2026 0{a}:00 - 29.03.2026 0{a + 1}:00 (CET/CEST)","{mw}"'
        for a, mw in ((1, "10"), (2, "-"), (3, "30"))
    ]
    head = '"Area","MTU","Nuclear  - Actual Aggregated [MW]"'
    found = read(tmp_path, "\n".join([head, *lines]))
    assert np.diff(found.edges_s).tolist() == [HOUR, HOUR]


REFUSED_MIX = {
    "two areas": (LONG.replace("BZN|DE-LU", "BZN|FR", 1), ["several areas", "BZN|FR"]),
    "an unknown type": (LONG.replace("Fossil Gas", "Fusion"), ["'fusion'", "not known"]),
    "a power below 0": (LONG.replace('"100"', '"-100"'), ["line 2", "'-100'", "MW"]),
    "a power of no grid": (
        LONG.replace('"100"', '"1e300"'),
        ["line 2", "'1e300'", "0 to 100000000"],
    ),
    "a type twice": (LONG + LONG.splitlines()[1], ["line 6", "twice"]),
    "no zone": (WIDE.replace(" (UTC)", ""), ["line 2", "no known zone", "(CET/CEST)"]),
    "a row that is cut off": (
        LONG.replace('"BZN|DE-LU","Fossil Gas","0"', '"BZN|DE-LU"'),
        ["line 4", "has 2 cells"],
    ),
    "a surplus cell": (
        LONG.replace('"100"', "100,5"),
        ["line 2", "has 5 cells", "names 4 columns"],
    ),
    "a wrong power behind an empty line": (
        LONG.replace("\n", "\n\n", 1).replace('"100"', '"-100"'),
        ["line 3", "'-100'"],
    ),
    "an unreadable range behind an empty line": (
        WIDE.replace("\n", "\n\n", 1).replace("00:00 - ", "0 - "),
        ["line 3", "a time range"],
    ),
    "no MTU and one row": (
        "\n".join(WIDE.replace('"MTU"', '"When"').splitlines()[:2]),
        ["has no column MTU"],
    ),
    "one row": ("\n".join(WIDE.splitlines()[:2]), ["has 1 row;", "two or more"]),
    "no time range": (WIDE.replace("00:00 - ", "0 - "), ["line 2", "a time range"]),
}


@pytest.mark.parametrize(("text", "said"), REFUSED_MIX.values(), ids=REFUSED_MIX)
def test_a_mix_is_refused_with_the_line_and_what_is_allowed(
    text: str, said: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert [one for one in said if one not in str(error.value)] == []


def test_too_much_without_a_factor_is_no_mix(tmp_path: Path) -> None:
    waste = LONG.replace("Fossil Gas", "Waste")
    assert np.isnan(read(tmp_path, waste.replace('"100"', '"101"')).at(NEW_YEAR + 1))
    assert read(tmp_path, waste).at(NEW_YEAR + 1) == pytest.approx(11)


def test_every_type_has_a_factor_with_its_source_or_is_left_out() -> None:
    assert len(FACTORS) + len(UNKNOWN) == 21 and not set(FACTORS) & set(UNKNOWN)
    assert all(value > 0 and "IPCC" in source for value, source in FACTORS.values())
