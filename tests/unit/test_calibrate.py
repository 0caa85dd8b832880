"""`scalewatt calibrate`: what it writes, and what it refuses with what would make it possible."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_files import ROOT
from hypothesis import given
from hypothesis import strategies as st
from plan_files import forecaster
from request_files import paper

from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS, table
from scalewatt.scaling.commands import calibrate_sources
from scalewatt.scaling.model.calibrate import calibrate
from scalewatt.scaling.model.calibration_points import points_of
from scalewatt.scaling.model.cost_terms import Load, TimeTerms, load_of_spec
from scalewatt.scaling.model.kind_model import HALF_WIDTH, pretraining_of
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.model.posterior import DRAWS, SEED
from scalewatt.scaling.model.predict import estimate, predict
from scalewatt.scaling.model.training_kind import Kind
from scalewatt.scaling.planning.forecast import Forecaster

Row = dict[str, Any]
MODEL = ROOT / "reference" / "scaling_model.json"


def results(folder: Path, change: Callable[[list[Row]], Any] = lambda rows: None) -> Path:
    """A table of configurations: FourCastNet on A100 as somebody found it."""
    rows = [
        row
        for row in records(published_configurations())
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
    assert "another number of GPUs than" in said
    assert "scalewatt pilot CAMPAIGN" in said


def test_a_run_of_a_batch_size_that_the_points_lack_has_no_forecast() -> None:
    configuration = next(
        id_
        for id_, one in paper().configurations.items()
        if (one.model, one.local_batch_size) == ("resnet50", 256)
    )
    spec = run_spec(paper(), configuration, 1)
    kind = forecaster().of_kind(spec)
    only = tuple(p for p in kind.points if p.load.local_batch_size == 32)
    one = Forecaster(ScalingModel((replace(kind, points=only),), ()))
    with pytest.raises(InputError, match="so 256 cannot be predicted"):
        one.runs(spec)
    assert one.upper_runtime_s(spec) is None


def test_a_kind_with_too_few_points_is_left_out_and_named(tmp_path: Path) -> None:
    def one_is_otherwise(rows: list[Row]) -> None:
        rows[5]["phase"] = "finetune"

    out = tmp_path / "model.json"
    said = calibrate_sources([results(tmp_path, one_is_otherwise)], out)
    lack = "fourcastnet.finetune on a100: too few points to calibrate (1); missing: 2 more of 3"
    assert f"left out: {lack}" in said
    model = read_model(out)
    assert [one.kind.key for one in model.kinds] == ["fourcastnet.pretrain"]
    assert lack in " ".join(model.left_out)


def test_too_few_energies_are_none_with_the_reason(tmp_path: Path) -> None:
    """Of six run times and one energy nothing can be said of energies."""

    def one_energy(rows: list[Row]) -> None:
        for row in rows[1:]:
            row["energy_kwh_mean"] = None

    (model,) = calibrate(points_of(results(tmp_path, one_energy)))
    assert len(model.points) == 6
    assert model.energy == {} and model.origin is model.scope is None
    assert model.no_energy is not None
    assert "of energies too few points to calibrate (1); missing: 2 more of 3" in model.no_energy
    assert predict(model, [model.points[0].load]).total_j is None


@pytest.mark.parametrize(
    ("name", "value"), [("energy_origin", "estimated"), ("energy_scope", "gpu+cpu")]
)
def test_energies_that_do_not_agree_are_refused(tmp_path: Path, name: str, value: str) -> None:
    def other(rows: list[Row]) -> None:
        rows[2][name] = value

    said = refused(results(tmp_path, other))
    assert f"energies of several {name.removeprefix('energy_')}s" in said
    assert value in said and "calibrate on sources that agree" in said


@pytest.mark.parametrize("name", ["energy_kwh_mean", "gpu_energy_kwh_mean"])
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_an_energy_that_no_run_has_is_refused(tmp_path: Path, name: str, value: float) -> None:
    def bad(rows: list[Row]) -> None:
        rows[1][name] = value

    assert f"{name} is {value}; expected more than 0, or null" in refused(results(tmp_path, bad))


def test_a_configuration_in_two_sources_is_refused(tmp_path: Path) -> None:
    one, other = (results(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(InputError, match="expected each configuration once"):
        calibrate_sources([one, other], tmp_path / "model.json")


# --- results of a campaign ------------------------------------------------------------------------


def campaign_results(folder: Path) -> Path:
    """A folder of results as rule tables leaves it, with specs whose settings are not the defaults."""
    rows = records(published_configurations())
    ids = [row["configuration"] for row in rows if row["configuration"] in paper().configurations]
    own = [
        row | {"campaign": "paper", "energy_origin": "measured"}
        for row in rows
        if row["configuration"] in ids[:4] and row["model"] == "resnet50"
    ]
    assert len(own) == 4
    write_table_with_csv(table(own, CONFIGURATIONS), folder / "tables" / "configurations.parquet")
    for row in own:
        spec = run_spec(paper(), row["configuration"], 1)
        spec = replace(spec, settings={**spec.settings, "image_size": 32})
        path = folder / "runs" / row["configuration"] / "1" / "spec.json"
        path.parent.mkdir(parents=True)
        path.write_text(spec.text)
    return folder


def test_a_folders_specs_say_which_settings_and_load_a_point_has(tmp_path: Path) -> None:
    points = points_of(campaign_results(tmp_path))
    for point in points:
        spec = read_spec(tmp_path / "runs" / point.configuration / "1" / "spec.json")
        assert point.kind.changed() == {"image_size": 32.0}
        assert point.load == load_of_spec(spec)
        assert point.campaign == "paper" and not point.assumed_settings
        assert point.spec_sha256 == spec.sha256


def test_without_specs_every_prediction_names_the_assumption(tmp_path: Path) -> None:
    """A copied table of a small model would else pass for the paper's."""
    folder, out = campaign_results(tmp_path), tmp_path / "model.json"
    assert calibrate(points_of(folder))[0].assumed is None
    (folder / "runs").rename(folder / "elsewhere")
    said = calibrate_sources([folder / "tables" / "configurations.parquet"], out)
    assumed = "4 of the 4 configurations it was calibrated on came without their spec.json"
    assert f"note: {assumed}" in said
    spec = run_spec(paper(), points_of(folder)[0].configuration, 1)
    assert assumed in " ".join(Forecaster(read_model(out)).warnings(spec))


