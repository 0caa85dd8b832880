"""Faults of the field in files of other tools: each read right, or refused by name; never silently wrong.

Small files of the forms that users have; the truth is known by how they are made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import codes
from made_recordings import sensors, written

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.energies.read import Account
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

T0 = 1_717_144_753.0
SECONDS = 120
SMI_BEGIN = 1_717_149_600.0


def watts(second: float, gpu: int = 0) -> float:
    """A GPU's power: another one for each GPU, and never still."""
    return round(200.0 + 100 * gpu + 20 * math.sin(second / 7) + second % 3, 3)


def true_j(gpus: int = 1, seconds: int = SECONDS) -> float:
    return sum(float(np.trapezoid([watts(s, gpu) for s in range(seconds)])) for gpu in range(gpus))


def account_of(path: Path, node: Mapping[str, str] | None = None, **asked: Any) -> Account:
    return scalewatt.energy(path, node=node, time_zone="UTC", **asked)


# --- metrics ------------------------------------------------------------------------------------------


def result(metric: str, labels: Mapping[str, str], values: Mapping[float, float]) -> dict[str, Any]:
    """One series of a query's answer; values by time."""
    pairs = [[time, str(value)] for time, value in values.items()]
    return {"metric": {"__name__": metric, **labels}, "values": pairs}


