"""`scalewatt boamps`: reports in the form of BoAmps, which say nothing that is not known."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from archived import ACCOUNT, Project, make_project, measured
from jsonschema import Draft4Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from scalewatt.archive.boamps_options import (
    CONFIDENTIALITY,
    INFRASTRUCTURES,
    STATUSES,
    BoampsOptions,
)
from scalewatt.archive.boamps_report import (
    MeasuredRun,
    quality_of,
    report_of,
)
from scalewatt.archive.export_boamps import write_reports
from scalewatt.campaign import external_command, registered_campaign
from scalewatt.campaign.run_spec import read_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import EPOCHS_COMBINED
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.table_schema import RUNS

TWO = "resnet50-a100-n002-lbs0256-s0010009"
FOUR = "resnet50-a100-n004-lbs0256-s0020018"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCHEMAS = ("report", "algorithm", "dataset", "measure", "hardware")
NODE = {
    "hosts": ["n1"],
    "cpu_models": ["Xeon 8368"],
    "cpu_sockets": 2,
    "architecture": "x86_64",
    "gpu_driver": "550.54",
    "kernel": "Linux 5.14.0",
    "os": "Rocky Linux 9.4",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished, simulated campaign; not to be changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    return made.copy(tmp_path / "project")


def written(project: Project, **options: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The reports of a project by file, and what was said."""
    out = project.path / "reports"
    files = project.campaign, project.path / "cluster.yaml", project.path / "results"
    said = write_reports(*files, out, BoampsOptions(**options))
    return {path.name: json.loads(path.read_text()) for path in sorted(out.iterdir())}, said


def change_runs(project: Project, configuration: str, **values: Any) -> None:
    """Change columns of a run's row in the table of runs."""
    path = project.results / "tables" / "runs.parquet"
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        if row["configuration"] == configuration:
            row |= values
    pq.write_table(pa.Table.from_pylist(rows, schema=RUNS), path)


@pytest.fixture
def trained(project: Project) -> MeasuredRun:
    """A run as scalewatt's own training on two GPUs of one node leaves it."""
    measured(project)
    folder = project.results / "runs" / TWO / "1"
    said = json.loads((folder / "provenance.json").read_text())
    (row,) = (
        one
        for one in pq.read_table(project.results / "tables" / "runs.parquet").to_pylist()
        if one["configuration"] == TWO
    )
    said |= {
        "packages_of": None,
        "parameters": 25_557_032,
        "optimizer": "SGD",
        "precision_used": "tf32_convolutions",
        "perun": {"version": "1.0.0"},
        "gpus": {"n1": [0, 1]},
        "nodes": [NODE],
    }
    row |= {
        "energy_origin": "measured",
        "device_name": "NVIDIA A100-SXM4-40GB",
        "metric_last": 28.0,
        "idle_energy_kwh": 0.004,
    }
    return MeasuredRun(
        spec=read_spec(folder / "spec.json"),
        provenance=said,
        provenance_sha256="0" * 64,
        row=row,
        origins={"gpu": "measured", "cpu": "measured", "ram": "measured"},
        idle_s=300.0,
        gpu_memory_gib=40,
        carbon_g_per_kwh=350,
    )


def report(run: MeasuredRun, **options: Any) -> dict[str, Any]:
    return report_of(run, BoampsOptions(**options), NOW)


def changed(run: MeasuredRun, row: dict[str, Any] | None = None, **provenance: Any) -> MeasuredRun:
    return replace(run, row={**run.row, **(row or {})}, provenance={**run.provenance, **provenance})


# --- the form -------------------------------------------------------------------------------------


