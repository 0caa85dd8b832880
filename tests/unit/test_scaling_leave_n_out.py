"""Each number of GPUs predicted from the others, and loads of split models that train to a target."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.results.tables.frames import frame_of, write_frame
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.leave_n_out import LeftOut, leave_n_out, leave_n_out_text
from scalewatt.scaling.model.calibration_points import points_of
from scalewatt.scaling.model.scores import ENERGY, ENERGY_AT_TIME, TIME

UPDATES = {8: 384, 64: 384, 512: 108}
PER_REPLICA = {8: 4, 64: 8, 512: 8}
LBS = {8: 4, 64: 1, 512: 1}
STEPS = {8: 4, 64: 1, 512: 1}
"""Llama 2 70B LoRA in MLPerf Training v4.0, by GPUs."""


def row(gpus: int, hours: float, kwh: float | None, model: str = "llama", **given: Any) -> Any:
    """A row of `configurations`: a split model that trains to a target."""
    replicas = gpus // PER_REPLICA[gpus]
    gpu_hours = gpus * hours
    passes = UPDATES[gpus] * replicas * STEPS[gpus]
    return dict.fromkeys(CONFIGURATIONS.names) | {
        "campaign": "made",
        "configuration": f"{model}-n{gpus}",
        "model": model,
        "phase": "train",
        "device": "mi300x",
        "gpus": gpus,
        "nodes": gpus // 8,
        "gpus_per_replica": PER_REPLICA[gpus],
        "gradient_accumulation_steps": STEPS[gpus],
        "local_batch_size": LBS[gpus],
        "global_batch_size": LBS[gpus] * replicas,
        "dataset_samples": 3901,
        "epochs": 1,
        "protocol": "target",
        "energy_origin": "measured",
        "energy_scope": "node",
        "n_repeats": 3,
        "runtime_h_mean": hours,
        "gpu_hours_mean": gpu_hours,
        "energy_kwh_mean": kwh,
        "samples_per_gpuh_mean": UPDATES[gpus] * replicas * LBS[gpus] / gpu_hours,
        "passes_per_gpuh_mean": passes / gpu_hours,
        **given,
    }


def table(folder: Path, *rows: Any) -> Path:
    path = folder / "tables" / "configurations.parquet"
    path.parent.mkdir(parents=True)
    write_frame(frame_of(rows, CONFIGURATIONS), path, CONFIGURATIONS)
    return folder


def three(folder: Path) -> Path:
    return table(folder, row(8, 0.47, 3.3), row(64, 0.09, 4.0), row(512, 0.033, 10.0))


def test_a_load_to_a_target_is_the_work_that_was_done_by_replicas(tmp_path: Path) -> None:
    loads = {point.load.gpus: point.load for point in points_of(three(tmp_path))}
    assert {n: load.replicas for n, load in loads.items()} == {8: 2, 64: 8, 512: 64}
    assert {n: load.updates for n, load in loads.items()} == UPDATES
    assert {n: load.samples for n, load in loads.items()} == {8: 3072, 64: 3072, 512: 6912}
    assert {n: load.passes for n, load in loads.items()} == {8: 3072, 64: 3072, 512: 6912}


def test_a_target_without_its_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="passes_per_gpuh_mean is not known"):
        points_of(table(tmp_path, row(8, 0.47, 3.3, passes_per_gpuh_mean=None)))


def test_each_n_is_predicted_from_the_others(tmp_path: Path) -> None:
    (found,) = leave_n_out([three(tmp_path)])
    assert [(one.gpus, one.quantity) for one in found.found] == [
        (n, quantity) for n in (8, 64, 512) for quantity in (TIME, ENERGY, ENERGY_AT_TIME)
    ]
    assert all(one.predicted.low < one.predicted.high for one in found.found)
    text = leave_n_out_text([found])
    assert "n = 512, from the others: run time" in text
    assert "run time: 3 of 3 nominal 90 % intervals hold" in text


def test_an_interval_that_does_not_hold_is_said_to(tmp_path: Path) -> None:
    far = table(tmp_path, row(8, 0.47, 3.3), row(64, 0.09, 4.0), row(512, 0.9, 300.0))
    text = leave_n_out_text(leave_n_out([far]))
    assert "does NOT hold" in text and "run time: 3 of 3" not in text


def test_a_training_with_two_numbers_of_gpus_says_what_is_missing(tmp_path: Path) -> None:
    both = table(tmp_path, row(8, 0.47, 3.3), row(64, 0.09, None))
    (found,) = leave_n_out([both])
    assert not found.found
    assert "n = 8, 64: 2 points of other n are needed" in leave_n_out_text([found])


def test_the_command_writes_a_model_or_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(three(tmp_path))
    assert main(["calibrate", folder, "--leave-n-out"]) == 0
    assert "energy of scope node" in capsys.readouterr().out
    assert main(["calibrate", folder]) != 0
    assert "expected either --out FILE or --leave-n-out" in capsys.readouterr().err


@pytest.fixture
def measured(tmp_path: Path) -> list[LeftOut]:
    """Llama's means in MLPerf Training v4.0, each n left out."""
    folder = os.environ.get("SCALEWATT_MLPERF")
    if folder is None:
        pytest.skip("SCALEWATT_MLPERF does not name the folder of MLPerf's power recordings")
    runs: dict[int, list[tuple[float, float]]] = {}
    with open(Path(folder) / "expected.csv", newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            if run["benchmark"] == "llama2_70b_lora":
                hours = (float(run["run_stop"]) - float(run["run_start"])) / 3600
                own = runs.setdefault(8 * int(run["nodes"]), [])
                own.append((hours, float(run["window_j"]) / 3.6e6))
    means = {
        n: [sum(each) / len(own) for each in zip(*own, strict=True)] for n, own in runs.items()
    }
    return leave_n_out([table(tmp_path, *(row(n, *mean) for n, mean in means.items()))])


def test_real_trainings_on_512_gpus_lie_where_those_on_8_and_64_say(
    measured: list[LeftOut],
) -> None:
    """docs/real-measurements.md: within an eighth of the median, in wide intervals of the run time."""
    (found,) = measured
    largest = {one.quantity: one for one in found.found if one.gpus == 512}
    for quantity in (TIME, ENERGY, ENERGY_AT_TIME):
        assert abs(largest[quantity].error) < 0.15
        assert largest[quantity].predicted.holds(largest[quantity].value)
    assert largest[TIME].predicted.high > 1.3 * largest[TIME].predicted.median
    assert sum(one.predicted.holds(one.value) for one in found.found) == 9
