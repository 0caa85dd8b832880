"""What was predicted beside what was measured: the table and the figure, on the published rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pytest
from campaign_files import PAPER, ROOT
from plan_files import UNKNOWN, scaling_model, small
from request_files import paper

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.files import write_table_with_csv
from scalewatt.figures.draw_figure import draw_figure
from scalewatt.results.tables.frames import records, with_metadata
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.predict import ScalingModel
from scalewatt.scaling.prediction import prediction_table, write_prediction

Row = dict[str, Any]
ONE = "resnet50-a100-n064-lbs0128-s0320291"


def measured(folder: Path, change: Any = None, **metadata: Any) -> Path:
    """Results in which somebody found nearly what was published."""
    rows = [p for p in records(published_configurations()) if p["configuration"] in PAPER_IDS]
    for row in rows:
        row |= {"campaign": "paper", "energy_origin": "measured"}
        if change is not None:
            change(row)
    metadata = {"campaign": "paper", "gpu_word": "GPUs", "missing": [], "excluded": [], **metadata}
    path = folder / "tables" / "configurations.parquet"
    write_table_with_csv(with_metadata(pa.Table.from_pylist(rows, CONFIGURATIONS), metadata), path)
    return folder


PAPER_IDS = set(paper().configurations)


def rows_of(folder: Path) -> list[Row]:
    return records(prediction_table(folder, paper(), scaling_model()))


def select(rows: list[Row], quantity: str, configuration: str = ONE) -> Row:
    return next(
        r for r in rows if r["quantity"] == quantity and r["configuration"] == configuration
    )


# --- the table ------------------------------------------------------------------------------------


def test_each_configuration_has_a_time_an_energy_and_an_energy_at_its_time(tmp_path: Path) -> None:
    rows = rows_of(measured(tmp_path))
    ids = [row["configuration"] for row in rows]
    assert len(ids) == 3 * len(set(ids)) and len(set(ids)) >= 25
    row = select(rows, "energy_kwh")
    assert row["error"] == pytest.approx(row["predicted"] / row["found"] - 1)
    assert row["predicted_low"] < row["predicted"] < row["predicted_high"]
    assert row["found_low"] < row["found"] < row["found_high"]


def knows(campaign: str) -> ScalingModel:
    """The scaling_model of a model that was calibrated on ONE, of a campaign, before it was repeated."""
    model = scaling_model()
    kinds = [
        replace(
            kind,
            points=tuple(
                replace(
                    p, campaign=campaign if p.configuration == ONE else p.campaign, runtime_s=1.0
                )
                for p in kind.points
            ),
        )
        for kind in model.kinds
    ]
    return replace(model, kinds=tuple(kinds))


def test_a_configuration_that_the_model_was_calibrated_on_is_marked(tmp_path: Path) -> None:
    """By its campaign and name: its mean is another one after one more repeat."""
    folder = measured(tmp_path)
    rows = records(prediction_table(folder, paper(), knows("paper")))
    assert {row["configuration"] for row in rows if row["calibrated_on"]} == {ONE}
    others = records(prediction_table(folder, paper(), knows("another")))
    assert {row["calibrated_on"] for row in others} == {False}


def test_what_the_model_does_not_know_has_the_reason(tmp_path: Path) -> None:
    campaign = small({"unknown": UNKNOWN})
    (id_,) = campaign.configurations
    row = {**records(published_configurations())[0], "configuration": id_}
    path = tmp_path / "tables" / "configurations.parquet"
    write_table_with_csv(with_metadata(pa.Table.from_pylist([row], CONFIGURATIONS), {}), path)
    for row in records(prediction_table(tmp_path, campaign, scaling_model())):
        assert row["predicted"] is None and row["found"] is not None
        assert "is not calibrated for resnet50 on a100, precision=bf16" in row["reason"]


def test_simulated_results_are_no_test_of_the_model_that_made_them(tmp_path: Path) -> None:
    def but_one_simulated(row: Row) -> None:
        if row["configuration"] == ONE:
            row["energy_origin"] = "simulated"

    simulated = measured(tmp_path, lambda row: row.update(energy_origin="simulated"))
    assert rows_of(simulated) == []
    mixed = rows_of(measured(tmp_path / "mixed", but_one_simulated))
    assert mixed and ONE not in {row["configuration"] for row in mixed}


def test_the_table_is_written_and_the_figure_reads_it(tmp_path: Path) -> None:
    out = tmp_path / "tables" / "prediction.parquet"
    cluster = ROOT / "config" / "horeka.yaml"
    write_prediction(measured(tmp_path), PAPER, load_cluster(cluster), out)
    stem = tmp_path / "figures" / "prediction"
    draw_figure("prediction", out, stem)
    points = pc.read_csv(stem.with_suffix(".csv"))
    assert set(points["y_name"].to_pylist()) == {"runtime_ratio", "energy_ratio"}
    assert points["x"].null_count == points["y"].null_count == 0
    assert all(stem.with_suffix(end).stat().st_size > 1000 for end in (".pdf", ".svg", ".png"))