def check_form(found: dict[str, Any]) -> None:
    """Hold a report against what the form demands, by its own schemas where they are at hand."""
    assert {"task", "measures", "infrastructure"} <= set(found)
    assert set(found) <= {
        *("header", "task", "measures", "system", "software", "infrastructure"),
        *("environment", "quality"),
    }
    task = found["task"]
    assert all(task[key] for key in ("taskStage", "taskFamily", "algorithms", "dataset"))
    assert all({"dataUsage", "dataType"} <= set(one) for one in task["dataset"])
    (measure,) = found["measures"]
    assert isinstance(measure["measurementMethod"], str)
    assert isinstance(measure["powerConsumption"], float)
    place = found["infrastructure"]
    assert place["infraType"] in INFRASTRUCTURES and place["components"]
    for one in place["components"]:
        assert isinstance(one["nbComponent"], int) and one["componentType"]
        assert 0 <= one.get("share", 1) <= 1 and isinstance(one.get("memorySize", 0), int)
    assert found["quality"] in ("high", "medium", "low")
    header = found["header"]
    assert header["reportStatus"] in STATUSES
    for date in (
        header["reportDatetime"],
        measure.get("measurementDateTime", "2000-01-01 00:00:00"),
    ):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", date)
    if "publisher" in header:
        assert header["publisher"]["confidentialityLevel"] in CONFIDENTIALITY
    assert 0 <= task.get("measuredAccuracy", 0) <= 1
    assert "null" not in json.dumps(found)


def validator() -> Draft4Validator:
    """BoAmps' own, from the folder of its schemas."""
    folder = os.environ.get("SCALEWATT_BOAMPS")
    if not folder:
        pytest.skip("SCALEWATT_BOAMPS is not set: a folder with model/*_schema.json of BoAmps")
    contents = {
        name: json.loads(Path(folder, f"{name}_schema.json").read_text()) for name in SCHEMAS
    }
    resources = [
        (one["id"], Resource.from_contents(one, default_specification=DRAFT4))
        for one in contents.values()
    ]
    return Draft4Validator(contents["report"], registry=Registry().with_resources(resources))


FULL = {
    "publisher": "A University",
    "license": "CC-BY-4.0",
    "status": "final",
    "infrastructure": "onPremise",
    "country": "germany",
    "location": "Karlsruhe",
}


def test_reports_are_valid_by_the_schemas_of_boamps(trained: MeasuredRun, project: Project) -> None:
    valid = validator()
    simulated, _ = written(project)
    bare = changed(trained, nodes=None, gpus=None, perun=None, packages=None, segments=[])
    for one in (report(trained, **FULL), report(trained), report(bare), *simulated.values()):
        assert [error.message for error in valid.iter_errors(one)] == []
    assert list(valid.iter_errors({**report(trained), "quality": "best"}))
    assert list(valid.iter_errors({**report(trained), "measures": [{}]}))


def test_a_report_has_what_the_form_demands(trained: MeasuredRun, project: Project) -> None:
    for one in (report(trained, **FULL), report(trained), *written(project)[0].values()):
        check_form(one)


# --- what it says ---------------------------------------------------------------------------------


def test_the_energy_is_in_kwh_and_times_in_seconds_and_utc(trained: MeasuredRun) -> None:
    (measure,) = report(trained)["measures"]
    assert measure["powerConsumption"] == trained.row["energy_kwh"]
    assert measure["measurementDuration"] == trained.row["runtime_s"]
    assert measure["measurementDateTime"] == "2023-11-14 22:13:20"
    assert (measure["measurementMethod"], measure["version"]) == ("perun", "1.0.0")
    assert (measure["gpuTrackingMode"], measure["cpuTrackingMode"]) == ("nvml", "rapl")


def test_the_calibration_is_the_idle_energy_over_the_probes_time(trained: MeasuredRun) -> None:
    (measure,) = report(trained)["measures"]
    assert measure["durationCalibrationMeasurement"] == 300
    idle_kw = 0.004 / trained.row["runtime_s"]
    assert measure["powerCalibrationMeasurement"] == pytest.approx(idle_kw * 300)
    (without,) = report(replace(trained, idle_s=None))["measures"]
    assert not [key for key in without if "Calibration" in key]


def test_the_task_is_that_of_the_spec_with_parameters_in_billions(trained: MeasuredRun) -> None:
    task = report(trained)["task"]
    assert (task["taskStage"], task["taskFamily"]) == ("training", "image classification")
    assert task["algorithms"] == [
        {
            "algorithmType": "neural network",
            "algorithmName": "resnet50",
            "framework": "pytorch",
            "frameworkVersion": "2.7.0+cu126",
            "parametersNumber": 0.025557032,
            "epochsNumber": 3,
            "optimizer": "SGD",
            "quantization": "tf32_convolutions",
        }
    ]
    (dataset,) = task["dataset"]
    assert (dataset["dataQuantity"], dataset["shape"]) == (10009, "(10009, 3, 224, 224)")
    assert task["measuredAccuracy"] == pytest.approx(0.72)
    assert "global batch: 512" in task["taskDescription"]
    assert trained.spec.sha256 in task["taskDescription"]
    assert "nbRequest" not in task


