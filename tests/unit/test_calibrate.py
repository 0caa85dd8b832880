"""`scalewatt calibrate`: what it writes, and what it refuses with what would make it possible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from plan_files import published_points, scaling_model
from request_files import paper

from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.calibrate import calibrate_sources, read_points
from scalewatt.scaling.model import DRAWS, HALF_WIDTH, SEED, by_kind, pretraining_of
from scalewatt.scaling.predict import estimate, predict, read_model

Row = dict[str, Any]


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
    write_table_with_csv(
        pa.Table.from_pylist(rows, CONFIGURATIONS), folder / "tables" / "configurations.parquet"
    )
    return folder


# --- bad input ------------------------------------------------------------------------------------


def test_too_few_points_are_refused_and_what_is_missing_is_named(tmp_path: Path) -> None:
    def keep_first(rows: list[Row]) -> None:
        del rows[1:]

    with pytest.raises(InputError, match="too few points to calibrate") as refused:
        calibrate_sources([results(tmp_path, keep_first)], tmp_path / "model.json")
    error = str(refused.value)
    assert "configurations 1, numbers of GPUs 1; expected 3 and 2 or more" in error
    assert "scalewatt pilot CAMPAIGN" in error and not (tmp_path / "model.json").exists()


def test_a_kind_with_too_few_points_is_left_out_and_named(tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    few = results(tmp_path / "few", lambda rows: rows.__delitem__(slice(2, None)), image_size=64)
    printed = calibrate_sources([results(tmp_path / "enough"), few], out)
    assert (
        "left out: resnet50 on a100, image_size=64.0: too few points to calibrate: configurations 2"
        in printed
    )
    assert [model.kind.changed() for model in read_model(out).kinds] == [{"image_size": 32.0}]


def test_a_configuration_of_unknown_samples_is_left_out_and_named(tmp_path: Path) -> None:
    ids = []

    def forget(rows: list[Row]) -> None:
        rows[0]["samples_per_gpuh_mean"] = None
        ids.append(rows[0]["configuration"])

    folder = results(tmp_path, forget)
    path = folder / "runs" / ids[0] / "1" / "spec.json"
    path.write_text(path.read_text().replace('"protocol": "paper"', '"protocol": "target"'))
    printed = calibrate_sources([folder], tmp_path / "model.json")
    assert f"left out: {folder}: {ids[0]}: the samples and passes" in printed
    assert len(read_model(tmp_path / "model.json").kinds[0].points) == 3


@pytest.mark.parametrize(("name", "value"), [("origin", "estimated"), ("scope", "gpu+cpu")])
def test_energies_that_do_not_agree_are_refused(name: str, value: str) -> None:
    kind, (first, *others) = published_points("fourcastnet.pretrain", "a100")
    with pytest.raises(InputError, match=rf"energies of several {name}s: .*sources that agree"):
        by_kind((kind, point) for point in [replace(first, **{name: value}), *others])


@pytest.mark.parametrize("name", ["runtime_h_mean", "energy_kwh_mean"])
def test_a_value_that_no_run_has_is_refused(tmp_path: Path, name: str) -> None:
    bad = results(tmp_path, lambda rows: rows[1].update({name: 0.0}))
    with pytest.raises(InputError, match=f"{name} is 0.0; expected more than 0, or null"):
        read_points(bad)


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
    assert "configurations.parquet: does not exist" in capsys.readouterr().err


# --- what is written ------------------------------------------------------------------------------


def test_a_model_is_written_with_its_points_its_scores_and_its_provenance(tmp_path: Path) -> None:
    out = tmp_path / "model.json"
    calibrate_sources([results(tmp_path)], out)
    content = json.loads(out.read_text())
    (kind,) = content["kinds"]
    assert len(kind["points"]) == 4 and kind["points"][0]["origin"] == "measured"
    assert {row["scheme"] for row in kind["scores"]} >= {"point"}
    printed = content["provenance"]
    ((source, sha256),) = printed["tables_sha256"].items()
    path = Path(source) / "tables" / "configurations.parquet"
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (printed["seed"], printed["draws"]) == (SEED, DRAWS)


@pytest.mark.parametrize("text", ["", "{}", '{"version": 4, "sources": []}', "[1]"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"other\.json: (is not|is no)"):
        read_model(path)


# --- fine-tuning, which nobody published ----------------------------------------------------------


@pytest.mark.parametrize("device", ["a100", "h100"])
def test_fine_tuning_is_assumed_from_pre_training_with_thirty_per_cent(
    device: str,
) -> None:
    pretraining, _ = published_points("fourcastnet.pretrain", device)
    kind = replace(pretraining, key="fourcastnet.finetune")
    before, model = scaling_model().find(pretraining), scaling_model().find(kind)
    assert pretraining_of(kind) == pretraining
    assert model.kind == kind and model.assumed and before.assumed is None
    load = before.points[0].load
    tuned, trained = predict(model, [load]), predict(before, [load])
    for draws, before_draws in zip(tuned, trained, strict=True):
        median, low, high = estimate(draws[:, 0])
        assert low <= (1 - 0.95 * HALF_WIDTH) * median
        assert high >= (1 + 0.95 * HALF_WIDTH) * median
        assert 1.3 < median / estimate(before_draws[:, 0]).median < 2.1
