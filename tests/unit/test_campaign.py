"""From campaign files to configurations and runs: the paper's campaign, and the rules in small."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from campaign_files import LOCAL, PAPER, demo
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import Device, known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError


@pytest.fixture(scope="module")
def paper() -> Campaign:
    return load_campaign(PAPER)


def point(campaign: Campaign, series: str, gpus: int) -> Configuration:
    return campaign.configurations[campaign.series[series].points[gpus]]


# --- ids ----------------------------------------------------------------------------------------


def ids_with(name: str = "resnet50-full-lbs16", **values: Any) -> list[str]:
    campaign = demo({("series", name, key): value for key, value in values.items()})
    return list(campaign.series[name].points.values())


def test_an_id_shows_the_settings_that_depart_from_the_campaigns() -> None:
    settings = {"momentum": 0.8, "crop_scale": [0.25, 1.0], "horizontal_flip": True}
    assert ids_with(settings=settings)[0] == (
        "resnet50-local-n001-lbs0016-full-crop_scale0.25x1-horizontal_fliptrue-momentum0.8"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"weight_decay": 0.0001}},  # the schema's default
        {"settings": {"momentum": 0.5, "image_size": 16}},  # the campaign's
        {"settings": {}},
        {"protocol": "corrected"},
        {"repeats": 1},
        {"seeds": "same"},
        {"dataset_fraction": "1/1"},
        {"label": "another label"},
        {"phase": "train"},
    ],
    ids=str,
)
def test_an_id_shows_nothing_that_is_as_it_is_anyway(values: dict[str, Any]) -> None:
    assert ids_with(**values) == list(demo().series["resnet50-full-lbs16"].points.values())


# --- arithmetic ---------------------------------------------------------------------------------


def walk_an_epoch(samples: int, gpus: int, batch: int) -> tuple[int, int]:
    """Samples and updates of an epoch, by dealing samples to ranks and batches one by one."""
    ranks = [0] * gpus
    for sample in range(samples):
        ranks[sample % gpus] += 1
    share = min(ranks)  # what does not divide is left out
    updates = 0
    while share > 0:
        share -= batch
        updates += 1
    return gpus * min(ranks), updates


def test_the_papers_updates(paper: Campaign) -> None:
    # 1 281 167 images: 5005 batches of 256, the last one partial; 256 GPUs leave 143 images out
    c = point(paper, "resnet50-full-lbs256", 1)
    assert (c.updates_per_epoch, c.updates, c.samples_per_epoch) == (5005, 500500, 1281167)
    c = point(paper, "resnet50-full-lbs256", 256)
    assert (c.updates_per_epoch, c.samples_per_epoch) == (20, 1281024)
    c = point(paper, "fourcastnet-pretrain-lbs1", 256)
    assert (c.updates_per_epoch, c.samples_per_epoch, c.updates) == (211, 54016, 80 * 211)


TOY_DEVICE = Device(name="local", gpus_per_node=4, cpus_per_rank=1)


def toy(samples: int, gpus: int, **entry: Any) -> Configuration:
    """One configuration of a made-up dataset."""
    images = {"format": "imagenet", "source": "data_root", "classes": 10}
    content = {
        "name": "toy",
        "protocol": "corrected",
        "datasets": {"toy": {**images, "train_samples": samples, "validation_samples": samples}},
        "models": {"resnet50": {"dataset": "toy"}},
        "series": {"toy": {"model": "resnet50", "device": "local", "gpus": [gpus], **entry}},
        "figures": {},
    }
    campaign = expand(content, LOCAL, {"local": TOY_DEVICE})
    return next(iter(campaign.configurations.values()))


@given(st.integers(1, 4), st.integers(4, 400), st.integers(1, 90))
def test_samples_and_updates_follow_from_any_batch_and_dataset(
    gpus: int, samples: int, batch: int
) -> None:
    c = toy(samples, gpus, local_batch_size=batch)
    assert (c.samples_per_epoch, c.updates_per_epoch) == walk_an_epoch(samples, gpus, batch)
    assert c.global_batch_size == gpus * batch


@given(st.sampled_from([1, 2, 3, 4, 8, 12]), st.integers(12, 64), st.integers(200, 100_000))
def test_a_scaled_dataset_is_the_floor_of_its_exact_part(
    gpus: int, whole: int, samples: int
) -> None:
    c = toy(samples, gpus, local_batch_size=1, dataset_fraction=f"n/{whole}")
    assert c.dataset_samples == c.validation_samples == gpus * samples // whole
    assert Fraction(c.dataset_fraction) == Fraction(gpus, whole)


@pytest.mark.parametrize(
    ("gpus", "nodes", "ranks"), [(1, 1, 1), (3, 1, 3), (4, 1, 4), (8, 2, 4), (12, 3, 4)]
)
def test_nodes_are_filled(gpus: int, nodes: int, ranks: int) -> None:
    c = toy(1000, gpus, local_batch_size=8)
    assert (c.nodes, c.ranks_per_node) == (nodes, ranks)


def test_settings_that_an_id_spells_alike_are_refused() -> None:
    series = {"model": "net", "device": "local", "gpus": [1], "local_batch_size": 16}
    command = {"workload": "command", "command": "python train.py", "files": ["train.py"]}
    content = {
        "name": "alike",
        "models": {"net": {**command, "epochs": 1, "precision": "fp32"}},
        "series": {
            name: {**series, "settings": {"precision": precision}}
            for name, precision in (("one", "bf16-mixed"), ("two", "bf16_mixed"))
        },
        "figures": {"figure2": {"series": ["one", "two"]}},
    }
    with pytest.raises(
        InputError, match=r"series\.two\.precision: bf16_mixed, but series\.one has bf"
    ):
        expand(content, Path("alike.yaml"), known_devices())
