"""Submissions to MLPerf Training become campaigns: small ones in the real form, and the real ones."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlperf_files import START_S, power_log, result_log, write_run, write_system

from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.energies.accounting.account import write_energy
from scalewatt.registration.register import register
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.run_row import RunFiles, run_row

REAL = os.environ.get("SCALEWATT_MLPERF")
needs_real = pytest.mark.skipif(
    not REAL, reason="SCALEWATT_MLPERF does not name the folder of MLPerf's power logs"
)


def wave(level_w: float, period_s: float = 30.0):
    return lambda t: level_w + 100 * math.sin(t / period_s)


def constant(watts: float):
    return lambda _: watts + 0.5


def whole_log(power) -> str:
    """Return a log from 60 s before the run to 60 s after it."""
    return power_log(power, START_S - 60, START_S + 260)


def registered(tmp_path: Path, *paths: Path, table: Path | None = None) -> list[str]:
    return register("mlperf", list(paths), table, tmp_path / "results", tmp_path / "campaigns")


def row_of(tmp_path: Path, configuration: str, repeat: int = 1) -> dict:
    """Return the row of RUNS of a registered run, accounted for."""
    files = RunFiles(tmp_path / "results" / "mlperf", configuration, repeat)
    files.energy.parent.mkdir(parents=True, exist_ok=True)
    files.traces.parent.mkdir(parents=True, exist_ok=True)
    write_energy(files.folder, files.folder / "spec.json", {}, files.traces, files.energy)
    return run_row(files, "mlperf", Facility())


@pytest.fixture
def submitter(tmp_path: Path) -> Path:
    folder = tmp_path / "training_results" / "a-submitter"
    write_system(folder, "one", 1)
    write_system(folder, "two", 2)
    return folder


ONE = "resnet-h100-sxm5-80gb-n008-lbs0400-s1281167-target"
TWO = "resnet-h100-sxm5-80gb-n016-lbs0200-s1281167-target-nodes2"


def test_systems_benchmarks_runs_and_repeats_are_found(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    write_run(submitter, "one", "2", {"node_1": whole_log(wave(5100))})
    nodes = {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes, switch_w=700)
    lines = registered(tmp_path, submitter.parent)
    assert sum(text.startswith("registered:") for text in lines) == 3
    campaign = load_campaign(tmp_path / "campaigns" / "mlperf.yaml", None)
    assert campaign.repeats == {ONE: 2, TWO: 1}
    assert campaign.configurations[TWO].global_batch_size == 3200
    (series,) = campaign.series.values()
    assert series.points == {8: ONE, 16: TWO}


def test_the_energy_is_that_of_the_runs_own_window(tmp_path: Path, submitter: Path) -> None:
    idle_outside = power_log(
        lambda t: 5000.0 + t % 4 if 0 <= t <= 200 else 500.0, START_S - 60, START_S + 260
    )
    write_run(submitter, "one", "1", {"node_1": idle_outside})
    registered(tmp_path, submitter)
    row = row_of(tmp_path, ONE)
    assert row["energy_scope"] == "node"
    assert row["energy_origin"] == "measured"
    assert row["runtime_s"] == pytest.approx(200)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(5001 * 200, rel=1e-3)
    assert row["node_energy_kwh"] == row["energy_kwh"]
    assert row["gpu_energy_kwh"] is None


def test_the_rule_of_the_whole_log_stands_beside_it(tmp_path: Path, submitter: Path) -> None:
    log = power_log(lambda t: 5000.0 if 0 <= t <= 200 else 500.0, START_S - 60, START_S + 260)
    write_run(submitter, "one", "1", {"node_1": log})
    registered(tmp_path, submitter)
    row_of(tmp_path, ONE)
    checks = pd.read_parquet(tmp_path / f"results/mlperf/energy/{ONE}/1.cross-checks.parquet")
    (check,) = checks.to_dict("records")
    # 101 readings of 5 kW, 59 of 500 W, each for the 2 s before it.
    by_rule = (101 * 2 * 5000 + 59 * 2 * 500) / 320 * 200
    assert check["source"] == "mlperf_rule"
    assert check["energy_j"] == pytest.approx(by_rule, rel=1e-6)
    assert check["difference"] == pytest.approx(check["energy_j"] / check["recorded_j"] - 1)


def test_switches_stand_beside_the_nodes_and_are_added_to_nothing(
    tmp_path: Path, submitter: Path
) -> None:
    nodes = {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes, switch_w=700)
    registered(tmp_path, submitter)
    row = row_of(tmp_path, TWO)
    assert row["network_energy_kwh"] * 3.6e6 == pytest.approx(700 * 200)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(2 * 5000 * 200, rel=0.02)
    assert "constant_estimate" in row["flags"]


def test_a_missing_nodes_file_leaves_the_energy_null(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "two", "1", {"node_0": whole_log(wave(5000))})
    lines = registered(tmp_path, submitter)
    assert any("1 of 2 nodes were recorded" in text for text in lines)
    row = row_of(tmp_path, TWO)
    assert row["energy_kwh"] is None
    assert row["recorded_energy_kwh"] * 3.6e6 == pytest.approx(5000 * 200, rel=0.02)
    assert "missing_host" in row["flags"]


def test_copies_are_flagged_with_what_rests_on_them(tmp_path: Path, submitter: Path) -> None:
    same = whole_log(wave(5000))
    write_run(submitter, "two", "1", {"node_0": same, "node_1": same})
    registered(tmp_path, submitter)
    row = row_of(tmp_path, TWO)
    assert row["duplicate_share"] == pytest.approx(0.5)
    assert row["distinct_energy_kwh"] == pytest.approx(row["energy_kwh"])
    (found,) = (f for f in json.loads(row["flags"]) if f["code"] == "duplicate_recording")
    assert "node_1 as node_0" in found["detail"]
    assert "50 % of the energy" in found["detail"]


def test_nodes_that_differ_are_no_copies(tmp_path: Path, submitter: Path) -> None:
    nodes = {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes)
    registered(tmp_path, submitter)
    row = row_of(tmp_path, TWO)
    assert row["duplicate_share"] == 0
    assert "duplicate_recording" not in row["flags"]


def test_nodes_of_one_steady_power_are_no_copies(tmp_path: Path, submitter: Path) -> None:
    nodes = {f"node_{i}": whole_log(constant(500)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes)
    registered(tmp_path, submitter)
    assert row_of(tmp_path, TWO)["duplicate_share"] == 0


def test_stages_are_those_of_the_result_log(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    registered(tmp_path, submitter)
    row_of(tmp_path, ONE)
    energy = pd.read_parquet(tmp_path / f"results/mlperf/energy/{ONE}/1.parquet")
    seconds = energy[energy["device_kind"] == "node"].set_index("stage")["duration_s"]
    assert seconds["validate"] == pytest.approx(20)
    assert seconds["train"] == pytest.approx(180)
    assert "startup" not in seconds or seconds["startup"] == 0


def test_samples_updates_and_passes_are_those_trained(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    registered(tmp_path, submitter)
    row = row_of(tmp_path, ONE)
    assert row["samples"] == 35 * 1_281_167
    assert row["updates"] == round(35 * 1_281_167 / 3200)
    assert row["passes"] == 8 * row["updates"]


LLAMA = {"benchmark": "llama2_70b_lora"}


def llama_log() -> str:
    return result_log("llama2_70b_lora", batch=8, samples=3901, samples_count=3072)


def test_replicas_count_where_a_model_is_split(tmp_path: Path, submitter: Path) -> None:
    result = write_run(submitter, "two", "1", {}, llama_log(), **LLAMA)
    for i in (0, 1):
        file = result.parent / "power" / "result_1" / f"node_{i}.txt"
        file.write_text(whole_log(wave(5000 + i)))
    table = tmp_path / "told.csv"
    table.write_text(f"path,gpus_per_replica\n{result.parent},4\n")
    registered(tmp_path, submitter, table=table)
    id_ = "llama2_70b_lora-h100-sxm5-80gb-n016-lbs0002-s0003901-target-nodes2-gpr4"
    row = row_of(tmp_path, id_)
    assert (row["gpus"], row["gpus_per_replica"]) == (16, 4)
    assert (row["local_batch_size"], row["global_batch_size"]) == (2, 8)
    assert (row["updates"], row["passes"]) == (384, 4 * 384)
    assert row["gpu_hours"] == pytest.approx(16 * 200 / 3600)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (result_log(status="aborted"), "success"),
        (llama_log(), "how many GPUs hold one copy of the model is not known"),
        (result_log(batch=3201), "does not divide"),
        ("nothing of MLPerf\n", "holds no event"),
        (result_log().replace("run_stop", "run_end"), "run_stop"),
    ],
)
def test_a_run_that_cannot_be_registered_is_left_out_with_the_reason(
    tmp_path: Path, submitter: Path, result: str, reason: str
) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    write_run(submitter, "one", "2", {"node_1": whole_log(wave(5100))}, result)
    lines = registered(tmp_path, submitter)
    (left_out,) = (text for text in lines if text.startswith("left out:"))
    assert reason in left_out
    assert "result_2" in left_out


def test_a_run_that_stands_there_twice_counts_once(tmp_path: Path, submitter: Path) -> None:
    for number in ("1", "raw_1"):
        result = write_run(submitter, "one", number, {"node_1": whole_log(wave(5000))})
        power = result.parent / "power" / result.stem
        (power / "nodes_1_to_1.png").write_bytes(b"\x89PNG\r\n")
        (power / "total_power.txt").write_text("Total Power Usage: 1.00 kWh\n")
    write_run(submitter, "one", "2", {"node_1": whole_log(wave(5100))})
    lines = registered(tmp_path, submitter)
    (left_out,) = (text for text in lines if text.startswith("left out:"))
    assert "result_raw_1.txt: its power logs are those of" in left_out
    assert sum(text.startswith("registered:") for text in lines) == 2


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (result_log("weird bench-Ü"), "model"),
        (result_log(facts={"global_batch_size": 1e300}), "states no global_batch_size"),
        (result_log(facts={"global_batch_size": 16 * 10**10}), "local_batch_size"),
        (result_log("another", facts={"train_samples": 1e300}), "no train_samples"),
        (result_log(facts={"gradient_accumulation_steps": 3}), "gradient_accumulation_steps: 3"),
        (result_log(facts={"gradient_accumulation_steps": 4}), "is another configuration"),
    ],
)
def test_a_damaged_run_is_left_out_and_the_others_are_registered(
    tmp_path: Path, submitter: Path, result: str, reason: str
) -> None:
    for number in ("1", "2"):
        write_run(submitter, "one", number, {"node_1": whole_log(wave(5000 + int(number)))})
    write_run(submitter, "one", "3", {"node_1": whole_log(wave(5100))}, result)
    lines = registered(tmp_path, submitter)
    (left_out,) = (text for text in lines if text.startswith("left out:"))
    assert reason in left_out
    assert sum(text.startswith("registered:") for text in lines) == 2


@pytest.mark.parametrize(
    ("facts", "counted"),
    [({"seed": 1e300}, {}), ({}, {"epoch_num": 1e300}), ({}, {"epoch_num": -1})],
)
def test_counts_that_cannot_be_are_unknown(
    tmp_path: Path, submitter: Path, facts: dict, counted: dict
) -> None:
    result = result_log(facts=facts, **counted)
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))}, result)
    registered(tmp_path, submitter)
    row = row_of(tmp_path, ONE)
    assert (row["samples"] is None) == bool(counted)
    assert any(text.startswith("already there") for text in registered(tmp_path, submitter))


def test_a_nodes_file_without_a_reading_leaves_its_run_out(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "two", "1", {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)})
    write_run(submitter, "two", "2", {"node_0": whole_log(wave(5000.5)), "node_1": ""})
    lines = registered(tmp_path, submitter)
    (left_out,) = (text for text in lines if text.startswith("left out:"))
    assert "result_2/node_1.txt: holds no power_reading" in left_out


def test_what_a_log_lacks_at_the_runs_ends_is_not_covered(tmp_path: Path, submitter: Path) -> None:
    late = power_log(wave(5000), START_S + 8, START_S + 260)
    write_run(submitter, "one", "1", {"node_1": late})
    registered(tmp_path, submitter)
    row = row_of(tmp_path, ONE)
    assert row["runtime_s"] == pytest.approx(200)
    assert row["coverage"] == pytest.approx(192 / 200)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(5000 * 192, rel=0.02)
    assert "sensor_short" in row["flags"]


def test_passes_count_accumulated_gradients(tmp_path: Path, submitter: Path) -> None:
    result = result_log(facts={"gradient_accumulation_steps": 4})
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))}, result)
    registered(tmp_path, submitter)
    row = row_of(tmp_path, f"{ONE}-ga4")
    assert row["gradient_accumulation_steps"] == 4
    assert (row["local_batch_size"], row["global_batch_size"]) == (400, 3200)
    assert row["passes"] == 4 * 8 * row["updates"]


def test_a_model_that_is_never_split_has_a_replica_on_each_gpu(
    tmp_path: Path, submitter: Path
) -> None:
    result = result_log(facts={"d_batch_size": 400})
    nodes = {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes, result)
    registered(tmp_path, submitter)
    assert row_of(tmp_path, TWO)["gpus_per_replica"] == 1


def other_submission(submitter: Path) -> Path:
    """Return another submission, with runs of the same training on a system of the same name."""
    other = submitter.with_name("b-submitter")
    write_system(other, "one", 1)
    write_run(other, "one", "1", {"node_1": whole_log(wave(6000))})
    return other


def test_a_row_about_a_folder_that_is_not_there_is_refused(tmp_path: Path, submitter: Path) -> None:
    result = write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    table = tmp_path / "told.csv"
    table.write_text(f"path,gpus_per_replica\n{result.parent.with_name('unet')},4\n")
    with pytest.raises(InputError, match=r"told\.csv: line 2: path: .*unet does not exist"):
        registered(tmp_path, submitter, table=table)


def test_runs_of_several_submissions_are_no_repeats(tmp_path: Path, submitter: Path) -> None:
    for number in ("1", "2"):
        write_run(submitter, "one", number, {"node_1": whole_log(wave(5000 + int(number)))})
    other_submission(submitter)
    registered(tmp_path, submitter.parent)
    campaign = load_campaign(tmp_path / "campaigns" / "mlperf.yaml", None)
    assert campaign.repeats == {f"{ONE}-a_submitter": 2, f"{ONE}-b_submitter": 1}
    assert len(campaign.series) == 2


def test_another_submission_is_not_added_to_a_configuration(
    tmp_path: Path, submitter: Path
) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    registered(tmp_path, submitter)
    other = other_submission(submitter)
    with pytest.raises(InputError, match=r"already registered from .*a-submitter.*a variant"):
        registered(tmp_path, other)
    table = tmp_path / "told.csv"
    table.write_text(f"path,variant\n{other / 'results'},ac\n")
    registered(tmp_path, other, table=table)
    campaign = load_campaign(tmp_path / "campaigns" / "mlperf.yaml", None)
    assert campaign.repeats == {ONE: 1, f"{ONE}-ac": 1}


def test_a_run_without_power_or_system_is_left_out(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {})
    write_run(submitter, "unknown", "1", {"node_1": whole_log(wave(5000))})
    with pytest.raises(InputError, match=r"holds no power log of a node.*unknown\.json"):
        registered(tmp_path, submitter)
    assert not (tmp_path / "results").exists()


def test_registered_again_nothing_changes(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    registered(tmp_path, submitter)
    campaign = (tmp_path / "campaigns" / "mlperf.yaml").read_text()
    lines = registered(tmp_path, submitter)
    assert any(text.startswith("already there:") for text in lines)
    assert (tmp_path / "campaigns" / "mlperf.yaml").read_text() == campaign


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of the real runs, each with its row of the independent reading."""
    folder = tmp_path_factory.mktemp("real")
    register("mlperf", [Path(str(REAL))], None, folder / "results", folder / "campaigns")
    expected = pd.read_csv(Path(str(REAL)) / "expected.csv").set_index("run")
    rows = []
    for path in sorted((folder / "results" / "mlperf" / "runs").glob("*/*")):
        row = row_of(folder, path.parent.name, int(path.name))
        provenance = json.loads((path / "provenance.json").read_text())
        checks = pd.read_parquet(
            folder / f"results/mlperf/energy/{path.parent.name}/{path.name}.cross-checks.parquet"
        )
        rule = checks[checks["source"] == "mlperf_rule"].groupby("device_kind")["energy_j"].sum()
        run = provenance["description"]["source"].split(", ")[-1]
        rows.append(
            {**row, **expected.loc[run].add_prefix("expected_"), **rule.add_prefix("rule_")}
        )
    return pd.DataFrame(rows)


