"""Which names are of one node: a short and its full name; never two full names, and never addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from energy_files import T0, Accounted, accounted, gpu, make_run, write_journal, write_perun
from made_recordings import written
from run_files import make_spec

import scalewatt

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
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
    rows = [
        f"{T0 + s},{host},0,{w}"
        for s in range(N)
        for host, w in zip(hosts, (100, 300, 500), strict=True)
    ]
    path = written(tmp_path, "\n".join(["time,host,gpu,w", *rows, ""]), "gpus.csv")
    account = scalewatt.energy(path, columns=written(tmp_path, COLUMNS, "columns.yaml"))
    assert account.joules() == pytest.approx(900 * (N - 1))
    assert account.hosts == sorted(hosts)


def run_of(folder: Path, nodes: dict[str, float], **more: Any) -> Path:
    """Write a run with a journal for each node, of one GPU of constant power (W)."""
    run = make_run(folder, stages=[(0, "train", 0.0, N - 1.0)], **more)
    for node, watts in nodes.items():
        path = run / f"perun/segment-000.{node}.csv"
        write_journal(path, node, {"CUDA:0_POWER": gpu(N, watts)})
    return run


def gpu_joules(found: Accounted) -> dict[str, float | None]:
    rows = found.energy.to_pylist()
    return {row["node"]: row["energy_j"] for row in rows if row["device_kind"] == "gpu"}


def ranks_on(gpus: dict[str, int]) -> list[dict[str, Any]]:
    ranks = [{"host": host, "gpu": index, "gpu_uuid": None} for host, index in gpus.items()]
    return [{"segment": 0, "ranks": ranks}]


@pytest.mark.parametrize("hosts", [("10.0.0.1", "10.0.0.2"), ("n1.rowA", "n1.rowB")])
def test_a_run_counts_each_of_its_nodes_with_like_names(tmp_path: Path, hosts: Any) -> None:
    segments = ranks_on(dict.fromkeys(hosts, 0))
    watts = dict(zip(hosts, (100.0, 300.0), strict=True))
    run = run_of(tmp_path, watts, hostnames=hosts, segments=segments)
    found = accounted(run, make_spec(nodes=2, gpus=2, ranks_per_node=1), NO_POWERS)
    assert gpu_joules(found) == pytest.approx({h: w * (N - 1) for h, w in watts.items()})
    assert "not_recorded" not in found.codes() and "device_count" not in found.codes()


def test_a_node_is_one_whether_or_not_a_file_gives_its_domain(tmp_path: Path) -> None:
    hosts = {"n1": 100.0, "n2": 300.0}
    segments = ranks_on({"n1.cluster.example": 0, "n2": 0})
    run = run_of(tmp_path, hosts, hostnames=("n1", "n2"), segments=segments)
    sensors = {f"{h}.cluster.example": {"CUDA:0_POWER": gpu(N, w)} for h, w in hosts.items()}
    write_perun(run / "perun/segment-000.hdf5", sensors)
    found = accounted(run, make_spec(nodes=2, gpus=2, ranks_per_node=1), NO_POWERS)
    joules = {host.split(".")[0]: energy for host, energy in gpu_joules(found).items()}
    assert joules == pytest.approx({host: watts * (N - 1) for host, watts in hosts.items()})
    assert "not_recorded" not in found.codes() and "device_count" not in found.codes()


def test_a_folders_files_of_a_short_and_a_full_name_are_of_one_node(tmp_path: Path) -> None:
    power = "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
    for host, index in (("n1", 0), ("n1.cluster", 1)):
        rows = [
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="{index}",Hostname="{host}"}} 100 {int(T0 + s)}000\n'
            for s in range(N)
        ]
        written(tmp_path, power + "".join(rows), f"{index}.prom")
    account = scalewatt.energy(tmp_path)
    assert account.hosts == ["n1.cluster"]
    assert account.joules() == pytest.approx(200 * (N - 1))
