"""Ranks while another one of their node copies images to its disk and removes them: real MPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from scalewatt.execution.launch import command_path

pytestmark = pytest.mark.slow
WORK_S = 2.0
"""What copying takes, and what removing does."""
ASLEEP_S = 0.2
"""At most so much processor time for that; busy waiting takes what it gets."""
PROGRAM = """
import json, sys, time
from pathlib import Path
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.record import Job
from scalewatt.training import staging
from scalewatt.training.distributed import join_ranks

def work(result):
    time.sleep(float(sys.argv[1]))
    done_s.append(time.monotonic())
    return result

class Workload:
    def __init__(self, *_): pass
    def index_lists(self): return {}

done_s = []
staging.is_staged = lambda *_: True
staging.workload_class = lambda model: Workload
staging.copy_images = lambda *_: work("/staged")
staging.shutil.rmtree = lambda *_, **options: work(None)
ranks = join_ranks("c", 2, 1)
spec = type("Spec", (), {"model": "m"})
job = Job(spec, "/shared", Path(), 0, scratch="/scratch")
cpu_s = [time.process_time()]
with staging.staged(job, ranks, None, EventLog(None, 0, time.time())) as staged:
    cpu_s.append(time.process_time())
    began_s = time.monotonic()
    ranks.comm.Barrier()
    cpu_s.append(time.process_time())
report = {
    "staging_cpu_s": cpu_s[1] - cpu_s[0],
    "removal_cpu_s": time.process_time() - cpu_s[2],
    "data_folder": staged.data_folder,
    "began_s": began_s,
    "left_s": time.monotonic(),
    "done_s": done_s,
}
reports = ranks.comm.gather(report, root=0)
if reports:
    print(json.dumps(reports), flush=True)
"""


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What each of two ranks says of itself; the first copies and removes."""
    command = ["mpiexec", "-n", "2", sys.executable, "-c", PROGRAM, str(WORK_S)]
    environment = {**os.environ, "PATH": command_path()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ranks_sleep_until_another_has_staged_or_removed_the_data(
    ranks: list[dict[str, Any]],
) -> None:
    staged_s, removed_s = ranks[0]["done_s"]
    for rank in ranks:
        assert rank["data_folder"] == "/staged"
        assert max(rank["staging_cpu_s"], rank["removal_cpu_s"]) < ASLEEP_S
        assert rank["began_s"] >= staged_s and rank["left_s"] >= removed_s
