"""The schemas: they forbid what they do not know, say what everything is, and fit the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from campaign_files import PAPER, ROOT
from jsonschema import Draft202012Validator

from scalewatt.campaign.campaign_types import Cluster, Device
from scalewatt.campaign.cluster import load_cluster, parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.schema_validation import schema
from scalewatt.common.yaml_files import read_yaml

CAMPAIGNS = [PAPER, *sorted((ROOT / "campaigns").glob("*.yaml"))]
CLUSTERS = sorted((ROOT / "profiles").glob("*/cluster.yaml"))
SCHEMAS = ROOT / "workflow/schemas"
ALL = ("campaign", "cluster", "registration", "registered")
MODELS = ("resnet50", "fourcastnet.pretrain", "fourcastnet.finetune")


def parts(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, with the way to it."""
    if isinstance(part, dict):
        yield path, part
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        if isinstance(value, (dict, list)):
            yield from parts(value, f"{path}/{key}")


def is_schema(path: str) -> bool:
    # "properties" and "$defs" are maps of schemas, not schemas.
    return path.rpartition("/")[2] not in ("properties", "$defs")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    "which", sorted(path.name.partition(".")[0] for path in SCHEMAS.glob("*.schema.json"))
)
def test_a_schema_is_a_schema(which: str) -> None:
    Draft202012Validator.check_schema(schema(which))


@pytest.mark.parametrize(("which", "least"), list(zip(ALL, (6, 6, 1, 3), strict=True)))
def test_every_object_with_properties_forbids_others(which: str, least: int) -> None:
    found = [(p, s) for p, s in parts(schema(which)) if is_schema(p) and "properties" in s]
    assert len(found) >= least
    assert [p for p, s in found if s.get("additionalProperties") is not False] == []


@pytest.mark.parametrize("model", MODELS)
def test_every_setting_has_a_description_and_a_valid_default(model: str) -> None:
    properties = schema("campaign")["$defs"][model]["properties"]
    assert len(properties) > 10
    for key, part in properties.items():
        assert part["description"].endswith("."), key
        assert ("default" in part) == (key != "dataset"), key
        if "default" in part:
            Draft202012Validator(part).validate(part["default"])
    assert schema("campaign")["$defs"][model]["required"] == ["dataset"]


@pytest.mark.parametrize("path", CAMPAIGNS, ids=name)
def test_a_campaign_of_the_project_is_valid(path: Path) -> None:
    Draft202012Validator(schema("campaign")).validate(read_yaml(path))
    assert load_campaign(path).configurations


@pytest.mark.parametrize("path", CLUSTERS, ids=name)
def test_a_cluster_of_the_project_is_valid(path: Path) -> None:
    Draft202012Validator(schema("cluster")).validate(read_yaml(path))
    cluster = load_cluster(path)
    assert cluster.name == path.parent.name
    campaign = load_campaign(ROOT / cluster.campaign, cluster)
    assert campaign.devices() <= set(cluster.devices)


@pytest.mark.parametrize(
    ("kind", "part"),
    [(Cluster, schema("cluster")), (Device, schema("cluster")["$defs"]["device"])],
    ids=["cluster", "device"],
)
def test_the_code_knows_every_key_of_a_cluster_with_its_default(kind: Any, part: Any) -> None:
    names = {f.name: f for f in fields(kind)}
    name = names.pop("name")  # a cluster's key `cluster`; of a device, the key of its entry
    known = names | ({"cluster": name} if kind is Cluster else {})
    assert set(known) == set(part["properties"])
    for key, entry in part["properties"].items():
        if "default" in entry:
            f, expected = known[key], entry["default"]
            default = f.default if f.default is not MISSING else f.default_factory()
            assert default == (tuple(expected) if isinstance(expected, list) else expected), key


def test_a_dataset_lies_where_the_cluster_says_or_below_data_by_its_definition() -> None:
    cluster = parse_cluster(read_yaml(CLUSTERS[0]) | {"data_roots": {"era5": "/big/era5"}}, "here")
    era5 = {"name": "era5", "source": "data_root"}
    assert cluster.data_folder(era5) == "/big/era5"
    assert cluster.data_folder(era5 | {"name": "imagenet"}) == "data/imagenet"
    one = {"name": "scans", "source": "embedded", "train_samples": 100}
    other = one | {"train_samples": 200}
    assert cluster.data_folder(one) == cluster.data_folder(dict(reversed(one.items())))
    assert cluster.data_folder(one) != cluster.data_folder(other)
    assert cluster.data_folder(one).startswith("data/scans-")


@pytest.mark.parametrize(("given", "meant"), [("true", True), ("False", False), (True, True)])
def test_results_only_may_come_as_text_from_the_command_line(given: Any, meant: bool) -> None:
    assert (
        parse_cluster(read_yaml(CLUSTERS[0]) | {"results_only": given}, "x").results_only is meant
    )
