"""From ImageNet's official files to a trained ResNet50, as a user does it."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from workspace import Workspace

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from imagenet_files import Official, contents

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(600)]

CAMPAIGN = Path(__file__).parent / "photos.yaml"


def test_the_official_files_are_prepared_and_trained_on(tmp_path: Path) -> None:
    official = Official.make()
    tars = official.write(tmp_path / "tars")
    workspace = Workspace.create(tmp_path / "project")
    (workspace.path / "campaigns" / "photos.yaml").write_text(CAMPAIGN.read_text())
    cluster = workspace.path / "config.yaml"
    places = {
        "sources": {"photos": str(tars)},
        "data_roots": {"photos": str(tmp_path / "data")},
    }
    cluster.write_text(cluster.read_text() + yaml.safe_dump(places))
    campaign = ("--config", "campaign=campaigns/photos.yaml")

    workspace.done("prepare_imagenet", *campaign)
    assert contents(tmp_path / "data") == contents(official.tree(tmp_path / "tree"))

    # Nodes are to unpack the images, which have been prepared without that.
    (tmp_path / "scratch").mkdir()
    cluster.write_text(cluster.read_text() + yaml.safe_dump({"scratch": str(tmp_path / "scratch")}))
    code, output = workspace.snakemake("figure2", *campaign)
    command = f"scalewatt prepare --folder {tmp_path / 'data'} --pack"
    assert code == 1 and f"-train.tar: missing; create it with: {command}" in output, output
    assert "Traceback" not in output
    assert not list(workspace.path.glob("work/*/*/train.log")), "no rank was started"
    workspace.done("prepare_imagenet", "-R", "dataset", *campaign)
    assert len([*(tmp_path / "data").glob("packed-*.tar")]) == 2

    workspace.done("figure2", *campaign)
    (run,) = (workspace.path / "results" / "photos" / "runs").glob("*/1")
    history = pq.read_table(run / "history.parquet").to_pylist()
    assert [(row["samples"], row["updates"]) for row in history] == [(18, 3), (18, 3)]
    assert all(row["train_loss"] > 0 for row in history)
    assert "stage_data" in pq.read_table(run / "events.parquet")["stage"].to_pylist()
    workspace.done("prepare_imagenet", "-R", "dataset", *campaign)
    assert workspace.jobs("figure2", *campaign) == {}, "preparing again trains nothing again"
