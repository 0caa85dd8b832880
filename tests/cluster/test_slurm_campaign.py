"""A small campaign on 1, 2 and 2 × 2 nodes × ranks of a real Slurm, to its finished figures."""

from __future__ import annotations

import json
import subprocess
from itertools import combinations

import pandas as pd
import pyarrow.parquet as pq
import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm
from workspace import environment

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]

ALONE = "fourcastnet.pretrain-a100-n001-lbs0002-full"
TOGETHER = "fourcastnet.pretrain-a100-n002-lbs0002-full"
APART = "fourcastnet.pretrain-a100-apart-n002-lbs0002-full"
FOUR = "fourcastnet.pretrain-a100-n004-lbs0002-full"
IMAGES = "resnet50-h100-n001-lbs0016-full"
PLACES = {ALONE: (1, 1), TOGETHER: (1, 2), APART: (2, 1), FOUR: (2, 2), IMAGES: (1, 1)}
"""Nodes and ranks a node of each run."""


@pytest.fixture(scope="module")
def finished(slurm: MiniSlurm, tmp_path_factory: pytest.TempPathFactory) -> MiniProject:
    """The campaign, run to its end by one snakemake."""
    slurm.cancel_all()
    project = MiniProject.on(slurm, tmp_path_factory.mktemp("campaign") / "project")
    project.done("all")
    return project


def hosts(project: MiniProject, configuration: str) -> dict[str, int]:
    """Ranks by node of a run that had one segment."""
    (segment,) = project.provenance(configuration)["segments"]
    names = [rank["host"] for rank in segment["ranks"]]
    return {name: names.count(name) for name in names}


def test_every_figure_and_table_of_the_campaign_is_there(finished: MiniProject) -> None:
    for number in (2, 4):
        for end in ("pdf", "svg", "png", "csv"):
            assert (finished.results / "figures" / f"figure{number}.{end}").stat().st_size
    assert (finished.results / "report.html").stat().st_size
    rows = pq.read_table(finished.results / "tables" / "runs.parquet").to_pylist()
    result = {row["configuration"]: (row["nodes"], row["gpus"] // row["nodes"]) for row in rows}
    assert result == PLACES
    assert all(row["energy_kwh"] > 0 for row in rows)
    assert {row["energy_origin"] for row in rows} == {"estimated"}
    assert {row["segments"] for row in rows} == {1}


@pytest.mark.parametrize("configuration", PLACES)
def test_every_rank_runs_on_a_node_of_its_device(finished: MiniProject, configuration: str) -> None:
    nodes, ranks = PLACES[configuration]
    ranks_by_node = hosts(finished, configuration)
    assert len(ranks_by_node) == nodes
    assert set(ranks_by_node.values()) == {ranks}
    assert {name[0] for name in ranks_by_node} == {"h" if configuration == IMAGES else "a"}
    (segment,) = finished.provenance(configuration)["segments"]
    (job,) = finished.slurm.sacct(segment["job"])
    assert job["State"] == "COMPLETED"
    expected = "accelerated-h100" if configuration == IMAGES else "accelerated"
    assert job["Partition"] == expected


def test_all_nodes_of_a_run_were_recorded(finished: MiniProject) -> None:
    for configuration in PLACES:
        rows = [row for row in finished.energy(configuration) if row["device_kind"] == "cpu"]
        assert {row["node"] for row in rows} == set(hosts(finished, configuration))
        assert all(row["energy_j"] is not None for row in rows)


def test_runs_go_side_by_side_on_nodes_of_their_own(finished: MiniProject) -> None:
    spans = {}
    for configuration in PLACES:
        (segment,) = finished.provenance(configuration)["segments"]
        span = (segment["started_s"], segment["ended_s"])
        spans[configuration] = (*span, set(hosts(finished, configuration)))
    together = [
        (span[2], other[2])
        for span, other in combinations(spans.values(), 2)
        if span[0] < other[1] and other[0] < span[1]
    ]
    assert together, "no two runs at the same time"
    assert not any(nodes & others for nodes, others in together)


def test_where_the_ranks_are_changes_nothing_that_is_learnt(finished: MiniProject) -> None:
    finished.assert_same_training(TOGETHER, APART)


def test_every_job_was_submitted_once_and_nothing_is_left_to_do(finished: MiniProject) -> None:
    jobs = [finished.provenance(name)["segments"][0]["job"] for name in PLACES]
    text = finished.slurm.command(
        "sacct", "-nPX", "-S", "now-1day", "-o", "JobIDRaw,WorkDir,Partition"
    )
    rows = [line.split("|") for line in text.splitlines()]
    ours = [row for row in rows if row[1] == str(finished.path)]
    trainings = [row[0] for row in ours if row[2].startswith("accelerated")]
    assert sorted(trainings) == sorted(jobs)
    assert finished.jobs() == {}


def test_the_status_of_a_finished_campaign_is_told_on_the_login_node(
    finished: MiniProject,
) -> None:
    answer = subprocess.run(
        ["scalewatt", "status", "--site", "profiles/mini/cluster.yaml", "--json"],
        cwd=finished.path,
        env={**finished.slurm.environment, "PATH": environment()["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    assert {run["state"] for run in json.loads(answer.stdout)["runs"]} == {"done"}


@pytest.mark.nightly
def test_one_run_is_made_again_by_a_job_of_its_own_and_learns_the_same(
    finished: MiniProject,
) -> None:
    before = finished.provenance(FOUR)
    output = finished.done("reproduce", "--config", f"reproduce_run={FOUR}/1")
    assert "nothing differs in " in output, output
    folder = finished.results / "reproduction"
    rows = pd.read_csv(folder / "findings.csv")
    rows = rows[rows["check"] == "history"]
    learnt = dict(zip(rows["what"].str.split(": ").str[1], rows["outcome"], strict=True))
    assert learnt.pop("train_metric") == "not_checked"  # FourCastNet has none
    assert set(learnt.values()) == {"same"} and {"train_loss", "metric"} <= set(learnt)
    provenance = folder / "runs" / FOUR / "1" / "provenance.json"
    (segment,) = json.loads(provenance.read_text())["segments"]
    (job,) = finished.slurm.sacct(segment["job"])
    assert (job["State"], job["Partition"]) == ("COMPLETED", "accelerated")
    assert {rank["host"][0] for rank in segment["ranks"]} == {"a"}
    assert len({rank["host"] for rank in segment["ranks"]}) == 2
    assert finished.provenance(FOUR) == before
    assert segment["job"] != before["segments"][0]["job"]
    assert finished.jobs() == {}
