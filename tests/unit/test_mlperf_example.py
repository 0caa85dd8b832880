"""examples/mlperf/convert.py: submissions to MLPerf Training become campaigns, small and real ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlperf_files import START_S, power_log, result_log, write_run, write_system
from run_files import run_row

from scalewatt.campaign.load import load_campaign
from scalewatt.energies.account import write_energy
from scalewatt.registration.register import register
from scalewatt.results.tables.run_row import RunFiles

SCRIPT = Path(__file__).parents[2] / "examples" / "mlperf" / "convert.py"
REAL = os.environ.get("SCALEWATT_MLPERF")
needs_real = pytest.mark.skipif(
    not REAL, reason="SCALEWATT_MLPERF does not name the folder of MLPerf's power logs"
)
ONE = "resnet-h100-sxm5-80gb-n008-lbs0400-s1281167-target"
TWO = "resnet-h100-sxm5-80gb-n016-lbs0200-s1281167-target-nodes2"


def wave(level_w: float, period_s: float = 30.0):
    return lambda t: level_w + 100 * math.sin(t / period_s)


def whole_log(power) -> str:
    """A log from 60 s before the run to 60 s after it."""
    return power_log(power, START_S - 60, START_S + 260)


def converted(submission: Path, folder: Path, *options: str) -> str:
    """What the converter prints; a run of it must succeed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(submission), str(folder / "converted"), *options],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def registered(submission: Path, folder: Path, *options: str) -> str:
    """What converter and `register` print."""
    printed = converted(submission, folder, *options)
    table = folder / "converted" / "runs.csv"
    return printed + "\n".join(
        register("mlperf", [], table, folder / "results", folder / "campaigns")
    )


def row_of(folder: Path, configuration: str, repeat: int = 1) -> dict:
    """The row of RUNS of a registered run, accounted for."""
    files = RunFiles(folder / "results" / "mlperf", configuration, repeat)
    write_energy(files.folder, files.folder / "spec.json", {}, files.traces, files.energy)
    return run_row(files)


@pytest.fixture
def submitter(tmp_path: Path) -> Path:
    folder = tmp_path / "training_results" / "a-submitter"
    write_system(folder, "one", 1)
    write_system(folder, "two", 2)
    return folder


def test_systems_benchmarks_runs_and_repeats_are_found(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    write_run(submitter, "one", "2", {"node_1": whole_log(wave(5100))})
    nodes = {f"node_{i}": whole_log(wave(5000 + i)) for i in (0, 1)}
    write_run(submitter, "two", "1", nodes)
    assert registered(submitter, tmp_path).count("registered:") == 3
    campaign = load_campaign(tmp_path / "campaigns" / "mlperf.yaml", None)
    assert campaign.repeats == {ONE: 2, TWO: 1}
    (series,) = campaign.series.values()
    assert series.points == {8: ONE, 16: TWO}


def test_the_energy_is_that_of_the_runs_own_window(tmp_path: Path, submitter: Path) -> None:
    idle_outside = whole_log(lambda t: 5000.0 + t % 4 if 0 <= t <= 200 else 500.0)
    write_run(submitter, "one", "1", {"node_1": idle_outside})
    registered(submitter, tmp_path)
    row = row_of(tmp_path, ONE)
    assert (row["energy_scope"], row["energy_origin"]) == ("node", "measured")
    assert row["runtime_s"] == pytest.approx(200)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(5001 * 200, rel=1e-3)
    assert row["node_energy_kwh"] == row["energy_kwh"] and row["gpu_energy_kwh"] is None


def test_what_a_log_lacks_at_the_runs_ends_is_not_covered(tmp_path: Path, submitter: Path) -> None:
    late = power_log(wave(5000), START_S + 8, START_S + 260)
    write_run(submitter, "one", "1", {"node_1": late})
    registered(submitter, tmp_path)
    row = row_of(tmp_path, ONE)
    assert row["coverage"] == pytest.approx(192 / 200)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(5000 * 192, rel=0.02)


def test_the_rule_of_the_whole_log_and_the_switches_stand_beside_it(
    tmp_path: Path, submitter: Path
) -> None:
    log = whole_log(lambda t: 5000.0 if 0 <= t <= 200 else 500.0)
    write_run(submitter, "one", "1", {"node_1": log}, switch_w=700)
    registered(submitter, tmp_path)
    (row,) = pd.read_csv(tmp_path / "converted" / "mlcommons.csv").to_dict("records")
    # 101 readings of 5 kW, 59 of 500 W, each for the 2 s before it.
    by_rule = (101 * 2 * 5000 + 59 * 2 * 500) / 320 * 200
    assert row["rule_kwh"] * 3.6e6 == pytest.approx(by_rule, rel=1e-6)
    assert row["switches_kwh"] * 3.6e6 == pytest.approx(700 * 200)


def test_a_missing_nodes_file_leaves_the_energy_null(tmp_path: Path, submitter: Path) -> None:
    write_run(submitter, "two", "1", {"node_0": whole_log(wave(5000))})
    registered(submitter, tmp_path)
    row = row_of(tmp_path, TWO)
    assert row["energy_kwh"] is None and "not_recorded" in row["flags"]
    assert row["recorded_energy_kwh"] * 3.6e6 == pytest.approx(5000 * 200, rel=0.02)


def test_stages_samples_and_passes_are_those_of_the_result_log(
    tmp_path: Path, submitter: Path
) -> None:
    result = result_log(facts={"gradient_accumulation_steps": 4})
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))}, result)
    registered(submitter, tmp_path)
    row = row_of(tmp_path, f"{ONE}-ga4")
    assert (row["local_batch_size"], row["global_batch_size"]) == (400, 3200)
    assert row["samples"] == 35 * 1_281_167
    assert row["updates"] == round(35 * 1_281_167 / 3200)
    assert row["passes"] == 4 * 8 * row["updates"]
    energy = pd.read_parquet(tmp_path / f"results/mlperf/energy/{ONE}-ga4/1.parquet")
    seconds = energy[energy["device_kind"] == "node"].set_index("stage")["duration_s"]
    assert (seconds["train"], seconds["validate"]) == (pytest.approx(180), pytest.approx(20))