def test_fine_tuning_is_a_stage_of_its_own(trained: MeasuredRun) -> None:
    tuned = replace(trained, spec=replace(trained.spec, phase="finetune"))
    assert report(tuned)["task"]["taskStage"] == "finetuning"


def test_components_are_the_gpus_held_and_the_sockets_seen(trained: MeasuredRun) -> None:
    assert report(trained)["infrastructure"]["components"] == [
        {
            "componentName": "NVIDIA A100-SXM4-40GB",
            "componentType": "gpu",
            "nbComponent": 2,
            "memorySize": 40,
            "share": 1,
        },
        {"componentName": "Xeon 8368", "componentType": "cpu", "nbComponent": 2},
    ]
    shared = changed(trained, gpus={"n1": [0]})
    assert report(shared)["infrastructure"]["components"][0]["nbComponent"] == 1
    assert report(trained)["system"] == {"os": "linux", "distribution": "Rocky Linux 9.4"}
    assert report(trained)["software"] == {"language": "python", "version": "3.11.7"}


def test_of_a_run_on_unknown_hardware_its_nodes_are_the_component(trained: MeasuredRun) -> None:
    bare = changed(trained, {"torch_device": "cpu"}, nodes=None)
    assert report(bare)["infrastructure"]["components"] == [
        {"componentName": "a100", "componentType": "node", "nbComponent": 1}
    ]


def test_the_carbon_intensity_is_there_with_the_country_that_the_form_wants(
    trained: MeasuredRun,
) -> None:
    assert "environment" not in report(trained, location="Karlsruhe")
    assert report(trained, country="germany")["environment"] == {
        "country": "germany",
        "powerSourceCarbonIntensity": 350,
    }


def test_an_intensity_along_the_runs_power_stands_before_the_constant(trained: MeasuredRun) -> None:
    run = changed(trained, {"carbon_over_time_kg": 0.99, "facility_energy_kwh": 2.5})
    found = report(run, country="germany")["environment"]["powerSourceCarbonIntensity"]
    assert found == pytest.approx(396)


def test_the_operating_point_is_in_the_description(trained: MeasuredRun) -> None:
    assert "Asked for" not in report(trained)["task"]["taskDescription"]
    limited = replace(trained.spec, operating_point={"gpu_power_limit_w": 150.0})
    words = report(replace(trained, spec=limited))["task"]["taskDescription"]
    assert "Asked for: GPU power limit 150 W." in words


def test_an_energy_of_combined_epochs_is_said_to_be_no_measurement_of_the_run(
    trained: MeasuredRun,
) -> None:
    flags = json.dumps([{"code": EPOCHS_COMBINED, "device": None, "detail": ""}])
    found = report(changed(trained, {"flags": flags}, registered=True, perun=None))
    (measure,) = found["measures"]
    words = "one measured epoch's energy and time, times the epochs of another execution"
    assert measure["measurementMethod"] == f"registered recordings, {words}"
    assert words in found["task"]["taskDescription"] and found["quality"] == "low"


def test_a_carbon_file_without_a_constant_is_no_obstacle(project: Project) -> None:
    cluster = project.path / "cluster.yaml"
    content = yaml.safe_load(cluster.read_text())
    content["carbon_intensity"] = {"file": str(project.path / "grid.csv"), "source": "a grid"}
    (project.path / "grid.csv").write_text(
        "time,g_per_kwh\n2026-01-01T00:00:00Z,300\n2026-01-01T01:00:00Z,300\n"
    )
    cluster.write_text(yaml.safe_dump(content))
    reports, _ = written(project, country="germany")
    assert all("powerSourceCarbonIntensity" not in one["environment"] for one in reports.values())


def test_nothing_is_made_up_where_the_provenance_is_silent(trained: MeasuredRun) -> None:
    silent = dict.fromkeys(("parameters", "optimizer", "precision_used", "perun", "nodes", "gpus"))
    found = report(changed(trained, segments=[], packages={}, **silent))
    assert set(found["task"]["algorithms"][0]) == {"algorithmType", "algorithmName", "epochsNumber"}
    assert not {"system", "software"} & set(found)
    assert not {"version", "measurementDateTime", "gpuTrackingMode"} & set(found["measures"][0])
    assert "publisher" not in found["header"] and "licensing" not in found["header"]


