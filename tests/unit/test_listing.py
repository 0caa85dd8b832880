"""`scalewatt campaign`: a campaign as a table for people, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from campaign_files import DEMO, PAPER, edited, write_yaml

from scalewatt.cli import main

FIELDS = {
    "model", "phase", "device", "gpus", "local_batch_size", "global_batch_size",
    "dataset_samples", "configuration", "repeat", "series",
}  # fmt: skip


def test_json_has_one_object_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(PAPER), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) == 175
    assert all(set(run) >= FIELDS for run in runs)
    assert Counter(run["model"] for run in runs) == {"resnet50": 150, "fourcastnet": 25}
    assert len({(run["configuration"], run["repeat"]) for run in runs}) == 175


def test_the_listing_says_what_one_and_two_repeats_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = edited({("series", "fourcastnet-pretrain-gbs12", "repeats"): 2}, DEMO)
    assert main(["campaign", str(write_yaml(tmp_path / "two.yaml", content))]) == 0
    lines = capsys.readouterr().out.splitlines()
    (single,) = [line for line in lines if line.startswith("repeats: 1 (")]
    (two,) = [line for line in lines if line.startswith("repeats: 2 (configurations: 2)")]
    assert "no error bars" in single and "1 degree of freedom" in two and "± 9 standard" in two
    assert main(["campaign", str(DEMO)]) == 0
    assert "repeats: 2" not in capsys.readouterr().out
