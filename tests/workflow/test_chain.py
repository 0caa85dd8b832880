"""The whole chain on real processes: what it leaves, and what it runs again."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from workspace import PROJECT, Workspace, job_counts, trained_runs

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.files import file_sha256
from scalewatt.provenance.versions import LOCK, claims_hash, installed_versions, is_clean

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FIGURES = [f"figure{n}" for n in range(1, 8)]


def run_folders(workspace: Workspace) -> list[Path]:
    return sorted(path.parent for path in workspace.results.glob("runs/*/*/spec.json"))


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_every_promised_file_is_there(finished_workspace: Workspace) -> None:
    for figure in FIGURES:
        for suffix in ("pdf", "svg", "png", "csv"):
            path = finished_workspace.results / "figures" / f"{figure}.{suffix}"
            assert path.stat().st_size > 0
    for name in ("runs", "configurations", "table1", *FIGURES):
        parquet = pq.read_table(finished_workspace.results / "tables" / f"{name}.parquet")
        with open(finished_workspace.results / "tables" / f"{name}.csv", newline="") as file:
            assert sum(1 for _ in csv.reader(file)) == len(parquet) + 1
    assert "estimated" in (finished_workspace.results / "report.html").read_text()
    for folder in run_folders(finished_workspace):
        run = folder.relative_to(finished_workspace.results / "runs")
        assert (finished_workspace.results / "figures" / "runs" / f"{run}.svg").stat().st_size > 0
        assert [file.name for file in folder.glob("perun/*.hdf5")] == ["segment-000.hdf5"]
    assert not list(finished_workspace.results.rglob("*.tmp*"))


def test_history_equals_the_specs_arithmetic(finished_workspace: Workspace) -> None:
    folders = run_folders(finished_workspace)
    assert len(folders) == 8
    for folder in folders:
        spec = read_spec(folder / "spec.json")
        history = rows(folder / "history.parquet")
        assert [row["epoch"] for row in history] == list(range(spec.epochs))
        per_rank = spec.dataset_samples // spec.gpus
        updates = -(-per_rank // spec.local_batch_size)
        assert {row["samples"] for row in history} == {per_rank * spec.gpus}
        assert {row["updates"] for row in history} == {updates}
        assert spec.updates == updates * spec.epochs


def test_provenance_says_what_a_stranger_needs_to_make_the_run_again(
    finished_workspace: Workspace,
) -> None:
    for folder in run_folders(finished_workspace):
        record = json.loads((folder / "provenance.json").read_text())
        assert record["packages_installed"] == installed_versions()
        assert record["lock"]["sha256"] == file_sha256(LOCK)
        assert all(row["locked"] != row["installed"] for row in record["lock"]["differences"])
        assert record["commit_clean"] is is_clean(record["commit"])
        (segment,) = record["segments"]
        assert record["claims_sha256"] == claims_hash()
        assert {"commit", "commit_clean"} <= segment.keys()
        (node,) = record["nodes"]
        assert node["hosts"] == record["hostnames"]
        assert node["kernel"] and node["cpu_threads"] > 0 and "gpu_driver" in node
        assert record["software"].keys() == {"cudnn", "nccl"}
        spec = read_spec(folder / "spec.json")
        monitor = record["perun"]["settings"]["monitor"]
        assert float(monitor["sampling_period"]) == spec.sampling_period_s
        assert record["perun"]["version"] == record["packages"]["perun"]
        assert (record["seed"], record["deterministic_algorithms"]) == (spec.seed, False)
        assert {"cublas_workspace_config", "python_hash_seed", "cudnn_benchmark"} <= record.keys()
        threads = str(record["threads_per_rank"])
        assert record["environment_variables"]["OMP_NUM_THREADS"] == threads


def test_every_key_of_the_provenance_is_documented(finished_workspace: Workspace) -> None:
    text = (PROJECT / "docs" / "guide" / "provenance.md").read_text()
    for folder in run_folders(finished_workspace):
        record = json.loads((folder / "provenance.json").read_text())
        names = {*record, *record["software"], *record["lock"], *record["nodes"][0]}
        assert {name for name in names if f"`{name}`" not in text} == set()


def test_neither_provenance_nor_spec_names_a_place_on_this_machine(
    finished_workspace: Workspace,
) -> None:
    for folder in run_folders(finished_workspace):
        for name in ("provenance.json", "spec.json"):
            text = (folder / name).read_text()
            assert str(finished_workspace.path) not in text and str(Path.home()) + "/" not in text
            assert not re.search(r"\"/(?!usr|opt|lib|etc|dev)\w", text)


def test_energy_says_that_it_is_estimated_and_adds_up(finished_workspace: Workspace) -> None:
    for run in rows(finished_workspace.results / "tables" / "runs.parquet"):
        assert run["energy_origin"] == "estimated"
        assert run["energy_scope"] == "cpu"
        assert run["gpu_energy_kwh"] is None
        assert run["energy_kwh"] == pytest.approx(run["cpu_energy_kwh"])
        watts = run["energy_kwh"] * 3.6e6 / run["runtime_s"]
        # 0.74 times a tenth of the cluster file's 150 W, and all of it
        assert 11.1 <= watts <= 111.001
        assert run["energy_low_kwh"] == pytest.approx(run["energy_kwh"] / 5.4)
        assert run["energy_high_kwh"] == pytest.approx(run["energy_kwh"] * 5.4)
        energy = finished_workspace.results / "energy" / run["configuration"]
        stages = rows(energy / f"{run['repeat']}.parquet")
        total = sum(s["energy_j"] for s in stages if s["device_kind"] == "cpu")
        assert total / 3.6e6 == pytest.approx(run["energy_kwh"])


def test_a_comment_in_the_campaign_or_the_workflow_runs_nothing(again: Workspace) -> None:
    again.edit("campaigns/tiny.yaml", "series:\n", "# a thought\nseries:\n")
    again.edit("workflow/rules/train.smk", "rule train:\n", "# another\nrule train:\n")
    again.edit("config.yaml", "cluster: local\n", "# a third\ncluster: local\n")
    assert again.jobs("all") == {}


def test_other_plans_and_places_train_nothing(again: Workspace) -> None:
    elsewhere = "work_root: elsewhere\ndata_roots: {waves: moved}\n"
    again.edit("config.yaml", "work_root: work\n", elsewhere)
    (waves,) = (again.path / "data").glob("waves-*")
    waves.rename(again.path / "moved")
    assert again.trainings("all") == set()


def test_a_changed_setting_trains_that_phase_and_what_starts_from_it(again: Workspace) -> None:
    again.edit("campaigns/tiny.yaml", "epochs: 3\n", "epochs: 4\n")
    trained = {configuration for configuration, _ in again.trainings("all")}
    assert trained == {
        "fourcastnet.pretrain-local-n001-lbs0002-full",
        "fourcastnet.pretrain-local-n002-lbs0002-full",
        "fourcastnet.finetune-local-n002-lbs0002-full",
    }


def test_a_new_series_leaves_the_finished_runs_alone(again: Workspace) -> None:
    again.edit(
        "campaigns/tiny.yaml",
        "\nfigures:\n",
        "\n  more: {model: resnet50, device: local, gpus: [4], local_batch_size: 5}\n\nfigures:\n",
    )
    assert again.trainings("all") == {("resnet50-local-n004-lbs0005-full", 1)}


def test_a_deleted_figure_is_redrawn_alone_and_with_the_same_bytes(again: Workspace) -> None:
    figure = again.results / "figures" / "figure2.svg"
    before = figure.read_bytes()
    figure.unlink()
    assert job_counts(again.done("figure2")) == {"draw_figure": 1, "figure2": 1}
    assert figure.read_bytes() == before
    assert set(again.jobs("all")) <= {"manifest", "report"}


def test_a_figure_needs_its_own_runs_only(again: Workspace) -> None:
    for folder in again.results.glob("runs/resnet50-*"):
        for path in folder.rglob("*.parquet"):
            path.unlink()
    (again.results / "figures" / "figure4.pdf").unlink()
    assert job_counts(again.done("figure4")) == {"draw_figure": 1, "figure4": 1}


def test_finished_runs_suffice_for_a_figure_and_missing_points_are_named(again: Workspace) -> None:
    missing = "fourcastnet.pretrain-local-n001-lbs0002-full"
    for repeat in ("1", "2"):
        (again.results / "runs" / missing / repeat / "provenance.json").unlink()
    output = again.done("figure4", "--config", "results_only=true")
    assert "train" not in job_counts(output)
    points = pq.read_table(again.results / "tables" / "figure4.parquet")
    rows = points.to_pandas()
    assert rows.loc[rows["configuration"] == missing, "y"].isna().all()
    assert json.loads(points.schema.metadata[b"scalewatt"])["missing"] == [missing]
    text = (again.results / "figures" / "figure4.caption.md").read_text()
    assert "fourcastnet.pretrain-local-n001" in text


def test_a_campaign_of_other_devices_is_never_trained_here(again: Workspace) -> None:
    output = again.done("-np", "figures", "--config", "campaign=campaigns/paper.yaml")
    assert trained_runs(output) == set()
    assert "has no device of campaigns/paper.yaml, so nothing is trained" in output
    assert "finished runs: 0 of 175" in output