def llama_log() -> str:
    return result_log("llama2_70b_lora", batch=8, samples=3901, samples_count=3072)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (result_log(status="aborted"), "success"),
        (llama_log(), "how many GPUs hold a copy of the model is not known"),
        (result_log(batch=3201), "does not divide"),
        ("nothing of MLPerf\n", "states no benchmark"),
        (result_log().replace("run_stop", "run_end"), "run_stop"),
    ],
)
def test_a_run_that_cannot_be_registered_is_left_out_with_the_reason(
    tmp_path: Path, submitter: Path, result: str, reason: str
) -> None:
    write_run(submitter, "one", "1", {"node_1": whole_log(wave(5000))})
    write_run(submitter, "one", "2", {"node_1": whole_log(wave(5100))}, result)
    (left_out,) = (
        line for line in converted(submitter, tmp_path).splitlines() if line.startswith("left out:")
    )
    assert reason in left_out and "result_2" in left_out


def test_damaged_lines_and_readings_are_counted_or_unknown(tmp_path: Path, submitter: Path) -> None:
    log = whole_log(wave(5000)).splitlines(keepends=True)
    log[60:62] = [':::MLLOG {"time_ms": 1, "key": \n', ":::MLLOG []\n"]
    log[80] = log[80].replace('"value": ', '"value": "x", "was": ')
    write_run(submitter, "one", "1", {"node_1": "".join(log)})
    assert "damaged lines: 2" in registered(submitter, tmp_path)
    row = row_of(tmp_path, ONE)
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(5000 * 200, rel=0.02)


def ac_log(level_w: float, begin_s: float = START_S - 60, end_s: float = START_S + 260) -> str:
    return power_log(lambda t: level_w + t % 4, begin_s, end_s, side="AC", efficiency=0.95)


@pytest.mark.parametrize(
    ("read", "options", "scope", "factor"),
    [
        ("AC", [], "node (AC)", 1.0),
        ("AC", ["--as-dc"], "node (DC)", 0.95),
        ("DC", ["--as-dc"], "node (DC)", 1.0),  # not converted again
    ],
)
def test_the_side_of_the_power_supply_is_part_of_the_scope(
    tmp_path: Path, submitter: Path, read: str, options: list[str], scope: str, factor: float
) -> None:
    log = ac_log(5000).replace('"AC"', f'"{read}"')
    write_run(submitter, "one", "1", {"node_1": log})
    registered(submitter, tmp_path, *options)
    row = row_of(tmp_path, ONE)
    assert row["energy_scope"] == scope
    assert row["energy_kwh"] * 3.6e6 == pytest.approx(factor * 5001 * 200, rel=1e-3)
    (rule,) = pd.read_csv(tmp_path / "converted" / "mlcommons.csv").to_dict("records")
    assert rule["conversion_efficiency"] == 0.95
    assert rule["rule_kwh"] * 3.6e6 == pytest.approx(0.95 * 5001 * 200, rel=1e-3)


