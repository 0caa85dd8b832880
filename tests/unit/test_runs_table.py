"""From a run's files to its row: totals, scope, what is missing, and what the site adds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_files import NAME, WHOLE, absent, epochs, make_run, make_spec, part, row_of, run_row

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table
from scalewatt.results.build import write_runs
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS


def test_energy_time_and_rates_of_a_measured_run(tmp_path: Path) -> None:
    row = row_of(tmp_path, WHOLE)
    expected = {
        "runtime_s": 3600.0,
        "runtime_h": 1.0,
        "gpu_hours": 2.0,
        "energy_kwh": 0.45,
        "gpu_energy_kwh": 0.28,
        "cpu_energy_kwh": 0.15,
        "ram_energy_kwh": 0.02,
        "gpu_energy_share": 0.28 / 0.45,
        "cpu_energy_share": 0.15 / 0.45,
        "ram_energy_share": 0.02 / 0.45,
        "p_gpuh_kw": 0.225,
        "mean_gpu_power_w": 140.0,
        "mean_cpu_socket_power_w": 75.0,
        "samples": 5744,
        "updates": 48,
        "passes": 96,
        "samples_per_gpuh": 2872.0,
        "passes_per_gpuh": 48.0,
        "energy_per_sample_j": 1_620_000 / 5744,
        "energy_per_update_j": 33_750.0,
        "energy_per_node_kwh": 0.45,
        "coverage": 1.0,
        "segments": 1,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu+cpu+ram")
    assert json.loads(row["flags"]) == []


def test_where_larger_is_better_the_best_metric_is_the_largest(tmp_path: Path) -> None:
    history = epochs([40.0, 22.5, 20.0, 25.0])
    row = row_of(tmp_path, WHOLE, history=history, metric_goal="max")
    assert (row["metric_goal"], row["metric_last"], row["metric_best"]) == ("max", 25.0, 40.0)
    result = configurations_of(frame_of([row], RUNS))
    assert list(result["metric_goal"]) == ["max"]


def test_a_training_that_diverged_has_no_last_metric(tmp_path: Path) -> None:
    row = row_of(tmp_path, WHOLE, history=epochs([40.0, 30.0, None]))
    assert (row["metric_last"], row["metric_best"]) == (None, 30.0)


# --- what is missing ----------------------------------------------------------------------------


DEPENDENT = [
    "energy_kwh", "p_gpuh_kw", "energy_per_sample_j", "energy_per_update_j",
    "energy_per_node_kwh", "facility_energy_kwh", "carbon_kg", "cost",
]  # fmt: skip


def test_one_unknown_part_makes_the_total_unknown_and_no_zero(tmp_path: Path) -> None:
    lost = part("gpu", "validate", 600, None, devices=2, coverage=0.4, flags=("gap",))
    row = row_of(tmp_path, [WHOLE[0], lost, *WHOLE[2:]], Facility(1.2, 400, 0.3))
    assert {name: row[name] for name in DEPENDENT} == dict.fromkeys(DEPENDENT)
    assert row["gpu_energy_kwh"] is None and row["mean_gpu_power_w"] is None
    assert row["cpu_energy_kwh"] == pytest.approx(0.15)
    assert row["energy_scope"] == "gpu+cpu+ram"
    assert row["coverage"] == 0.4
    assert [flag["code"] for flag in json.loads(row["flags"])] == ["gap"]
    assert row["runtime_h"] == 1.0


def test_a_sensor_absent_on_one_node_only_makes_the_total_unknown(tmp_path: Path) -> None:
    nodes = [part("cpu", "train", 100, 5000, node=node) for node in ("n1", "n2")]
    energy = [*nodes, part("gpu", "train", 100, 9000), absent("gpu", "train", 100, node="n2")]
    row = row_of(tmp_path, energy)
    assert row["energy_scope"] == "gpu+cpu"
    assert row["gpu_energy_kwh"] is None and row["energy_kwh"] is None


def test_a_run_without_any_energy_keeps_its_time(tmp_path: Path) -> None:
    energy = [absent(kind, "train", 1800) for kind in ("gpu", "cpu", "ram")]
    row = row_of(tmp_path, energy)
    assert row["energy_kwh"] is None
    assert row["energy_scope"] is None and row["energy_origin"] is None
    assert row["coverage"] is None
    assert (row["runtime_h"], row["gpu_hours"]) == (0.5, 1.0)


# --- what counts --------------------------------------------------------------------------------

STAGED = [
    part(kind, stage, seconds, 1000 * seconds, devices=2)
    for kind in ("gpu", "cpu")
    for stage, seconds in (("startup", 20), ("stage_data", 900), ("train", 1800))
]


def test_the_papers_protocol_leaves_staging_out_of_time_and_energy(tmp_path: Path) -> None:
    row = row_of(tmp_path, STAGED, spec=make_spec(protocol="paper"))
    assert row["runtime_s"] == 1820
    assert row["gpu_hours"] == pytest.approx(2 * 1820 / 3600)
    assert row["energy_kwh"] == pytest.approx(2 * 1820 * 1000 / 3.6e6)
    assert row["stage_data_energy_kwh"] == pytest.approx(2 * 900 * 1000 / 3.6e6)


def test_time_adds_up_over_segments_and_is_the_longest_nodes_in_each(tmp_path: Path) -> None:
    energy = [
        part("cpu", "train", 100, 1000.0, segment=0, node="n1", devices=2),
        part("cpu", "train", 104, 1000.0, segment=0, node="n2", devices=2),
        part("gpu", "train", 100, 1000.0, segment=0, node="n1"),
        part("gpu", "train", 104, 1000.0, segment=0, node="n2"),
        part("cpu", "train", 50, 500.0, segment=1, node="n1", devices=2),
        part("cpu", "shutdown", 6, 20.0, segment=1, node="n1", devices=2),
        part("cpu", "train", 55, 500.0, segment=1, node="n2", devices=2),
    ]
    row = row_of(
        tmp_path,
        energy,
        spec=make_spec(gpus=8, nodes=2),
        segments=[{"segment": 0, "outcome": "stopped"}, {"segment": 1, "outcome": "finished"}],
    )
    assert row["runtime_s"] == 104 + 56
    assert row["gpu_hours"] == pytest.approx(8 * 160 / 3600)
    assert row["segments"] == 2
    # two sockets a node, each over its own recorded time
    seconds = 2 * (100 + 104 + 50 + 6 + 55)
    assert row["mean_cpu_socket_power_w"] == pytest.approx(3020 / seconds)
    assert row["energy_per_node_kwh"] == pytest.approx(5020 / 3.6e6 / 2)


# --- what the site adds -------------------------------------------------------------------------


def test_facility_numbers_follow_from_the_energy_and_never_enter_it(tmp_path: Path) -> None:
    row = row_of(tmp_path, WHOLE, Facility(pue=1.2, carbon_g_per_kwh=400, price_per_kwh=0.25))
    assert row["energy_kwh"] == pytest.approx(0.45)
    assert row["facility_energy_kwh"] == pytest.approx(0.54)
    assert row["carbon_kg"] == pytest.approx(0.216)
    assert row["cost"] == pytest.approx(0.135)


# --- files --------------------------------------------------------------------------------------


def test_a_run_that_was_trained_with_another_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{NAME}/1: spec.json is not the spec that provenance"):
        make_run(tmp_path, WHOLE, spec_sha256="0" * 64)


def definition(*runs: list[Any]) -> dict[str, Any]:
    return {
        "campaign": "made",
        "runs": list(runs),
        "missing": ["one-that-never-ran"],
        "series": [],
        "facility": {"pue": 1.5},
    }


def test_both_tables_are_written_with_their_schema_and_as_csv(tmp_path: Path) -> None:
    for repeat in (1, 2):
        make_run(tmp_path, WHOLE, spec=make_spec(repeat=repeat))
    write_runs(definition([NAME, 1], [NAME, 2]), tmp_path, tmp_path / "tables")
    runs = pq.read_table(tmp_path / "tables" / "runs.parquet")
    configurations = pq.read_table(tmp_path / "tables" / "configurations.parquet")
    assert runs.schema.equals(RUNS) and configurations.schema.equals(CONFIGURATIONS)
    assert runs["repeat"].to_pylist() == [1, 2]
    assert configurations["n_repeats"].to_pylist() == [2]
    assert runs["facility_energy_kwh"].to_pylist() == pytest.approx([0.675, 0.675])
    for name in ("runs", "configurations"):
        with open(tmp_path / "tables" / f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        read = pq.read_table(tmp_path / "tables" / f"{name}.parquet")
        assert list(rows[0]) == read.column_names
        assert len(rows) == len(read)
    metadata = json.loads(runs.schema.metadata[b"scalewatt"])
    assert metadata["campaign"] == "made"
    assert metadata["missing"] == ["one-that-never-ran"]
    assert metadata["gpu_word"] == "GPUs"


# --- idle power ---------------------------------------------------------------------------------


def idle_row(kind: str, watts: float | None, origin: str = "measured") -> dict[str, Any]:
    """A row of the idle table of this run's device."""
    return dict.fromkeys(IDLE.names) | {
        "device": make_spec().device,
        "device_kind": kind,
        "mean_per_device_w": watts,
        "energy_origin": origin,
    }


