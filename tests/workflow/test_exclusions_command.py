"""Runs that are left out or measured again, through the workflow: what is made again, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

PRETRAIN = "fourcastnet.pretrain-local-n002-lbs0002-full"
FINETUNE = "fourcastnet.finetune-local-n002-lbs0002-full"
OUT = {"configuration": PRETRAIN, "repeat": 2, "reason": "a noisy neighbour"}
RUNS = {"train", "spec", "dataset", "energy"}


def table(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    return pq.read_table(workspace.results / "tables" / f"{name}.parquet").to_pylist()


def repeats(workspace: Workspace) -> int:
    rows = table(workspace, "configurations")
    return next(row["n_repeats"] for row in rows if row["configuration"] == PRETRAIN)


def files(*folders: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below some folders: its bytes, and when it was written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "holder.json"
    }


def products(workspace: Workspace) -> dict[str, bytes]:
    folders = workspace.results / "tables", workspace.results / "figures"
    return {path: content for path, (content, _) in files(*folders).items()}


def test_excluding_a_repeat_makes_only_its_tables_again_and_without_its_row_the_bytes_come_back(
    again: Workspace,
) -> None:
    before = products(again)
    again.scalewatt("exclude", PRETRAIN, 2, "--reason", OUT["reason"])
    jobs = again.jobs("all")
    assert not set(jobs) & RUNS
    assert jobs["figure_table"] == 4, "of figures 4, 5 and 7, and Table 1"
    assert again.drawn("all") == {"figure4", "figure5", "figure7"}
    assert {"figure_table", "runs_table", "report"} <= set(jobs)

    again.done("figure4", "tables")
    assert repeats(again) == 1
    reasons = {(r["configuration"], r["repeat"]): r["excluded"] for r in table(again, "runs")}
    assert reasons.pop((PRETRAIN, 2)) == OUT["reason"]
    assert set(reasons.values()) == {None}, "all others count"
    for name in ("figure4", "configurations"):
        schema = pq.read_schema(again.results / "tables" / f"{name}.parquet")
        assert json.loads(schema.metadata[b"scalewatt"])["excluded"] == [OUT]
    changed = {path for path, content in products(again).items() if before[path] != content}
    assert {"figure4.parquet", "configurations.parquet", "figure4.svg"} <= changed
    others = tuple(f"figure{number}." for number in (1, 2, 3, 5, 6, 7))
    assert not {path for path in changed if path.startswith(others)}
    assert again.jobs("figure4", "tables") == {}, "nothing is left to do"

    (again.path / "campaigns" / "tiny.exclusions.csv").unlink()
    again.done("figure4", "tables")
    assert products(again) == before
    assert set(again.jobs("all")) <= {"manifest", "report"}


def test_measuring_a_run_again_trains_exactly_this_run_and_keeps_the_old_one_whole(
    again: Workspace,
) -> None:
    folder = again.results / "runs" / PRETRAIN / "1"
    (work,) = (again.path / "work" / "tiny").glob(f"{PRETRAIN}-1-*")
    finetuned = again.results / "runs" / FINETUNE
    before, worked, stays = files(folder), files(work), files(finetuned)
    weights = (folder / "weights.pt").stat().st_ino
    out = again.scalewatt("remeasure", PRETRAIN, 1, "--reason", "a noisy neighbour")
    assert f"{FINETUNE} repeat 1 started from its weights and stays" in out
    kept = again.results / "superseded" / PRETRAIN / "1" / "1"
    kept_work = again.path / "work/tiny/superseded" / PRETRAIN / "1" / "1"

    assert again.trainings("all") == {(PRETRAIN, 1)}
    assert again.trainings("figure2", "figure3", "figure6") == set()
    again.done("table1", "figure7")
    assert files(kept / "run") == before
    assert files(kept_work / work.name) == worked
    assert (kept / "energy.parquet").exists() and (kept / "traces.parquet").exists()
    assert (kept / "run" / "weights.pt").stat().st_ino == weights

    new = files(folder)
    assert {path for path in before if "neighbours" not in path} <= set(new)
    assert new["provenance.json"] != before["provenance.json"]
    assert new["spec.json"][0] == before["spec.json"][0]
    assert files(finetuned) == stays
    assert again.trainings("all") == set()
    status = json.loads(again.scalewatt("status", "--json"))
    assert status["counts"]["done"] == status["runs_total"]
    assert status["superseded_energy_kwh"] > 0


def test_a_wrong_row_ends_snakemake_with_one_message(again: Workspace) -> None:
    path = again.path / "campaigns" / "tiny.exclusions.csv"
    path.write_text(
        "configuration,repeat,action,reason,date,measurement\n"
        f"{PRETRAIN.replace('full', 'ful')},1,exclude,noisy,2026-01-31,\n"
    )
    code, output = again.snakemake("figure4")
    assert code == 1
    (line,) = (line for line in output.splitlines() if "scalewatt: error: " in line)
    assert "campaigns/tiny.exclusions.csv: line 2: no configuration" in line
    assert f"did you mean '{PRETRAIN}'?" in line
    assert "Traceback" not in output
