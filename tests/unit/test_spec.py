"""spec.json: the one file that says what a run is, and what a change of the campaign changes."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_files import Edits, demo, edited

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import InitialWeights, read_spec, run_spec
from scalewatt.common.errors import InputError

TUNED = "fourcastnet.finetune-local-n001-lbs0004-full"
TRAINED = "fourcastnet.pretrain-local-n001-lbs0004-full"


def specs(edits: Edits | None = None) -> dict[tuple[str, int], str]:
    """The text of every run's spec."""
    campaign = demo(edits)
    return {run: run_spec(campaign, *run).text for run in campaign.runs()}


def test_the_hash_is_that_of_the_text_and_survives_writing_and_reading(tmp_path: Path) -> None:
    spec = run_spec(demo(), TUNED, 1)
    path = tmp_path / "spec.json"
    path.write_text(spec.text + "\n")  # as the workflow writes it
    again = read_spec(path)
    assert again == spec
    assert again.sha256 == hashlib.sha256(spec.text.encode()).hexdigest()


def varied(repeats: int, seed: int = 0, name: str = "resnet50-full-lbs16") -> Campaign:
    """The demo whose series varies its seeds."""
    edits = {("series", name, "repeats"): repeats, ("series", name, "seeds"): "varied"}
    alone = {("series",): {name: edited(edits)["series"][name]}, ("figures",): {}}
    return demo({**alone, ("seed",): seed})


def test_repeats_with_varied_seeds_count_them_up_from_the_campaigns() -> None:
    campaign = varied(3, seed=7)
    (id_, *_) = campaign.configurations
    specs = [run_spec(campaign, id_, repeat) for repeat in (1, 2, 3)]
    assert [spec.seed for spec in specs] == [7, 8, 9]
    assert replace(specs[0], repeat=3, seed=9) == specs[2]
    assert campaign.configurations[id_].seeds == "varied"
    assert "seeds" not in specs[0].as_json()


@pytest.mark.parametrize("seeds", ["same", "varied"])
def test_each_repeat_of_fine_tuning_starts_from_that_repeat_of_pre_training(seeds: str) -> None:
    both = ("fourcastnet-pretrain-lbs4", "fourcastnet-finetune-lbs4")
    keys = {"repeats": 2, "seeds": seeds}
    campaign = demo({("series", name, key): v for name in both for key, v in keys.items()})
    for repeat in (1, 2):
        spec, source = run_spec(campaign, TUNED, repeat), run_spec(campaign, TRAINED, repeat)
        assert spec.initial_weights == InitialWeights(TRAINED, repeat, source.sha256)
        assert spec.seed == (repeat - 1 if seeds == "varied" else 0)


def extra_series() -> dict[str, Any]:
    entry = {"model": "resnet50", "device": "local", "gpus": [1], "local_batch_size": 16}
    return {**edited({})["series"], "extra": entry}


NO_CHANGE: dict[str, Edits] = {
    "a label": {("series", "resnet50-full-lbs16", "label"): "sixteen"},
    "the figures": {("figures",): {}},
    "the campaign's name": {("name",): "other"},
    "another series": {("series",): extra_series()},
    "a dataset nobody uses": {
        ("datasets", "more"): {**edited({})["datasets"]["scans"], "train_samples": 20}
    },
    "a default written out": {("models", "resnet50", "weight_decay"): 0.0001},
    "a default written as a whole number": {("models", "fourcastnet.pretrain", "mlp_ratio"): 4},
    "a default written with a decimal point": {
        ("models", "fourcastnet.pretrain", "mlp_ratio"): 4.0
    },
    "the order of the GPU counts": {("series", "resnet50-full-lbs16", "gpus"): [4, 2, 1]},
}


@pytest.mark.parametrize("edits", NO_CHANGE.values(), ids=NO_CHANGE)
def test_no_spec_changes_with(edits: Edits) -> None:
    before, after = specs(), specs(edits)
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize(
    ("keys", "whole", "decimal"),
    [
        (("sampling_period_s",), 1, 1.0),
        (("models", "resnet50", "base_learning_rate"), 1, 1.0),
        (("models", "resnet50", "weight_decay"), 0, 0.0),
        (("models", "resnet50", "crop_scale"), [0.25, 1], [0.25, 1.0]),
        (("series", "resnet50-full-lbs16", "settings"), {"warmup_start": 1}, {"warmup_start": 1.0}),
        (("series", "resnet50-full-lbs16", "gpu_clock_mhz"), 900, 900.0),
    ],
)
def test_no_spec_changes_with_how_a_number_is_written(
    keys: tuple[str, ...], whole: Any, decimal: Any
) -> None:
    assert specs({keys: whole}) == specs({keys: decimal}) != specs()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a readable JSON file"),
        ("[]", "spec_version is None"),
        ('{"spec_version": 2}', "spec_version is 2; this scalewatt reads 1"),
    ],
)
def test_a_file_that_is_no_spec_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        read_spec(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.1}, "'learning_rate'"),
        ({"initial_weights": {"repeat": 1}}, "'configuration'"),
        ({"repeat": ...}, "'repeat'"),
        ({"seed": float("nan")}, "is not a readable JSON file"),
    ],
)
def test_a_spec_with_a_field_that_does_not_fit_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    spec = replace(run_spec(demo(), "resnet50-local-n002-lbs0016-s0000192", 1), epochs=1)
    content = {**spec.as_json(), **changes}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
    with pytest.raises(InputError, match=re.escape(words)) as error:
        read_spec(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
