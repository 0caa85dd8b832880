"""Where NVML begins to fail in mid-run the training goes on, and energies are null rather than too low."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_resume import WAVES
from test_sensors import totals
from training import Training, changed_python, launcher_in

from scalewatt.common.files import read_json, write_json
from scalewatt.run_files.record import read_progress, read_segments

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("faults", "outcomes"),
    [
        (("unknown_error", "zero_power"), ["finished"]),
        (("lost",), ["monitor_lost", "finished"]),
    ],
    ids=["power", "lost"],
)
def test_energies_of_failing_gpus_are_null_and_the_training_is_finished(
    tmp_path: Path, data: Path, faults: tuple[str, ...], outcomes: list[str]
) -> None:
    begin = tmp_path / "faults-begin"
    variables = changed_python(
        "failing_nvml",
        SCALEWATT_FAULTS=",".join(faults),
        SCALEWATT_FAULTS_BEGIN=begin,
        SCALEWATT_SAMPLERS=tmp_path / "samplers",
    )
    training = Training.of(tmp_path / "run", data, WAVES, epochs=40)
    training = replace(training, launcher=launcher_in(variables, training.launcher))
    process = training.start()
    while not is_in_second_epoch(training):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    begin.touch()
    output, _ = process.communicate()
    if "monitor_lost" in outcomes:
        assert process.returncode == 70, output
        process = training.start()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert [segment["outcome"] for segment in read_segments(training.work)] == outcomes
    hold_all_gpus(training, len(faults))
    assert totals(training).joules("gpu") is None
    recorded = pq.read_table(training.folder / "energy.devices.parquet").to_pylist()
    flagged = pq.read_table(training.folder / "energy.flags.parquet")["sensor"].to_pylist()
    for index, fault in enumerate(faults):
        rows = [r for r in recorded if (r["device_kind"], r["device_index"]) == ("gpu", index)]
        assert sum(row["recorded_j"] or 0.0 for row in rows) > 0, "nothing before the fault"
        assert fault == "lost" or f"CUDA:{index}_POWER" in flagged


def hold_all_gpus(training: Training, gpus: int) -> None:
    """Let a finished run on the CPU say that its ranks held the stand-in GPUs."""
    provenance = read_json(training.out / "provenance.json")
    (host,) = provenance["hostnames"]
    for segment in provenance["segments"]:
        for number, rank in enumerate(segment["ranks"] or []):
            rank["gpu"] = number % gpus
    held = {"torch_device": "cuda", "gpus": {host: [*range(gpus)]}, "gpu_uuids": {host: None}}
    write_json(training.out / "provenance.json", provenance | held)


def is_in_second_epoch(training: Training) -> bool:
    """Return True once the first epoch is over."""
    if not list((training.folder / "work").glob("*/progress.json")):
        return False
    progress = read_progress(training.work)
    return progress is not None and progress["epoch"] >= 1
