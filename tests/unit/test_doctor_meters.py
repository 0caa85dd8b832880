"""The doctor's check of the node's own meters, on made machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, Check, Machine
from scalewatt.doctor.meter_checks import check_meters
from scalewatt.doctor.subprocess_runner import Subprocesses

READING = "    Instantaneous power reading:                   214 Watts"


def checked(root: Path, **environment: str) -> Check:
    machine = Machine(root, {"PATH": f"{root}/bin:/usr/bin:/bin", **environment})
    (check,) = check_meters(machine, Subprocesses(machine.python, machine.environment))
    return check


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


HWMON = {
    "sys/class/hwmon/hwmon1/name": "power_meter\n",
    "sys/class/hwmon/hwmon1/power1_average": "812000000\n",
}
CRAY = {"sys/cray/pm_counters/freshness": "7\n", "sys/cray/pm_counters/energy": "1234 J 17 us\n"}


def test_a_node_without_a_meter_lacks_nothing_else(tmp_path: Path) -> None:
    check = checked(tmp_path)
    assert (check.outcome, check.needed) == (MISSING, False)
    assert check.found == "no hwmon or Cray pm_counters or IPMI or Redfish"
    assert "nothing else is missing" in check.means


@pytest.mark.parametrize(
    ("files", "found"), [(HWMON, "hwmon 812 W"), (CRAY, "Cray pm_counters energy 1234 J")]
)
def test_a_meter_that_can_be_read_is_shown_with_its_reading(
    tmp_path: Path, files: dict[str, str], found: str
) -> None:
    write(tmp_path, files)
    check = checked(tmp_path)
    assert check.outcome == OK and check.found.startswith(found)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (HWMON | {"sys/class/hwmon/hwmon1/power1_average": "-\n"}, "hwmon: it gives no number"),
        ({"sys/cray/pm_counters/energy": "1234 J"}, "Cray pm_counters: neither energy nor power"),
        ({"dev/ipmi0": "", "bin/other": ""}, "IPMI: "),
    ],
)
def test_a_meter_that_is_there_and_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, files: dict[str, str], found: str
) -> None:
    write(tmp_path, files)
    machine: dict[str, Any] = {"PATH": f"{tmp_path}/bin"}
    check = checked(tmp_path, **machine)
    assert check.outcome == LIMITED and found in check.found


@pytest.mark.parametrize(
    ("script", "outcome", "found"),
    [(f"echo '{READING}'", OK, "IPMI 214 W"), ("echo failed; exit 1", LIMITED, "IPMI: ")],
)
def test_the_controller_is_asked_by_ipmi_where_this_user_may(
    tmp_path: Path, script: str, outcome: str, found: str
) -> None:
    write(tmp_path, {"dev/ipmi0": "", "bin/ipmitool": f"#!/bin/sh\n{script}\n"})
    os.chmod(tmp_path / "bin/ipmitool", 0o755)
    check = checked(tmp_path)
    assert check.outcome == outcome and found in check.found


def test_redfish_settings_that_do_not_work_are_told_without_the_address(tmp_path: Path) -> None:
    write(tmp_path, HWMON)
    check = checked(tmp_path, SCALEWATT_REDFISH_URL="http://127.0.0.1:1")
    assert check.outcome == LIMITED and "Redfish: it cannot be reached" in check.found
    assert "127.0.0.1" not in str(check.as_json())
    wrong = checked(tmp_path, SCALEWATT_REDFISH_URL="somewhere")
    assert "Redfish: SCALEWATT_REDFISH_URL is no address" in wrong.found
