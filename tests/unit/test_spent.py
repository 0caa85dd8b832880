"""What a campaign has used so far: accounted for, still in journals, lost, abandoned, unknown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from energy_files import T0, gpu, write_journal
from run_files import WHOLE, absent, part
from status_files import CAMPAIGN, ONE, TWO, Made, begin_segment, record

from scalewatt.common.files import write_json


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made.create(tmp_path)


def watts(seconds: int, each: float = 180.0) -> dict[str, Any]:
    """Two GPUs that draw `each`, for so many seconds."""
    return {name: gpu(seconds + 1, each) for name in ("CUDA:0_POWER", "CUDA:1_POWER")}


def kwh(joules: float) -> float:
    return joules / 3.6e6


def test_nothing_was_used_where_there_is_nothing(made: Made) -> None:
    spent = made.spent()
    assert (spent.kwh, spent.gpu_hours, spent.by_origin, spent.unknown_runs) == (0, 0, {}, ())
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
    spent = made.spent()
    assert spent.by_origin == pytest.approx(by_origin)
    assert spent.kwh == pytest.approx(sum(by_origin.values()))
    assert spent.gpu_hours == pytest.approx(2, rel=0.03)
    assert spent.unknown_runs == (() if known else (f"{TWO} repeat 1",))


def test_an_estimate_has_its_interval_in_the_whole_and_in_its_run(made: Made) -> None:
    bounds = {"energy_low_j": 18_000.0, "energy_high_j": 144_000.0}
    estimate = {"energy_origin": "estimated", "energy_j": 36_000.0, "recorded_j": 36_000.0}
    rows = [row | estimate | bounds if row["device_kind"] == "ram" else row for row in WHOLE]
    made.publish()
    made.account(rows=rows)
    found = made.spent()
    of_ram = sum(row["device_kind"] == "ram" for row in WHOLE)
    assert found.kwh == pytest.approx(0.43 + 0.01 * of_ram)
    assert found.bounds_kwh == pytest.approx((0.43 + 0.005 * of_ram, 0.43 + 0.04 * of_ram))
    (of_run,) = found.runs.values()
    assert of_run.bounds_kwh == found.bounds_kwh


def test_an_unfinished_runs_energy_is_that_of_its_journals_over_all_segments(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "killed")
    begin_segment(folder, 1)
    record(folder, watts(100), segment=0, ago_s=500)
    record(folder, watts(50), segment=1)
    spent = made.spent()
    assert spent.kwh == pytest.approx(kwh(150 * 360))
    assert spent.gpu_hours == pytest.approx(2 * 150 / 3600)
    assert spent.unknown_runs == ()
    assert [one.kwh for one in spent.runs.values()] == [pytest.approx(kwh(150 * 360))]


def test_a_finished_run_counts_once_whatever_its_working_directory_keeps(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder, 0, "finished")
    record(folder, watts(100))
    made.publish()
    assert made.spent().kwh == pytest.approx(kwh(36_000)), "from its journal"
    made.account()
    assert made.spent().kwh == pytest.approx(0.45), "from its table"


def test_a_table_older_than_the_results_is_not_theirs(made: Made) -> None:
    table = made.account()
    os.utime(table, (T0, T0))
    made.publish()
    begin_segment(made.work_folder(), 0, "finished")
    record(made.work_folder(), watts(100))
    assert made.spent().kwh == pytest.approx(kwh(36_000))


def test_a_copy_that_lost_the_times_says_what_the_original_says(made: Made) -> None:
    made.publish()
    os.utime(made.account(), (T0, T0))
    spent = made.spent()
    assert spent.kwh == pytest.approx(0.45)
    assert (spent.gpu_hours, spent.unknown_runs) == (pytest.approx(2), ())


def test_what_a_finished_run_used_is_unknown_without_table_and_journal(made: Made) -> None:
    made.publish()
    spent = made.spent()
    assert (spent.kwh, spent.unknown_runs) == (0, (f"{TWO} repeat 1",))


@pytest.mark.parametrize("damaged", [False, True])
def test_results_without_a_readable_table_count_by_their_own_journals(
    made: Made, damaged: bool
) -> None:
    record(made.publish(), watts(100))
    if damaged:
        made.account().write_bytes(b"PAR1 nothing")
    assert made.spent().kwh == pytest.approx(kwh(36_000))


def test_runs_that_the_campaign_has_no_more_were_paid_for(tmp_path: Path) -> None:
    made = Made.create(tmp_path)
    begin_segment(made.work_folder(), 0, "finished")
    record(made.work_folder(), watts(100))
    series = CAMPAIGN["series"]["images"] | {"gpus": [1]}  # type: ignore[index]
    fewer = Made.create(tmp_path, series={"images": series})
    spent = fewer.spent()
    assert spent.kwh == spent.superseded_kwh == pytest.approx(kwh(36_000))
    assert made.spent().superseded_kwh == 0


def test_the_same_run_of_two_datasets_counts_twice(made: Made) -> None:
    for folder in (made.work_folder(), Path(f"{str(made.work_folder())[:-1]}1")):
        (folder / "perun").mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text((made.work_folder() / "spec.json").read_text())
        begin_segment(folder)
        record(folder, watts(100))
    (run,) = made.spent().runs.values()
    assert run.kwh == pytest.approx(kwh(72_000))


def test_a_node_that_recorded_nothing_makes_the_run_unknown(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    record(folder, watts(100))
    said = json.loads((folder / "segment-000.json").read_text())
    write_json(folder / "segment-000.json", {**said, "hostnames": ["n1", "n2.cluster"]})
    assert made.spent().unknown_runs == (f"{TWO} repeat 1",)


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
    assert made.spent().unknown_runs == ((f"{TWO} repeat 1",) if unknown else ())


def test_gpus_that_a_run_did_not_hold_do_not_count(made: Made) -> None:
    folder = made.work_folder(ONE)
    begin_segment(folder)
    said = json.loads((folder / "segment-000.json").read_text())
    write_json(folder / "segment-000.json", {**said, "gpus": {"n1": [0]}})
    record(folder, watts(100))
    spent = made.spent()
    assert spent.kwh == pytest.approx(kwh(18_000))
    assert spent.gpu_hours == pytest.approx(100 / 3600)


def test_each_segment_of_published_results_counts_the_gpus_and_nodes_that_it_held(
    made: Made,
) -> None:
    folder = made.publish(ONE)
    provenance = folder / "provenance.json"
    ranks = [[{"host": host, "gpu": gpu, "gpu_uuid": None}] for host, gpu in (("n1", 0), ("n2", 1))]
    segments = [{"segment": n, "outcome": "stopped", "ranks": r} for n, r in enumerate(ranks)]
    said = {"gpus": {"n1": [0, 1], "n2": [0, 1]}, "hostnames": ["n1", "n2"], "segments": segments}
    write_json(provenance, {**json.loads(provenance.read_text()), **said})
    for number, host in enumerate(("n1", "n2")):
        record(folder, watts(100), number, host)
    spent = made.spent()
    assert spent.kwh == pytest.approx(kwh(2 * 18_000))
    assert spent.unknown_runs == ()


def test_what_is_known_of_the_gpus_counts_as_soon_as_it_is_known(made: Made) -> None:
    folder = made.work_folder(ONE)
    begin_segment(folder)
    description = folder / "segment-000.json"
    said = json.loads(description.read_text())
    description.unlink()
    record(folder, watts(100))
    assert made.spent().kwh == pytest.approx(kwh(36_000))
    write_json(description, {**said, "gpus": {"n1": [0]}})
    assert made.spent().kwh == pytest.approx(kwh(18_000))


# --- idle probes --------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["perun", ".work/idle-1-0/perun"])
def test_idle_probes_count_where_the_campaign_has_them(tmp_path: Path, place: str) -> None:
    made = Made.create(tmp_path, idle_probe={"seconds": 60, "repeats": 1})
    folder = made.results / "idle" / "a100" / "1"
    path = folder / place / "segment-000.n1.csv"
    write_journal(path, "n1", watts(60, 50))
    write_json(folder / "probe.json", {"gpus": {"n1": [0, 1]}, "torch_device": "cuda"})
    spent = made.spent()
    assert spent.kwh == spent.probes_kwh == pytest.approx(kwh(6000))
    assert spent.gpu_hours == pytest.approx(2 * 60 / 3600)
    assert Made.create(tmp_path).spent().kwh == 0, "another campaign's probes are none of this one"


# --- asking again -------------------------------------------------------------------------------


def test_what_changed_is_counted_anew(made: Made) -> None:
    folder = made.work_folder()
    begin_segment(folder)
    path = record(folder, watts(100))
    made.publish(ONE)
    made.account(ONE)
    first = made.spent().kwh
    path.unlink()
    record(folder, watts(200))
    table = made.account(ONE, rows=WHOLE[:2])
    os.utime(table)
    assert made.spent().kwh == pytest.approx(first + kwh(36_000) - 0.45 + 0.28)
