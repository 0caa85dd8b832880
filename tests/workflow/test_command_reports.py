"""What a script reports against what its campaign declares: flags, and what is compared."""

from __future__ import annotations

import csv
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

EARLY = """
import os, sys, time
from scalewatt.events import report, stage
epochs, ranks = int(sys.argv[1]), int(os.environ["WORLD_SIZE"])
for epoch in range(2 if ranks == 1 else epochs):
    stage("train", epoch=epoch)
    time.sleep(0.6 / ranks)
    report(epoch=epoch, metric=50.0 - epoch, samples=1000, updates=100 // ranks)
"""
BUSY = """
import time
from scalewatt.events import report
time.sleep(1)
report(epoch=0, metric=5.0, samples=1000, updates=200)
"""
APART = """
import time, torch
from scalewatt.events import report
time.sleep(1)
report(epoch=0, metric=5.0)
"""
JOINED = """
import time
import torch.distributed as dist
from scalewatt.events import report
dist.init_process_group("gloo")
time.sleep(1)
report(epoch=0, metric=5.0, samples=1010, updates=51)
dist.destroy_process_group()
"""
DIVERGED = """
import time
from scalewatt.events import report
for epoch in range(3):
    time.sleep(0.4)
    report(epoch=epoch, metric=5.0 if epoch == 0 else float("nan"), train_loss=float("inf"), samples=1000)
"""
QUIET = "import time; time.sleep(1)\n"
SCRIPTS = {
    "early": (EARLY, 6),
    "busy": (BUSY, 1),
    "apart": (APART, 1),
    "joined": (JOINED, 1),
    "diverged": (DIVERGED, 3),
    "quiet": (QUIET, 1),
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign of scripts, run to its tables and a figure."""
    workspace = Workspace.create(tmp_path_factory.mktemp("reported") / "project")
    (workspace.path / "scripts").mkdir()
    for name, (text, _) in SCRIPTS.items():
        (workspace.path / "scripts" / f"{name}.py").write_text(text)
    campaign = {
        "name": "reported",
        "protocol": "corrected",
        "sampling_period_s": 0.2,
        "models": {
            name: {
                "workload": "command",
                "command": f"python {name}.py {{epochs}} {{local_batch_size}}",
                "folder": "scripts",
                "files": [f"{name}.py"],
                "samples": 1000,
                "epochs": epochs,
                "metric_name": "top1_error_percent",
            }
            for name, (_, epochs) in SCRIPTS.items()
        },
        "series": {
            name: {
                "model": name,
                "device": "local",
                "gpus": {"early": [1, 2], "busy": [1], "quiet": [1, 2]}.get(name, [2]),
                "local_batch_size": 10,
            }
            for name in SCRIPTS
        },
        "figures": {"figure2": {"series": list(SCRIPTS)}},
    }
    (workspace.path / "campaigns" / "reported.yaml").write_text(json.dumps(campaign))
    workspace.edit("profiles/local/cluster.yaml", "campaigns/tiny.yaml", "campaigns/reported.yaml")
    workspace.done("tables", "figure2")
    return workspace


def run(workspace: Workspace, model: str, gpus: int) -> dict[str, Any]:
    rows = pq.read_table(workspace.path / "results/reported/tables/runs.parquet").to_pylist()
    return next(row for row in rows if (row["model"], row["gpus"]) == (model, gpus))


def details(row: dict[str, Any]) -> dict[str, str]:
    codes = ("contradicts_spec", "ranks_apart", "world_unknown", "declared", "not_finite")
    flags = json.loads(row["flags"])
    return {one["code"]: one["detail"] for one in flags if one["code"] in codes}


def test_a_run_that_stopped_early_shows_what_was_done_and_is_left_out(reported: Workspace) -> None:
    short, whole = run(reported, "early", 1), run(reported, "early", 2)
    assert (short["epochs"], short["epochs_done"], short["samples"]) == (6, 2, 2000)
    assert details(short) == {"contradicts_spec": "2 of 6 epochs were reported"}
    assert short["excluded"] == "2 of 6 epochs were reported"
    assert short["energy_kwh"] is not None, "it is measured all the same"
    assert (whole["epochs_done"], whole["excluded"]) == (6, None)


def test_updates_that_contradict_the_declared_ones_leave_a_run_out(reported: Workspace) -> None:
    row = run(reported, "busy", 1)
    assert row["excluded"] == "200 updates were reported where 100 were declared"
    assert row["updates"] == 200


def test_ranks_that_never_joined_one_world_leave_a_run_out(reported: Workspace) -> None:
    assert "ranks_apart" in details(run(reported, "apart", 2))
    assert "each may have trained alone" in run(reported, "apart", 2)["excluded"]
    assert details(run(reported, "joined", 2)) == {}
    assert run(reported, "joined", 2)["excluded"] is None


def test_such_runs_are_in_no_speed_up_and_no_figure_which_says_why(reported: Workspace) -> None:
    results = reported.path / "results" / "reported"
    with open(results / "figures" / "figure2.csv") as file:
        text = file.read()
    shown = list(csv.DictReader(text.splitlines()))
    drawn = {(row["series"], row["gpus"]) for row in shown}
    assert not [one for one in drawn if one in {("early", "1"), ("busy", "1"), ("apart", "2")}]
    speedups = pq.read_table(results / "tables" / "scaling.parquet").to_pylist()
    early = [row for row in speedups if row["model"] == "early"]
    assert not [row for row in early if row["speedup"] is not None and row["smallest_gpus"] == 1]
    caption = (results / "figures" / "figure2.caption.tex").read_text()
    assert "2 of 6 epochs were reported" in caption
    assert "200 updates were reported where 100 were declared" in caption


def test_a_value_that_is_not_finite_is_told_from_one_that_is_missing(reported: Workspace) -> None:
    row = run(reported, "diverged", 2)
    found = [one["detail"] for one in json.loads(row["flags"]) if one["code"] == "not_finite"]
    assert sorted(found) == [
        "metric not finite since epoch 1",
        "train loss not finite since epoch 0",
    ]
    assert (row["metric_last"], row["metric_best"]) == (None, 5.0)
    caption = (reported.path / "results/reported/figures/figure2.caption.tex").read_text()
    assert "Metric not finite since epoch 1" in caption


def test_what_is_declared_and_never_reported_is_marked(reported: Workspace) -> None:
    alone, both = run(reported, "quiet", 1), run(reported, "quiet", 2)
    assert details(alone) == {"declared": "epochs and samples as declared, not reported"}
    assert set(details(both)) == {"declared", "world_unknown"}
    assert (alone["samples"], alone["epochs_done"]) == (1000, None)
    caption = (reported.path / "results/reported/figures/figure2.caption.tex").read_text()
    assert "Epochs and samples as declared, not reported" in caption
    assert "declared" not in details(run(reported, "joined", 2))
