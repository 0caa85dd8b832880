"""Datasets without data: what a synthetic loader needs of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.expansion import expand
from scalewatt.common.errors import InputError
from scalewatt.data.prepared import content_of_prepared, prepare_dataset

DEVICES = {"gpu": Device(name="gpu", gpus_per_node=1, cpus_per_rank=1)}
IMAGES = {
    "format": "imagenet", "source": "none", "classes": 10,
    "train_samples": 1000, "validation_samples": 50,
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "format": "era5", "source": "none", "grid": [720, 1440], "train_years": [1979, 1988],
    "validation_years": [2016, 2016], "test_years": [2018, 2018], "samples_per_year": 100,
}  # fmt: skip


def campaign(loader: str, fraction: str | int = 1, source: str = "none", **series: Any) -> Any:
    content = {
        "name": "synthetic",
        "protocol": "corrected",
        "datasets": {"images": IMAGES, "fields": {**FIELDS, "source": source}},
        "models": {
            "resnet50": {"dataset": "images"},
            "fourcastnet.pretrain": {"dataset": "fields", "initial_conditions": 1},
        },
        "series": {
            "one": {"model": "resnet50", "device": "gpu", "gpus": [1], "local_batch_size": 4,
                    "dataset_fraction": fraction, "settings": {"loader": loader}, **series},
        },
        "figures": {"breakdown": {"series": ["one"]}},
    }  # fmt: skip
    return expand(content, Path("synthetic.yaml"), DEVICES)


def test_a_dataset_without_data_takes_loader_synthetic_only() -> None:
    assert campaign("synthetic").configurations
    with pytest.raises(
        InputError, match=r"series\.one\.model: dataset 'images' has source none, but loader is pil"
    ):
        campaign("pil")


def test_fourcastnet_trains_on_a_part_of_synthetic_years() -> None:
    expanded = campaign("synthetic", "40/1000", model="fourcastnet", phase="pretrain")
    (configuration,) = expanded.configurations.values()
    assert (configuration.dataset_samples, configuration.validation_samples) == (40, 4)
    assert "-s0000040" in configuration.id


def test_fourcastnet_trains_on_whole_years_of_data() -> None:
    with pytest.raises(InputError, match="trains on whole years"):
        campaign("hdf5", "40/1000", "data_root", model="fourcastnet", phase="pretrain")


@pytest.mark.parametrize(("definition", "samples"), [(IMAGES, (1000, 50)), (FIELDS, (1000, 100))])
def test_a_dataset_without_data_is_prepared_at_once_and_writes_its_manifest_alone(
    tmp_path: Path, definition: dict[str, Any], samples: tuple[int, int]
) -> None:
    marker = prepare_dataset({"name": "nothing", **definition}, tmp_path, None)
    assert (marker["train_samples"], marker["validation_samples"]) == samples
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["manifest.json"]
    assert content_of_prepared(tmp_path) == marker["content_sha256"]
    assert prepare_dataset({"name": "nothing", **definition}, tmp_path, None) == marker
