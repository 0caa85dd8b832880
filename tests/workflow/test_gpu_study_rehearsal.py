"""The study of one GPU, rehearsed on the CPU from fit to figures; and what it does without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from workspace import Workspace, environment

from scalewatt.common.exit_codes import ExitCode

STUDY = "one-gpu-rehearsal-cpu"


def study(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalewatt.cli", "gpu-study", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


def test_without_a_gpu_it_ends_with_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = study(tmp_path)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count("\n") == 1 and "shows no GPU that torch can use" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_rehearsal_goes_from_trials_to_the_report_and_then_has_nothing_to_train(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    folder = workspace.path / "results" / STUDY
    done = study(workspace.path, "--rehearse")
    assert done.returncode == 0, done.stdout + done.stderr
    fitted = yaml.safe_load((folder / "campaign.yaml").read_text())
    assert fitted["name"] == STUDY
    assert {entry["device"] for entry in fitted["series"].values()} == {"cpu"}
    table = pq.read_table(folder / "tables" / "cost_per_sample.parquet").to_pylist()
    assert {row["series"] for row in table} == set(fitted["series"])
    assert {row["loader"] for row in table} == {"synthetic", "nvjpeg"}
    for row in table:
        assert row["energy_origin"] == "estimated" and row["energy_scope"] == "cpu"
        assert row["energy_per_sample_j_mean"] > 0 and row["throughput_samples_per_s_mean"] > 0
        low, high = (row[f"energy_per_sample_j_estimate_{end}"] for end in ("low", "high"))
        assert low < row["energy_per_sample_j_mean"] < high
        assert row["startup_energy_j"] > 0
        assert row["train_s"] > 0.5, "it was fitted to a second"
    for suffix in ("png", "pdf", "svg", "csv"):
        assert (folder / "figures" / f"cost_per_sample.{suffix}").exists()
    assert "What a sample costs" in (folder / "report.html").read_text(encoding="utf-8")

    report = (folder / "report.html").read_text(encoding="utf-8")
    assert f"snakemake --profile profiles/{STUDY} cost_per_sample" in report
    # The commands of the page and of the report redraw, and train nothing.
    assert workspace.jobs("cost_per_sample", "-R", "draw_figure", profile=STUDY).keys() == {
        "draw_figure",
        "cost_per_sample",
    }
    assert not workspace.jobs("all", "--config", "results_only=true", profile=STUDY)

    packed = tmp_path / "study.tar.gz"
    again = study(workspace.path, "--rehearse", "--train-only", "--pack", str(packed))
    assert again.returncode == 0, again.stderr
    assert "was fitted before" in again.stdout and "[1 of" not in again.stdout
    assert packed.exists()
    code, output = workspace.snakemake("-n", "all", profile=STUDY)
    assert code == 0 and " train " not in output, "a second call makes no run look out of date"

    run = next((folder / "runs").glob("*/1"))
    run.rename(tmp_path / "elsewhere")
    late = study(workspace.path, "--rehearse", "--train-only", "--config", "minutes=1")
    assert late.returncode == ExitCode.STOPPED and "[1 of" not in late.stdout
    assert f"Not started after 1 min: {run.parent.name} repeat 1;" in late.stderr
    assert not (run / "provenance.json").exists()
