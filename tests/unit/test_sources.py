"""What a cluster file may say about where data come from, and how it reaches `scalewatt prepare`."""

from __future__ import annotations

from typing import Any

import pytest
from campaign_files import ROOT

from scalewatt.campaign.cluster import Cluster, parse_cluster, read_source
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml


def cluster(source: Any, **more: Any) -> Cluster:
    content = read_yaml(ROOT / "config.yaml")
    return parse_cluster(content | {"sources": {"photos": source}} | more, "here")


@pytest.mark.parametrize(
    "source",
    [
        "/a path/it's",
        "https://example.org/era5.zarr",
        {"tars": "/tars"},
        {"tree": "/tree"},
        {"zarr": "s3://bucket/store"},
        {"files": ["/a/*.grib", "/b/*.nc"]},
        {"hdf5": "/yearly"},
    ],
)
def test_a_source_reaches_the_command_as_it_was_given(source: Any) -> None:
    assert read_source(cluster(source).source_text("photos")) == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"tars": "/a", "tree": "/b"}, r"exactly one of path, tars, tree, zarr"),
        ({"tar": "/a"}, r"unknown key 'tar'; allowed: .*did you mean 'tars'"),
        ({"files": "/a/*.nc"}, r"files: .* should be of type array"),
        ({"files": []}, r"files"),
        ({}, r"sources\.photos"),
        ("", r"sources\.photos"),
        (7, r"should be of type object"),
    ],
)
def test_a_wrong_source_is_named_before_anything_starts(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        cluster(source)
    assert str(caught.value).startswith("here: sources.photos")
