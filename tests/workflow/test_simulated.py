"""`mode: simulate`: a campaign from the scaling model alone, through the whole workflow."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CAMPAIGN = """
name: small
protocol: paper
sampling_period_s: 1
idle_probe: {seconds: 10, repeats: 1}
datasets:
  imagenet:
    {format: imagenet, source: data_root, train_samples: 1281167, validation_samples: 50000, classes: 1000}
models:
  resnet50: {dataset: imagenet, epochs: 100}
series:
  lbs256:
    {model: resnet50, device: a100, gpus: [4], local_batch_size: 256, dataset_fraction: n/256, repeats: 2}
figures:
  figure2: {overlay: published, series: [lbs256]}
  figure5: {points: [{series: lbs256, gpus: 4}]}
"""
RUN = "resnet50-a100-n004-lbs0256-s0020018/2"
CHOSEN = ("--config", "campaign=campaigns/small.yaml")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the workflow with a small campaign on the paper's devices."""
    workspace = Workspace.create(tmp_path_factory.mktemp("simulated") / "project")
    (workspace.path / "campaigns" / "small.yaml").write_text(CAMPAIGN)
    return workspace


@pytest.fixture(scope="module")
def played(planned: Workspace) -> Workspace:
    """The small campaign, simulated to its end."""
    code, output = planned.snakemake("all", *CHOSEN, profile="simulate")
    assert code == 0, output
    return planned


def test_nothing_is_trained_prepared_or_probed(planned: Workspace) -> None:
    jobs = planned.jobs("all", *CHOSEN, profile="simulate")
    assert jobs["simulate_1_2"] == 1
    assert not {"train", "dataset", "probe", "idle_table"} & set(jobs)


def test_the_model_is_not_held_against_itself(planned: Workspace, played: Workspace) -> None:
    jobs = planned.jobs("all", *CHOSEN, profile="simulate")
    assert not {"prediction_table", "draw_prediction"} & set(jobs)
    code, output = planned.snakemake("-n", "prediction", *CHOSEN, profile="simulate")
    assert code == 1
    assert "mode simulate: the scaling model makes the runs, so they are no test of it" in output
    results = played.path / "results" / "small-simulated"
    assert not list(results.glob("*/prediction.*"))
    assert "Predicted and measured" not in (results / "report.html").read_text()


def test_results_lie_apart_and_say_that_they_are_simulated(played: Workspace) -> None:
    results = played.path / "results"
    assert [path.name for path in results.iterdir()] == ["small-simulated"]
    rows = pq.read_table(results / "small-simulated" / "tables" / "runs.parquet").to_pylist()
    assert len(rows) == 2
    assert {row["energy_origin"] for row in rows} == {"simulated"}
    assert {row["campaign"] for row in rows} == {"small-simulated"}
    report = (results / "small-simulated" / "report.html").read_text()
    assert "simulated" in report
    for name in ("figure2", "figure5", f"runs/{RUN}"):
        assert (results / "small-simulated" / "figures" / f"{name}.png").stat().st_size > 0


def test_figure_5_is_recorded_at_the_campaigns_own_period(played: Workspace) -> None:
    table = played.path / "results" / "small-simulated" / "tables" / "figure5.parquet"
    rows = pq.read_table(table).to_pylist()
    assert len(rows) > 250


def test_a_run_folder_has_what_a_training_leaves_but_for_weights(played: Workspace) -> None:
    folder = played.path / "results" / "small-simulated" / "runs" / RUN
    assert {path.name for path in folder.iterdir()} == {
        *("spec.json", "history.parquet", "events.parquet", "perun", "train.log"),
        *("provenance.json", "truth.json"),
    }


def test_a_finished_simulation_is_done_until_model_or_recording_change(played: Workspace) -> None:
    assert played.jobs("all", *CHOSEN, profile="simulate") == {}
    file = played.path / "profiles" / "simulate" / "cluster.yaml"
    text = file.read_text()
    played.edit("profiles/simulate/cluster.yaml", "sampling_period_s: 10", "sampling_period_s: 20")
    assert played.jobs("all", *CHOSEN, profile="simulate")["simulate_1_2"] == 1
    file.write_text(text)
    assert played.jobs("all", *CHOSEN, profile="simulate") == {}
    model = played.path / "reference" / "scaling_model.json"
    model.write_text(model.read_text() + "\n")
    assert played.jobs("all", *CHOSEN, profile="simulate")["simulate_1_2"] == 1


def test_a_campaign_that_the_model_does_not_know_says_what_would_make_it_possible(
    planned: Workspace,
) -> None:
    other = CAMPAIGN.replace("name: small", "name: other").replace(
        "protocol: paper", "protocol: corrected"
    )
    (planned.path / "campaigns" / "other.yaml").write_text(other)
    chosen = ("--config", "campaign=campaigns/other.yaml")
    code, output = planned.snakemake("runs_table", *chosen, profile="simulate")
    assert code != 0
    assert "is not calibrated for resnet50 on a100, corrected" in output
    assert "scalewatt pilot" in output
