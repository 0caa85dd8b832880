"""Faults of the field in files of other tools: each read right, or refused by name; never silently wrong.

Small files of the forms that users have; the truth is known by how they are made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from made_recordings import sensors, written

from scalewatt.common.errors import InputError
from scalewatt.energies.read import Reading, read_account
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import files_in, read_foreign, read_together
from scalewatt.recordings.tables import Options

T0 = 1_717_144_753.0
SECONDS = 120
UTC = Options(time_zone="UTC")


def watts(second: float, gpu: int = 0) -> float:
    """A GPU's power: another one for each GPU, and never still."""
    return round(200.0 + 100 * gpu + 20 * math.sin(second / 7) + second % 3, 3)


def joules(recording: Recording, kind: str = "gpu") -> float:
    """Energy of the power, or else the counter, of all devices of a kind."""
    by_device: dict[tuple[str, int], float] = {}
    for one in sensors(recording):
        if one.kind == kind and one.quantity != "utilisation":
            counted = one.quantity == "counter"
            used = np.ptp(one.values) if counted else np.trapezoid(one.values, one.time_s)
            by_device[one.node, one.index] = float(used)
    return sum(by_device.values())


def true_j(gpus: int = 1, seconds: int = SECONDS) -> float:
    return sum(float(np.trapezoid([watts(s, gpu) for s in range(seconds)])) for gpu in range(gpus))


def codes(recording: Recording) -> set[str]:
    return {one["code"] for one in recording.flags}


# --- metrics ------------------------------------------------------------------------------------------


def result(
    metric: str, labels: dict[str, str], values: list[tuple[float, float]]
) -> dict[str, Any]:
    pairs = [[time, str(value)] for time, value in values]
    return {"metric": {"__name__": metric, **labels}, "values": pairs}


def answer(*results: dict[str, Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": results}})


def dcgm(host: str, gpu: int, seconds: range, shift: float = 0.0, **labels: str) -> dict[str, Any]:
    given = {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": host, "instance": f"{host}:9400"}
    values = [(T0 + s + shift, watts(s + shift, gpu)) for s in seconds]
    return result("DCGM_FI_DEV_POWER_USAGE", {**given, **labels}, values)


@pytest.mark.parametrize(
    "hosts",
    [
        {"pod-a": range(SECONDS), "pod-b": range(SECONDS)},
        {"pod-a": range(60), "pod-b": range(60, SECONDS)},
        {"pod-b": range(40), "pod-a": range(40, 80), "pod-c": range(80, SECONDS)},
    ],
    ids=["two exporters", "a restarted pod", "twice restarted"],
)
def test_a_gpu_under_several_hosts_counts_once(tmp_path: Path, hosts: dict[str, range]) -> None:
    results = [dcgm(host, gpu, of) for host, of in hosts.items() for gpu in (0, 1)]
    found = read_foreign(written(tmp_path, answer(*results)))
    assert list(found.nodes) == [next(iter(hosts))] and "second_sensor" in codes(found)
    assert joules(found) == pytest.approx(true_j(2), rel=1e-3)


def scrape(gpu: int, second: float, labels: str = "") -> str:
    value = watts(second, gpu)
    return (
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"{labels}}} {value}\n'
        f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0"{labels}}} {10**9 * (gpu + 1) + 3e5 * second:.0f}\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{T0 + s}\n{scrape(0, s)}{scrape(1, s)}" for s in range(SECONDS)),
        "".join(f"{T0 + s + n / 2}\n{scrape(n, s)}" for s in range(SECONDS) for n in (0, 1)),
        "".join(
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts(s, n)} {1000 * (T0 + s):.0f}\n'
            for s in range(SECONDS)
            for n in (0, 1)
        ),
        "".join(
            f'{T0 + s + n / 2}\nDCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-{n}"}} {watts(s, n)}\n'
            for s in range(SECONDS)
            for n in (0, 1)
        ),
    ],
    ids=["under one stamp", "in turn", "with their times", "of other UUIDs"],
)
def test_scrapes_of_two_nodes_without_a_label_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="a file for each node"):
        read_foreign(written(tmp_path, text))


