"""`mode: simulate`: a campaign from the scaling model alone, through the whole workflow."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from workspace import CHOSEN, SIMULATED, Workspace

from scalewatt.energies.traces import read_devices

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

RUN = "resnet50-a100-n004-lbs0256-s0020018/2"


def results(workspace: Workspace) -> Path:
    return workspace.path / "results" / "small-simulated"


def test_of_the_papers_campaign_every_run_is_simulated_and_nothing_else_is_made(
    planned: Workspace,
) -> None:
    jobs = planned.jobs("all", profile="simulate")
    assert jobs["spec"] == jobs["simulate"] == jobs["energy"] == 175
    assert jobs["pages_of_runs"] == 53
    assert jobs["draw_figure"] == jobs["figure_table"] - 1 == 11  # the paper's seven and four more
    assert jobs["claims_table"] == jobs["report"] == jobs["plan_table"] == 1
    assert not {"train", "dataset", "probe", "idle_probe", "prediction_table"} & set(jobs)


def test_the_model_is_not_held_against_itself(planned: Workspace, played: Workspace) -> None:
    jobs = planned.jobs("all", *CHOSEN, profile="simulate")
    assert (jobs["simulate"], jobs["plan_table"]) == (6, 1)
    assert "prediction_table" not in jobs
    code, output = planned.snakemake("-n", "prediction", *CHOSEN, profile="simulate")
    assert code == 1
    assert "prediction: needs runs that were trained" in output
    assert not list(results(played).glob("*/prediction.*"))
    assert "Predicted and measured" not in (results(played) / "report.html").read_text()


def test_every_table_with_an_energy_says_that_it_is_simulated(played: Workspace) -> None:
    tables = {}
    for path in results(played).rglob("*.parquet"):
        table = pq.read_table(path)
        if "energy_origin" in table.column_names:
            tables[path.relative_to(results(played)).as_posix()] = set(
                table["energy_origin"].to_pylist()
            )
    names = ("runs", "configurations", "figure5", "breakdown", "learning", "pareto")
    assert {f"tables/{name}.parquet" for name in names} <= set(tables)
    traces = pq.ParquetFile(results(played) / f"traces/{RUN}.parquet")
    tables["traces"] = set(read_devices(traces)["energy_origin"])
    assert f"energy/{RUN}.parquet" in tables
    assert f"energy/{RUN}.epochs.parquet" in tables
    # Figure 2 has the paper's own points beside.
    assert tables.pop("tables/figure2.parquet") == {"simulated", "published"}
    assert tables.pop("tables/plan.parquet") == {"predicted"}
    assert not tables.pop("tables/comparisons.parquet")  # one device, one precision
    assert {path: origins for path, origins in tables.items() if origins != {"simulated"}} == {}


def test_figures_report_and_claims_say_that_energies_are_simulated(played: Workspace) -> None:
    report = (results(played) / "report.html").read_text()
    assert "Energy: simulated with the scaling model, scope gpu+cpu+ram." in report
    for name in ("figure2", "figure5", f"runs/{RUN}"):
        drawing = (results(played) / "figures" / f"{name}.svg").read_text()
        assert "simulated" in drawing, name
    claims = (results(played) / "tables" / "claims.md").read_text()
    assert "Simulated: verdicts only show that the engine runs." in claims


def test_a_campaign_that_the_model_does_not_know_is_refused_before_anything_starts(
    planned: Workspace, tmp_path: Path
) -> None:
    workspace = planned.copy(tmp_path / "project")
    other = SIMULATED.replace("name: small", "name: other").replace(
        "protocol: paper", "protocol: corrected"
    )
    (workspace.path / "campaigns" / "other.yaml").write_text(other)
    chosen = ("--config", "campaign=campaigns/other.yaml")
    code, output = workspace.snakemake("all", *chosen, profile="simulate")
    assert code == 1
    assert "is not calibrated for resnet50 on a100, corrected" in output
    assert "scalewatt pilot" in output and "Traceback" not in output
    assert not (workspace.path / "results").exists()