@needs_real
def test_all_real_runs_are_registered(real: pd.DataFrame) -> None:
    counts = real.groupby(["model", "gpus"]).size().to_dict()
    assert counts == {
        ("bert", 8): 2,
        ("llama2_70b_lora", 8): 10,
        ("llama2_70b_lora", 64): 10,
        ("llama2_70b_lora", 512): 3,
        ("resnet", 8): 5,
        ("resnet", 64): 5,
        ("ssd", 8): 5,
        ("ssd", 64): 5,
    }


@needs_real
def test_energies_of_real_runs_agree_with_an_independent_reading(real: pd.DataFrame) -> None:
    off = (real["energy_kwh"] * 3.6e6 / real["expected_window_j"] - 1).abs()
    # Ours leaves out readings whose clock runs backwards, and readings of 0 W: up to 0.2 %.
    plain = ~real["flags"].str.contains("clock_backwards|zero_power")
    assert off[plain].max() < 1e-3
    assert off.max() < 2e-3
    assert (off < 1e-3).sum() >= 43


@needs_real
def test_the_official_energies_of_real_runs_are_reproduced(real: pd.DataFrame) -> None:
    nodes = real["rule_node"] / real["expected_official_node_j"] - 1
    assert nodes.abs().max() < 1e-3
    switched = real[real["expected_official_switch_j"] > 0]
    switches = switched["rule_network"] / switched["expected_official_switch_j"] - 1
    assert len(switched) == 23
    assert switches.abs().max() < 1e-3


@needs_real
def test_real_copies_are_as_many_as_their_readme_says(real: pd.DataFrame) -> None:
    several = real[real["nodes"] > 1]
    assert (several["duplicate_share"] > 0.1).all()
    assert (real[real["nodes"] == 1]["duplicate_share"] == 0).all()
    llama = several[(several["model"] == "llama2_70b_lora") & (several["gpus"] == 64)]
    assert np.allclose(llama["duplicate_share"], 0.5, atol=0.01)


@needs_real
def test_broken_stop_stamps_of_real_logs_are_flagged(real: pd.DataFrame) -> None:
    assert real[real["model"] == "bert"]["flags"].str.contains("stop_stamp_wrong").all()


@needs_real
def test_replicas_of_real_runs_are_counted(real: pd.DataFrame) -> None:
    llama = real[real["model"] == "llama2_70b_lora"].groupby("gpus")[
        [
            *("local_batch_size", "global_batch_size"),
            *("gpus_per_replica", "gradient_accumulation_steps"),
        ]
    ]
    assert llama.max().to_numpy().tolist() == llama.min().to_numpy().tolist()
    assert llama.max().to_numpy().tolist() == [[4, 8, 4, 4], [1, 8, 8, 1], [1, 64, 8, 1]]
