"""A wrong campaign ends Snakemake with one message and without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace import Workspace


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (
            "gpus: [1, 2], local_batch_size: 16",
            "gpus: [1, 2], local_batchsize: 16",
            ["local_batchsize", "did you mean 'local_batch_size'"],
        ),
        ("protocol: corrected", "protocol: correct", ["protocol", "did you mean 'corrected'"]),
    ],
)
def test_a_wrong_campaign_is_refused_before_anything_starts(
    tmp_path: Path, old: str, new: str, parts: list[str]
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    workspace.edit("campaigns/tiny.yaml", old, new)
    before = {path for path in workspace.path.rglob("*") if ".snakemake" not in path.parts}
    code, output = workspace.snakemake("all")
    assert code == 1
    assert "Traceback" not in output
    assert "campaigns/tiny.yaml" in output
    for part in parts:
        assert part in output
    after = {path for path in workspace.path.rglob("*") if ".snakemake" not in path.parts}
    assert {p for p in after - before if "__pycache__" not in p.parts} == set()


def test_a_time_of_day_in_a_cluster_file_is_refused_though_snakemake_takes_it_for_a_number(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    workspace.edit("config.yaml", "work_root: work", "stop_warning_s: 1:30:00")
    code, output = workspace.snakemake("-n", "all")
    assert code == 1
    assert "config.yaml: line " in output and "1:30:00" in output
    assert "quotes" in output and "Traceback" not in output


@pytest.mark.parametrize("asked", [(), ("results_only=true",)])
def test_nothing_to_train_and_nothing_to_draw_is_no_success(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    code, output = workspace.snakemake("all", "--config", "campaign=campaigns/paper.yaml", *asked)
    assert code == 1, "a report of no run at all is no success"
    assert "scalewatt: error: all: needs finished runs of campaigns/paper.yaml" in output
    assert "Traceback" not in output
    assert not (workspace.path / "results").exists()
