"""The scaling model on the paper's published rows: what it predicts of points it has not seen."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_files import ROOT

from scalewatt.results.tables.frames import frame_of, write_frame
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.calibrate import calibrate_kind
from scalewatt.scaling.model.calibration_points import by_kind, points_of
from scalewatt.scaling.model.cost_terms import load_of
from scalewatt.scaling.model.cross_validate import (
    ENERGY,
    ENERGY_AT_TIME,
    LARGEST,
    POINT,
    SERIES,
    TIME,
    UPPER,
    HeldOut,
    held_out,
    scores,
    validate,
)
from scalewatt.scaling.model.kind_model import KindModel, Point
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.model.posterior import MOST_UNSURE, Draws, widened
from scalewatt.scaling.model.predict import NEAR, UNSEEN, doublings_apart, estimate, predict, unseen
from scalewatt.scaling.model.scores import Score
from scalewatt.scaling.model.training_kind import Kind

Row = dict[str, Any]


def published(key: str, device: str, smallest: int = 1) -> list[Point]:
    for kind, points in by_kind(points_of(Path(ROOT / "reference"))).items():
        if (kind.key, kind.device) == (key, device):
            return [point for point in points if point.load.gpus >= smallest]
    raise AssertionError(key)


def by_quantity(found: list[HeldOut]) -> dict[str, Score]:
    return {one.quantity: one for one in scores(found)}


@pytest.fixture(scope="module")
def resnet50() -> list[HeldOut]:
    """Each of the 13 points with n ≥ 4, predicted from the other twelve."""
    found = validate(published("resnet50", "a100", 4), [POINT])
    assert len(found) == 3 * 13
    return found


@pytest.fixture(scope="module")
def beyond() -> list[HeldOut]:
    """n = 32 to 256, predicted from n = 4 to 16."""
    points = published("resnet50", "a100", 4)
    model = calibrate_kind(points[0].kind, [p for p in points if p.load.gpus <= 16])
    large = [point for point in points if point.load.gpus >= 32]
    assert len(large) == 7 and model.largest_gpus == 16
    return [one for point in large for one in held_out("", "", model, point)]


@pytest.fixture(scope="module")
def fourcastnet() -> list[HeldOut]:
    """Each of the six points on A100, predicted from the other five."""
    return validate(published("fourcastnet.pretrain", "a100"), [POINT])


MODEL = ROOT / "reference" / "scaling_model.json"


@pytest.fixture(scope="module")
def shipped() -> ScalingModel:
    return read_model(MODEL)


@pytest.fixture(scope="module")
def shipped_scores() -> list[Row]:
    """The validation that the model's file has."""
    content = json.loads(MODEL.read_text())
    return [
        {"kind": kind["name"], **one} for kind in content["kinds"] for one in kind["validation"]
    ]


def test_a_resnet50_that_was_left_out_is_predicted_within_two_and_five_per_cent(
    resnet50: list[HeldOut],
) -> None:
    found = by_quantity(resnet50)
    assert found[ENERGY_AT_TIME].mean_error <= 0.02
    assert found[TIME].mean_error <= 0.05


def test_resnet50_on_up_to_256_gpus_is_predicted_from_up_to_16(beyond: list[HeldOut]) -> None:
    found = by_quantity(beyond)
    assert found[ENERGY].mean_error <= 0.05
    assert found[ENERGY_AT_TIME].mean_error <= 0.05


def test_ninety_per_cent_intervals_hold_eighty_to_ninety_eight_per_cent(
    resnet50: list[HeldOut],
) -> None:
    held = [one.predicted.holds(one.value) for one in resnet50]
    assert 0.80 <= np.mean(held) <= 0.98
    # 13 points: of one quantity one more or less is 8 %
    assert all(one.covered >= 0.80 for one in scores(resnet50))


def test_the_model_that_ships_holds_as_many_of_its_own_points(shipped_scores: list[Row]) -> None:
    """Of the file that ships: all points of ResNet50, each quantity, whatever was left out."""
    covered = {
        (one["left_out"], one["quantity"]): one["covered"]
        for one in shipped_scores
        if one["kind"] == "resnet50 on a100"
    }
    assert len(covered) == 12 + 3  # of three series the time each
    of_points = [covered[POINT, quantity] for quantity in (TIME, ENERGY, ENERGY_AT_TIME)]
    assert all(0.80 <= one <= 0.98 for one in of_points)
    for scheme in (SERIES, UPPER):
        for quantity in (TIME, ENERGY, ENERGY_AT_TIME):
            assert covered[scheme, quantity] >= 0.80
    # of two points one lies outside
    assert covered[LARGEST, ENERGY_AT_TIME] == 0.5


