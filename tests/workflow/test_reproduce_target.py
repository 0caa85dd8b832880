"""The target `reproduce`: nothing differs of what was made, and whatever was changed is named."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from workspace import CHOSEN, Workspace

from scalewatt.cli import main
from scalewatt.common.files import write_json, write_table
from scalewatt.reproduction.findings import CHECKS
from scalewatt.run_files.inventory import published_runs

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

CONFIGURATION = "resnet50-a100-n002-lbs0256-s0010009"
ASKED = ("reproduce", *CHOSEN)


@pytest.fixture(scope="module")
def reproduced(
    played: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workspace, int, str]:
    """The simulated campaign, reproduced by the workflow: exit code and output."""
    workspace = played.copy(tmp_path_factory.mktemp("reproduced") / "project")
    return workspace, *workspace.snakemake(*ASKED, profile="simulate")


@pytest.fixture
def again(
    reproduced: tuple[Workspace, int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of the reproduced campaign, whose folder is the present one."""
    workspace = reproduced[0].copy(tmp_path / "project")
    monkeypatch.chdir(workspace.path)
    return workspace.path / "results" / "small-simulated"


def findings(results: Path) -> pd.DataFrame:
    return pd.read_csv(results / "reproduction" / "findings.csv")


def same(results: Path) -> Counter[str]:
    """Number of findings of each check that are the same."""
    rows = findings(results)
    return Counter(rows.loc[rows["outcome"] == "same", "check"])


def rerun(results: Path) -> str:
    """The run that was repeated, as CONFIGURATION/REPEAT."""
    ((configuration, repeat),) = published_runs(results / "reproduction")
    return f"{configuration}/{repeat}"


def differing(results: Path) -> dict[str, dict[str, str]]:
    """{check: {what: detail}} of what differs, the environment left out: it is this machine's."""
    rows = findings(results)
    rows = rows[(rows["outcome"] == "differs") & (rows["check"] != "environment")]
    return {
        check: dict(zip(group["what"], group["detail"], strict=True))
        for check, group in rows.groupby("check")
    }


def check() -> int:
    """The command alone, without Snakemake."""
    return main(["reproduce", "--site", "simulate", "--campaign", "campaigns/small.yaml"])


def test_a_campaign_that_was_just_made_is_the_same_in_all_checks(
    reproduced: tuple[Workspace, int, str],
) -> None:
    workspace, code, output = reproduced
    results = workspace.path / "results" / "small-simulated"
    assert code == 0, output
    counts, rows = same(results), findings(results)
    assert all(counts[name] for name in CHECKS), counts
    left = rows.loc[rows["outcome"] == "not_checked", "detail"]
    assert left.str.contains("null in every row of both").all(), left
    assert rerun(results).startswith(CONFIGURATION)
    assert "small-simulated: nothing differs in " in output


def test_the_files_of_the_campaign_are_left_as_they_are(
    played: Workspace, reproduced: tuple[Workspace, int, str]
) -> None:
    before, after = (w.path / "results" / "small-simulated" for w in (played, reproduced[0]))
    for path in sorted(before.rglob("*.*")):
        if path.is_file():
            assert (after / path.relative_to(before)).read_bytes() == path.read_bytes(), path


