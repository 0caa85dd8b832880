"""`scalewatt calibrate`: what it writes, and what it refuses with what would make it possible."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_files import ROOT
from plan_files import forecaster
from request_files import paper

from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS, table
from scalewatt.scaling.commands import calibrate_sources
from scalewatt.scaling.model.fit import (
    HALF_WIDTH,
    Point,
    by_kind,
    calibrate,
    lacking,
    pretraining_of,
)
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.model.points import points_of
from scalewatt.scaling.model.posterior import DRAWS, SEED
from scalewatt.scaling.model.predict import estimate, predict
from scalewatt.scaling.model.terms import Kind, load_of_spec
from scalewatt.scaling.planning.forecast import Forecaster

Row = dict[str, Any]
MODEL = ROOT / "reference" / "scaling_model.json"


def fourcastnet() -> list[Point]:
    """The six published points on A100."""
    points = points_of(ROOT / "reference")
    return [p for p in points if (p.kind.key, p.kind.device) == ("fourcastnet.pretrain", "a100")]


def results(
    folder: Path, change: Callable[[list[Row]], Any] = lambda rows: None, image_size: int = 32
) -> Path:
    """Results of four runs of the paper's campaign, as rule tables leaves them."""
    known = paper().configurations
    rows = [row for row in records(published_configurations()) if row["configuration"] in known]
    rows = [
        row | {"campaign": "paper", "energy_origin": "measured"}
        for row in rows
        if row["model"] == "resnet50"
    ][:4]
    for row in rows:
        spec = run_spec(paper(), row["configuration"], 1)
        path = folder / "runs" / row["configuration"] / "1" / "spec.json"
        path.parent.mkdir(parents=True)
        path.write_text(replace(spec, settings={**spec.settings, "image_size": image_size}).text)
    change(rows)
    write_table_with_csv(table(rows, CONFIGURATIONS), folder / "tables" / "configurations.parquet")
    return folder


# --- bad input ------------------------------------------------------------------------------------


def test_too_few_points_are_refused_and_what_is_missing_is_named(tmp_path: Path) -> None:
    def one(rows: list[Row]) -> None:
        del rows[1:]

    with pytest.raises(InputError, match="too few points to calibrate") as refused:
        calibrate_sources([results(tmp_path, one)], tmp_path / "model.json")
    said = str(refused.value)
    assert "2 more of 3 configurations" in said and "another number of GPUs than" in said
    assert "scalewatt pilot CAMPAIGN" in said and not (tmp_path / "model.json").exists()


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
    out = tmp_path / "model.json"
    few = results(tmp_path / "few", lambda rows: rows.__delitem__(slice(2, None)), image_size=64)
    said = calibrate_sources([results(tmp_path / "enough"), few], out)
    assert "left out: resnet50 on a100, image_size=64.0: too few points to calibrate (2)" in said
    assert [one.kind.changed() for one in read_model(out).kinds] == [{"image_size": 32.0}]


def test_too_few_energies_are_none() -> None:
    """Of six run times and one energy nothing can be said of energies."""
    first, *others = fourcastnet()
    model = calibrate([first, *(replace(point, energy_j=None) for point in others)])
    assert len(model.points) == 6
    assert model.energy is None and model.origin is model.scope is None
    assert predict(model, [first.load]).energy_j is None
    assert "1 more of" in str(lacking(others[:2]))


@pytest.mark.parametrize(("name", "value"), [("origin", "estimated"), ("scope", "gpu+cpu")])
def test_energies_that_do_not_agree_are_refused(name: str, value: str) -> None:
    first, *others = fourcastnet()
    with pytest.raises(InputError, match=rf"energies of several {name}s: .*sources that agree"):
        by_kind([replace(first, **{name: value}), *others])


@pytest.mark.parametrize("name", ["runtime_h_mean", "energy_kwh_mean"])
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_a_value_that_no_run_has_is_refused(tmp_path: Path, name: str, value: float) -> None:
    def bad(rows: list[Row]) -> None:
        rows[1][name] = value

    with pytest.raises(InputError, match=f"{name} is {value}; expected more than 0, or null"):
        points_of(results(tmp_path, bad))


def test_a_configuration_in_two_sources_is_refused(tmp_path: Path) -> None:
    one, other = (results(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(InputError, match="is in several sources; expected it once"):
        calibrate_sources([one, other], tmp_path / "model.json")


def test_results_without_tables_or_specs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copied table of a small model would else pass for the paper's."""
    folder = results(tmp_path / "results")
    (folder / "runs").rename(tmp_path / "elsewhere")
    command = ["calibrate", str(folder), "--out", str(tmp_path / "model.json")]
    assert main(command) == 1
    assert "its runs have no spec.json" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path), *command[2:]]) == 1
    assert "configurations.parquet: is missing; expected the folder" in capsys.readouterr().err


# --- points ---------------------------------------------------------------------------------------


def test_a_folders_specs_say_which_settings_and_load_a_point_has(tmp_path: Path) -> None:
    points = points_of(results(tmp_path))
    assert len(points) == 4
    for point in points:
        spec = read_spec(tmp_path / "runs" / point.configuration / "1" / "spec.json")
        assert point.kind.changed() == {"image_size": 32.0}
        assert point.load == load_of_spec(spec)
        assert point.campaign == "paper"


# --- what is written ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The model of four runs, and what the command prints."""
    folder = tmp_path_factory.mktemp("calibrated")
    out = folder / "model.json"
    return out, calibrate_sources([results(folder)], out)


def test_a_model_is_written_with_its_points_its_scores_and_its_provenance(
    written: tuple[Path, str],
) -> None:
    content = json.loads(written[0].read_text())
    (kind,) = content["kinds"]
    assert len(kind["points"]) == 4 and kind["points"][0]["origin"] == "measured"
    assert {one["scheme"] for one in kind["scores"]} >= {"point"}
    said = content["provenance"]
    ((source, sha256),) = said["tables_sha256"].items()
    path = Path(source) / "tables" / "configurations.parquet"
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (said["seed"], said["draws"]) == (SEED, DRAWS)


def test_the_command_prints_the_errors_of_its_validation(written: tuple[Path, str]) -> None:
    assert "image_size=32.0: 4 configurations" in written[1]
    assert "energy at known time" in written[1] and f"{written[0]}: written" in written[1]


def test_a_model_that_is_read_predicts_as_the_one_that_was_written(
    written: tuple[Path, str],
) -> None:
    (kept,) = read_model(written[0]).kinds
    again = calibrate(points_of(written[0].parent))
    loads = [point.load for point in kept.points]
    assert kept.points == again.points
    one, other = predict(kept, loads), predict(again, loads)
    assert one.runtime_s == pytest.approx(other.runtime_s, rel=1e-4)
    assert one.energy_j == pytest.approx(other.energy_j, rel=1e-4)


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}', "[1]", '{"version": 4}'])
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
        (tuned.energy_j, trained.energy_j),
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
