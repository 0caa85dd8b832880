"""A small campaign on 1, 2 and 2 × 2 nodes × ranks of a real Slurm, to its finished figures."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from mini_project import MiniProject
from minislurm import MiniSlurm

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
