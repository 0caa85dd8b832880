"""The target `reproduce`: nothing differs of what was made, and whatever was changed is named."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from workspace import Workspace

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.cli import main
from scalewatt.common.files import write_json, write_table
from scalewatt.reproduction.findings import CHECKS
from scalewatt.reproduction.run_choice import choose_run
from scalewatt.run_files.inventory import published_runs

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

CAMPAIGN = """
name: small
protocol: paper
sampling_period_s: 1
datasets:
  imagenet:
    {format: imagenet, source: data_root, train_samples: 1281167, validation_samples: 50000, classes: 1000}
models:
  resnet50: {dataset: imagenet, epochs: 100}
series:
  lbs256:
    {model: resnet50, device: a100, gpus: [2], local_batch_size: 256, dataset_fraction: n/256, repeats: 3}
figures:
  figure2: {series: [lbs256]}
"""
CONFIGURATION = "resnet50-a100-n002-lbs0256-s0010009"
CHOSEN = ("--config", "campaign=campaigns/small.yaml")
ASKED = ("reproduce", *CHOSEN)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A small simulated campaign, made to its end."""
    workspace = Workspace.create(tmp_path_factory.mktemp("small") / "project")
    (workspace.path / "campaigns" / "small.yaml").write_text(CAMPAIGN)
    code, output = workspace.snakemake("all", *CHOSEN, profile="simulate")
    assert code == 0, output
    return workspace


@pytest.fixture(scope="module")
def reproduced(
    made: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workspace, int, str]:
    """It, reproduced by the workflow: exit code and output."""
    workspace = made.copy(tmp_path_factory.mktemp("reproduced") / "project")
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
    made: Workspace, reproduced: tuple[Workspace, int, str]
) -> None:
    before, after = (w.path / "results" / "small-simulated" for w in (made, reproduced[0]))
    for path in sorted(before.rglob("*.*")):
        if path.is_file():
            assert (after / path.relative_to(before)).read_bytes() == path.read_bytes(), path


def test_a_flipped_byte_in_a_figure_is_named_and_the_findings_stay(again: Path) -> None:
    figure = again / "figures" / "figure2.png"
    content = bytearray(figure.read_bytes())
    content[100] ^= 1
    figure.write_bytes(content)
    code, output = Workspace(again.parents[1]).snakemake(*ASKED, profile="simulate")
    assert code != 0
    assert "differs: stored: figures/figure2.png: the first difference is at byte 101" in output
    assert set(differing(again)) == {"stored"}
    assert "small-simulated: differences: 1 in " in output


def test_an_edited_table_is_named_with_row_column_and_both_values(again: Path) -> None:
    table = again / "tables" / "runs.csv"
    lines = table.read_text().splitlines()
    names = [name.strip('"') for name in lines[0].split(",")]
    column = names.index("runtime_h")
    cells = lines[2].split(",")
    # No cell before it has a comma.
    was, cells[column] = cells[column], "1.25"
    table.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n")
    assert check() == 1
    ((path, why),) = differing(again).pop("stored").items()
    assert path == "tables/runs.csv"
    assert 'name="runtime_h"' in why and f"index 1, first diff: {was!r} != '1.25'" in why


@pytest.mark.nightly
def test_other_code_of_figures_is_named_by_its_figures(again: Path) -> None:
    script = Path("workflow", "scripts", "figure.py")
    drawn = (
        'for path in map(Path, snakemake.output):\n    path.write_bytes(path.read_bytes() + b" ")\n'
    )
    script.write_text(script.read_text() + drawn)
    assert check() == 1
    rows = differing(again)
    assert set(rows) == {"regenerated"}
    assert {f"figures/figure2.{end}" for end in ("svg", "pdf", "png")} <= set(rows["regenerated"])


@pytest.mark.nightly
def test_what_was_changed_of_runs_is_named_by_its_check(
    again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = rerun(again), f"{CONFIGURATION}/2"
    # One value of a history, one hash of a provenance, and the energies of the re-run.
    history = again / "runs" / run / "history.parquet"
    table = pq.read_table(history)
    at = table.column_names.index("metric")
    values = table["metric"].to_pylist()
    values[7] += 1e-13
    write_table(table.set_column(at, table.schema.field(at), pa.array(values)), history)
    record = again / "runs" / other / "provenance.json"
    write_json(record, json.loads(record.read_text()) | {"spec_sha256": "0" * 64})
    energy = again / "reproduction" / "energy" / f"{run}.parquet"
    table = pq.read_table(energy)
    at = table.column_names.index("energy_j")
    more = pc.multiply(table["energy_j"], 3.0)
    write_table(table.set_column(at, table.schema.field(at), more), energy)
    assert check() == 1
    rows = differing(again)
    why = rows["history"].pop(f"{run}: metric")
    assert "1 of 100 values" in why and "row 8: " in why
    assert "outside the 95 % prediction interval" in rows["energy"][f"{run}: energy_kwh"]
    assert set(rows["provenance"]) == {f"{other}: spec"}
    assert f"runs/{other}/provenance.json" in rows["stored"]
    assert f"provenance: {other}: spec: " in capsys.readouterr().out


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
    # The target trains one run, which learns the same.
    assert workspace.jobs("reproduce", *chosen)["train"] == 1
    code, output = workspace.snakemake("reproduce", *chosen)
    # Energies on a machine that does other things at the same time may lie anywhere.
    rows = differing(results)
    assert set(rows) <= {"energy"}, output
    assert code == (1 if rows else 0), output
    assert same(results)["history"] > 5


@pytest.mark.nightly
def test_a_fine_tuned_run_starts_from_the_weights_that_are_there(
    finished_workspace: Workspace,
) -> None:
    (path,) = (finished_workspace.results / "runs").glob("fourcastnet.finetune-*/1")
    asked = ("--config", f"reproduce_run={path.parent.name}/1")
    jobs = finished_workspace.jobs("reproduce", *asked)
    assert jobs["train"] == 1


@pytest.mark.nightly
def test_a_cluster_that_trains_makes_no_simulated_run(again: Path) -> None:
    here = load_cluster("config/simulate.yaml")
    campaign = load_campaign("campaigns/small.yaml", here)
    run, why = choose_run(campaign, load_cluster("config/horeka.yaml"), again)
    assert run is None and "the run was simulated" in why