def test_packages_of_others_are_not_said_to_be_the_trainings(trained: MeasuredRun) -> None:
    found = report(changed(trained, packages_of="the recorder"), task_family="speech recognition")
    assert "software" not in found and "framework" not in found["task"]["algorithms"][0]
    assert found["task"]["taskFamily"] == "speech recognition"


# --- where the energy is from ---------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["estimated", "mixed"])
def test_an_estimate_is_called_one(origin: str, trained: MeasuredRun) -> None:
    run = replace(
        changed(trained, {"energy_origin": origin}), origins={"gpu": "measured", "cpu": "estimated"}
    )
    found = report(run)
    (measure,) = found["measures"]
    assert "estimated from utilisation and rated power" in measure["measurementMethod"]
    assert measure["cpuTrackingMode"] == "estimated from utilisation and rated power"
    assert measure["gpuTrackingMode"] == "nvml"
    assert f"Energy: {origin}" in found["task"]["taskDescription"]
    known = changed(run, {"energy_low_kwh": 1.25, "energy_high_kwh": 3.5})
    words = "By its estimates the true energy is from 1.25 to 3.5 kWh."
    assert words in report(known)["task"]["taskDescription"]


def test_a_registered_recording_is_not_said_to_be_peruns(trained: MeasuredRun) -> None:
    (measure,) = report(changed(trained, registered=True, perun=None))["measures"]
    assert measure["measurementMethod"] == "registered recordings"
    assert not {"gpuTrackingMode", "cpuTrackingMode"} & set(measure)


@pytest.mark.parametrize("dataset", [external_command.DATASET, registered_campaign.DATASET])
def test_data_that_nobody_named_have_no_name(dataset: dict[str, str], trained: MeasuredRun) -> None:
    assert "Dataset: imagenet." in report(trained)["task"]["taskDescription"]
    found = report(replace(trained, spec=replace(trained.spec, dataset=dataset)))["task"]
    assert "Dataset" not in found["taskDescription"]
    assert found["dataset"][0]["dataType"] == "other" and "shape" not in found["dataset"][0]


def test_an_epoch_that_only_stands_for_the_whole_training_is_left_out(trained: MeasuredRun) -> None:
    one = replace(changed(trained, registered=True), spec=replace(trained.spec, epochs=1))
    assert "epochsNumber" not in report(one)["task"]["algorithms"][0]


def test_simulated_runs_say_so_everywhere_and_state_nothing_that_was_assumed(
    project: Project,
) -> None:
    reports, said = written(project, status="final")
    assert set(reports) == {f"{TWO}-1.json", f"{FOUR}-1.json"}
    assert "2 of 2 reports are of simulated runs, which were not measured" in said
    for one in reports.values():
        (measure,) = one["measures"]
        assert measure["measurementMethod"] == "simulated with a scaling model, not measured"
        assert one["task"]["taskDescription"].startswith("Simulated: nothing was trained")
        assert (one["header"]["reportStatus"], one["quality"]) == ("other", "low")
        assert "measuredAccuracy" not in one["task"]  # of an assumed curve
        assert not {"version", "measurementDateTime"} & set(measure)
        assert "software" not in one and "framework" not in one["task"]["algorithms"][0]


def energies(**values: Any) -> dict[str, Any]:
    ends = {"energy_low_kwh": 1.0, "energy_high_kwh": 1.0, "distinct_energy_kwh": 1.0}
    return {"energy_kwh": 1.0, "energy_origin": "measured", "coverage": 1.0, **ends, **values}


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (energies(), "high"),
        (energies(coverage=0.97), "high"),
        (energies(coverage=None, distinct_energy_kwh=None), "high"),
        (energies(energy_origin="mixed", energy_low_kwh=0.8), "medium"),
        (energies(energy_origin="estimated", energy_high_kwh=1.4), "low"),
        (energies(energy_origin="estimated", energy_high_kwh=None), "low"),
        (energies(distinct_energy_kwh=1.2), "medium"),
        (energies(energy_origin="simulated"), "low"),
        (energies(energy_kwh=0.0), "low"),
    ],
)
def test_quality_is_the_word_for_the_largest_error_that_is_known(
    row: dict[str, Any], word: str
) -> None:
    assert quality_of(row) == word


