"""The doctor's check of the node's own meter, on made machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, Machine
from scalewatt.doctor.meter_checks import check_meters


@pytest.mark.parametrize(
    ("average", "outcome", "found"),
    [
        (None, MISSING, "no hwmon"),
        ("812000000\n", OK, "hwmon 812 W"),
        ("-\n", LIMITED, "hwmon: it gives no number"),
        ("0\n", LIMITED, "hwmon: it states no power"),
    ],
)
def test_the_nodes_meter_is_shown_with_its_reading_or_why_there_is_none(
    tmp_path: Path, average: str | None, outcome: str, found: str
) -> None:
    if average is not None:
        chip = tmp_path / "sys/class/hwmon/hwmon1"
        chip.mkdir(parents=True)
        (chip / "name").write_text("power_meter\n")
        (chip / "power1_average").write_text(average)
    (check,) = check_meters(Machine(tmp_path, {}))
    assert (check.outcome, check.found, check.needed) == (outcome, found, False)
