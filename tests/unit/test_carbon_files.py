"""Files of carbon intensity: what counts when, gaps, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.campaign.cluster import CARBON_BOUNDS
from scalewatt.common.errors import InputError
from scalewatt.results.carbon import CarbonIntensity, read_intensity

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
    assert found.mean(at, at + 0.5).tolist() == pytest.approx(
        [np.nan, 100, 100, 200, 300, 300, np.nan], nan_ok=True
    )


def test_a_value_that_is_not_known_is_a_gap(tmp_path: Path) -> None:
    found = read(tmp_path, hours(100, "", 300, 400))
    assert np.isnan(found.mean(NEW_YEAR + 1.5 * HOUR, NEW_YEAR + 1.6 * HOUR))
    assert found.mean(NEW_YEAR + 2.5 * HOUR, NEW_YEAR + 2.6 * HOUR) == 300


def test_times_may_be_dates_with_a_zone(tmp_path: Path) -> None:
    text = "time,g_per_kwh\n2026-01-01T01:00:00+01:00,1\n2026-01-01T01:00:00Z,2\n"
    assert read(tmp_path, text).edges_s.tolist() == [NEW_YEAR, NEW_YEAR + HOUR, NEW_YEAR + 2 * HOUR]


def test_the_mean_over_a_step_is_that_of_both_sides_by_their_time() -> None:
    found = CarbonIntensity(np.array([0.0, 100, 200, 300]), np.array([100.0, 400, 50]))
    assert found.mean([50, 0], [150, 200]).tolist() == [250, 250]
    assert np.isnan(found.mean([250], [301])).all() and np.isnan(found.mean([-1], [10])).all()


@given(
    st.lists(st.floats(0, 1500), min_size=2, max_size=30),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_mean_lies_between_the_least_and_the_largest_and_adds_up(
    values: list[float], cut: tuple[float, float]
) -> None:
    edges_s = 1.7e9 + 900 * np.arange(len(values) + 1)
    found = CarbonIntensity(edges_s, np.array(values))
    begin, end = edges_s[0], edges_s[-1]
    first, last = sorted(begin + (end - begin) * one for one in cut)
    if last - first < 1e-3:
        return
    middle = 0.5 * (first + last)
    whole, left, right = (
        float(found.mean(a, b)) for a, b in ((first, last), (first, middle), (middle, last))
    )
    if last < end:
        assert min(values) - 1e-6 <= whole <= max(values) + 1e-6
        assert whole == pytest.approx(0.5 * (left + right), rel=1e-6, abs=1e-4)


@given(st.floats(0, 1500), st.floats(0, 1), st.floats(0, 1))
def test_the_mean_of_a_constant_file_is_the_constant(value: float, one: float, two: float) -> None:
    edges_s = 1.7e9 + 300.0 * np.arange(501)
    found = CarbonIntensity(edges_s, np.full(500, value))
    begin, end = edges_s[0], edges_s[-1]
    first, last = sorted((begin + one * (end - begin - 1), begin + two * (end - begin - 1)))
    assert float(found.mean(first, last + 1)) == pytest.approx(value, rel=1e-12)


# --- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "no known columns": ("when,how much\n1,2\n3,4\n", ["when", "time and g_per_kwh"]),
    "one row": (hours(1), ["has 1 rows", "two or more"]),
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
        ["line 4: 0 s after the row before", "regular times"],
    ),
    "times that go back": (
        "time,g_per_kwh\n1767225600,1\n1767232800,2\n1767229200,2\n",
        ["line 4: -3600 s after the row before", "regular times"],
    ),
    "hours that are missing": (
        "time,g_per_kwh\n1767225600,1\n1767229200,2\n1767232800,2\n1767243600,2\n",
        ["line 5: 10800 s after", "usual step is 3600 s", "an empty value"],
    ),
    "a value below 0": (hours(1, -2, 3), ["line 3", "'-2'", "0 to 10000"]),
    "a value beyond what one value may be": (
        hours(300, 300000, 300),
        ["line 3", "'300000'", "g per kWh", "0 to 10000"],
    ),
    "kg per kWh": (
        hours(0.3, 0, "", 0.42),
        ["0.42", "as of kg per kWh", "expected g CO2e per kWh"],
    ),
    "kg per kWh of the dirtiest grid": (hours(1.3, 1.999), ["as of kg per kWh"]),
    "a value without end": (hours(1, 2, "inf"), ["line 4", "'inf'"]),
    "a value that is no number": (hours(1, 2, "nan"), ["line 4", "'nan'"]),
    "no value": (hours("", "", ""), ["has no value"]),
    "a decimal comma between commas": (
        "time,g_per_kwh\n1767225600,300\n1767229200,300,5\n",
        ["line 3", "cells: 3, columns: 2", "a point for decimals"],
    ),
    "a row that is cut off": (
        "time,g_per_kwh\n1767225600,300\n1767229200\n1767232800,300\n",
        ["line 3", "cells: 1, columns: 2", "empty if it is not known"],
    ),
    "a wrong row behind an empty line": (
        "time,g_per_kwh\n1767225600,300\n\n1767229200,-1\n",
        ["line 4", "'-1'"],
    ),
    "wrong columns": (
        "when,how much\n1,2\n4,5\n",
        ["when, how much", "with the columns time and g_per_kwh"],
    ),
    "nothing": ("", ["is empty"]),
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
    with pytest.raises(InputError, match=r"none\.csv: is not a readable CSV file"):
        read_intensity(tmp_path / "none.csv")


def test_the_bounds_are_those_of_one_value(tmp_path: Path) -> None:
    assert read(tmp_path, hours(*CARBON_BOUNDS)).g_per_kwh.tolist() == [*CARBON_BOUNDS]


@pytest.mark.parametrize("values", [(0.3, 2), (0, 0.5, 12), (0, 0, 0)], ids=str)
def test_clean_hours_and_zeros_throughout_are_no_kg_per_kwh(
    values: tuple[float, ...], tmp_path: Path
) -> None:
    assert read(tmp_path, hours(*values)).g_per_kwh.tolist() == list(values)