def test_energies_by_device_kind_make_a_model_of_each(tmp_path: Path) -> None:
    def parts(rows: list[Row]) -> None:
        for row in rows:
            for kind, share in SHARES.items():
                row[f"{kind}_energy_kwh_mean"] = share * row["energy_kwh_mean"]

    (model,) = calibrate(points_of(results(tmp_path, parts)))
    assert list(model.energy) == list(SHARES)
    load = model.points[0].load
    found = predict(model, [load])
    for kind, share in SHARES.items():
        part = estimate(found.energy_j[kind][:, 0]).median
        assert part == pytest.approx(share * estimate(found.total_j[:, 0]).median, rel=0.1)


def test_where_one_point_lacks_a_device_kind_the_model_is_of_totals(tmp_path: Path) -> None:
    def parts(rows: list[Row]) -> None:
        for row in rows:
            for kind, share in SHARES.items():
                row[f"{kind}_energy_kwh_mean"] = share * row["energy_kwh_mean"]
        rows[2]["ram_energy_kwh_mean"] = None

    (model,) = calibrate(points_of(results(tmp_path, parts)))
    assert list(model.energy) == ["total"]


SHARES = {"gpu": 0.7, "cpu": 0.2, "ram": 0.1}


# --- what is written ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The model of four points on A100, and what the command prints."""
    folder = tmp_path_factory.mktemp("calibrated")

    def four(rows: list[Row]) -> None:
        del rows[4:]

    out = folder / "model.json"
    return out, calibrate_sources([results(folder, four)], out)


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


def test_the_command_prints_the_errors_of_its_validation(
    written: tuple[Path, str],
) -> None:
    said = written[1]
    assert "fourcastnet.pretrain on a100: 4 configurations" in said
    assert "energy at known time" in said and "in nominal 90 %" in said
    assert f"{written[0]}: written" in said


def test_a_model_that_is_read_predicts_as_the_one_that_was_written(
    written: tuple[Path, str],
) -> None:
    model = read_model(written[0])
    (one,) = model.kinds
    loads = [point.load for point in one.points]
    found = np.median(predict(one, loads).runtime_s, axis=0)
    assert found == pytest.approx([point.runtime_s for point in one.points], rel=0.2)


def test_the_file_has_its_provenance(written: tuple[Path, str]) -> None:
    content = json.loads(written[0].read_text())
    said = content["provenance"]
    ((source, sha256),) = said["tables_sha256"].items()
    assert sha256 == hashlib.sha256(Path(source).read_bytes()).hexdigest()
    assert set(said["versions"]) == {"python", "numpy", "scipy"}
    assert said["seed"] == SEED and said["draws"] == DRAWS
    datetime.fromisoformat(said["made"])
    assert said["specs"] == 0


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}', "[1]"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"other\.json: (is not|is no|version is)"):
        read_model(path)


def test_reading_a_model_needs_no_reader_of_tables() -> None:
    """A login node parses the Snakefile with it."""
    code = "import sys, scalewatt.scaling.planning.forecast as _; "
    code += "print(*{'pyarrow', 'scipy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


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


def test_a_clock_that_was_not_calibrated_is_refused(shipped: ScalingModel) -> None:
    kind = shipped.kinds[0].kind
    slow = json.dumps(json.loads(kind.settings) | {"gpu_clock_mhz": 800.0}, sort_keys=True)
    with pytest.raises(InputError, match="is not calibrated for resnet50 on a100, gpu_clock_mhz"):
        shipped.of(replace(kind, settings=slow))


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