def test_times_far_from_all_points_lie_in_their_intervals(beyond: list[HeldOut]) -> None:
    """n = 32 to 256 from n = 4 to 16: 8 % off, up to 20 %."""
    times = [one for one in beyond if one.quantity == TIME]
    assert max(abs(one.error) for one in times) > 0.1
    assert all(one.predicted.holds(one.value) for one in times)


def test_fourcastnets_energy_on_a100_is_predicted_within_two_per_cent_at_known_time(
    fourcastnet: list[HeldOut],
) -> None:
    score = by_quantity(fourcastnet)[ENERGY_AT_TIME]
    assert score.points == 6
    assert score.mean_error <= 0.02


def test_three_points_on_h100_leave_wide_intervals(
    shipped: ScalingModel, shipped_scores: list[Row]
) -> None:
    """Of the model that ships, at its own points: no narrower than its error where one is left out."""
    points = published("fourcastnet.pretrain", "h100")
    assert len(points) == 3
    found = predict(shipped.of(points[0].kind), [point.load for point in points])
    assert found.total_j is not None
    off = {
        one["quantity"]: one["mean_error"]
        for one in shipped_scores
        if (one["kind"], one["left_out"]) == ("fourcastnet.pretrain on h100", POINT)
    }
    for quantity, draws in ((TIME, found.runtime_s), (ENERGY, found.total_j)):
        for number in range(3):
            one = estimate(draws[:, number])
            assert (one.high - one.low) / 2 / one.median >= off[quantity] > 0.15


def test_the_model_that_ships_is_what_calibrating_the_published_rows_gives(
    shipped: ScalingModel,
) -> None:
    assert {(one.kind.key, one.kind.device, len(one.points)) for one in shipped.kinds} == {
        ("resnet50", "a100", 17),
        ("fourcastnet.pretrain", "a100", 6),
        ("fourcastnet.pretrain", "h100", 3),
    }
    points = published("fourcastnet.pretrain", "a100")
    again = calibrate_kind(points[0].kind, points)
    kept = shipped.of(points[0].kind)
    assert kept.time_terms == again.time_terms
    for point in points:
        one, other = (_median(model, point) for model in (kept, again))
        assert one == pytest.approx(other, rel=0.01)


def _median(model: KindModel, point: Point) -> tuple[float, float]:
    predicted = predict(model, [point.load])
    assert predicted.total_j is not None
    return (
        estimate(predicted.runtime_s[:, 0]).median,
        estimate(predicted.total_j[:, 0]).median,
    )


# --- what the document says -----------------------------------------------------------------------

NAMES = {
    "ResNet50": "resnet50 on a100",
    "FourCastNet, A100": "fourcastnet.pretrain on a100",
    "FourCastNet, H100": "fourcastnet.pretrain on h100",
}
SCHEME_OF = {
    "each of": POINT,
    "each series": SERIES,
    "upper half": UPPER,
    "largest n": LARGEST,
}


def percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.0995 else f"{100 * part:.0f} %"


def test_the_errors_in_the_document_are_those_in_the_file_that_ships(
    shipped_scores: list[Row],
) -> None:
    known = {(one["kind"], one["left_out"], one["quantity"]): one for one in shipped_scores}
    lines = (ROOT / "docs" / "scaling.md").read_text().split("| left out |")[1].splitlines()
    body = [line.strip("|").split("|") for line in lines[2:] if line.startswith("|")]
    assert len(body) == 9
    for label, *cells in ([cell.strip() for cell in line] for line in body):
        name, _, left_out = label.rpartition(", ")
        (scheme,) = (own for start, own in SCHEME_OF.items() if left_out.startswith(start))
        own = [known[NAMES[name], scheme, q] for q in (TIME, ENERGY, ENERGY_AT_TIME)]
        assert str(own[0]["points"]) in left_out
        expected = [
            (
                f"{percent(one['mean_error'])}, up to {percent(one['largest_error'])}",
                percent(one["covered"]),
            )
            for one in own
        ]
        assert cells == [cell for pair in expected for cell in pair], label


