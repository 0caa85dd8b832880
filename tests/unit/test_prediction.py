"""What was predicted beside what was measured: the table and the figure, on the published rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from campaign_files import PAPER, ROOT
from figure_tables import draw, plotted
from matplotlib.figure import Figure
from plan_files import UNKNOWN, scaling_model, small
from request_files import paper

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.files import write_table_with_csv
from scalewatt.figures.draw_figure import draw_figure
from scalewatt.results.figures.figure_schema import PREDICTION
from scalewatt.results.tables.frames import records, to_table, with_metadata
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


def scaled(factor: float) -> Any:
    def change(row: Row) -> None:
        for name in ("runtime_h", "energy_kwh"):
            for end in ("mean", "low", "high"):
                if row[f"{name}_{end}"] is not None:
                    row[f"{name}_{end}"] *= factor

    return change


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


def test_what_is_far_from_its_prediction_is_outside_of_the_interval(tmp_path: Path) -> None:
    near, far = (rows_of(measured(tmp_path / str(f), scaled(f))) for f in (1.0, 1.5))
    assert select(near, "runtime_h")["in_interval"] is True
    for quantity in ("runtime_h", "energy_kwh"):
        assert select(far, quantity)["in_interval"] is False
        assert select(far, quantity)["error"] < -0.25
    # The energy follows the time, of which half again was taken.
    assert abs(select(far, "energy_at_time_kwh")["error"]) < abs(select(far, "energy_kwh")["error"])


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
    def change(row: Row) -> None:
        row["energy_origin"] = "simulated"

    assert rows_of(measured(tmp_path, change)) == []
    mixed = rows_of(measured(tmp_path / "mixed", but_one_simulated))
    assert mixed and ONE not in {row["configuration"] for row in mixed}


def but_one_simulated(row: Row) -> None:
    if row["configuration"] == ONE:
        row["energy_origin"] = "simulated"


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


# --- the figure -----------------------------------------------------------------------------------


def drawn(folder: Path, width_mm: int = 180, **metadata: Any) -> tuple[Figure, pa.Table]:
    frame = prediction_table(measured(folder, scaled(1.02), **metadata), paper(), scaling_model())
    options = {**frame.attrs, "options": {"width_mm": width_mm}}
    table = with_metadata(to_table(frame, PREDICTION), options)
    return draw("prediction", table), table


def test_each_point_stands_at_its_ratio_over_its_prediction(tmp_path: Path) -> None:
    figure, table = drawn(tmp_path)
    points = plotted("prediction", table).to_pylist()
    for axes, quantity in zip(figure.axes, ("runtime_h", "energy_kwh"), strict=True):
        known = [row for row in table.to_pylist() if row["quantity"] == quantity]
        known = [row for row in known if row["found"] and row["predicted"]]
        expected = sorted((row["predicted"], row["found"] / row["predicted"]) for row in known)
        rows = [row for row in points if row["x_name"] == f"predicted_{quantity}"]
        for row, source in zip(
            sorted(rows, key=lambda r: r["x"]),
            sorted(known, key=lambda r: r["predicted"]),
            strict=True,
        ):
            assert (row["y_low"] <= 1 <= row["y_high"]) == source["in_interval"]
        marks = [
            xy
            for x in axes.lines
            if str(x.get_gid()).startswith("points-")
            for xy in x.get_xydata()
        ]
        assert np.array(sorted(map(tuple, marks))) == pytest.approx(np.array(expected))
        low, high = axes.get_ylim()
        assert low < 1 < high
