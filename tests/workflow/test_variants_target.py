"""Target `variants` on real trainings: from a campaign to a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CAMPAIGN = """
name: ways
protocol: paper
sampling_period_s: 0.2
datasets:
  scans: {format: imagenet, source: embedded, train_samples: 64, validation_samples: 32, classes: 10}
models:
  resnet50:
    {dataset: scans, epochs: 1, image_size: 32, warmup_epochs: 1, warmup_start: 0.001, loader_workers: 0}
series:
  usual: &usual {model: resnet50, device: local, gpus: [1], local_batch_size: 32}
  nothing-loaded: {<<: *usual, settings: {loader: synthetic}}
  longer: {<<: *usual, settings: {epochs: 2}}
figures:
  variants: {series: [usual, nothing-loaded, longer], baselines: [usual]}
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the workflow without results, whose campaign has variants."""
    workspace = Workspace.create(tmp_path_factory.mktemp("variants") / "project")
    (workspace.path / "campaigns" / "ways.yaml").write_text(CAMPAIGN)
    workspace.edit("config.yaml", "campaigns/tiny.yaml", "campaigns/ways.yaml")
    return workspace


def results(workspace: Workspace) -> Path:
    return workspace.path / "results" / "ways"


def test_all_of_a_campaign_with_variants_makes_them(planned: Workspace) -> None:
    jobs = planned.jobs("all")
    assert (jobs["figure_table"], jobs["train"]) == (1, 3)


@pytest.mark.long
def test_variants_are_trained_and_compared(planned: Workspace) -> None:
    planned.done("variants")
    rows = pq.read_table(results(planned) / "tables" / "variants.parquet").to_pylist()
    assert [row["series"] for row in rows] == ["usual", "nothing-loaded", "longer"]
    usual, nothing, longer = rows
    assert (usual["runtime_ratio"], usual["energy_ratio"]) == (1.0, None)
    assert (longer["epochs"], longer["dataset_samples"]) == (2, 64)
    for row in rows:
        assert (row["n_repeats"], row["energy_origin"], row["energy_scope"]) == (
            1,
            "estimated",
            "cpu",
        )
        assert row["runtime_ratio"] == row["runtime_h_mean"] / usual["runtime_h_mean"]
        assert row["energy_kwh_mean"] > 0 and row["runtime_ratio_low"] is None
        assert row["metric_goal"] == "min" and row["precision_used"] == "fp32"
        assert 0 <= row["step_data_share_mean"] <= 1
    assert nothing["metric_last_mean"] is None and 0 < longer["metric_last_mean"] <= 100
    assert nothing["step_data_share_mean"] < usual["step_data_share_mean"]
    table = (results(planned) / "tables" / "variants.md").read_text()
    assert "**resnet50** (metric: Top-1 error (%), smaller is better)" in table
    assert "| longer | fp32 | 1 |" in table
    assert "Energy: estimated from utilisation and rated powers, scope cpu." in table
    assert planned.jobs("variants") == {}
