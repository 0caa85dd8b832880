"""`scalewatt campaign`: a campaign as a table for people, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from campaign_files import DEMO, LOCAL, PAPER, demo, edited, write_yaml

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.cli.campaigns import campaign_table, runs_json

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


def test_json_names_every_series_that_shares_a_run() -> None:
    runs = {run["configuration"]: run for run in runs_json(load_campaign(PAPER))}
    assert runs["resnet50-a100-n256-lbs0256-full"]["series"] == [
        "resnet50-full-lbs256",
        "resnet50-scaled-lbs256",
    ]
    assert runs["resnet50-a100-n001-lbs0256-full"]["campaign"] == "paper"


def test_json_has_the_spec_of_the_run() -> None:
    campaign = demo()
    for run in runs_json(campaign):
        spec = run_spec(campaign, run["configuration"], run["repeat"]).as_json()
        assert {key: run[key] for key in spec} == spec


def test_json_of_several_campaigns_is_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(DEMO), str(PAPER), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert {run["campaign"] for run in runs} == {"demo", "paper"}


def test_the_table_has_one_line_per_configuration() -> None:
    campaign = demo()
    lines = campaign_table(campaign).splitlines()
    assert lines[0].split() == [
        "configuration", "repeats", "GPUs", "nodes", "LBS", "GBS", "samples", "epochs", "updates",
        "series",
    ]  # fmt: skip
    body = lines[1 : 1 + len(campaign.configurations)]
    assert [line.split()[0] for line in body] == list(campaign.configurations)
    row = next(line for line in body if line.startswith("resnet50-local-n002-lbs0016-full"))
    assert row.split()[1:9] == ["1", "2", "1", "16", "32", "384", "5", str(5 * 12)]
    assert row.endswith("  resnet50-full-lbs16, resnet50-full-gbs32")


def test_the_tables_columns_stand_below_their_heads() -> None:
    lines = campaign_table(load_campaign(PAPER)).splitlines()[:54]
    for head in ("repeats", "GPUs", "nodes", "LBS", "GBS", "samples", "epochs", "updates"):
        end = lines[0].index(head) + len(head)
        assert all(line[end - 1].isdigit() and line[end] == " " for line in lines[1:])


def test_the_table_ends_with_the_sums() -> None:
    last = campaign_table(load_campaign(PAPER)).splitlines()[-1]
    assert "campaign 'paper', protocol paper" in last
    assert "13 series, 53 configurations, 175 runs, 1 to 256 GPUs" in last


def test_the_listing_says_what_one_and_two_repeats_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = edited({("series", "fourcastnet-pretrain-gbs12", "repeats"): 2}, DEMO)
    assert main(["campaign", str(write_yaml(tmp_path / "two.yaml", content))]) == 0
    said = capsys.readouterr().out.splitlines()
    (one,) = [line for line in said if line.startswith("repeats: 1 (")]
    (two,) = [line for line in said if line.startswith("repeats: 2 (2 configurations)")]
    assert "no error bars" in one and "1 degree of freedom" in two and "± 9 standard" in two
    assert main(["campaign", str(DEMO)]) == 0
    assert "repeats: 2" not in capsys.readouterr().out


def test_the_listing_accepts_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(DEMO), "--cluster", str(LOCAL)]) == 0
    assert "resnet50-local-n004-lbs0016-full" in capsys.readouterr().out
