"""What perun is asked to measure."""

from __future__ import annotations

import pytest
from perun.util import filter_sensors

from scalewatt.energy.monitor import EXCLUDED_SENSORS

ENERGY = [
    "CUDA:0_POWER",
    "CUDA:12_POWER",
    "ROCM:0x1a2b_POWER",
    "cpu_0_package-0",
    "cpu_power_socket_1_hwmon",
    "ram_0_dram",
    "CPU_BUSY",
]
OTHERS = [
    "CUDA:0_MEM",
    "CUDA:12_CLOCK_SM",
    "CUDA:1_CLOCK_MEM",
    "CUDA:1_CLOCK_GRAPHICS",
    "ROCM:0x1a2b_MEM",
    "CPU_USAGE_0",
    "CPU_FREQ_11",
    "RAM_USAGE",
    "DISK_READ_BYTES_sda",
    "NET_WRITE_BYTES_lo",
]


@pytest.mark.parametrize("name", [*ENERGY, *OTHERS])
def test_perun_reads_what_tells_energy_and_nothing_else(name: str) -> None:
    sensors = {name: ("backend",), "other": ("backend",)}
    kept = filter_sensors(sensors, None, EXCLUDED_SENSORS.split(" "), None, None)
    assert (name in kept) == (name in ENERGY)
