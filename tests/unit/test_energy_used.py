"""What a campaign has used so far: accounted for, still in journals, lost, abandoned, unknown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from energy_files import NO_POWERS, T0, counter, gpu
from run_files import WHOLE, absent, part
from status_files import CAMPAIGN, ONE, TWO, Made, add_up, begin_segment, describe, record

from scalewatt.common.files import write_json
from scalewatt.energies.account import account
from scalewatt.energies.tables import EnergyTotals
from scalewatt.tracking.energy_used import recorded_run


def watts(seconds: int, each: float = 180.0) -> dict[str, Any]:
    """Two GPUs that draw `each`, for so many seconds."""
    return {name: gpu(seconds + 1, each) for name in ("CUDA:0_POWER", "CUDA:1_POWER")}


def kwh(joules: float) -> float:
    return joules / 3.6e6


def test_nothing_was_used_where_there_is_nothing(made: Made) -> None:
    assert not any(made.used().values())
    assert not made.work.exists(), "looking makes no folders"


RAM_ESTIMATED = [
    row | {"energy_origin": "estimated"} if row["device_kind"] == "ram" else row for row in WHOLE
]
UNKNOWN_CPU = [row | {"energy_j": None} if row["device_kind"] == "cpu" else row for row in WHOLE]
WITHOUT_RAM = [*WHOLE[:4], absent("ram", "train", 3000), absent("ram", "validate", 600)]
STAGED = [*WHOLE, part("gpu", "stage_data", 100, 36_000, devices=2)]


@pytest.mark.parametrize(
    ("rows", "by_origin", "known"),
    [
        (WHOLE, {"measured": 0.45}, True),
        (RAM_ESTIMATED, {"measured": 0.43, "estimated": 0.02}, True),
        (UNKNOWN_CPU, {"measured": 0.45}, False),
        (WITHOUT_RAM, {"measured": 0.43}, True),
        (STAGED, {"measured": 0.46}, True),
    ],
    ids=["whole", "origins are told apart", "not to be stated", "a kind is absent", "staging"],
)
def test_a_finished_runs_energy_is_that_of_its_table(
    tmp_path: Path, rows: Any, by_origin: dict[str, float], known: bool
) -> None:
    made = Made.create(tmp_path, protocol="paper")
    made.publish()
    made.account(rows=rows)
    used = made.used()
    assert used["energy_kwh_by_origin"] == pytest.approx(by_origin)
    assert used["energy_kwh"] == pytest.approx(sum(by_origin.values()))
    assert used["gpu_hours"] == pytest.approx(2, rel=0.03)
    assert used["energy_unknown_runs"] == ([] if known else [f"{TWO} repeat 1"])


def test_an_unfinished_runs_energy_is_that_of_its_journals_over_all_segments(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "killed")
    begin_segment(folder, 1)
    record(folder, watts(100), segment=0, ago_s=500)
    record(folder, watts(50), segment=1)
    used = made.used()
    assert used["energy_kwh"] == pytest.approx(kwh(150 * 360))
    assert used["gpu_hours"] == pytest.approx(2 * 150 / 3600)
    assert not used["energy_unknown_runs"]


def test_a_finished_run_counts_once_whatever_its_working_directory_keeps(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "finished")
    record(folder, watts(100))
    record(made.publish(), watts(100))
    assert made.used()["energy_kwh"] == pytest.approx(kwh(36_000)), "from its journal"
    made.account()
    assert made.used()["energy_kwh"] == pytest.approx(0.45), "from its table"


def test_a_copy_that_lost_the_times_says_what_the_original_says(made: Made) -> None:
    made.publish()
    os.utime(made.account(), (T0, T0))
    used = made.used()
    assert used["energy_kwh"] == pytest.approx(0.45)
    assert (used["gpu_hours"], used["energy_unknown_runs"]) == (pytest.approx(2), [])


@pytest.mark.parametrize("damaged", [False, True])
def test_results_without_a_readable_table_count_by_their_own_journals(
    made: Made, damaged: bool
) -> None:
    record(made.publish(), watts(100))
    if damaged:
        made.account().write_bytes(b"PAR1 nothing")
    assert made.used()["energy_kwh"] == pytest.approx(kwh(36_000))


def test_runs_that_the_campaign_has_no_more_were_paid_for(tmp_path: Path) -> None:
    made = Made.create(tmp_path)
    begin_segment(made.work_folder(), 0, "finished")
    record(made.work_folder(), watts(100))
    series = CAMPAIGN["series"]["images"] | {"gpus": [1]}
    fewer = Made.create(tmp_path, series={"images": series})
    used = fewer.used()
    assert used["energy_kwh"] == used["superseded_energy_kwh"] == pytest.approx(kwh(36_000))
    assert made.used()["superseded_energy_kwh"] == 0


def test_a_node_that_recorded_nothing_makes_the_run_unknown(tmp_path: Path) -> None:
    series = CAMPAIGN["series"]["images"] | {"gpus": [8]}
    made = Made.create(tmp_path, series={"images": series})
    name = "resnet50-a100-n008-lbs0016-full"
    folder = made.work_folder(name)
    begin_segment(folder)
    describe(folder, [(host, gpu) for host in ("n1", "n2") for gpu in range(3)])
    record(folder, {f"CUDA:{i}_POWER": gpu(101, 180) for i in range(3)})
    used = made.used()
    assert (used["energy_kwh"], used["energy_unknown_runs"]) == (
        pytest.approx(kwh(54_000)),
        [f"{name} repeat 1"],
    )


@pytest.mark.parametrize(
    ("stages", "unknown"), [(["startup"], False), (["startup", "train"], True)]
)
def test_a_segment_without_a_sample_is_unknown_once_it_worked(
    made: Made, stages: list[str], unknown: bool
) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "killed")
    marks = [{"segment": 0, "stage": stage, "epoch": None, "start_s": T0} for stage in stages]
    (folder / "events.jsonl").write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    assert made.used()["energy_unknown_runs"] == ([f"{TWO} repeat 1"] if unknown else [])


def test_gpus_that_a_run_did_not_hold_do_not_count(made: Made) -> None:
    folder = made.work_folder(ONE)
    begin_segment(folder)
    describe(folder, [("n1", 0)])
    record(folder, watts(100))
    used = made.used()
    assert used["energy_kwh"] == pytest.approx(kwh(18_000))
    assert used["gpu_hours"] == pytest.approx(100 / 3600)


def test_each_segment_of_published_results_counts_the_gpus_and_nodes_that_it_held(
    made: Made,
) -> None:
    folder = made.publish(ONE)
    provenance = folder / "provenance.json"
    ranks = [[{"host": host, "gpu": gpu, "gpu_uuid": None}] for host, gpu in (("n1", 0), ("n2", 1))]
    segments = [{"segment": n, "outcome": "stopped", "ranks": r} for n, r in enumerate(ranks)]
    held = {"gpus": {"n1": [0, 1], "n2": [0, 1]}, "hostnames": ["n1", "n2"], "segments": segments}
    write_json(provenance, {**json.loads(provenance.read_text()), **held})
    for number, host in enumerate(("n1", "n2")):
        record(folder, watts(100), number, host)
    used = made.used()
    assert used["energy_kwh"] == pytest.approx(kwh(2 * 18_000))
    assert not used["energy_unknown_runs"]


# --- running totals -----------------------------------------------------------------------------


def measured(n: int) -> dict[str, Any]:
    """Raw samples of two GPUs, a socket whose counter wraps, and a memory; some are missing."""
    random = np.random.default_rng(0)
    steps = np.cumsum(random.integers(50_000_000, 150_000_000, n))
    first = 1000.0 * random.integers(50, 390, n)
    first[100:103] = np.nan
    return {
        "CUDA:0_POWER": first,
        "CUDA:1_POWER": 1000.0 * random.integers(50, 390, n),
        "cpu_0_package-0": (262_000_000_000 + steps) % 262_143_328_850,
        "ram_0_dram": counter(n, 12.0),
    }


def faulty(n: int) -> dict[str, Any]:
    """Raw samples with faults between two totals: spikes, failed reads, a counter that begins anew."""
    power, energy = gpu(n, 300), counter(n, 12.0)
    power[[205, 410]] = 700_000
    energy[600:605] = 0
    energy[803:] -= energy[802]
    gpus = {"CUDA:0_POWER": power, "CUDA:1_POWER": gpu(n)}
    return {**gpus, "cpu_0_package-0": counter(n, 90.0), "ram_0_dram": energy}


@pytest.mark.parametrize("until", [1201, 0, 900], ids=["total", "no total", "killed long after"])
@pytest.mark.parametrize("sensors", [measured, faulty])
def test_a_running_total_states_what_the_accounting_does(
    made: Made, sensors: Callable[[int], dict[str, Any]], until: int
) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    journal = record(folder, sensors(1201))
    run = recorded_run(folder, made.spec(), lambda *_: NO_POWERS)
    accounted = EnergyTotals(account(run).energy, with_staging=True)
    add_up(journal, until)
    used = made.used()
    assert used["energy_kwh"] == pytest.approx(kwh(accounted.joules() or 0), rel=1e-9)
    assert used["gpu_hours"] == pytest.approx(2 * accounted.runtime_s / 3600)
    assert (set(used["energy_kwh_by_origin"]), used["energy_unknown_runs"]) == ({"measured"}, [])


@pytest.mark.parametrize(("seconds", "until"), [(9, 10), (20, 21), (60, 61), (3000, 2980)], ids=str)
def test_all_samples_count_of_a_short_journal_or_one_whose_total_is_overdue(
    made: Made, seconds: int, until: int
) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    add_up(record(folder, watts(seconds, 100)), until)
    assert made.used()["energy_kwh"] == pytest.approx(kwh(200 * seconds), rel=1e-9)


def test_a_total_of_a_sensor_that_failed_for_long_is_not_all(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    samples = {name: powers.astype(float) for name, powers in watts(3000, 100).items()}
    samples["CUDA:1_POWER"][1000:2000] = np.nan
    add_up(record(folder, samples), 3001)
    assert made.used()["energy_unknown_runs"]


def test_a_total_is_as_old_as_the_monotonic_clock_says(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    path = record(folder, watts(3005, 100))
    add_up(path, 3006)
    rows = pd.read_csv(path)
    rows.loc[3003:, "t"] -= 3600  # the wall clock is set while the total is not due
    rows.to_csv(path, index=False)
    assert made.used()["energy_kwh"] == pytest.approx(kwh(600_000))


def test_of_a_node_without_a_sensor_of_a_rated_kind_the_rest_is_estimated(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    add_up(record(folder, {**watts(220), "CPU_BUSY": np.full(221, 50.0)}), 221)
    rated = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
    used = made.measurements(rated)
    assert used["measured"].item() == pytest.approx(kwh(220 * 360))
    assert used["estimated"].item() == pytest.approx(kwh(220 * 2 * 61.05))
