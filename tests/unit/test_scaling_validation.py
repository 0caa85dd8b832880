"""The scaling model on the paper's published rows: what it predicts of points it has not seen."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_files import ROOT
from plan_files import published_points, scaling_model

from scalewatt.scaling.calibrate import (
    ENERGY,
    ENERGY_AT_TIME,
    LARGEST,
    POINT,
    SERIES,
    TIME,
    UPPER,
    _load_to_target,
    score,
    validate,
)
from scalewatt.scaling.model import Kind, Point, load_of
from scalewatt.scaling.predict import NEAR, UNSEEN, doublings_apart, estimate, predict, unseen

Scores = dict[tuple[str, str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def shipped_scores() -> Scores:
    """The scores that the model's file has, by kind, scheme and quantity."""
    return {
        (kind.kind.name, row["scheme"], row["quantity"]): row
        for kind in scaling_model().kinds
        for row in kind.scores
    }


def test_a_resnet50_that_was_left_out_is_predicted_within_two_and_five_per_cent() -> None:
    """Each of the 13 points with n ≥ 4, predicted from the other twelve."""
    kind, points = published_points("resnet50", "a100")
    validated = validate(kind, [point for point in points if point.load.gpus >= 4], [POINT])
    assert len(validated) == 3 * 13
    scores = {row["quantity"]: row for row in score(validated)}
    assert scores[ENERGY_AT_TIME]["mean_error"] <= 0.02
    assert scores[TIME]["mean_error"] <= 0.05
    assert 0.80 <= validated["covered"].mean() <= 0.98
    # 13 points: of one quantity one more or less is 8 %
    assert all(row["covered"] >= 0.80 for row in scores.values())


def test_the_scores_in_the_file_are_those_of_validating_again(
    shipped_scores: Scores,
) -> None:
    kind, points = published_points("fourcastnet.pretrain", "a100")
    for again in score(validate(kind, points, [POINT])):
        kept = shipped_scores[kind.name, POINT, again["quantity"]]
        assert [*again.values()][2:] == pytest.approx([*kept.values()][2:], rel=1e-3)
    assert kept["quantity"] == ENERGY_AT_TIME and kept["mean_error"] <= 0.02


def test_three_points_on_h100_leave_wide_intervals(shipped_scores: Scores) -> None:
    """Of the model that ships, at its own points: no narrower than its error where one is left out."""
    kind, points = published_points("fourcastnet.pretrain", "h100")
    assert len(points) == 3
    predicted = predict(scaling_model().find(kind), [point.load for point in points])
    assert predicted.energy_j is not None
    for quantity, draws in ((TIME, predicted.runtime_s), (ENERGY, predicted.energy_j)):
        off = shipped_scores[kind.name, POINT, quantity]["mean_error"]
        for of_point in draws.T:
            median, low, high = estimate(of_point)
            assert (high - low) / 2 / median >= off > 0.15


# --- what the document says -----------------------------------------------------------------------

NAMES = {
    "ResNet50": "resnet50 on a100",
    "FourCastNet, A100": "fourcastnet.pretrain on a100",
    "FourCastNet, H100": "fourcastnet.pretrain on h100",
}
SCHEMES = {"each of": POINT, "each series": SERIES, "upper half": UPPER, "largest n": LARGEST}


def percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.0995 else f"{100 * part:.0f} %"


def test_the_errors_in_the_document_are_those_in_the_file_that_ships(
    shipped_scores: Scores,
) -> None:
    page = (ROOT / "docs" / "paper" / "scaling-model.md").read_text()
    body = [line for line in page.split("| left out |")[1].splitlines()[2:] if line[:1] == "|"]
    assert len(body) == 9
    for label, *cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in body):
        name, _, left_out = label.rpartition(", ")
        (scheme,) = (scheme for start, scheme in SCHEMES.items() if left_out.startswith(start))
        rows = [shipped_scores[NAMES[name], scheme, q] for q in (TIME, ENERGY, ENERGY_AT_TIME)]
        assert str(rows[0]["points"]) in left_out
        for row, errors, covered in zip(rows, cells[::2], cells[1::2], strict=True):
            mean, largest = percent(row["mean_error"]), percent(row["largest_error"])
            assert (errors, covered) == (f"{mean}, up to {largest}", percent(row["covered"])), label


