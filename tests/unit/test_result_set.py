"""What the rules ask for: runs, files and requests of a campaign, and why a target cannot be made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_files import DEMO, replaced

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.targets.obstacles import notices, obstacle
from scalewatt.targets.result_set import ROW, ResultSet

CLUSTER_FILE = PROJECT_ROOT / "config.yaml"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultSet:
    """The demo's results, of which nothing is there, in an empty folder."""
    cluster = load_cluster(CLUSTER_FILE)
    campaign = load_campaign(DEMO, cluster)
    monkeypatch.chdir(tmp_path)
    return ResultSet(campaign, cluster, False, [], {})


def finish(results: ResultSet, configuration: str, repeat: int) -> None:
    folder = Path(results.folder, "runs", configuration, str(repeat))
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(run_spec(results.campaign, configuration, repeat).text)
    (folder / "provenance.json").touch()


def test_files_of_runs_come_with_the_notes_of_what_was_set_aside(results: ResultSet) -> None:
    run = results.runs()[0]
    noted = replace(results, set_aside={tuple(run): [Path("note.json")]})
    assert noted.files([run], ROW) == [
        f"results/demo/energy/{run[0]}/{run[1]}.row.parquet",
        "note.json",
    ]


def test_a_figure_shows_its_own_runs_without_those_excluded(results: ResultSet) -> None:
    shown = results.figure_runs("figure2")
    out = {"configuration": shown[0][0], "repeat": shown[0][1], "reason": "shared"}
    fewer = replace(results, excluded=[out])
    assert fewer.figure_runs("figure2") == shown[1:]
    assert fewer.definition("figure2")["excluded"] == [out]
    assert fewer.page_exclusions(shown[0][0]) == {str(shown[0][1]): "shared"}
    assert results.figure_runs("figure1") == []


def test_an_imported_campaign_without_traces_leaves_figure_5_out_and_says_so(
    results: ResultSet,
) -> None:
    theirs = replace(results, finished_only=True)
    for run in results.figure_runs("figure5"):
        finish(results, *run)
    assert "figure5" in results.figures and "figure5" not in theirs.figures
    assert "needs power traces" in (obstacle(theirs, "figure5", "cluster.yaml") or "")
    assert any(
        "recordings for figure5, pages" in sentence for sentence in notices(theirs, "cluster.yaml")
    )


def test_obstacles_name_the_key_and_an_example(results: ResultSet) -> None:
    assert obstacle(results, "figure2", "cluster.yaml") is None
    others: dict[str, Any] = {"figure2": results.campaign.figures["figure2"]}
    campaign = replace(results.campaign, figures=others, idle_probe=None)
    fewer = replace(results, campaign=campaign)
    for name in ("figure5", "table1", "pareto", "variants"):
        text = obstacle(fewer, name, "cluster.yaml") or ""
        assert f"{name}: needs figures.{name} in " in text
    assert "needs idle_probe in" in (obstacle(fewer, "idle", "cluster.yaml") or "")
    assert "cluster.yaml" in (obstacle(fewer, "plan", "cluster.yaml") or "")


def test_that_nothing_is_trained_is_said_unless_somebody_asked_for_it(results: ResultSet) -> None:
    only = replace(results, finished_only=True)
    (notice,) = notices(only, "cluster.yaml")
    assert "so nothing is trained; finished runs: 0 of " in notice
    asked = replace(only, cluster=replaced(only.cluster, results_only=True))
    assert notices(asked, "cluster.yaml") == notices(results, "cluster.yaml") == []


def test_without_training_runs_of_another_spec_do_not_count(results: ResultSet) -> None:
    first, second, *_ = results.runs()
    for run in (first, second):
        finish(results, *run)
    other = Path(results.folder, "runs", second[0], str(second[1]), "spec.json")
    other.write_text(json.dumps({**json.loads(other.read_text()), "epochs": 99}))
    assert replace(results, finished_only=True).runs() == [first]


def test_runs_of_a_site_with_other_nodes_count_with_those_that_started_from_them(
    results: ResultSet,
) -> None:
    """A fine-tuning names the hash of its pre-training, which has the nodes in it."""
    tuned = next(id_ for id_, c in results.campaign.configurations.items() if c.initial_weights)
    before = results.campaign.configurations[tuned].initial_weights
    assert before is not None
    for id_ in (before, tuned):
        finish(results, id_, 1)
        path = Path(results.folder, "runs", id_, "1", "spec.json")
        content = {**json.loads(path.read_text()), "nodes": 7}
        if id_ == tuned:
            content["initial_weights"]["spec_sha256"] = "0" * 64
        path.write_text(json.dumps(content))
    theirs = replace(results, finished_only=True)
    assert theirs.runs([before, tuned]) == [[before, 1], [tuned, 1]]
    path = Path(results.folder, "runs", before, "1", "spec.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "epochs": 99}))
    assert replace(theirs).runs([before, tuned]) == []


def test_a_site_file_that_is_wrong_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "bad.yaml").write_text("cluster: [1")
    cluster = load_cluster(CLUSTER_FILE)
    monkeypatch.chdir(tmp_path)
    ResultSet.load(load_campaign(DEMO, cluster), cluster, with_exclusions=False)
    assert capsys.readouterr().err.count("config/bad.yaml") == 1
