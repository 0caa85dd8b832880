"""The offsets of the nodes' clocks, measured between real MPI ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from training import AHEAD_S, wrong_clock
from workspace import environment

RANKS = """
import json
from scalewatt.execution.segment_description import measure_clock_offsets
from scalewatt.training.distributed import join_ranks
ranks = join_ranks("a run", 4, 2)
found = measure_clock_offsets(ranks)
if ranks.rank == 0:
    print(json.dumps(found), flush=True)
else:
    assert found == []
"""
ON_TWO_HOSTS = 'hostname "node$((PMI_RANK % 2))"; exec "$@"'


def test_the_offset_of_a_further_nodes_wrong_clock_is_measured() -> None:
    if subprocess.run(["unshare", "-u", "true"], capture_output=True).returncode != 0:
        pytest.skip("a second host name on one machine needs a namespace of its own (root)")
    on_two_hosts = ("unshare", "-u", "sh", "-c", ON_TWO_HOSTS, "sh")
    before_s = time.time()
    done = subprocess.run(
        ["mpiexec", "-n", "4", *on_two_hosts, sys.executable, "-c", RANKS],
        env=environment() | wrong_clock("node1"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)
    assert one["host"] == "node1"
    assert before_s <= one["at_s"] <= time.time()
    assert 0 < one["uncertainty_s"] < 0.5
    assert abs(one["offset_s"] - AHEAD_S) <= one["uncertainty_s"] + 0.005