# --- draws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [0.0, 0.02, 0.1, 5.0])
def test_draws_are_widened_to_what_is_known_of_their_errors(least: float) -> None:
    spread, terms = np.full(500, 0.03), np.full((500, 1), 2.0)
    found = widened(Draws(terms, spread), least)
    assert np.array_equal(found.spread, spread)
    wide = np.hypot(np.std(found.terms / 2), 0.03)
    assert wide == pytest.approx(min(max(least, 0.03), MOST_UNSURE), rel=0.02)
    assert np.median(found.terms) == pytest.approx(2.0, rel=1e-6)


# --- far from all points --------------------------------------------------------------------------


def made(gpus: int, local_batch_size: int, runtime_s: float = 100.0) -> Point:
    """A made-up point."""
    return Point(
        source="test",
        campaign="test",
        configuration=f"n{gpus}-lbs{local_batch_size}",
        kind=Kind("resnet50", "a100", "paper", "{}"),
        load=load_of(gpus, -(-gpus // 4), local_batch_size, 2**20, 10),
        runtime_s=runtime_s,
        energy_j=None,
        joules={},
        origin=None,
        scope=None,
        n_repeats=1,
    )


@pytest.mark.parametrize(
    ("gpus", "local_batch_size", "apart"),
    [(4, 64, 0), (8, 64, 1), (2, 32, 1), (16, 16, 2), (32, 64, 1), (1024, 256, 4), (4, 2, 5)],
)
def test_a_time_is_less_sure_by_each_doubling_beyond_the_first(
    shipped: ScalingModel, gpus: int, local_batch_size: int, apart: int
) -> None:
    """From the nearest point, in n or LBS, whichever is farther."""
    model = replace(shipped.kinds[0], points=(made(4, 64), made(64, 64)))
    load = made(gpus, local_batch_size).load
    assert doublings_apart(model, load) == apart
    (factors,) = unseen(model, [load]).T
    assert np.std(np.log(factors)) == pytest.approx(UNSEEN * max(0, apart - NEAR), rel=0.15)


def test_runs_of_one_draw_are_wrong_together(shipped: ScalingModel) -> None:
    """So sums of them are not surer than each."""
    model = replace(shipped.kinds[0], points=(made(1, 64),))
    one, other = np.log(unseen(model, [made(64, 64).load, made(256, 64).load])).T
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(1.0)


# --- what is left out -----------------------------------------------------------------------------


def test_each_point_each_series_the_upper_half_and_the_largest_n_are_left_out() -> None:
    points = [made(n, lbs, 1e3 * lbs / n) for n in (1, 4, 16) for lbs in (16, 64, 256)]
    points.append(made(64, 256, 1e4))
    left_out: dict[tuple[str, str], set[str]] = {}
    for one in validate(points):
        left_out.setdefault((one.scheme, one.group), set()).add(one.configuration)
    schemes = {scheme: [own for s, own in left_out if s == scheme] for scheme, _ in left_out}
    assert len(schemes[POINT]) == 10
    assert all(own == {group} for (scheme, group), own in left_out.items() if scheme == POINT)
    assert set(schemes[SERIES]) == {"LBS 16", "LBS 64", "LBS 256", "GBS 256"}
    assert left_out[SERIES, "LBS 64"] == {"n1-lbs64", "n4-lbs64", "n16-lbs64"}
    assert left_out[SERIES, "GBS 256"] == {"n1-lbs256", "n4-lbs64", "n16-lbs16"}
    assert schemes[UPPER] == ["n > 8"]
    assert left_out[UPPER, "n > 8"] == {"n16-lbs16", "n16-lbs64", "n16-lbs256", "n64-lbs256"}
    assert left_out[LARGEST, "n = 64"] == {"n64-lbs256"}


# --- trainings to a target, of models that are split over GPUs -------------------------------------

UPDATES = {8: 384, 64: 384, 512: 108}
PER_REPLICA = {8: 4, 64: 8, 512: 8}
LBS = {8: 4, 64: 1, 512: 1}
STEPS = {8: 4, 64: 1, 512: 1}
"""Llama 2 70B LoRA in MLPerf Training v4.0, by GPUs."""


def row(gpus: int, hours: float, kwh: float | None, model: str = "llama", **given: Any) -> Any:
    """A row of `configurations`: a split model that trains to a target."""
    replicas = gpus // PER_REPLICA[gpus]
    gpu_hours = gpus * hours
    passes = UPDATES[gpus] * replicas * STEPS[gpus]
    return dict.fromkeys(CONFIGURATIONS.names) | {
        "campaign": "made",
        "configuration": f"{model}-n{gpus}",
        "model": model,
        "phase": "train",
        "device": "mi300x",
        "gpus": gpus,
        "nodes": gpus // 8,
        "gpus_per_replica": PER_REPLICA[gpus],
        "gradient_accumulation_steps": STEPS[gpus],
        "local_batch_size": LBS[gpus],
        "global_batch_size": LBS[gpus] * replicas,
        "dataset_samples": 3901,
        "epochs": 1,
        "protocol": "target",
        "energy_origin": "measured",
        "energy_scope": "node",
        "n_repeats": 3,
        "runtime_h_mean": hours,
        "gpu_hours_mean": gpu_hours,
        "energy_kwh_mean": kwh,
        "samples_per_gpuh_mean": UPDATES[gpus] * replicas * LBS[gpus] / gpu_hours,
        "passes_per_gpuh_mean": passes / gpu_hours,
        **given,
    }


def table(folder: Path, *rows: Any) -> Path:
    path = folder / "tables" / "configurations.parquet"
    path.parent.mkdir(parents=True)
    write_frame(frame_of(rows, CONFIGURATIONS), path, CONFIGURATIONS)
    return folder


def three(folder: Path) -> Path:
    return table(folder, row(8, 0.47, 3.3), row(64, 0.09, 4.0), row(512, 0.033, 10.0))


def test_a_load_to_a_target_is_the_work_that_was_done_by_replicas(tmp_path: Path) -> None:
    loads = {point.load.gpus: point.load for point in points_of(three(tmp_path))}
    assert {n: load.replicas for n, load in loads.items()} == {8: 2, 64: 8, 512: 64}
    assert {n: load.updates for n, load in loads.items()} == UPDATES
    assert {n: load.samples for n, load in loads.items()} == {8: 3072, 64: 3072, 512: 6912}
    assert {n: load.passes for n, load in loads.items()} == {8: 3072, 64: 3072, 512: 6912}


@pytest.fixture
def measured(tmp_path: Path) -> list[HeldOut]:
    """Llama's means in MLPerf Training v4.0, each left out."""
    folder = os.environ.get("SCALEWATT_MLPERF")
    if folder is None:
        pytest.skip("SCALEWATT_MLPERF does not name the folder of MLPerf's power recordings")
    runs: dict[int, list[tuple[float, float]]] = {}
    with open(Path(folder) / "expected.csv", newline="", encoding="utf-8") as file:
        for run in csv.DictReader(file):
            if run["benchmark"] == "llama2_70b_lora":
                hours = (float(run["run_stop"]) - float(run["run_start"])) / 3600
                own = runs.setdefault(8 * int(run["nodes"]), [])
                own.append((hours, float(run["window_j"]) / 3.6e6))
    means = {
        n: [sum(each) / len(own) for each in zip(*own, strict=True)] for n, own in runs.items()
    }
    of_llama = table(tmp_path, *(row(n, *mean) for n, mean in means.items()))
    return validate(list(points_of(of_llama)), [POINT])


def test_real_trainings_on_512_gpus_lie_where_those_on_8_and_64_say(
    measured: list[HeldOut],
) -> None:
    """docs/real-measurements.md: within an eighth of the median, in wide intervals of the run time."""
    largest = {one.quantity: one for one in measured if one.gpus == 512}
    for quantity in (TIME, ENERGY, ENERGY_AT_TIME):
        assert abs(largest[quantity].error) < 0.15
        assert largest[quantity].predicted.holds(largest[quantity].value)
    assert largest[TIME].predicted.high > 1.3 * largest[TIME].predicted.median
    assert sum(one.predicted.holds(one.value) for one in measured) == 9
