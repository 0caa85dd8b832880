"""Each name is a node's, however alike names or addresses are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from energy_files import T0, accounted, gpu, make_run, record
from made_recordings import written
from run_files import make_spec

import scalewatt

N = 60
COLUMNS = (
    "time: {column: time, unit: s}\n"
    "sensors: [{column: w, unit: W, kind: gpu, index_column: gpu, node_column: host}]\n"
)
ALIKE = [
    ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    ("fe80::1", "fe80::2", "::ffff:10.0.0.1"),
    ("gpu-0.train", "gpu-0.eval", "gpu-0.test"),
    ("n1.rowA", "n1.rowB", "n1"),
    ("10", "10.0.0.1", "10.0.0.1.example"),
    ("n1", "n1.cluster", "n2"),
]


@pytest.mark.parametrize("hosts", ALIKE, ids=" ".join)
def test_each_host_of_a_file_is_a_node_however_alike_the_names(
    tmp_path: Path, hosts: tuple[str, ...]
) -> None:
    watts = dict(zip(hosts, (100, 300, 500), strict=True))
    rows = [f"{T0 + s},{host},0,{w}" for s in range(N) for host, w in watts.items()]
    path = written(tmp_path, "\n".join(["time,host,gpu,w", *rows, ""]), "gpus.csv")
    account = scalewatt.energy(path, columns=written(tmp_path, COLUMNS, "columns.yaml"))
    assert account.joules() == pytest.approx(900 * (N - 1))
    assert account.hosts == sorted(hosts)


@pytest.mark.parametrize("hosts", [("10.0.0.1", "10.0.0.2"), ("n1.rowA", "n1.rowB")])
def test_a_run_counts_each_of_its_nodes_with_like_names(tmp_path: Path, hosts: Any) -> None:
    watts = dict(zip(hosts, (100.0, 300.0), strict=True))
    segments = [{"segment": 0, "ranks": [{"host": h, "gpu": 0, "gpu_uuid": None} for h in hosts]}]
    stages = [(0, "train", 0.0, N - 1.0)]
    run = make_run(tmp_path, stages=stages, hostnames=hosts, segments=segments)
    record(run, {node: {"CUDA:0_POWER": gpu(N, w)} for node, w in watts.items()})
    of_run = accounted(run, make_spec(nodes=2, gpus=2, ranks_per_node=1))
    joules = of_run.tables.energy.query("device_kind == 'gpu'").set_index("node")["energy_j"]
    assert joules.to_dict() == pytest.approx({host: w * (N - 1) for host, w in watts.items()})
    assert not {"not_recorded"} & of_run.codes()
