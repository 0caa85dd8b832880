"""The claims as data, the rules of their checks, the verdicts on the published rows, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from campaign_files import DEMO, PAPER
from claims_made import evidence, line, row
from claims_study import resnet_world

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.check_claims import as_markdown, as_table, claim_rows, verdicts
from scalewatt.claims.evidence import (
    Evidence,
    find_campaign,
    points_of,
    published_evidence,
    series_of,
)
from scalewatt.claims.quantities import require_paper
from scalewatt.claims.reference_tables import (
    MEANINGS,
    NO_TEST,
    NOT_TESTABLE,
    SUPPORTED,
    NotTestable,
    read_claims,
)
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table
from scalewatt.results.tables.frames import metadata
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS


@pytest.fixture(scope="module")
def published() -> Evidence:
    return published_evidence()


# --- lines and modes ----------------------------------------------------------------------------


def test_the_papers_series_have_the_modes_that_the_claims_name() -> None:
    assert dict(series_of(load_campaign(PAPER))["mode"]) == {
        "resnet50-full-lbs256": "fd_lbs",
        "resnet50-full-gbs256": "fd_gbs_s",
        "resnet50-full-gbs8192": "fd_gbs_l",
        "resnet50-scaled-lbs256": "sd_lbs",
        "resnet50-scaled-gbs256": "sd_gbs_s",
        "resnet50-scaled-gbs8192": "sd_gbs_l",
        "fourcastnet-pretrain-lbs1": "fd_lbs",
        "fourcastnet-finetune-lbs1": "fd_lbs",
        "fourcastnet-pretrain-gbs64": "fd_gbs_l",
        "fourcastnet-pretrain-gbs16-h100": "fd_gbs_s",
        "fourcastnet-pretrain-gbs32-h100": "fd_gbs_l",
        "fourcastnet-pretrain-gbs16": "fd_gbs_s",
        "fourcastnet-probe": "probe",
    }


def test_lines_hold_the_points_that_have_results_by_ascending_n() -> None:
    campaign = load_campaign(PAPER)
    series, name = series_of(campaign), "resnet50-scaled-lbs256"
    ids = campaign.series[name].points
    rows = [
        row(configuration=ids[n], model="resnet50", phase="train", device="a100", gpus=n)
        for n in (256, 1, 16)
    ]
    points = points_of(campaign, series, pd.DataFrame(rows))
    (made,) = Evidence("made", points=points, series=series.loc[[name]]).lines
    assert list(made.points["gpus"]) == [1, 16, 256]
    assert list(made.ids) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert set(made.points["dataset_total"]) == {1281167}


def _alike(first: str, second: str, **columns: object) -> Evidence:
    values = {n: {"runtime_h": 4 / n} for n in (1, 2, 4)}
    names = ("resnet50", "train", "a100", "fd_lbs", 256)
    more = line(*names, values | {8: {"runtime_h": 1}}, name=second, **columns)
    return evidence([line(*names, values, name=first), more])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("protocol", "corrected"),
        ("protocol", None),
        ("precision", "bf16"),
        ("loader", "synthetic"),
        ("channels_last", True),
        ("compile", True),
        ("epochs", 20),
    ],
)
def test_of_alike_series_the_one_that_trained_as_the_paper_counts(
    column: str, value: object
) -> None:
    world = _alike("as paper", "other", **{column: value})
    chosen = world.line("resnet50", "train", "a100", "fd_lbs")
    assert list(chosen.points.index) == [f"as paper-n{n:03d}" for n in (1, 2, 4)]
    assert require_paper(chosen.points) is chosen.points
    with pytest.raises(NotTestable, match="not trained as in the paper"):
        require_paper(world.points.drop(index=chosen.points.index))


# --- what people read ---------------------------------------------------------------------------


def test_excluded_runs_are_named_with_their_reasons() -> None:
    run = {"configuration": "resnet50-a100-n004", "repeat": 3, "reason": "a throttled GPU"}
    given = replace(resnet_world(), table_metadata={"excluded": [run], "missing": []})
    rows = claim_rows(verdicts(given))
    table = as_table(rows, given)
    assert metadata(table)["excluded"] == [run]
    text = " ".join(as_markdown(rows, given).split())
    assert "Excluded runs: resnet50-a100-n004/3 (a throttled GPU)." in text


# --- the command --------------------------------------------------------------------------------


def test_the_command_checks_the_published_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--results", "reference", "--json"]) == 0
    decided = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in decided] == [claim.id for claim in read_claims()]
    assert len(decided) == 160
    assert {row["verdict"] for row in decided} <= {*MEANINGS, NO_TEST}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Tables of a demo that finished runs of one series: 1, 2 and 4 processes, estimated."""
    campaign = load_campaign(DEMO)
    tables = tmp_path / "results" / "demo" / "tables"
    rows = []
    for configuration in campaign.configurations.values():
        if configuration.model != "resnet50":
            continue
        n = configuration.gpus
        given = {
            name: getattr(configuration, name)
            for name in (
                *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "epochs"),
                *("global_batch_size", "dataset_samples", "protocol"),
            )
        }
        rows.append(
            row(
                **given,
                configuration=configuration.id,
                energy_origin="estimated",
                energy_scope="cpu",
                metric_name="top1_error_percent",
                runtime_h=0.1 / n,
                gpu_hours=0.1,
                energy_kwh=0.02,
                metric_last=20.0,
            )
        )
    rows = [{name: cells.get(name) for name in CONFIGURATIONS.names} for cells in rows]
    write_table(pa.Table.from_pylist(rows, CONFIGURATIONS), tables / "configurations.parquet")
    write_table(RUNS.empty_table(), tables / "runs.parquet")
    return tables.parent


def test_the_command_checks_a_campaigns_tables_and_writes_them_four_times(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "claims"
    given = ["claims", "--results", str(results), "--campaign", str(DEMO), "--out", str(out)]
    assert main(given) == 0
    assert "energy: estimated (" in capsys.readouterr().out
    written = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    decided = {verdict["id"]: verdict["verdict"] for verdict in written}
    assert list(decided) == [claim.id for claim in read_claims()]
    assert (decided["D03"], decided["D08"]) == (SUPPORTED, NOT_TESTABLE)
    assert (decided["D16"], decided["F07"]) == ("not_testable", "not_testable"), (
        "too few points besides"
    )
    assert {path.suffix for path in tmp_path.glob("claims.*")} == {
        *(".parquet", ".csv", ".md", ".json")
    }


def test_a_file_that_somebody_is_writing_stops_no_other_campaigns_claims(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "a.yaml").write_text("name: [half")
    (tmp_path / "campaigns" / "b.yaml").write_text(DEMO.read_text())
    monkeypatch.chdir(tmp_path)
    assert find_campaign(results, None).name == "demo"
    with pytest.raises(
        InputError, match=r"no campaign is named other .*not read: campaigns/a\.yaml"
    ):
        find_campaign(results.with_name("other"), None)


def test_another_campaigns_results_are_refused(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(results), "--campaign", str(PAPER)]) == 1
    assert "expected the campaign demo" in capsys.readouterr().err