def test_a_folder_that_names_the_side_says_it_where_the_logs_do_not(tmp_path: Path) -> None:
    submission = tmp_path / "a-lab-dc-power"
    write_system(submission, "one", 1)
    write_run(submission, "one", "1", {"node_1": whole_log(wave(5000))})
    registered(submission, tmp_path)
    assert row_of(tmp_path, ONE)["energy_scope"] == "node (DC)"


def test_a_run_whose_nodes_are_read_on_two_sides_is_left_out(
    tmp_path: Path, submitter: Path
) -> None:
    write_run(submitter, "one", "1", {"node_1": ac_log(5000)})
    write_run(submitter, "two", "1", {"node_0": ac_log(5000), "node_1": whole_log(wave(5000))})
    assert "unlike measurement types" in converted(submitter, tmp_path)


@pytest.mark.parametrize("hours", [-5, 2])
def test_a_clock_that_is_whole_hours_off_is_corrected_and_named(
    tmp_path: Path, submitter: Path, hours: int
) -> None:
    off = [START_S + 3600 * hours + margin_s for margin_s in (-16, 202)]
    run = write_run(submitter, "one", "1", {"node_1": ac_log(5000, *off)})
    switch = run.parent / "power" / "result_1" / "sw_0.txt"
    switch.write_text(ac_log(700, *off))
    printed = registered(submitter, tmp_path)
    assert f"node_1.txt: its clock is {hours:+d} h off, which is corrected" in printed
    assert row_of(tmp_path, ONE)["energy_kwh"] * 3.6e6 == pytest.approx(5001 * 200, rel=1e-3)
    (rule,) = pd.read_csv(tmp_path / "converted" / "mlcommons.csv").to_dict("records")
    assert rule["switches"] == "measured"
    assert rule["switches_kwh"] * 3.6e6 == pytest.approx(701 * 200, rel=1e-3)


def test_a_log_of_another_time_is_left_out_and_named(tmp_path: Path, submitter: Path) -> None:
    run = write_run(submitter, "one", "1", {"node_1": ac_log(5000)})
    switch = run.parent / "power" / "result_1" / "sw_0.txt"
    switch.write_text(ac_log(700, START_S + 2000, START_S + 2100))
    printed = registered(submitter, tmp_path)
    assert "sw_0.txt: its readings are not of the run's time" in printed
    (rule,) = pd.read_csv(tmp_path / "converted" / "mlcommons.csv").to_dict("records")
    assert math.isnan(rule["switches_kwh"])


# --- the real ones --------------------------------------------------------------------------------