def answer(*results: dict[str, Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": results}})


def dcgm(host: str, gpu: int, seconds: range, **labels: str) -> dict[str, Any]:
    given = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": host, "instance": f"{host}:9400"}
    values = {T0 + s: watts(s, gpu) for s in seconds}
    return result("DCGM_FI_DEV_POWER_USAGE", {**given, **labels}, values)


@pytest.mark.parametrize(
    "hosts",
    [
        {"pod-a": range(SECONDS), "pod-b": range(SECONDS)},
        {"pod-b": range(40), "pod-a": range(40, 80), "pod-c": range(80, SECONDS)},
    ],
    ids=["two exporters", "a pod that restarted twice"],
)
def test_a_gpu_under_several_hosts_counts_once(tmp_path: Path, hosts: dict[str, range]) -> None:
    results = [dcgm(host, gpu, of) for host, of in hosts.items() for gpu in (0, 1)]
    account = account_of(written(tmp_path, answer(*results)))
    assert account.hosts == [next(iter(hosts))] and "second_sensor" in codes(account.flags)
    assert account.joules("gpu") == pytest.approx(true_j(2), rel=1e-3)


def both(seconds: float, counted: bool = False, **labels: str) -> list[dict[str, Any]]:
    """Series of a GPU that is called 0 of two nodes, the second `seconds` later than the first."""
    metric = f"DCGM_FI_DEV_{'TOTAL_ENERGY_CONSUMPTION' if counted else 'POWER_USAGE'}"
    return [
        result(
            metric,
            {"gpu": "0", "pod": f"p{n}", **{key: f"{text}{n}" for key, text in labels.items()}},
            {
                T0 + s + n * seconds: 1e9 * (n + 1) + 3e5 * s if counted else watts(s, n)
                for s in range(SECONDS)
            },
        )
        for n in (0, 1)
    ]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    ("seconds", "labels"), [(0, {}), (0.5, {}), (0.5, {"UUID": "GPU-"})], ids=repr
)
def test_series_of_two_nodes_without_a_label_are_refused(
    tmp_path: Path, seconds: float, labels: dict[str, str], counted: bool
) -> None:
    with pytest.raises(InputError, match="a file for each node"):
        account_of(written(tmp_path, answer(*both(seconds, counted, **labels))))


def test_series_of_two_nodes_with_a_label_are_two_nodes(tmp_path: Path) -> None:
    recording = read_foreign(written(tmp_path, answer(*both(0.5, Hostname="n"))))
    assert list(recording.nodes) == ["n0", "n1"] and recording.flags == ()


def alternating(second: int) -> float:
    """Power of a GPU that works in every other second."""
    return 100.0 + 200 * (second % 2) + second % 3


@pytest.mark.parametrize("known_by", ["uuid", "host", "--node", None])
def test_a_gpu_whose_power_alternates_is_no_pair_of_nodes(
    tmp_path: Path, known_by: str | None
) -> None:
    label = {"uuid": {"UUID": "GPU-a"}, "host": {"Hostname": "n1"}}.get(known_by or "", {})
    values = {T0 + s: alternating(s) for s in range(SECONDS)}
    power = result("DCGM_FI_DEV_POWER_USAGE", {"gpu": "0", **label}, values)
    path = written(tmp_path, answer(power), "gpu.json")
    options = Options(node="n1" if known_by == "--node" else None)
    if known_by is None:
        with pytest.raises(InputError, match="--node NAME"):
            read_foreign(path, options)
        return
    (sensor,) = sensors(read_foreign(path, options))
    assert sensor.values.tolist() == [*values.values()]


EXPORTERS = {
    "kepler": [
        ("kepler_node_cpu_joules_total", "zone=package path=intel-rapl:0", "cpu"),
        ("kepler_node_cpu_joules_total", "zone=core path=intel-rapl:0:0", None),
        ("kepler_node_cpu_joules_total", "zone=dram path=intel-rapl:0:1", "ram"),
    ],
    "ceems": [
        ("ceems_rapl_package_joules_total", "index=0 path=intel-rapl:0", "cpu"),
        ("ceems_rapl_package_joules_total", "index=1 path=intel-rapl:1", "cpu"),
        ("ceems_rapl_dram_joules_total", "index=0 path=intel-rapl:0:0", "ram"),
    ],
    "scaphandre": [
        ("scaph_socket_energy_microjoules", "socket_id=0", "cpu"),
        ("scaph_domain_energy_microjoules", "domain_name=dram socket_id=0", "ram"),
        ("scaph_domain_energy_microjoules", "domain_name=core socket_id=0", None),
    ],
    "node exporter": [
        ("node_rapl_package_joules_total", "index=0 path=intel-rapl:0", "cpu"),
        ("node_rapl_package_joules_total", "index=0 path=intel-rapl-mmio:0", None),
        ("node_rapl_dram_joules_total", "index=0 path=intel-rapl:0:1", "ram"),
    ],
}
"""Metrics with their labels, and the kind of device that each counts for, if any."""
TIMES = [T0 + s for s in range(SECONDS)]
Series = tuple[str, dict[str, str], list[float]]


def as_query(series: list[Series]) -> str:
    return answer(
        *(
            result(name, labels, dict(zip(TIMES, values, strict=True)))
            for name, labels, values in series
        )
    )


def as_export(series: list[Series]) -> str:
    stamps = [1e3 * time for time in TIMES]
    lines = [
        {"metric": {"__name__": name, **labels}, "values": values, "timestamps": stamps}
        for name, labels, values in series
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("form", [as_query, as_export])
@pytest.mark.parametrize("name", EXPORTERS)
def test_exporters_give_the_energies_of_their_devices(
    tmp_path: Path, name: str, form: Callable[[list[Series]], str]
) -> None:
    series: list[Series] = []
    truth: dict[str, float] = {}
    for index, (metric, labels, kind) in enumerate(EXPORTERS[name]):
        power, unit = 50.0 + 10 * index, 1e6 if "micro" in metric else 1.0
        named = dict(label.split("=", 1) for label in labels.split()) | {"instance": "n1:9100"}
        series.append((metric, named, [unit * (1e5 + power * s) for s in range(SECONDS)]))
        if kind:
            truth[kind] = truth.get(kind, 0.0) + power * (SECONDS - 1)
    path = written(tmp_path, form(series), "n1.txt")
    recording, account = read_foreign(path), account_of(path)
    assert list(recording.nodes) == ["n1"] and recording.flags == ()
    kinds = {sensor.kind for sensor in sensors(recording)}
    assert {kind: account.joules(kind) for kind in kinds} == pytest.approx(truth)


def test_of_a_divided_gpu_one_part_counts(tmp_path: Path) -> None:
    parts = {"10": 52.636, "4": 52.746, "5": 52.7}
    results = [
        result("DCGM_FI_DEV_POWER_USAGE", {"gpu": "0", "GPU_I_ID": part}, {T0: w, T0 + 1: w})
        for part, w in parts.items()
    ]
    recording = read_foreign(written(tmp_path, answer(*results)))
    assert sensors(recording)[0].values.tolist() == [52.746, 52.746]
    assert [flag["code"] for flag in recording.flags] == ["second_sensor"] * 2


def test_what_another_exporter_has_of_a_gap_counts(tmp_path: Path) -> None:
    first = {s: watts(s) for s in range(SECONDS) if not 30 <= s < 90}
    results = [
        result("DCGM_FI_DEV_POWER_USAGE", {"gpu": "0", "Hostname": "n1", "job": job}, of)
        for job, of in (
            ("a", {T0 + s: w for s, w in first.items()}),
            ("b", {T0 + s: watts(s) for s in range(20, 100)}),
        )
    ]
    account = account_of(written(tmp_path, answer(*results)))
    assert account.coverage == 1 and "second_sensor" in codes(account.flags)
    assert account.joules("gpu") == pytest.approx(true_j(), rel=1e-6)


@pytest.mark.parametrize("torn", [1, 40])
def test_an_export_whose_last_line_is_cut_off_is_refused(tmp_path: Path, torn: int) -> None:
    series: list[Series] = [
        ("DCGM_FI_DEV_POWER_USAGE", {"gpu": gpu}, [watts(s) for s in range(SECONDS)])
        for gpu in "01"
    ]
    assert len(sensors(read_foreign(written(tmp_path, as_export(series))))) == 2
    with pytest.raises(InputError, match="line 3 is no whole series"):
        read_foreign(written(tmp_path, as_export(series) + as_export(series)[:torn]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"status":"error","errorType":"bad_data","error":"parse error"}', "failed: parse error"),
        ('{"power": [1, 2, 3]}', r"no known format \(JSON.*a YAML file, given with --columns"),
        (answer(result("up", {"instance": "n1:9100"}, {T0: 1.0})), "no sample that is read"),
        (
            answer(dcgm("n1", 0, range(9))).replace("1717", "1717000"),
            "9 samples have no unix time in s",
        ),
        ('{"status":"success","data":{"resultType":"matrix","result":[{"met', "not whole JSON"),
        (
            '{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2",3]]}]}}',
            "not an answer of Prometheus' API",
        ),
    ],
    ids=["failed query", "another program's", "another metric", "ms", "cut off", "three values"],
)
def test_json_is_called_json(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        account_of(written(tmp_path, text, "power.json"))


# --- several processes of one node ----------------------------------------------------------------------


def smi(rank: int, uuid: str = "", factor: float = 1.0) -> str:
    """Rows of the whole node's GPUs, by a process that began a little later than the others."""
    rows = [
        f"2024/05/31 10:{s // 60:02d}:{s % 60:02d}.{100 * rank:03d}, {gpu}"
        f"{uuid and f', {uuid}{gpu}'}, {factor * watts(s + rank / 10, gpu):.2f} W\n"
        for s in range(SECONDS)
        for gpu in (0, 1)
    ]
    return f"timestamp, index{uuid and ', uuid'}, power.draw [W]\n" + "".join(rows)


def zeus(rank: int) -> str:
    first_j, both_j = true_j(), true_j(2)
    seconds = SECONDS - 1 + rank / 50
    row = f"{T0 + rank / 10},train,{seconds},{first_j + rank},{both_j - first_j - rank}"
    return f"start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n{row}\n"


def emissions(rank: int = 0, **cells: Any) -> str:
    """CodeCarbon's heading and row."""
    row = {
        **{"timestamp": "2024-05-31T10:02:00", "project_name": "p", "run_id": f"r{rank}"},
        **{"duration": SECONDS - 1 + rank / 9, "emissions": 0.1, "cpu_energy": 0.01},
        **{"ram_energy": 0.001, "gpu_energy": (true_j(2) + 10 * rank) / 3.6e6},
        **{"energy_consumed": "", "tracking_mode": "machine", "gpu_count": 2},
        **{"gpu_model": "2 x A100", "cpu_model": "Xeon", "pue": 1.0, **cells},
    }
    return f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"


RANKS: dict[str, Callable[[int], str]] = {
    "nvidia-smi": smi,
    "nvidia-smi with uuids": lambda rank: smi(rank, "GPU-"),
    "a ZeusMonitor": zeus,
    "CodeCarbon": emissions,
}


def write_all(folder: Path, *texts: str) -> list[str]:
    """Write each rank's file, and return the names."""
    return [written(folder, text, f"rank{rank}.csv").name for rank, text in enumerate(texts)]


@pytest.mark.parametrize("kind", RANKS)
def test_processes_that_each_record_the_whole_node_are_never_nodes(
    tmp_path: Path, kind: str
) -> None:
    names = write_all(tmp_path, *map(RANKS[kind], range(8)))
    with pytest.raises(InputError, match=r"rank\d.csv.*rank\d.csv.*--node FILE=NAME"):
        account_of(tmp_path)
    account = account_of(tmp_path, dict.fromkeys(names, "n1"))
    assert account.hosts == ["n1"] and "second_sensor" in codes(account.flags)
    assert account.joules("gpu") == pytest.approx(true_j(2), rel=1e-2)


RANDOM = np.random.default_rng(1)


def restless() -> str:
    """Rows of GPUs whose power is another one whenever it is read."""
    return re.sub(r"\d+\.\d\d W", lambda _: f"{RANDOM.uniform(100, 500):.2f} W", smi(1))


WINDOW = zeus(0).replace(str(T0), str(SMI_BEGIN))


@pytest.mark.parametrize(
    ("first", "second", "nodes"),
    [
        (smi(0), smi(1), {"a.csv": "n1"}),
        (restless(), restless(), {}),
        (smi(0), WINDOW, {}),
        (smi(0), emissions(), {}),
        (smi(0, "GPU-"), emissions(), {}),
    ],
    ids=[
        *("of which the user names a file", "at other times", "of powers and totals"),
        *("of powers and a sum", "of UUIDs and a sum"),
    ],
)
def test_two_recorders_of_a_node_are_no_two_nodes(
    tmp_path: Path, first: str, second: str, nodes: dict[str, str]
) -> None:
    written(tmp_path, first, "a.csv")
    written(tmp_path, second, "b.csv")
    with pytest.raises(InputError, match=r"b\.csv.* like values .*--node FILE=NAME"):
        account_of(tmp_path, nodes)


def test_files_of_a_folder_that_are_not_read_are_flagged(tmp_path: Path) -> None:
    written(tmp_path, smi(0), "gpus.csv")
    written(tmp_path, "when,pdu\nnoon,12\n", "rack.csv")
    stages = written(tmp_path, f"stage,start_s,end_s\ntrain,{T0},{T0 + 9}\n", "stages.csv")
    written(tmp_path, "Notes, of the day\n", "README.md")
    account = account_of(tmp_path, stages=tmp_path / ".." / tmp_path.name / stages.name)
    unread = account.flags[account.flags["code"] == "unreadable"]
    assert unread["detail"].tolist() == ["not read, as of no known format: rack.csv"]
    assert account.hosts == ["gpus"]


def test_nodes_of_like_load_are_told_apart_by_their_uuids(tmp_path: Path) -> None:
    write_all(tmp_path, smi(0, "GPU-a"), smi(1, "GPU-b"))
    assert account_of(tmp_path).hosts == ["rank0", "rank1"]


def test_nodes_that_only_their_files_names_tell_apart_are_flagged(tmp_path: Path) -> None:
    write_all(tmp_path, smi(0), re.sub(r"\d(\d\.\d\d W)", r"9\1", smi(0)))
    assert "assumed" in codes(account_of(tmp_path).flags)


# --- totals ---------------------------------------------------------------------------------------------


def test_a_duration_that_contradicts_its_powers_is_replaced(tmp_path: Path) -> None:
    powers = {"ram_power": 10.0, "ram_energy": 1200 * 10 / 3.6e6}
    gpus = {"gpu_energy": 0.5, "gpu_count": 1, "gpu_model": "1 x A100"}
    account = account_of(written(tmp_path, emissions(duration=60.0, **powers, **gpus)))
    assert account.runtime_s == pytest.approx(1200)
    assert account.joules("gpu") == pytest.approx(1.8e6)
    assert "time_assumed" in codes(account.flags)


def test_the_tasks_of_a_run_add_up(tmp_path: Path) -> None:
    heading, first = emissions(task_name="load", duration=10.0, gpu_energy=0.001).splitlines()
    second = emissions(task_name="train", duration=90.0, gpu_energy=0.01).splitlines()[1]
    other = emissions(1, task_name="train", gpu_energy=7.0).splitlines()[1]
    without = emissions(task_name="wait", duration=5.0, gpu_energy=0.0).splitlines()[1]
    path = written(tmp_path, "\n".join([heading, other, first, without, second, ""]))
    run = account_of(path)
    assert (run.joules("gpu"), run.runtime_s) == pytest.approx((0.011 * 3.6e6, 105))
    unknown = emissions(task_name="test", duration=5.0, gpu_energy="").splitlines()[1]
    run = account_of(written(tmp_path, "\n".join([heading, first, unknown, ""])))
    assert run.joules("gpu") is None


@pytest.mark.parametrize(
    ("count", "model", "devices"),
    [(2, "2 x A100", 2), (2, "8 x A100", 1), (8, "2 x A100", 1), ("", "2 x A100", 1), (2, "", 2)],
)
def test_a_count_that_is_not_what_was_summed_divides_nothing(
    tmp_path: Path, count: Any, model: str, devices: int
) -> None:
    account = account_of(written(tmp_path, emissions(gpu_count=count, gpu_model=model)))
    assert account.gpus == devices and account.joules("gpu") == pytest.approx(true_j(2))
