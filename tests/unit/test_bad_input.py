"""Bad input never starts a job: one message, exit code 1, no traceback, nothing created."""

from __future__ import annotations

from pathlib import Path

import pytest
from bad_campaigns import GEOMETRY, UNKNOWN, VALUES, series
from campaign_files import DELETE, DEMO, LOCAL, PAPER, Edits, Refused, demo, edited, write_yaml

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


def test_the_demo_and_the_paper_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(DEMO), str(PAPER)]) == 0
    out, err = capsys.readouterr()
    assert "campaign 'demo'" in out and "campaign 'paper'" in out
    assert err == ""


CASES = GEOMETRY | UNKNOWN | VALUES


@pytest.mark.parametrize(("edits", "words"), CASES.values(), ids=CASES)
def test_a_campaign_is_refused_for(edits: Edits, words: list[str], refused: Refused) -> None:
    message = refused.campaign(edits)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_two_series_must_not_disagree_on_the_validation_set_of_one_configuration(
    refused: Refused,
) -> None:
    # Both take 122 training samples at one GPU, but 63 and 64 for validation.
    edits = {
        **series("resnet50-scaled-lbs16", gpus=[1], dataset_fraction="122/384"),
        **series("resnet50-full-gbs16", gpus=[1], dataset_fraction="8/25"),
        ("figures",): {},
    }
    message = refused.campaign(edits)
    for word in ("resnet50-full-gbs16", "resnet50-scaled-lbs16", "lbs0016-s0000122"):
        assert word in message


def test_a_whole_dataset_may_be_written_with_a_decimal_point() -> None:
    name = "resnet50-full-lbs16"
    assert demo(series(name, dataset_fraction=1.0)).configurations == demo().configurations


def test_a_last_batch_of_one_larger_image_is_accepted() -> None:
    name = "resnet50-full-lbs16"
    settings = {("series", name, "settings"): {"image_size": 64}}
    campaign = demo({**settings, **series(name, local_batch_size=383)})
    assert campaign.configurations[campaign.series[name].points[1]].updates_per_epoch == 2


FILES = {
    "a key given twice": (DEMO.read_text() + "\nname: other\n", ["'name'", "twice"]),
    "a key given twice deep inside": (
        DEMO.read_text().replace("classes: 10}", "classes: 10, classes: 11}"),
        ["'classes'", "twice"],
    ),
    "no YAML": ("name: [demo\nprotocol: paper\n", ["mine.yaml"]),
    "a tab": ("name: demo\n\tprotocol: paper\n", ["mine.yaml"]),
    "an unknown alias": (DEMO.read_text().replace("*small", "*smal"), ["line", "alias"]),
    "a Python object": ("name: !!python/object/apply:os.getcwd []\n", ["python"]),
    "nothing": ("", ["YAML mapping"]),
    "only comments": ("# nothing yet\n", ["YAML mapping"]),
    "a list": ("- name: demo\n", ["YAML mapping"]),
    "bytes": (b"\xff\xfe\x00\x01\x80", ["UTF-8"]),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES)
def test_a_file_is_refused_for(text: str | bytes, words: list[str], refused: Refused) -> None:
    message = refused.text(text)
    assert all(word in message for word in words), message


def test_a_file_that_is_not_there_is_named(refused: Refused) -> None:
    message = refused.message(refused.folder / "nowhere.yaml")
    assert "nowhere.yaml" in message and "No such file" in message


def test_a_folder_is_no_campaign(refused: Refused) -> None:
    assert "directory" in refused.message(refused.folder)


def test_without_a_file_the_campaign_of_this_folder_is_meant(
    refused: Refused,
) -> None:
    assert "config.yaml: cannot be read" in refused.message()


def test_one_bad_file_of_two_prints_no_table(refused: Refused) -> None:
    path = write_yaml(refused.folder / "mine.yaml", edited({("protocol",): "none"}))
    assert str(path) in refused.message(DEMO, path)


def test_bad_input_prints_no_json(refused: Refused) -> None:
    path = write_yaml(refused.folder / "mine.yaml", edited({("protocol",): "none"}))
    assert str(path) in refused.message(path, "--json")


def test_a_key_merged_and_then_overridden_is_not_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(path)["b"] == {"x": 3, "y": 2}


