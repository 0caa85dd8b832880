"""Larger machines and other nodes: from a campaign to its table of runs, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from simulated_runs import J_PER_KWH, MODEL, Simulated, simulate

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, known_devices, parse_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.build import write_runs
from scalewatt.results.figures.footnotes import notes
from scalewatt.results.tables.table_schema import metadata
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.simulation.run import check_simulations

pytestmark = [pytest.mark.long, pytest.mark.nightly]

FAR = "n = 4096 is more than 4 times the largest calibrated (256): extrapolated"


def wide() -> Cluster:
    """A second cluster: eight GPUs a node, up to 4096."""
    content = read_yaml(PROJECT_ROOT / "config" / "simulate.yaml")
    content["devices"]["a100"] |= {"gpus_per_node": 8, "max_gpus": 4096, "cpus_per_rank": 8}
    return parse_cluster(content, "wide.yaml")


def large(cluster: Cluster) -> Campaign:
    """ResNet50 on whole ImageNet at 1024 and 4096 GPUs."""
    paper = read_yaml(PROJECT_ROOT / "campaigns/paper.yaml")
    series = {"model": "resnet50", "device": "a100", "local_batch_size": 8}
    content = {
        "name": "large",
        "protocol": "paper",
        "sampling_period_s": 1,
        "datasets": {"imagenet": paper["datasets"]["imagenet"]},
        "models": {"resnet50": {"dataset": "imagenet", "epochs": 10}},
        "series": {"large": {**series, "gpus": [1024, 4096]}},
        "figures": {"figure2": {"series": ["large"]}},
    }
    found = expand(content, Path("large.yaml"), known_devices(cluster))
    return replace(found, name="large-simulated")


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return large(wide())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, campaign: Campaign) -> dict[int, Simulated]:
    """Both runs, simulated and accounted for, by their GPUs."""
    results = tmp_path_factory.mktemp("large") / campaign.name
    found = {}
    for id_, configuration in campaign.configurations.items():
        spec = run_spec(campaign, id_, 1)
        found[configuration.gpus] = simulate(results, spec, wide(), period_s=30.0)
        found[configuration.gpus].row(wide())
    return found


@pytest.fixture(scope="module")
def table(played: dict[int, Simulated], campaign: Campaign) -> Any:
    """The table of runs."""
    results = played[1024].files.results
    runs = [[id_, 1] for id_ in campaign.configurations]
    write_runs(runs_definition(campaign, runs), results, results / "tables")
    return pq.read_table(results / "tables" / "runs.parquet")


def test_the_campaign_can_be_simulated_on_nodes_of_another_width(campaign: Campaign) -> None:
    check_simulations(campaign, wide(), read_model(MODEL))
    nodes = {c.gpus: (c.nodes, c.ranks_per_node) for c in campaign.configurations.values()}
    assert nodes == {1024: (128, 8), 4096: (512, 8)}


@pytest.mark.parametrize(("gpus", "nodes"), [(1024, 128), (4096, 512)])
def test_thousands_of_gpus_are_accounted_for(
    gpus: int, nodes: int, played: dict[int, Simulated], table: Any
) -> None:
    one = played[gpus]
    (row,) = (row for row in table.to_pylist() if row["gpus"] == gpus)
    assert (row["nodes"], row["energy_origin"], row["coverage"]) == (nodes, "simulated", 1.0)
    assert row["runtime_s"] == pytest.approx(one.truth.runtime_s, rel=1e-6)
    for kind in ("gpu", "cpu", "ram"):
        true = one.true_j(kind) / J_PER_KWH
        assert row[f"{kind}_energy_kwh"] == pytest.approx(true, rel=2e-6), kind
    said = one.provenance
    assert len(said["hostnames"]) == nodes
    assert {len(indices) for indices in said["gpus"].values()} == {8}
    assert sum(map(len, said["gpu_uuids"].values())) == gpus


def test_beyond_four_times_the_calibrated_n_everything_is_marked(
    played: dict[int, Simulated], table: Any, campaign: Campaign
) -> None:
    assert played[1024].provenance["simulated"]["warnings"] == []
    assert played[4096].provenance["simulated"]["warnings"] == [FAR]
    rows = {row["gpus"]: row for row in table.to_pylist()}
    assert rows[1024]["flags"] == "[]"
    (flag,) = json.loads(rows[4096]["flags"])
    assert (flag["code"], flag["detail"]) == ("extrapolated", FAR)
    said = f"Simulated resnet50.train on a100: {FAR}."
    assert said in metadata(table)["notes"]
    near = [rows[1024], rows[4096] | {"excluded": "a test"}]
    assert not any("extrapolated" in one for one in notes({"figure": "runs"}, near))
