"""The metadata of archives state what Process Run Crate requires; without a validator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from archived import content, make_project, measured

from scalewatt.archive.package_reference import reference_texts
from scalewatt.archive.process_run import (
    COMPLETED,
    FAILED,
    PROFILE,
    ArchivedRun,
    activities_of,
)
from scalewatt.archive.ro_crate import CONFORMS_TO, CONTEXT, METADATA
from scalewatt.campaign import external_command, registered_campaign

ACTIONS = ("CreateAction", "ActivateAction")
MEASURED = "#run-resnet50-a100-n002-lbs0256-s0010009-1"
SIMULATED = "#run-resnet50-a100-n004-lbs0256-s0020018-1"
ISO_8601 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"

Nodes = dict[str, dict[str, Any]]


def by_id(text: bytes | str) -> Nodes:
    return {node["@id"]: node for node in json.loads(text)["@graph"]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """An archive of a training that failed once, and of a simulation."""
    project = make_project(tmp_path_factory.mktemp("made") / "project")
    measured(project)
    return content(project.export(traces=True, agent="Grace Hopper"))


@pytest.fixture
def nodes(files: dict[str, bytes]) -> Nodes:
    """What its metadata describe."""
    return by_id(files[METADATA])


def listed(value: Any) -> list[dict[str, str]]:
    return value if isinstance(value, list) else [value]


def named(node: dict[str, Any], key: str) -> list[str]:
    return [one["@id"] for one in listed(node[key])]


def actions(nodes: Nodes) -> list[dict[str, Any]]:
    return [node for node in nodes.values() if node["@type"] in ACTIONS]


def test_the_root_conforms_to_the_profile_which_is_described_and_the_descriptor_to_ro_crate(
    nodes: Nodes,
) -> None:
    for found in (nodes, by_id(reference_texts()[METADATA])):
        assert found["./"]["conformsTo"] == {"@id": PROFILE}
        assert found[PROFILE]["@type"] == "CreativeWork"
        assert found[PROFILE]["name"] and PROFILE.endswith(f"/{found[PROFILE]['version']}")
        assert found[METADATA]["conformsTo"] == {"@id": CONFORMS_TO}


def test_each_run_and_each_failed_segment_is_an_activity_that_the_root_mentions(
    nodes: Nodes,
) -> None:
    found = {node["@id"] for node in actions(nodes)}
    assert (
        found
        == {MEASURED, f"{MEASURED}-segment-0", SIMULATED}
        == set(named(nodes["./"], "mentions"))
    )


def test_every_activity_has_an_instrument_that_is_described_software(nodes: Nodes) -> None:
    for action in [*actions(nodes), *actions(by_id(reference_texts()[METADATA]))]:
        assert action["name"] and action["description"]
        assert listed(action["instrument"])
    for action in actions(nodes):
        for id_ in named(action, "instrument"):
            assert nodes[id_]["@type"] == "SoftwareApplication"
            assert nodes[id_]["softwareVersion"].startswith("0.1.0, commit ")
            needed = [nodes[one] for one in named(nodes[id_], "softwareRequirements")]
            assert all(one["softwareVersion"] and one["url"] for one in needed)


def test_what_an_activity_read_and_left_is_in_the_archive_or_described(
    nodes: Nodes, files: dict[str, bytes]
) -> None:
    run = nodes[MEASURED]
    folder = "results/small/runs/resnet50-a100-n002-lbs0256-s0010009/1"
    assert {"campaigns/small.yaml", f"{folder}/spec.json"} <= set(named(run, "object"))
    results = set(named(run, "result"))
    assert results <= set(files)
    assert {f"{folder}/{name}" for name in ("history.parquet", "provenance.json")} <= results
    for kind in ("energy", "traces"):
        assert f"results/small/{kind}/resnet50-a100-n002-lbs0256-s0010009/1.parquet" in results
    assert f"{folder}/spec.json" not in results
    (dataset,) = (nodes[one] for one in named(run, "object") if one.startswith("#dataset"))
    assert dataset["identifier"] == "sha256:" + "d" * 64


def test_results_of_one_run_are_not_those_of_another(nodes: Nodes) -> None:
    assert not set(named(nodes[MEASURED], "result")) & set(named(nodes[SIMULATED], "result"))


def test_a_training_has_times_agent_status_and_environment(nodes: Nodes) -> None:
    run = nodes[MEASURED]
    assert run["startTime"] == "2023-11-14T22:13:20+00:00"
    assert run["endTime"] == "2023-11-14T22:17:20+00:00"
    assert nodes[run["agent"]["@id"]] == {
        "@id": "#Grace-Hopper",
        "@type": "Person",
        "name": "Grace Hopper",
    }
    assert run["actionStatus"] == COMPLETED and "error" not in run
    variable = nodes[run["environment"]["@id"]]
    assert (variable["@type"], variable["name"], variable["value"]) == (
        "PropertyValue",
        "OMP_NUM_THREADS",
        "4",
    )
    assert CONTEXT[1]["environment"].startswith("https://w3id.org/ro/terms/workflow-run#")


def test_a_segment_that_failed_has_its_error_and_no_result(nodes: Nodes) -> None:
    segment = nodes[f"{MEASURED}-segment-0"]
    assert segment["@type"] == "ActivateAction" and "result" not in segment
    assert (segment["actionStatus"], segment["error"]) == (FAILED, "a disk was full")
    assert re.fullmatch(ISO_8601, segment["endTime"])


def test_a_simulation_says_so_and_states_no_time_of_its_made_up_clock(nodes: Nodes) -> None:
    run = nodes[SIMULATED]
    assert run["name"].startswith("Simulation: ")
    assert "nothing was trained or measured" in run["description"]
    assert not {"startTime", "endTime"} & set(run)


def test_nobody_is_named_who_was_not_given(tmp_path: Path) -> None:
    found = by_id(content(make_project(tmp_path / "project").export())[METADATA])
    assert not [node for node in actions(found) if "agent" in node]


def test_everything_that_is_named_is_described(nodes: Nodes) -> None:
    keys = ("instrument", "object", "result", "environment", "agent")
    for action in actions(nodes):
        for key in keys:
            assert set(named(action, key) if key in action else []) <= set(nodes), key


def a_run(spec: dict[str, Any] | None = None, **provenance: Any) -> dict[str, dict[str, Any]]:
    run = ArchivedRun("a", 1, spec or {"model": "mine"}, provenance, ("c.yaml",), ("r",))
    return {node["@id"]: node for node in activities_of([run]).nodes}


def test_a_program_of_its_authors_is_an_instrument_beside_scalewatt() -> None:
    found = a_run(command=["python", "train.py"])
    program, tool = (found[one] for one in named(found["#run-a-1"], "instrument"))
    assert program["name"] == "mine" and "python train.py" in program["description"]
    assert tool["name"] == "scalewatt"


def test_a_registered_recording_is_not_said_to_be_trained_here() -> None:
    action = a_run(registered=True, packages={}, segments=[{"segment": 0, "outcome": "finished"}])[
        "#run-a-1"
    ]
    assert action["name"] == "Registered recording: a repeat 1"
    assert "by other programs than scalewatt" in action["description"]
    assert not {"startTime", "endTime"} & set(action)


@pytest.mark.parametrize("dataset", [external_command.DATASET, registered_campaign.DATASET])
def test_data_that_nobody_named_are_not_among_what_was_read(dataset: dict[str, str]) -> None:
    found = a_run({"model": "mine", "dataset": dataset})
    assert named(found["#run-a-1"], "object") == ["c.yaml"]


def test_the_weights_that_a_run_began_from_are_among_what_it_read() -> None:
    start = {"configuration": "before", "repeat": 2, "spec_sha256": "0" * 64}
    found = a_run({"model": "mine", "initial_weights": start})
    assert "#weights-before-2" in named(found["#run-a-1"], "object")


def test_a_segment_that_was_killed_failed_and_one_that_stopped_did_not() -> None:
    segments = [
        {"segment": 0, "outcome": "running"},
        {"segment": 1, "outcome": "stopped"},
        {"segment": 2, "outcome": "finished"},
    ]
    found = a_run(segments=segments)
    assert found["#run-a-1-segment-0"]["error"] == "killed"
    assert not {"#run-a-1-segment-1", "#run-a-1-segment-2"} & set(found)


def test_the_published_rows_say_how_their_scaling_model_was_made() -> None:
    found = by_id(reference_texts()[METADATA])
    (action,) = actions(found)
    assert action["result"] == {"@id": "scaling_model.json"}
    assert found["./"]["mentions"] == {"@id": action["@id"]}
    assert re.fullmatch(ISO_8601, action["endTime"])