@pytest.mark.parametrize(
    ("rows", "expected_j"),
    [
        (
            [idle_row("gpu", 50.0), idle_row("cpu", 60.0), idle_row("ram", 10.0)],
            3600 * (2 * 50 + 2 * 60 + 10),
        ),
        ([idle_row("gpu", 50.0), idle_row("cpu", 60.0)], None),
        ([idle_row("gpu", None), idle_row("cpu", 60.0), idle_row("ram", 10.0)], None),
        (
            [idle_row("gpu", 50.0), idle_row("cpu", 60.0, "estimated"), idle_row("ram", 10.0)],
            None,
        ),
    ],
)
def test_idle_energy_is_that_of_the_runs_devices_over_its_time(
    tmp_path: Path, rows: list[dict[str, Any]], expected_j: float | None
) -> None:
    write_table(pa.Table.from_pylist(rows, IDLE), tmp_path / "idle.parquet")
    files = make_run(tmp_path / "results", WHOLE)
    row = run_row(files, "made", Facility(), tmp_path / "idle.parquet")
    idle, net = row["idle_energy_kwh"], row["net_energy_kwh"]
    assert idle == (None if expected_j is None else pytest.approx(expected_j / 3.6e6))
    assert net == (None if expected_j is None else pytest.approx(row["energy_kwh"] - idle))
    without = run_row(files)
    assert without["idle_energy_kwh"] is without["net_energy_kwh"] is None