def real_rows(
    submission: str, folder: Path, expected: pd.DataFrame, *keys: str
) -> list[dict[str, Any]]:
    """The rows of a submission's runs, each with MLCommons' rule and the independent reading of it."""
    registered(Path(str(REAL)) / submission, folder)
    starts = pd.read_csv(folder / "converted" / "runs.csv")["window"].map(
        lambda text: json.loads(text)["start_s"]
    )
    rule = pd.read_csv(folder / "converted" / "mlcommons.csv")
    rule[["system", "benchmark", "run"]] = rule["run"].str.split("/", expand=True)
    rows = []
    for path in sorted((folder / "results" / "mlperf" / "runs").glob("*/*")):
        row = row_of(folder, path.parent.name, int(path.name))
        start_s = json.loads((path / "provenance.json").read_text())["window"]["start_s"]
        (at,) = starts.index[(starts - start_s).abs() < 1e-6]
        (match,) = expected.index[(expected[[*keys]] == rule.loc[at, [*keys]]).all(axis=1)]
        both = expected.loc[match].add_prefix("expected_"), rule.loc[at].add_prefix("rule_")
        rows.append({**row, **both[0], **both[1]})
    return rows


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of the runs of round 4.0."""
    expected = pd.read_csv(Path(str(REAL)) / "expected.csv")
    return pd.DataFrame(real_rows("smc-dc-power", tmp_path_factory.mktemp("real"), expected, "run"))


@needs_real
@pytest.mark.long
def test_all_real_runs_are_registered(real: pd.DataFrame) -> None:
    counts = real.groupby(["model", "gpus"]).size().to_dict()
    llama = {("llama2_70b_lora", gpus): runs for gpus, runs in ((8, 10), (64, 10), (512, 3))}
    others = {(model, gpus): 5 for model in ("resnet", "ssd") for gpus in (8, 64)}
    assert counts == {("bert", 8): 2, **llama, **others}


@needs_real
@pytest.mark.long
def test_energies_of_real_runs_agree_with_an_independent_reading(real: pd.DataFrame) -> None:
    off = (real["energy_kwh"] * 3.6e6 / real["expected_window_j"] - 1).abs()
    # Ours leaves out readings whose clock runs backwards, and readings of 0 W: up to 0.2 %.
    plain = ~real["flags"].str.contains("samples not after the one before|samples of 0 W")
    assert off[plain].max() < 1e-3
    assert off.max() < 2e-3
    assert (off < 1e-3).sum() >= 43


@needs_real
@pytest.mark.long
def test_the_official_energies_of_real_runs_are_reproduced(real: pd.DataFrame) -> None:
    nodes = real["rule_rule_kwh"] * 3.6e6 / real["expected_official_node_j"] - 1
    assert nodes.abs().max() < 1e-3
    switched = real[real["expected_official_switch_j"] > 0]
    switches = switched["rule_switches_kwh"] * 3.6e6 / switched["expected_official_switch_j"] - 1
    assert len(switched) == 23
    assert switches.abs().max() < 1e-3


@needs_real
@pytest.mark.long
def test_replicas_of_real_runs_are_counted(real: pd.DataFrame) -> None:
    counts = [
        *("local_batch_size", "global_batch_size"),
        *("gpus_per_replica", "gradient_accumulation_steps"),
    ]
    llama = real[real["model"] == "llama2_70b_lora"].groupby("gpus")[counts]
    assert llama.max().to_numpy().tolist() == llama.min().to_numpy().tolist()
    assert llama.max().to_numpy().tolist() == [[4, 8, 4, 4], [1, 8, 8, 1], [1, 64, 8, 1]]


# --- two further submissions ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def further(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of the runs of rounds 4.1 and 5.0."""
    expected = pd.read_csv(Path(str(REAL)) / "expected_v41_v50.csv")
    folder, keys = tmp_path_factory.mktemp("further"), ("system", "benchmark", "run")
    submissions = ("v4.1/Dell", "v5.0/Lenovo")
    return pd.DataFrame(
        [row for name in submissions for row in real_rows(name, folder / name, expected, *keys)]
    )


@needs_real
def test_runs_of_two_further_rounds_agree_with_an_independent_reading(
    further: pd.DataFrame,
) -> None:
    counts = further.groupby(["model", "gpus"]).size().to_dict()
    eight = {"bert": 5, "llama2_70b_lora": 5, "ssd": 2, "stable_diffusion": 4}
    assert counts == {
        **{(model, 8): runs for model, runs in eight.items()},
        ("llama2_70b_lora", 64): 5,
    }
    assert set(further["energy_scope"]) == {"node (AC)"}
    off = further["energy_kwh"] * 3.6e6 / further["expected_node_window_j"] - 1
    assert off.abs().max() < 1e-3
    assert (further["runtime_s"] - further["expected_seconds"]).abs().max() < 1e-3
    assert further["metric_last"].tolist() == pytest.approx(further["expected_metric"].tolist())


@needs_real
def test_a_switch_whose_clock_is_five_hours_behind_is_counted(further: pd.DataFrame) -> None:
    dell = further[further["expected_switch_files"] > 0]
    assert set(dell["rule_switches"]) == {"measured"}
    watts = dell["rule_switches_kwh"] * 3.6e6 / dell["runtime_s"]
    assert watts.between(670, 700).all()
    assert further["rule_switches"].isna().sum() == len(further) - len(dell)


@needs_real
@pytest.mark.long
def test_replicas_of_the_further_runs_are_those_of_their_systems(further: pd.DataFrame) -> None:
    llama = further[further["model"] == "llama2_70b_lora"].groupby("gpus")
    counts = llama[["local_batch_size", "gpus_per_replica"]].max().to_numpy().tolist()
    assert counts == [[1, 1], [1, 8]]
