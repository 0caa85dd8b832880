"""Profiles that a real Slurm writes, of nodes with the power counters of a Cray."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from mini_node import SYSTEM_PATH
from minislurm import MiniSlurm, missing

from scalewatt.energies.views.describe import describe
from scalewatt.recordings.formats.detect import read_foreign

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

WATTS = {"a1": 200, "a2": 300}
# A file system of one's own in place of /sys has all that was there, and the counters.
_COUNTERS = """
mount -t tmpfs none /mnt
mkdir /mnt/sys
mount --rbind /sys /mnt/sys
mount -t tmpfs none /sys
for folder in /mnt/sys/*; do
  mkdir "/sys/${folder##*/}"
  mount --rbind "$folder" "/sys/${folder##*/}"
done
mkdir -p /sys/cray/pm_counters
case "$(hostname)" in a1) watts=200 ;; *) watts=300 ;; esac
echo "1000 J 1700000000000000 us" > /sys/cray/pm_counters/energy
echo "$watts W 1700000000000000 us" > /sys/cray/pm_counters/power
"""


@pytest.fixture(scope="module")
def profiles() -> Iterator[tuple[Path, Path]]:
    """Run a job of two steps on two nodes; return the folder of its profiles and the merged one."""
    absent = None if shutil.which("sh5util", path=SYSTEM_PATH) else "not installed: sh5util"
    if reason := missing() or absent:
        pytest.skip(f"no Slurm that profiles can be started: {reason}")
    base = Path(tempfile.mkdtemp(prefix="minislurm-"))
    files = {
        "slurm.conf": (
            "AcctGatherProfileType=acct_gather_profile/hdf5\n"
            "AcctGatherEnergyType=acct_gather_energy/pm_counters\n"
            "AcctGatherNodeFreq=1\n"
        ),
        "acct_gather.conf": f"ProfileHDF5Dir={base}/profile\nProfileHDF5Default=Energy\n",
    }
    kept = Path(tempfile.mkdtemp(prefix="profiles-"))
    try:
        with MiniSlurm(base, files, _COUNTERS) as slurm:
            (base / "profile").mkdir(exist_ok=True)
            words = ("--wait", "-N2", "--profile=energy", "--acctg-freq=energy=1")
            said = slurm.command(
                "sbatch", *words, f"--output={base}/out", "--wrap", "srun sleep 6; srun sleep 3"
            )
            merge = ["sh5util", "-j", said.split()[-1], "-o", f"{kept}/job.h5", "--savefiles"]
            subprocess.run(
                [*merge, "-p", f"{base}/profile", "--user=root"],
                env={**slurm.environment, "PATH": SYSTEM_PATH},
                check=True,
                capture_output=True,
            )
            shutil.copytree(base / "profile" / "root", kept / "nodes")
        yield kept / "nodes", kept / "job.h5"
    finally:
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(kept, ignore_errors=True)


def test_a_jobs_profile_gives_the_energy_of_each_step(profiles: tuple[Path, Path]) -> None:
    _, job = profiles
    for step, least_s in {"0": 4, "1": 1}.items():
        found = describe(job, run_id=step)
        assert found["format"] == "slurm-profile" and found["run"] == step
        truth = 0.0
        with h5py.File(job) as file:
            for node, watts in WATTS.items():
                seconds = file[f"Steps/{step}/Nodes/{node}/Energy"]["EpochTime"]
                assert seconds[-1] - seconds[0] >= least_s
                truth += watts * float(seconds[-1] - seconds[0])
        assert found["node_energy_j"] == pytest.approx(truth)
        assert found["hosts"] == sorted(WATTS)


def test_every_nodes_own_file_says_the_same(profiles: tuple[Path, Path]) -> None:
    nodes, job = profiles
    paths = sorted(nodes.glob("*_0_*.h5"))
    assert len(paths) == len(WATTS)
    for path in paths:
        recording = read_foreign(path)
        (series,) = recording.series
        assert recording.t0_known and recording.hosts[0] in WATTS
        assert set(series.values.tolist()) == {WATTS[recording.hosts[0]]}
        with h5py.File(job) as file:
            table = file[f"Steps/0/Nodes/{recording.hosts[0]}/Energy"]
            # A busy slurmd samples twice within one second, which is then one sample.
            assert series.time_s.tolist() == np.unique(table["EpochTime"]).tolist()


def test_steps_of_a_job_are_told(profiles: tuple[Path, Path]) -> None:
    found = read_foreign(profiles[1])
    (told,) = (one for one in found.problems if one["code"] == "several_runs")
    assert found.run_id == "1" and "others: 0, batch" in told["detail"]
