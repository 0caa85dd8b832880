"""The miniature cluster itself: real enough, beside others, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import minislurm
import psutil
import pytest
from minislurm import MiniSlurm, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def calm(slurm: MiniSlurm) -> Iterator[None]:
    slurm.cancel_all()
    yield
    slurm.cancel_all()


def belongings(base: Path) -> list[psutil.Process]:
    """Processes whose command line or environment names a cluster's folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(str(base) in word for word in words):
                found.append(process)
    return found


def test_every_node_has_a_name_processes_and_shared_memory_of_its_own(slurm: MiniSlurm) -> None:
    script = "hostname; touch /dev/shm/of-$(hostname); ls /dev/shm; ps -e | grep -c '[s]lurmd$'"
    for name in slurm.nodes:
        partition = {"a": "accelerated", "h": "accelerated-h100", "c": "cpuonly"}[name[0]]
        where = ("--partition", partition, "--nodelist", name)
        words = slurm.command("srun", *where, "sh", "-c", script).split()
        shared = [word for word in words if word.startswith("of-")]
        assert (words[0], shared, words[-1]) == (name, [f"of-{name}"], "1")


def test_what_does_not_exist_is_refused(slurm: MiniSlurm) -> None:
    with pytest.raises(AssertionError, match="Invalid account"):
        slurm.command("sbatch", "--account=nobody", "--wrap", "true")
    with pytest.raises(AssertionError, match="invalid partition"):
        slurm.command("sbatch", "--partition=nowhere", "--wrap", "true")
    with pytest.raises(AssertionError, match="not available"):
        slurm.command("sbatch", "--gres=gpu:5", "--wrap", "true")


@pytest.mark.nightly
def test_a_second_cluster_lives_beside_the_first_and_leaves_nothing(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    hosts = Path("/etc/hosts").read_bytes()
    mounts = Path("/proc/self/mounts").read_bytes()
    with MiniSlurm(tmp_path / "s") as second:
        assert second.command("srun", "--nodes=2", "hostname").split() in (
            ["a1", "a2"],
            ["a2", "a1"],
        )
        assert second.squeue() != slurm.squeue()
        assert belongings(second.base)
    assert not belongings(second.base)
    assert not second.base.exists()
    assert Path("/etc/hosts").read_bytes() == hosts
    assert Path("/proc/self/mounts").read_bytes() == mounts
    assert slurm.idle()


@pytest.mark.nightly
def test_no_process_outlives_the_one_that_started_the_cluster(tmp_path: Path) -> None:
    base = tmp_path / "s"
    command = [sys.executable, minislurm.__file__, "serve", str(base)]
    with subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL) as server:
        try:
            wait_for(
                lambda: (base / "environment").exists() or server.poll() is not None, "cluster"
            )
            assert server.poll() is None
            assert len(belongings(base)) > 5
        finally:
            server.send_signal(signal.SIGKILL)
    wait_for(lambda: not belongings(base), "end of all processes")
