"""What perun is asked to measure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_recordings import read_perun_file
from perun.configuration import _default_config
from perun.util import filter_sensors

from scalewatt.monitoring.perun_session import EXCLUDED_SENSORS
from scalewatt.recordings.journal import journal_files, read_journal

ENERGY = (
    "CUDA:0_POWER CUDA:12_POWER ROCM:0x1a2b_POWER cpu_0_package-0 cpu_power_socket_1_hwmon "
    "ram_0_dram CPU_BUSY"
)
OTHERS = (
    "CUDA:0_MEM CUDA:12_CLOCK_SM CUDA:1_CLOCK_MEM CUDA:1_CLOCK_GRAPHICS ROCM:0x1a2b_MEM "
    "CPU_USAGE_0 CPU_FREQ_11 RAM_USAGE DISK_READ_BYTES_sda NET_WRITE_BYTES_lo"
)


def test_perun_reads_what_tells_energy_and_nothing_else() -> None:
    sensors = dict.fromkeys(f"{ENERGY} {OTHERS}".split(), ("backend",))
    kept = filter_sensors(sensors, None, EXCLUDED_SENSORS.split(" "), None, None)
    assert set(kept) == set(ENERGY.split())


HOSTILE = {
    "rounds": "3",
    "warmup_rounds": "2",
    "include_backends": "nvml",
    "include_sensors": "DISK_",
    "exclude_backends": "psutil scalewatt cpu_busy",
    "exclude_sensors": ".*",
    "sampling_period": "60",
    "format": "text",
    "app_name": "other",
    "run_id": "SLURM",
    "data_out": "/nowhere/at/all",
    "queue_timeout": "soon",
    "log_file": "/nowhere/at/all/perun.log",
    "log_lvl": "DEBUG",
    "pue": "2",
}


def ini() -> str:
    """A user's settings of perun, all of which a training must not have."""
    lines = []
    for section, options in _default_config.items():
        lines += [f"[{section}]", *(f"{o} = {HOSTILE[o]}" for o in options if o in HOSTILE)]
    return "\n".join(lines)


PROGRAM = """
import os, sys, time
from pathlib import Path
from scalewatt.monitoring.perun_session import monitored
def work(calls): calls.write_text((calls.read_text() if calls.exists() else "") + "x"); time.sleep(1)
folder = Path(sys.argv[1])
monitored(work, (folder / "calls",), folder, "segment-000", 0.1)
"""


SLOW_SAMPLER = """
import os, sys, threading, time
from pathlib import Path
from multiprocessing.queues import Queue
put = Queue.put
def slowly(self, value, *rest, **options):
    time.sleep(3)
    put(self, value, *rest, **options)
Queue.put = slowly
from scalewatt.monitoring.perun_session import monitored
closing_s = float(sys.argv[2])
def work():
    time.sleep(1)
    timer = threading.Timer(closing_s + 4, os._exit, (3,))  # without its data perun hangs
    timer.daemon = True
    timer.start()
monitored(work, (), Path(sys.argv[1]), "segment-000", 0.1, closing_s)
"""


@pytest.mark.parametrize(("closing_s", "is_written"), [(1, False), (30, True)])
def test_perun_waits_for_its_sampler_as_long_as_the_cluster_file_says(
    tmp_path: Path, closing_s: int, is_written: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW_SAMPLER, str(tmp_path), str(closing_s)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (tmp_path / "segment-000.hdf5").exists() is is_written, done.stderr


def test_a_user_s_own_settings_of_perun_reach_no_training(tmp_path: Path) -> None:
    home, here, out = (tmp_path / name for name in ("home", "here", "50% out"))
    (home / ".config").mkdir(parents=True)
    (home / ".config" / "perun.ini").write_text(ini())
    for folder in (here, out):
        folder.mkdir()
    (here / ".perun.ini").write_text(ini())
    hostile = {f"PERUN_{option.upper()}": value for option, value in HOSTILE.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out)],
        cwd=here,
        env={**os.environ, "HOME": str(home), "SCALEWATT_SAMPLERS": str(tmp_path), **hostile},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (out / "calls").read_text() == "x"
    ((block,),) = read_journal(journal_files(out)[0].values()).nodes.values()
    assert block.time_s.size >= 5 and len(block.sensors)
    recording = read_perun_file(out / "segment-000.hdf5")
    assert recording.run == "segment-000"
    assert recording.period_s == 0.1
    assert [path.name for path in here.iterdir()] == [".perun.ini"]