# --- the command ----------------------------------------------------------------------------------


def test_the_id_is_the_same_at_each_export_and_another_for_another_provenance(
    project: Project,
) -> None:
    first, _ = written(project)
    (project.path / "reports").rename(project.path / "before")
    second, _ = written(project)
    ids = {name: one["header"]["reportId"] for name, one in first.items()}
    assert ids == {name: one["header"]["reportId"] for name, one in second.items()}
    assert len(set(ids.values())) == len(ids)
    (project.path / "reports").rename(project.path / "again")
    path = project.results / "runs" / TWO / "1" / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "note": "another"}))
    third, _ = written(project)
    assert third[f"{TWO}-1.json"]["header"]["reportId"] != ids[f"{TWO}-1.json"]
    assert third[f"{FOUR}-1.json"]["header"]["reportId"] == ids[f"{FOUR}-1.json"]


def test_runs_without_an_energy_and_excluded_ones_are_named_and_left_out(project: Project) -> None:
    change_runs(project, TWO, energy_kwh=None)
    reports, said = written(project)
    assert set(reports) == {f"{FOUR}-1.json"}
    assert f"not reported: {TWO} 1: it has no energy" in said
    change_runs(project, FOUR, excluded="the node was shared")
    with pytest.raises(InputError, match="none of 2 runs has an energy to report"):
        written(project)


def test_an_unknown_task_is_asked_for(trained: MeasuredRun) -> None:
    mine = replace(trained, spec=replace(trained.spec, model="mine"))
    with pytest.raises(
        InputError, match="model 'mine' is for is not known; allowed: --task-family"
    ):
        report(mine)


def test_no_report_is_overwritten_and_none_is_written_beside_one(project: Project) -> None:
    out = project.path / "reports"
    out.mkdir()
    (out / f"{FOUR}-1.json").write_text("mine")
    with pytest.raises(InputError, match="exists already; allowed: another --out"):
        written(project)
    assert [path.name for path in out.iterdir()] == [f"{FOUR}-1.json"]


def test_without_the_table_of_runs_its_target_is_named(project: Project) -> None:
    (project.results / "tables" / "runs.parquet").unlink()
    with pytest.raises(
        InputError, match=r"runs\.parquet: is missing; the target `tables` makes it"
    ):
        written(project)


def test_nothing_of_the_account_is_written(project: Project) -> None:
    change_runs(project, TWO, device_name=f"GPU of {ACCOUNT}")
    with pytest.raises(InputError, match="not exported, as it would reveal this machine"):
        written(project)
    assert not (project.path / "reports").exists()


def test_the_length_of_idle_probes_is_read_of_their_table(project: Project) -> None:
    path = project.results / "tables" / "idle.parquet"
    row = {**dict.fromkeys(IDLE.names), "device": "a100", "device_kind": "gpu", "window_s": 240.0}
    pq.write_table(pa.Table.from_pylist([row], schema=IDLE), path)
    for name in (TWO, FOUR):
        change_runs(project, name, energy_origin="measured", idle_energy_kwh=0.001)
    for file in project.results.glob("runs/*/1/provenance.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "simulated": None}))
    reports, _ = written(project)
    for one in reports.values():
        assert one["measures"][0]["durationCalibrationMeasurement"] == 240


def test_the_command_takes_what_a_publisher_says(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = project.path / "cluster.yaml"
    cluster.write_text(cluster.read_text() + "carbon_intensity: {value: 350, source: the grid}\n")
    place = [str(project.campaign), "--cluster", str(cluster), "--results"]
    place.append(str(project.path / "results"))
    assert main(["boamps", *place, "--out", str(project.path / "bare")]) == 0
    assert "not in them: the carbon intensity" in capsys.readouterr().out
    given = ["--publisher", "A University", "--confidentiality", "internal", "--country", "germany"]
    assert main(["boamps", *place, "--out", str(project.path / "full"), *given]) == 0
    assert "not in them" not in capsys.readouterr().out
    found = json.loads((project.path / "full" / f"{TWO}-1.json").read_text())
    assert found["environment"]["powerSourceCarbonIntensity"] == 350
    assert found["header"]["publisher"] == {
        "name": "A University",
        "confidentialityLevel": "internal",
    }
