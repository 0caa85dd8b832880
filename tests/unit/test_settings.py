"""Settings: every key says what it is, defaults are allowed, and the project's files are valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaign_files import ROOT

from scalewatt.campaign.campaign_file import CampaignFile
from scalewatt.campaign.cluster import Cluster, load_cluster, parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.model_registry import Finetuning, Pretraining, ResNet50
from scalewatt.campaign.registered_campaign import RegisteredFile
from scalewatt.common.settings import json_schema
from scalewatt.common.yaml_files import read_yaml

CAMPAIGNS = sorted((ROOT / "campaigns").glob("*.yaml"))
CLUSTERS = [ROOT / "config.yaml", *sorted((ROOT / "config").glob("*.yaml"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("kind", [CampaignFile, Cluster, RegisteredFile])
def test_every_key_says_what_it_is_and_no_other_is_allowed(kind: Any) -> None:
    root = json_schema(kind)
    for part in (root, *root["$defs"].values()):
        assert part["additionalProperties"] is False and part["description"], part["title"]
        for key, entry in part["properties"].items():
            inner = {**entry, **next(iter(entry.get("anyOf", [])), {})}
            assert "$ref" in inner or "description" in entry or key == "name", (part["title"], key)


@pytest.mark.parametrize("model", [ResNet50, Pretraining, Finetuning])
def test_a_models_defaults_are_allowed(model: Any) -> None:
    assert [key for key, field in model.model_fields.items() if field.is_required()] == ["dataset"]
    made = model(dataset="scans")
    assert model.model_validate(made.model_dump()) == made


@pytest.mark.parametrize("path", CAMPAIGNS, ids=name)
def test_a_campaign_of_the_project_is_valid(path: Path) -> None:
    assert load_campaign(path).configurations


@pytest.mark.parametrize("path", CLUSTERS, ids=name)
def test_a_cluster_of_the_project_is_valid(path: Path) -> None:
    cluster = load_cluster(path)
    assert cluster.name == {"config": "local"}.get(path.stem, path.stem)
    campaign = load_campaign(ROOT / cluster.campaign, cluster)
    assert campaign.devices() <= set(cluster.devices)


def test_a_dataset_lies_where_the_cluster_says_or_below_data_by_its_definition() -> None:
    cluster = parse_cluster(read_yaml(CLUSTERS[0]) | {"data_roots": {"era5": "/big/era5"}}, "here")
    era5 = {"name": "era5", "source": "data_root"}
    assert cluster.data_folder(era5) == "/big/era5"
    assert cluster.data_folder(era5 | {"name": "imagenet"}) == "data/imagenet"
    dataset = {"name": "scans", "source": "embedded", "train_samples": 100}
    other = dataset | {"train_samples": 200}
    assert cluster.data_folder(dataset) == cluster.data_folder(dict(reversed(dataset.items())))
    assert cluster.data_folder(dataset) != cluster.data_folder(other)
    assert cluster.data_folder(dataset).startswith("data/scans-")


@pytest.mark.parametrize(("given", "meant"), [("true", True), ("False", False), (True, True)])
def test_results_only_may_come_as_text_from_the_command_line(given: Any, meant: bool) -> None:
    assert (
        parse_cluster(read_yaml(CLUSTERS[0]) | {"results_only": given}, "x").results_only is meant
    )