def test_what_was_changed_is_named_by_its_check_with_the_place_and_the_findings_stay(
    again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A byte of a figure, a cell of a table, a value of a history, and the re-run's energies."""
    run = rerun(again)
    figure = again / "figures" / "figure2.png"
    content = bytearray(figure.read_bytes())
    content[100] ^= 1
    figure.write_bytes(content)

    table = again / "tables" / "runs.csv"
    lines = table.read_text().splitlines()
    column = [name.strip('"') for name in lines[0].split(",")].index("runtime_h")
    cells = lines[2].split(",")  # no cell before it has a comma
    was, cells[column] = cells[column], "1.25"
    table.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n")

    def change(path: Path, name: str, values: Callable[[list[Any]], list[Any]]) -> None:
        whole = pq.read_table(path)
        at = whole.column_names.index(name)
        column_of_table = pa.array(values(whole[name].to_pylist()))
        write_table(whole.set_column(at, whole.schema.field(at), column_of_table), path)

    later = lambda values: [v + 1e-13 * (n == 7) for n, v in enumerate(values)]  # noqa: E731
    change(again / "runs" / run / "history.parquet", "metric", later)
    row = again / "reproduction" / "energy" / f"{run}.row.parquet"
    for kind in ("gpu", "cpu", "ram"):
        change(row, f"{kind}_j", lambda values: [v and 3 * v for v in values])

    assert check() == 1
    rows, output = differing(again), capsys.readouterr().out
    stored = rows["stored"]
    assert {*stored} == {"figures/figure2.png", "tables/runs.csv", f"runs/{run}/history.parquet"}
    assert stored["figures/figure2.png"].startswith("the first difference is at byte 101")
    why = stored["tables/runs.csv"]
    assert 'name="runtime_h"' in why and f"index 1, first diff: {was!r} != '1.25'" in why
    why = rows["history"][f"{run}: metric"]
    assert "1 of 100 values" in why and "row 8: " in why
    assert "outside the 95 % prediction interval" in rows["energy"][f"{run}: energy_kwh"]
    assert "small-simulated: differences: " in output and f"history: {run}: metric: " in output


def test_a_run_whose_spec_is_not_the_recorded_one_is_named(
    again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables start from the rows, which were written when the run was measured: they are the same."""
    run = f"{CONFIGURATION}/{3 - int(rerun(again)[-1] == '3')}"
    record = again / "runs" / run / "provenance.json"
    write_json(record, json.loads(record.read_text()) | {"spec_sha256": "0" * 64})

    assert check() == 1
    rows = differing(again)
    assert {check: {*rows[check]} for check in rows} == {
        "stored": {f"runs/{run}/provenance.json"},
        "provenance": {f"{run}: spec"},
    }
    assert f"provenance: {run}: spec: " in capsys.readouterr().out


# --- trained runs -------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_training_made_again_on_a_cpu_learns_the_same_to_the_bit(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    workspace = finished_workspace.copy(tmp_path / "project")
    code, output = workspace.snakemake("reproduce")
    # Energies on a machine that does other things at the same time may lie anywhere.
    assert code == 0 or set(differing(workspace.results)) == {"energy"}, output
    rows = findings(workspace.results)
    rows = rows[rows["check"] == "history"]
    assert "differs" not in set(rows["outcome"]), output
    equal = {what.rpartition(": ")[2] for what in rows.loc[rows["outcome"] == "same", "what"]}
    assert {"epochs", "train_loss", "validation_loss", "metric"} <= equal
    # The run itself is not touched, and nothing is left to do.
    name = f"runs/{rerun(workspace.results)}/provenance.json"
    record = (workspace.results / name).read_bytes()
    assert record == (finished_workspace.results / name).read_bytes()
    assert record != (workspace.results / "reproduction" / name).read_bytes()
    assert workspace.jobs("all") == {}
    assert workspace.jobs("reproduce") == {"reproduce": 1}


@pytest.mark.nightly
def test_an_archive_is_reproduced_by_a_stranger_under_another_name(
    finished_workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = finished_workspace.copy(tmp_path / "project")
    monkeypatch.chdir(workspace.path)
    assert main(["export", "campaigns/tiny.yaml", "--out", "it.zip"]) == 0
    shutil.rmtree(workspace.path / "results")
    shutil.rmtree(workspace.path / "work")
    assert main(["import", "it.zip", "--name", "theirs"]) == 0
    results = workspace.path / "results" / "theirs"
    chosen = ("--config", "campaign=campaigns/theirs.yaml")
    # The command alone trains nothing.
    assert main(["reproduce", "--campaign", "campaigns/theirs.yaml"]) == 0
    counts = same(results)
    assert counts["stored"] > 70 and counts["regenerated"] > 50 and counts["history"] == 0
    status = workspace.scalewatt("status", "--site", "campaigns/theirs.cluster.yaml")
    assert re.search(r"^runs +8 of 8 \(100 %\)$", status, flags=re.MULTILINE), status
    # The target trains one run, which learns the same.
    assert workspace.jobs("reproduce", *chosen)["train"] == 1
    code, output = workspace.snakemake("reproduce", *chosen)
    # Energies on a machine that does other things at the same time may lie anywhere.
    rows = differing(results)
    assert set(rows) <= {"energy"}, output
    assert code == (1 if rows else 0), output
    assert same(results)["history"] > 5
