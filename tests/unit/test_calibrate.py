"""`scalewatt calibrate`: what it writes, and what it refuses with what would make it possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_files import ROOT
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.cli import main
from scalewatt.errors import InputError
from scalewatt.files import write_table_with_csv
from scalewatt.results.published import published_configurations
from scalewatt.results.schema import CONFIGURATIONS, table
from scalewatt.scaling.assumed import HALF_WIDTH, assumed_finetuning, pretraining_of
from scalewatt.scaling.calibrate import calibrate
from scalewatt.scaling.command import calibrate_sources
from scalewatt.scaling.kind import Kind
from scalewatt.scaling.load import Load
from scalewatt.scaling.model_file import ScalingModel, read_model
from scalewatt.scaling.points import points_of
from scalewatt.scaling.predict import estimate, predict
from scalewatt.scaling.terms import TimeTerms

Row = dict[str, Any]
MODEL = ROOT / "reference" / "scaling_model.json"


def results(folder: Path, change: Callable[[list[Row]], Any] = lambda rows: None) -> Path:
    """A table of configurations: FourCastNet on A100 as somebody found it."""
    rows = [
        row
        for row in published_configurations()
        if row["model"] == "fourcastnet"
        and row["device"] == "a100"
        and row["runtime_h_mean"] is not None
    ]
    for row in rows:
        row["energy_origin"] = "measured"
    change(rows)
    path = folder / "configurations.parquet"
    write_table_with_csv(table(rows, CONFIGURATIONS), path)
    return path


def refused(*sources: Path) -> str:
    with pytest.raises(InputError) as caught:
        calibrate([point for source in sources for point in points_of(source)])
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- bad input ------------------------------------------------------------------------------------


def test_too_few_points_are_refused_and_what_is_missing_is_named(tmp_path: Path) -> None:
    def one(rows: list[Row]) -> None:
        del rows[1:]

    said = refused(results(tmp_path, one))
    assert "fourcastnet.pretrain on a100: too few points to calibrate (1); missing: " in said
    assert "2 more of 3 configurations" in said
    assert "another number of GPUs than" in said and "another local batch size than" in said
    assert "scalewatt pilot CAMPAIGN" in said


def test_points_of_one_local_batch_size_are_too_few(tmp_path: Path) -> None:
    def same(rows: list[Row]) -> None:
        rows[:] = [row for row in rows if row["local_batch_size"] == 1]

    said = refused(results(tmp_path, same))
    assert said.count("another") == 1 and "another local batch size than 1" in said


@pytest.mark.parametrize(
    ("name", "value"), [("energy_origin", "estimated"), ("energy_scope", "gpu+cpu")]
)
def test_energies_that_do_not_agree_are_refused(tmp_path: Path, name: str, value: str) -> None:
    def other(rows: list[Row]) -> None:
        rows[2][name] = value

    said = refused(results(tmp_path, other))
    assert f"energies of several {name.removeprefix('energy_')}s" in said
    assert value in said and "calibrate on sources that agree" in said


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_run_time_that_no_run_has_is_refused(tmp_path: Path, value: float) -> None:
    def bad(rows: list[Row]) -> None:
        rows[1]["runtime_h_mean"] = value

    said = refused(results(tmp_path, bad))
    assert f"runtime_h_mean is {value}; expected more than 0" in said
    assert "fourcastnet.pretrain-a100" in said


def test_a_negative_energy_is_refused(tmp_path: Path) -> None:
    def bad(rows: list[Row]) -> None:
        rows[1]["energy_kwh_mean"] = -3.0

    said = refused(results(tmp_path, bad))
    assert "energy_kwh_mean is -3.0; expected a number that is not negative" in said


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused_with_its_row(tmp_path: Path, value: float) -> None:
    def bad(rows: list[Row]) -> None:
        rows[1]["energy_kwh_mean"] = value

    said = refused(results(tmp_path, bad))
    assert "row 2: energy_kwh_mean is " in said


def test_a_folder_that_is_no_result_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.json"
    assert main(["calibrate", str(tmp_path), "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "has no tables/configurations.parquet" in said and said.count("\n") == 1
    assert not out.exists()


def test_a_configuration_in_two_sources_is_refused(tmp_path: Path) -> None:
    one, other = (results(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(InputError, match="expected each configuration once"):
        calibrate_sources([one, other], tmp_path / "model.json")


# --- what is written ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The model of four points on A100, and what the command prints."""
    folder = tmp_path_factory.mktemp("calibrated")

    def four(rows: list[Row]) -> None:
        del rows[4:]

    out = folder / "model.json"
    said = calibrate_sources([results(folder, four)], out)
    return out, said