def test_scrapes_of_two_nodes_with_a_label_are_two_nodes(tmp_path: Path) -> None:
    text = "".join(
        f"{T0 + s}\n" + "".join(scrape(n, s, f',Hostname="n{n}"') for n in (0, 1))
        for s in range(SECONDS)
    )
    found = read_foreign(written(tmp_path, text))
    assert list(found.nodes) == ["n0", "n1"] and found.flags == ()


def test_the_counter_of_a_whole_module_is_the_nodes(tmp_path: Path) -> None:
    label = {"modelName": "NVIDIA GH200 480GB"}
    counter = [(T0 + s, 1e9 + 600_000 * s) for s in range(SECONDS)]
    labels = {"gpu": "0", "Hostname": "n1", **label}
    text = answer(
        dcgm("n1", 0, range(SECONDS), **label),
        result("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, counter),
    )
    account = read_account(written(tmp_path, text))
    assert account.joules("gpu") == pytest.approx(true_j(), rel=1e-2)
    assert account.joules("node") == pytest.approx(600 * (SECONDS - 1))
    assert account.scope == "gpu"


def alternating(second: int) -> float:
    """Power of a GPU that works in every other second."""
    return 100.0 + 200 * (second % 2) + second % 3


@pytest.mark.parametrize("known_by", ["counter", "uuid", "host", "--node", None])
def test_a_gpu_whose_power_alternates_is_no_pair_of_nodes(
    tmp_path: Path, known_by: str | None
) -> None:
    labels = {"uuid": ',UUID="GPU-a"', "host": ',Hostname="n1"'}.get(known_by or "", "")
    energy = "" if known_by != "counter" else 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0"} '
    lines = [
        f'{T0 + s}\nDCGM_FI_DEV_POWER_USAGE{{gpu="0"{labels}}} {alternating(s)}\n'
        + (energy and f"{energy}{10**9 + 2e5 * s:.0f}\n")
        for s in range(SECONDS)
    ]
    path = written(tmp_path, "".join(lines), "gpu.prom")
    options = Options(node="n1" if known_by == "--node" else None)
    if known_by is None:
        with pytest.raises(InputError, match="--node NAME"):
            read_foreign(path, options)
        return
    power = next(s for s in sensors(read_foreign(path, options)) if s.quantity == "power")
    assert power.values.tolist() == [alternating(s) for s in range(SECONDS)]


def test_packages_that_two_exporters_name_differently_count_once(tmp_path: Path) -> None:
    host = {"instance": "n1:9100"}
    energies = [(T0 + s, 1e5 + 50.0 * s) for s in range(SECONDS)]
    kepler = [
        result(
            "kepler_node_cpu_joules_total",
            {"zone": "package", "path": f"intel-rapl:{i}", **host},
            energies,
        )
        for i in (0, 1)
    ]
    rapl = [
        result("node_rapl_package_joules_total", {"index": str(i), **host}, energies)
        for i in (0, 1)
    ]
    account = read_account(written(tmp_path, answer(*kepler, *rapl)))
    assert account.joules("cpu") == pytest.approx(2 * 50 * (SECONDS - 1))


EXPORTERS = {
    "kepler": [
        ("kepler_node_cpu_joules_total", {"zone": "package", "path": "intel-rapl:0"}, "cpu", 1.0),
        ("kepler_node_cpu_joules_total", {"zone": "core", "path": "intel-rapl:0:0"}, None, 1.0),
        ("kepler_node_cpu_joules_total", {"zone": "dram", "path": "intel-rapl:0:1"}, "ram", 1.0),
    ],
    "kepler before 0.10": [
        ("kepler_node_package_joules_total", {"package": "0", "mode": "idle"}, "cpu", 1.0),
        ("kepler_node_package_joules_total", {"package": "0", "mode": "dynamic"}, "cpu", 1.0),
        ("kepler_node_platform_joules_total", {"mode": "dynamic"}, "node", 1.0),
    ],
    "ceems": [
        ("ceems_rapl_package_joules_total", {"index": "0", "path": "intel-rapl:0"}, "cpu", 1.0),
        ("ceems_rapl_package_joules_total", {"index": "1", "path": "intel-rapl:1"}, "cpu", 1.0),
        ("ceems_rapl_dram_joules_total", {"index": "0", "path": "intel-rapl:0:0"}, "ram", 1.0),
    ],
    "scaphandre": [
        ("scaph_socket_energy_microjoules", {"socket_id": "0"}, "cpu", 1e6),
        ("scaph_domain_energy_microjoules", {"domain_name": "dram", "socket_id": "0"}, "ram", 1e6),
        ("scaph_domain_energy_microjoules", {"domain_name": "core", "socket_id": "0"}, None, 1e6),
        ("scaph_host_energy_microjoules", {}, None, 1e6),
    ],
    "scaphandre's host alone": [("scaph_host_energy_microjoules", {}, "node", 1e6)],
    "node exporter": [
        ("node_rapl_package_joules_total", {"index": "0", "path": "intel-rapl:0"}, "cpu", 1.0),
        ("node_rapl_package_joules_total", {"index": "0", "path": "intel-rapl-mmio:0"}, None, 1.0),
        ("node_rapl_dram_joules_total", {"index": "0", "path": "intel-rapl:0:1"}, "ram", 1.0),
    ],
}


@pytest.mark.parametrize("form", ["query", "export", "scrapes"])
@pytest.mark.parametrize("name", EXPORTERS)
def test_exporters_give_the_energies_of_their_devices(tmp_path: Path, name: str, form: str) -> None:
    metrics = EXPORTERS[name]
    truth: dict[str, float] = {}
    sets = []
    for at, (metric, labels, kind, unit) in enumerate(metrics):
        power = 50.0 + 10 * at
        sets.append((metric, labels, [unit * (1e5 + power * s) for s in range(SECONDS)]))
        if kind:
            truth[kind] = truth.get(kind, 0.0) + power * (SECONDS - 1)
    times = [T0 + s for s in range(SECONDS)]
    host = {"instance": "n1:9100"}
    if form == "query":
        made = [result(m, {**of, **host}, list(zip(times, v, strict=True))) for m, of, v in sets]
        text = answer(*made)
    elif form == "export":
        text = "".join(
            json.dumps(
                {
                    "metric": {"__name__": m, **of, **host},
                    "values": v,
                    "timestamps": [1e3 * t for t in times],
                }
            )
            + "\n"
            for m, of, v in sets
        )
    else:
        text = "".join(
            f"{times[s]}\n"
            + "".join(
                f"{m}{{{','.join(f'{k}={v!r}' for k, v in of.items())}}} {values[s]}\n"
                for m, of, values in sets
            )
            for s in range(SECONDS)
        ).replace("'", '"')
    found = read_foreign(written(tmp_path, text, "n1.txt"))
    assert list(found.nodes) == ["n1"] and found.flags == ()
    kinds = {series.kind for series in sensors(found)}
    assert {kind: pytest.approx(joules(found, kind)) for kind in kinds} == truth


def test_hwmon_is_the_nodes_meter_and_amds_gpus(tmp_path: Path) -> None:
    chips = {
        "platform_power_meter": ("acpi", 500.0),
        "0000:03:00_0": ("amdgpu", 250.0),
        "0000:04:00_0": ("nvme", 8.0),
    }
    results = [
        result(
            "node_hwmon_chip_names",
            {"chip": chip, "chip_name": driver, "instance": "n1"},
            [(T0, 1.0)],
        )
        for chip, (driver, _) in chips.items()
    ]
    results += [
        result(
            "node_hwmon_power_average_watt",
            {"chip": chip, "sensor": "power1", "instance": "n1"},
            [(T0 + s, power + s % 2) for s in range(SECONDS)],
        )
        for chip, (_, power) in chips.items()
    ]
    found = read_foreign(written(tmp_path, answer(*results)))
    assert {(s.kind, round(float(s.values.mean()))) for s in sensors(found)} == {
        ("node", 500),
        ("gpu", 250),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"status":"error","errorType":"bad_data","error":"parse error"}', "failed: parse error"),
        ('{"power": [1, 2, 3]}', r"no known format \(JSON"),
        (answer(result("up", {"instance": "n1:9100"}, [(T0, 1.0)])), "no sample that is read"),
        ('{"status":"success","data":{"resultType":"matrix","result":[{"met', "not whole JSON"),
    ],
    ids=["a query that failed", "another program's", "another metric", "cut off"],
)
def test_json_is_called_json(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_foreign(written(tmp_path, text, "power.json"))


# --- several processes of one node ----------------------------------------------------------------------


def smi(rank: int, uuid: str = "", gpus: int = 2) -> str:
    """Rows of the whole node's GPUs, by a process that began a little later than the others."""
    rows = [
        f"2024/05/31 10:{s // 60:02d}:{s % 60:02d}.{100 * rank:03d}, {gpu}{uuid and f', {uuid}{gpu}'}, "
        f"{watts(s + rank / 10, gpu):.2f} W\n"
        for s in range(SECONDS)
        for gpu in range(gpus)
    ]
    return f"timestamp, index{uuid and ', uuid'}, power.draw [W]\n" + "".join(rows)


def zeus(rank: int) -> str:
    row = f"{T0 + rank / 10},train,{SECONDS - 1 + rank / 50},{true_j() + rank},{true_j(2) - true_j() - rank}"
    return f"start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n{row}\n"


def emissions(rank: int = 0, **cells: Any) -> str:
    row = {
        **{"timestamp": "2024-05-31T10:02:00", "project_name": "p", "run_id": f"r{rank}"},
        **{
            "duration": SECONDS - 1 + rank / 9,
            "emissions": 0.1,
            "cpu_energy": 0.01,
            "ram_energy": 0.001,
        },
        **{
            "gpu_energy": (true_j(2) + 10 * rank) / 3.6e6,
            "energy_consumed": "",
            "tracking_mode": "machine",
        },
        **{"gpu_count": 2, "gpu_model": "2 x A100", "cpu_model": "Xeon", "pue": 1.0},
        **cells,
    }
    return f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"


RANKS: dict[str, Callable[[int], str]] = {
    "nvidia-smi": smi,
    "nvidia-smi with uuids": lambda rank: smi(rank, "GPU-"),
    "a ZeusMonitor": zeus,
    "CodeCarbon": emissions,
}


@pytest.mark.parametrize("kind", RANKS)
def test_processes_that_each_record_the_whole_node_are_never_nodes(
    tmp_path: Path, kind: str
) -> None:
    names = [f"rank{rank}.csv" for rank in range(8)]
    for rank, name in enumerate(names):
        written(tmp_path, RANKS[kind](rank), name)
    with pytest.raises(InputError, match=r"rank\d.csv.*rank\d.csv.*--node FILE=NAME"):
        read_together(files_in(tmp_path, UTC))
    one = read_together(files_in(tmp_path, UTC, dict.fromkeys(names, "n1")))
    assert list(one.nodes) == ["n1"] and "second_sensor" in codes(one)
    assert joules(one) == pytest.approx(true_j(2), rel=1e-2)


def test_a_file_that_the_user_names_is_still_compared_with_the_others(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path, smi(rank), f"rank{rank}.csv")
    with pytest.raises(InputError, match="hold like values of the same time"):
        read_together(files_in(tmp_path, UTC, {"rank0.csv": "n1"}))


def test_a_second_recorder_that_sampled_at_other_times_is_no_node(tmp_path: Path) -> None:
    written(tmp_path, smi(0), "gpus.csv")
    other = re.sub(r"(\d+\.\d\d) W", lambda m: f"{1.03 * float(m[1]):.2f} W", smi(1))
    written(tmp_path, other, "again.csv")
    with pytest.raises(InputError, match=r"gpus.csv.*--node FILE=NAME"):
        read_together(files_in(tmp_path, UTC))


def test_powers_and_totals_of_one_node_are_no_two_nodes(tmp_path: Path) -> None:
    written(tmp_path, smi(0), "gpus.csv")
    begin = datetime(2024, 5, 31, 10, tzinfo=ZoneInfo("UTC")).timestamp()
    written(tmp_path, zeus(0).replace(str(T0), str(begin)), "windows.csv")
    with pytest.raises(InputError, match=r"gpus.csv and windows.csv hold like values"):
        read_together(files_in(tmp_path, UTC))


def test_files_of_a_folder_that_are_not_read_are_flagged(tmp_path: Path) -> None:
    written(tmp_path, smi(0), "gpus.csv")
    written(tmp_path, "when,pdu\nnoon,12\n", "rack.csv")
    stages = written(tmp_path, f"stage,start_s,end_s\ntrain,{T0},{T0 + 9}\n", "stages.csv")
    written(tmp_path, "Notes, of the day\n", "README.md")
    account = read_account(tmp_path, Reading(time_zone="UTC", stages=stages))
    unread = account.flags[account.flags["code"] == "unreadable"]
    assert unread["detail"].tolist() == ["not read, as of no known format: rack.csv"]
    assert account.hosts == account.named_by_file == ["gpus"]


def test_nodes_of_like_load_are_told_apart_by_their_uuids(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path, smi(rank, f"GPU-{'ab'[rank]}"), f"n{rank}.csv")
    assert set(read_together(files_in(tmp_path, UTC)).nodes) == {"n0", "n1"}


def test_nodes_that_only_their_files_names_tell_apart_are_flagged(tmp_path: Path) -> None:
    written(tmp_path, smi(0), "n0.csv")
    written(tmp_path, re.sub(r"\d(\d\.\d\d W)", r"9\1", smi(0)), "n1.csv")
    found = read_together(files_in(tmp_path, UTC))
    assert "assumed" in {flag["code"] for flag in found.flags}


@pytest.mark.parametrize("kind", ["nvidia-smi", "a ZeusMonitor", "CodeCarbon"])
def test_nodes_that_the_user_names_are_nodes(tmp_path: Path, kind: str) -> None:
    nodes = {f"rank{rank}.csv": f"n{rank}" for rank in range(2)}
    for rank, name in enumerate(nodes):
        written(tmp_path, RANKS[kind](rank), name)
    found = read_together(files_in(tmp_path, UTC, nodes))
    assert list(found.nodes) == ["n0", "n1"]
    assert joules(found) == pytest.approx(2 * true_j(2), rel=1e-2)
    with pytest.raises(InputError, match=r"no file rank9\.csv"):
        files_in(tmp_path, UTC, {"rank9.csv": "n9"})


# --- totals ---------------------------------------------------------------------------------------------


def test_a_duration_that_contradicts_its_powers_is_replaced(tmp_path: Path) -> None:
    cells = {
        "duration": 60.0,
        "ram_power": 10.0,
        "ram_energy": 1200 * 10 / 3.6e6,
        "gpu_energy": 0.5,
    }
    found = read_foreign(
        written(tmp_path, emissions(**cells, gpu_count=1, gpu_model="1 x A100")), UTC
    )
    (gpu,) = (series for series in sensors(found) if series.kind == "gpu")
    assert np.ptp(gpu.time_s) == pytest.approx(1200) and joules(found) == pytest.approx(1.8e6)
    assert "time_assumed" in codes(found)


def test_the_tasks_of_a_run_add_up(tmp_path: Path) -> None:
    heading, first = emissions(task_name="load", duration=10.0, gpu_energy=0.001).splitlines()
    second = emissions(task_name="train", duration=90.0, gpu_energy=0.01).splitlines()[1]
    other = emissions(1, task_name="train", gpu_energy=7.0).splitlines()[1]
    path = written(tmp_path, "\n".join([heading, other, first, second, ""]))
    found = read_foreign(path, UTC)
    assert joules(found) == pytest.approx(0.011 * 3.6e6)
    assert np.ptp(sensors(found)[0].time_s) == pytest.approx(100)
    load = read_foreign(path, Options(time_zone="UTC", run="load"))
    assert joules(load) == pytest.approx(0.001 * 3.6e6)


@pytest.mark.parametrize(
    ("count", "model", "devices"),
    [(2, "2 x A100", 2), (2, "8 x A100", 1), (8, "2 x A100", 1), ("", "2 x A100", 1), (2, "", 2)],
)
def test_a_count_that_is_not_what_was_summed_divides_nothing(
    tmp_path: Path, count: Any, model: str, devices: int
) -> None:
    path = written(tmp_path, emissions(gpu_count=count, gpu_model=model))
    found = read_foreign(path, UTC)
    assert sum(series.kind == "gpu" for series in sensors(found)) == devices
    assert joules(found) == pytest.approx(true_j(2))