# --- far from all points --------------------------------------------------------------------------


def made(gpus: int, local_batch_size: int, runtime_s: float = 100.0) -> Point:
    """A made-up point."""
    return Point(
        campaign="test",
        configuration=f"n{gpus}-lbs{local_batch_size}",
        load=load_of(gpus, -(-gpus // 4), local_batch_size, 2**20, 10),
        runtime_s=runtime_s,
        energy_j=None,
        origin=None,
        scope=None,
    )


@pytest.mark.parametrize(
    ("gpus", "local_batch_size", "apart"),
    [(4, 64, 0), (8, 64, 1), (2, 32, 1), (16, 16, 2), (32, 64, 1), (1024, 256, 4), (4, 2, 5)],
)
def test_a_time_is_less_sure_by_each_doubling_beyond_the_first(
    gpus: int, local_batch_size: int, apart: int
) -> None:
    """From the nearest point, in n or LBS, whichever is farther."""
    model = replace(scaling_model().kinds[0], points=(made(4, 64), made(64, 64)))
    load = made(gpus, local_batch_size).load
    assert doublings_apart(model, load) == apart
    (factors,) = unseen(model, [load]).T
    assert np.std(np.log(factors)) == pytest.approx(UNSEEN * max(0, apart - NEAR), rel=0.15)


# --- trainings to a target, of models that are split over GPUs -------------------------------------

UPDATES = {8: 384, 64: 384, 512: 108}
PER_REPLICA = {8: 4, 64: 8, 512: 8}
LBS = {8: 4, 64: 1, 512: 1}
STEPS = {8: 4, 64: 1, 512: 1}
"""Llama 2 70B LoRA in MLPerf Training v4.0, by GPUs."""


def llama(gpus: int, hours: float, kwh: float) -> Point:
    """A point by its row of `configurations`: a split model that trains to a target."""
    updates_of_all = UPDATES[gpus] * (gpus // PER_REPLICA[gpus])
    gpu_hours = gpus * hours
    row: dict[str, Any] = {
        "gpus": gpus,
        "nodes": gpus // 8,
        "gpus_per_replica": PER_REPLICA[gpus],
        "gradient_accumulation_steps": STEPS[gpus],
        "local_batch_size": LBS[gpus],
        "epochs": 1,
        "gpu_hours_mean": gpu_hours,
        "samples_per_gpuh_mean": updates_of_all * LBS[gpus] / gpu_hours,
        "passes_per_gpuh_mean": updates_of_all * STEPS[gpus] / gpu_hours,
    }
    return replace(
        made(gpus, LBS[gpus], hours * 3600),
        load=_load_to_target(row, "here"),
        energy_j=kwh * 3.6e6,
        origin="measured",
        scope="node",
    )


def test_real_trainings_on_512_gpus_lie_where_those_on_8_and_64_say() -> None:
    """docs/paper/real-measurements.md: Llama's means in MLPerf Training v4.0, each left out."""
    folder = os.environ.get("SCALEWATT_MLPERF")
    if folder is None:
        pytest.skip("SCALEWATT_MLPERF does not name the folder of MLPerf's power recordings")
    runs: dict[int, list[tuple[float, float]]] = {}
    with open(Path(folder) / "expected.csv", newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            if run["benchmark"] == "llama2_70b_lora":
                hours = (float(run["run_stop"]) - float(run["run_start"])) / 3600
                runs.setdefault(8 * int(run["nodes"]), []).append(
                    (hours, float(run["window_j"]) / 3.6e6)
                )
    points = [llama(n, *np.mean(pairs, axis=0)) for n, pairs in sorted(runs.items())]
    assert [point.load.gpus for point in points] == [8, 64, 512]
    validated = validate(Kind("llama", "h100", "target", "{}"), points, [POINT])
    assert len(validated) == 9 and validated["covered"].all()
    assert (validated["error"].tail(3).abs() < 0.15).all()