def test_a_model_is_written_with_its_points_its_validation_and_its_origin(
    written: tuple[Path, str],
) -> None:
    content = json.loads(written[0].read_text())
    (kind,) = content["kinds"]
    assert kind["energy_origin"] == "measured" and kind["energy_scope"] == "gpu+cpu+ram"
    assert len(kind["points"]) == 4
    assert all(point["assumed_settings"] for point in kind["points"])
    assert {one["left_out"] for one in kind["validation"]} >= {"point"}
    for part in (kind["time"]["terms"], kind["energy"]["total"]["terms"]):
        for term in part.values():
            assert 0 <= term["low"] <= term["median"] <= term["high"] and term["unit"]


def test_the_command_prints_the_errors_beside_those_of_the_simple_rules(
    written: tuple[Path, str],
) -> None:
    said = written[1]
    assert "fourcastnet.pretrain on a100: 4 configurations" in said
    assert "energy at known time" in said and "constant per GPUh" in said
    assert f"{written[0]}: written" in said


def test_a_model_that_is_read_predicts_as_the_one_that_was_written(
    written: tuple[Path, str],
) -> None:
    model = read_model(written[0])
    (one,) = model.kinds
    loads = [point.load for point in one.points]
    found = np.median(predict(one, loads).runtime_s, axis=0)
    assert found == pytest.approx([point.runtime_s for point in one.points], rel=0.2)


# --- fine-tuning, which nobody published ----------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> ScalingModel:
    return read_model(MODEL)


def finetuning(shipped: ScalingModel, device: str) -> Kind:
    one = next(
        one.kind
        for one in shipped.kinds
        if (one.kind.key, one.kind.device) == ("fourcastnet.pretrain", device)
    )
    return Kind("fourcastnet.finetune", one.device, one.protocol, one.settings)


@pytest.mark.parametrize("device", ["a100", "h100"])
def test_fine_tuning_is_assumed_from_pre_training_with_thirty_per_cent(
    shipped: ScalingModel, device: str
) -> None:
    kind = finetuning(shipped, device)
    before = shipped.of(pretraining_of(kind))
    model = shipped.of(kind)
    assert model.kind == kind and model.assumed and before.assumed is None
    assert model.largest_gpus == before.largest_gpus
    load = before.points[0].load
    tuned, trained = predict(model, [load]), predict(before, [load])
    for one, other in (
        (tuned.runtime_s, trained.runtime_s),
        (tuned.total_j, trained.total_j),
    ):
        found, usual = estimate(one[:, 0]), estimate(other[:, 0])
        assert found.low <= (1 - 0.95 * HALF_WIDTH) * found.median
        assert found.high >= (1 + 0.95 * HALF_WIDTH) * found.median
        assert 1.3 < found.median / usual.median < 2.1


def test_a_fine_tuning_that_was_calibrated_is_not_assumed(shipped: ScalingModel) -> None:
    kind = finetuning(shipped, "a100")
    own = assumed_finetuning(kind, shipped.of(pretraining_of(kind)))
    assert ScalingModel((*shipped.kinds, own), ()).of(kind) is own


def test_other_trainings_are_assumed_of_nothing(shipped: ScalingModel) -> None:
    kind = shipped.kinds[0].kind
    assert pretraining_of(kind) is None
    with pytest.raises(InputError, match="is not calibrated for"):
        shipped.of(Kind("resnet50", "h100", kind.protocol, kind.settings))
    tuned = finetuning(shipped, "a100")
    with pytest.raises(InputError, match="is not calibrated for"):
        shipped.of(Kind(tuned.key, "a100", "corrected", tuned.settings))


# --- terms ----------------------------------------------------------------------------------------


@given(
    gpus=st.integers(1, 4096),
    lbs=st.integers(1, 1024),
    epochs=st.integers(1, 200),
    each=st.integers(1, 5000),
    knee=st.floats(1, 1024),
)
def test_beyond_its_knee_input_takes_the_place_of_computing(
    gpus: int, lbs: int, epochs: int, each: int, knee: float
) -> None:
    """max(update + sample · LBS, input · LBS), written in columns that are linear for a knee."""
    load = Load(gpus, -(-gpus // 4), lbs, epochs, each * lbs * gpus * epochs, each * epochs)
    terms = TimeTerms(("sample", "input_excess"), knee)
    (columns,) = terms.columns([load])
    sample, excess = 2e-3, 3e-3
    found = columns @ [sample, excess]
    update = excess * knee
    expected = load.updates * max(update + sample * lbs, (sample + excess) * lbs)
    assert found == pytest.approx(expected)