def test_a_merged_mapping_may_be_merged_again_from_further_out(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("a: &a {x: 1}\nb: {c: {d: &d {<<: *a, x: 2}}}\ne: {<<: *d, z: 3}\n")
    assert read_yaml(path)["e"] == {"x": 2, "z": 3}


CLUSTERS = {
    "an unknown key": (
        {("work_rot",): "w"},
        ["unknown key 'work_rot'", "did you mean 'work_root'?"],
    ),
    "an unknown key of a device": (
        {("devices", "local", "gpu_per_node"): 4},
        ["devices.local", "'gpu_per_node'", "did you mean 'gpus_per_node'?"],
    ),
    "an unknown key of a power": (
        {("devices", "local", "cpu", "rated"): 150},
        ["devices.local.cpu", "'rated'", "did you mean 'rated_w'?"],
    ),
    "no launcher": ({("launcher",): DELETE}, ["missing key 'launcher'"]),
    "no devices": ({("devices",): {}}, ["devices"]),
    "no GPUs on a node": (
        {("devices", "local", "gpus_per_node"): 0},
        ["devices.local.gpus_per_node", "0 is too small", "1 or more"],
    ),
    "a word where it is yes or no": (
        {("results_only",): "maybe"},
        ["results_only", '"maybe"', "boolean"],
    ),
    "a carbon intensity without its source": (
        {("carbon_intensity",): {"value": 300}},
        ["carbon_intensity", "missing key 'source'"],
    ),
    "a carbon intensity without a value or a file": (
        {("carbon_intensity",): {"source": "the grid"}},
        ["carbon_intensity", "missing key 'value' or 'file'", "CSV file"],
    ),
    "a carbon file without a name": (
        {("carbon_intensity",): {"file": "", "source": "the grid"}},
        ["carbon_intensity.file"],
    ),
    "a launcher's unknown placeholder": (
        {("launcher",): "mpiexec -n {ranks}"},
        ["launcher", "{ranks}", "{gpus}", "{nodes}"],
    ),
    "a name that leads out of its folder": (
        {("cluster",): "../other"},
        ["cluster", '"../other"'],
    ),
    "a site that takes less than its computers": (
        {("pue", "value"): 0.5},
        ["pue.value", "0.5", "1 or more"],
    ),
    "a PUE in percent": ({("pue", "value"): 105}, ["pue.value", "105", "10"]),
    "a rated power in milliwatts": (
        {("devices", "local", "cpu", "rated_w"): 150000},
        ["devices.local.cpu.rated_w", "150000", "10000"],
    ),
    "a price in no currency": (
        {("price",): {"value": 0.2, "currency": "", "source": "x"}},
        ["price.currency"],
    ),
    "no folder of work": ({("work_root",): ""}, ["work_root"]),
    "a partition that is an option of Slurm": (
        {("devices", "local", "partition"): "--wrap=x"},
        ["devices.local.partition", "--wrap=x"],
    ),
    "a GPU's name with a space": (
        {("devices", "local", "gres"): "gpu --x"},
        ["devices.local.gres", "gpu --x"],
    ),
    "an account that is an option of Slurm": (
        {("account",): "--uid=0"},
        ["account", "--uid=0"],
    ),
    "a pattern of nodes that does not close": (
        {("exclude_nodes",): ["n0117", "n[0203-"]},
        ["exclude_nodes[1]", "n[0203-"],
    ),
    "a time of an update that never ends": (
        {("devices", "local", "step_time"): {"resnet50": {"base_s": 1e308, "per_sample_s": 1}}},
        ["step_time", "base_s", "86400"],
    ),
    "a launcher's unbalanced brace": ({("launcher",): "mpiexec -n {gpus"}, ["launcher"]),
    "a launcher's part of a placeholder": (
        {("launcher",): "mpiexec -n {gpus.count} {nodes[0]}"},
        ["launcher", "{gpus}", "{nodes}"],
    ),
}


@pytest.mark.parametrize(("edits", "words"), CLUSTERS.values(), ids=CLUSTERS)
def test_a_cluster_file_is_refused_for(edits: Edits, words: list[str], refused: Refused) -> None:
    message = refused.cluster(edits)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


@pytest.mark.parametrize("key", ["name", "protocol", "series", "models", "datasets", "figures"])
def test_a_key_of_a_campaign_in_a_cluster_file_is_told_apart(key: str, refused: Refused) -> None:
    message = refused.cluster({(key,): edited({})[key]})
    assert f"'{key}' is a key of a campaign" in message
    assert "--config campaign=FILE" in message


def test_a_cluster_file_that_is_not_there_is_named(refused: Refused) -> None:
    message = refused.message(DEMO, "--cluster", refused.folder / "nowhere.yaml")
    assert "nowhere.yaml" in message


def test_a_campaign_is_no_cluster_file(refused: Refused) -> None:
    assert "key of a campaign" in refused.message(DEMO, "--cluster", DEMO)


def test_a_cluster_file_is_no_campaign(refused: Refused) -> None:
    assert "unknown key" in refused.message(LOCAL)


def test_the_given_clusters_limits_count(refused: Refused) -> None:
    limit = ("devices", "local", "max_local_batch_size")
    path = write_yaml(refused.folder / "c.yaml", edited({limit: {"resnet50": 8}}, LOCAL))
    message = refused.message(DEMO, "--cluster", path)
    assert "resnet50-full-lbs16" in message and "16" in message and "at most 8" in message


def test_a_spec_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    from scalewatt.campaign.run_spec import read_spec

    for text in ("", "[]", '{"spec_version": 99}', "{"):
        path = tmp_path / "spec.json"
        path.write_text(text)
        with pytest.raises(InputError, match=r"spec\.json"):
            read_spec(path)


AMOUNTS = {
    "a deadline in hours": (("plan", "--deadline-h", "24h"), "a number of hours, such as 24"),
    "a deadline in days": (("plan", "--deadline-h", "1d"), "a number of hours, such as 24"),
    "an energy": (("plan", "--energy-kwh", "200kWh"), "a number of kWh, such as 200"),
    "a deadline of advice": (("advise", "--deadline-h", "24 h"), "a number of hours, such as 24"),
    "a carbon budget": (("advise", "--carbon-kg", "50kg"), "a number of kg, such as 50"),
    "a pause": (("status", "--watch", "1min"), "a number of seconds, such as 60"),
    "a length": (("probe", "--seconds", "5min"), "a number of seconds, such as 300"),
    "a period": (("probe", "--sampling-period", "1s"), "a number of seconds, such as 0.5"),
}


@pytest.mark.parametrize(("arguments", "allowed"), AMOUNTS.values(), ids=AMOUNTS)
def test_an_amount_with_its_unit_is_refused_with_an_example(
    arguments: tuple[str, ...], allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(list(arguments))
    _, option, given = arguments
    assert f"argument {option}: '{given}'; allowed: {allowed}\n" in capsys.readouterr().err
