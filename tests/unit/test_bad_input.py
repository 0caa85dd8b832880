"""Bad input never starts a job: one message, exit code 1, no traceback, nothing created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaign_files import DELETE, DEMO, LOCAL, PAPER, Edits, Refused, demo, edited, write_yaml

from scalewatt.campaign.validation import read_yaml
from scalewatt.cli import main
from scalewatt.errors import InputError


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


def series(name: str, **values: Any) -> Edits:
    """Edits of one series of the demo."""
    return {("series", name, key): value for key, value in values.items()}


def test_the_demo_and_the_paper_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(DEMO), str(PAPER)]) == 0
    out, err = capsys.readouterr()
    assert "campaign 'demo'" in out and "campaign 'paper'" in out
    assert err == ""


# what was given, and what the message must name: key, value, what is allowed
GEOMETRY = {
    "a global batch that does not divide": (
        series("resnet50-full-gbs128", gpus=[2, 3]),
        ["series.resnet50-full-gbs128.global_batch_size", "128", "3 GPUs", "allowed", "1, 2"],
    ),
    "a GPU count that does not fit the nodes": (
        series("resnet50-full-lbs64", gpus=[1, 2, 6]),
        ["series.resnet50-full-lbs64.gpus", "6", "nodes of 4", "up to 4", "multiple of 4"],
    ),
    "more GPUs than the device has": (
        series("resnet50-full-lbs64", device="a100", gpus=[512]),
        ["series.resnet50-full-lbs64.gpus", "512", "a100", "at most 256"],
    ),
    "a local batch above the known limit": (
        series("resnet50-full-lbs64", local_batch_size=2048),
        ["series.resnet50-full-lbs64", "local batch size", "2048", "at most 1024"],
    ),
    "a global batch whose local one is above the known limit": (
        series("resnet50-full-gbs64", global_batch_size=4096),
        ["series.resnet50-full-gbs64", "batch size", "4096", "at 1 GPU", "at most 1024"],
    ),
    "a local batch above the limit of one phase": (
        series("fourcastnet-finetune-lbs4", device="h100", local_batch_size=8, gpus=[4]),
        ["fourcastnet-finetune-lbs4", "8", "h100", "fourcastnet.finetune", "at most 4"],
    ),
    "both batch sizes": (
        series("resnet50-full-lbs64", global_batch_size=128),
        ["series.resnet50-full-lbs64", "local_batch_size and global_batch_size", "either"],
    ),
    "neither batch size": (
        series("resnet50-full-lbs64", local_batch_size=DELETE),
        ["series.resnet50-full-lbs64", "no batch size", "local_batch_size", "global_batch_size"],
    ),
    "more than the whole dataset": (
        series("resnet50-scaled-gbs64", gpus=[1, 2, 4]),
        ["series.resnet50-scaled-gbs64.dataset_fraction", "n/2", "4 GPUs", "at most 1"],
    ),
    "a fixed fraction above 1": (
        series("resnet50-full-lbs64", dataset_fraction="3/2"),
        ["series.resnet50-full-lbs64.dataset_fraction", "3/2", "at most 1"],
    ),
    "a part of whole years": (
        series("fourcastnet-pretrain-lbs4", dataset_fraction="n/4"),
        ["series.fourcastnet-pretrain-lbs4.dataset_fraction", "n/4", "allowed: 1"],
    ),
    "a fraction that leaves no sample for a GPU": (
        series("resnet50-full-lbs64", dataset_fraction="1/1000"),
        ["series.resnet50-full-lbs64.dataset_fraction", "1 training samples", "at least one"],
    ),
    "two series that disagree on the repeats": (
        series("resnet50-full-gbs128", repeats=2),
        [
            "series.resnet50-full-gbs128.repeats: 2",
            "series.resnet50-full-lbs64 asks for 1",
            "resnet50-local-n002-lbs0064-full",
            "the same number",
        ],
    ),
    "fine-tuning without its pre-training": (
        series("fourcastnet-finetune-lbs4", local_batch_size=1),
        ["fourcastnet-finetune-lbs4", "1 GPUs", "fourcastnet.pretrain-local-n001-lbs0001-full"],
    ),
    "fine-tuning more often than its pre-training": (
        series("fourcastnet-finetune-lbs4", repeats=2),
        ["fourcastnet-finetune-lbs4", "fourcastnet.pretrain-local-n001-lbs0004-full", "2 repeats"],
    ),
    "a last batch of one small image": (
        series("resnet50-full-lbs64", local_batch_size=718),
        [
            "series.resnet50-full-lbs64",
            "1437 per GPU in batches of 718",
            "image_size 32",
            "allowed",
        ],
    ),
    "batches of one small image": (
        series("resnet50-full-lbs64", local_batch_size=1),
        ["series.resnet50-full-lbs64", "one image", "batches of 1"],
    ),
    "patches that do not fit the grid": (
        {("models", "fourcastnet.pretrain", "patch_size"): 5},
        ["patch_size 5", "[32, 64]", "divisor of both"],
    ),
    "a width that the spectral blocks do not divide": (
        {("models", "fourcastnet.pretrain", "num_blocks"): 5},
        ["embed_dim 64", "num_blocks 5"],
    ),
}

UNKNOWN = {
    "a key of the campaign": (
        {("sampling_period",): 1},
        ["unknown key 'sampling_period'", "allowed", "did you mean 'sampling_period_s'?"],
    ),
    "a key of a series": (
        series("resnet50-full-lbs64", repeat=5),
        ["series.resnet50-full-lbs64", "'repeat'", "did you mean 'repeats'?"],
    ),
    "a key of a model": (
        {("models", "resnet50", "epoch"): 5},
        ["models.resnet50", "'epoch'", "did you mean 'epochs'?"],
    ),
    "a key of a series' settings": (
        series("resnet50-full-lbs64", settings={"momentun": 0.8}),
        ["series.resnet50-full-lbs64.settings", "'momentun'", "did you mean 'momentum'?"],
    ),
    "a setting of another model": (
        series("resnet50-full-lbs64", settings={"patch_size": 4}),
        ["series.resnet50-full-lbs64.settings", "'patch_size'", "allowed", "momentum"],
    ),
    "a key of a dataset": (
        {("datasets", "scans", "class"): 10},
        ["datasets.scans", "'class'", "did you mean 'classes'?"],
    ),
    "a figure": (
        {("figures", "figure8"): {"series": ["resnet50-full-lbs64"]}},
        ["figures", "'figure8'", "allowed", "table1", "did you mean 'figure"],
    ),
    "a key of a figure": (
        {("figures", "figure2"): {"serie": ["resnet50-full-lbs64"]}},
        ["figures.figure2", "'serie'", "did you mean 'series'?"],
    ),
    "a key that is a number": ({(1,): 1}, ["unknown key '1'", "allowed"]),
    "a model": (
        series("resnet50-full-lbs64", model="resnet5"),
        ["series.resnet50-full-lbs64.model", '"resnet5"', "allowed", "did you mean 'resnet50'?"],
    ),
    "an entry of models": (
        {("models", "fourcastnet.pretrian"): {"dataset": "waves"}},
        ["models", "'fourcastnet.pretrian'", "did you mean 'fourcastnet.pretrain'?"],
    ),
    "a device": (
        series("resnet50-full-lbs64", device="a10"),
        ["series.resnet50-full-lbs64.device", "'a10'", "h100", "did you mean 'a100'?"],
    ),
    "a phase": (
        series("fourcastnet-pretrain-lbs4", phase="pretrian"),
        ["series.fourcastnet-pretrain-lbs4.phase", '"pretrian"', "did you mean 'pretrain'?"],
    ),
    "a phase that the model has not": (
        series("resnet50-full-lbs64", phase="pretrain"),
        ["series.resnet50-full-lbs64.phase", "'pretrain'", "resnet50", "allowed: train"],
    ),
    "no phase where there are two": (
        series("fourcastnet-pretrain-lbs4", phase=DELETE),
        ["series.fourcastnet-pretrain-lbs4.phase", "allowed: pretrain, finetune"],
    ),
    "a dataset": (
        {("models", "resnet50", "dataset"): "scan"},
        ["'scan'", "allowed: scans, waves", "did you mean 'scans'?"],
    ),
    "a dataset in the settings of a series": (
        series("resnet50-full-lbs64", settings={"dataset": "imagenet"}),
        ["series.resnet50-full-lbs64", "'imagenet'", "allowed: scans, waves"],
    ),
    "a dataset of another model": (
        {("models", "resnet50", "dataset"): "waves"},
        ["resnet50", "format imagenet", "'waves'", "era5"],
    ),
    "a model without an entry": (
        {("models", "resnet50"): DELETE},
        ["series.resnet50-full-lbs64", "models", "'resnet50'"],
    ),
    "a series in a figure": (
        {("figures", "figure2", "series"): ["resnet50-full-lbs46"]},
        ["figures.figure2", "'resnet50-full-lbs46'", "did you mean 'resnet50-full-lbs64'?"],
    ),
    "a series in Table 1": (
        {("figures", "table1", "points"): [{"series": "resnet50-ful-lbs64", "gpus": 1}]},
        ["figures.table1", "'resnet50-ful-lbs64'", "did you mean 'resnet50-full-lbs64'?"],
    ),
    "a point in a figure": (
        {("figures", "figure5", "points"): [{"series": "resnet50-full-lbs64", "gpus": 8}]},
        ["figures.figure5", "series.resnet50-full-lbs64", "8 GPUs", "allowed: 1, 2, 4"],
    ),
    "a protocol": (
        {("protocol",): "papers"},
        ["protocol", '"papers"', "allowed: paper, corrected", "did you mean 'paper'?"],
    ),
    "a precision": (
        {("models", "fourcastnet.pretrain", "precision"): "fp-16"},
        ["models.fourcastnet.pretrain.precision", '"fp-16"', "did you mean 'fp16'?"],
    ),
}

VALUES = {
    "no protocol": ({("protocol",): DELETE}, ["missing key 'protocol'", "paper", "corrected"]),
    "no name": ({("name",): DELETE}, ["missing key 'name'"]),
    "a name that is no folder's": (
        {("name",): "../demo"},
        ["name", '"../demo"', "lower-case letters, digits and hyphens"],
    ),
    "a model without a dataset": (
        {("models", "resnet50", "dataset"): DELETE},
        ["models.resnet50", "missing key 'dataset'"],
    ),
    "one GPU count instead of a list": (
        series("resnet50-full-lbs64", gpus=4),
        ["series.resnet50-full-lbs64.gpus", "4", "array"],
    ),
    "no GPU count": (series("resnet50-full-lbs64", gpus=[]), ["series.resnet50-full-lbs64.gpus"]),
    "zero GPUs": (
        series("resnet50-full-lbs64", gpus=[0]),
        ["series.resnet50-full-lbs64.gpus[0]", "0 is too small", "1 or more"],
    ),
    "a GPU count twice": (
        series("resnet50-full-lbs64", gpus=[1, 1]),
        ["series.resnet50-full-lbs64.gpus"],
    ),
    "a batch size in quotes": (
        series("resnet50-full-lbs64", local_batch_size="64"),
        ["series.resnet50-full-lbs64.local_batch_size", '"64"', "integer"],
    ),
    "a batch of nothing": (
        series("resnet50-full-lbs64", local_batch_size=0),
        ["series.resnet50-full-lbs64.local_batch_size", "0 is too small", "1 or more"],
    ),
    "no repeats": (
        series("resnet50-full-lbs64", repeats=0),
        ["series.resnet50-full-lbs64.repeats", "0 is too small", "1 or more"],
    ),
    "a learning rate of 0": (
        {("models", "resnet50", "base_learning_rate"): 0},
        ["models.resnet50.base_learning_rate", "0 is too small", "more than 0"],
    ),
    "a momentum of 1": (
        {("models", "resnet50", "momentum"): 1},
        ["models.resnet50.momentum", "1 is too large", "less than 1"],
    ),
    "a dataset fraction as a decimal": (
        series("resnet50-full-lbs64", dataset_fraction=0.5),
        ["series.resnet50-full-lbs64.dataset_fraction", "0.5", "n/256"],
    ),
    "a dataset fraction of n/0": (
        series("resnet50-full-lbs64", dataset_fraction="n/0"),
        ["series.resnet50-full-lbs64.dataset_fraction", '"n/0"', "n/256"],
    ),
    "a GPU count with a decimal point": (
        series("resnet50-full-lbs64", gpus=[1.0, 2.0]),
        ["series.resnet50-full-lbs64.gpus[0]", "1.0", "integer"],
    ),
    "a local batch size with a decimal point": (
        series("resnet50-full-lbs64", local_batch_size=64.0),
        ["series.resnet50-full-lbs64.local_batch_size", "64.0", "integer"],
    ),
    "repeats with a decimal point": (
        series("resnet50-full-lbs64", repeats=2.0),
        ["series.resnet50-full-lbs64.repeats", "2.0", "integer"],
    ),
    "epochs with a decimal point": (
        {("models", "resnet50", "epochs"): 5.0},
        ["models.resnet50.epochs", "5.0", "integer"],
    ),
    "an infinite learning rate": (
        {("models", "resnet50", "base_learning_rate"): float("inf")},
        ["models.resnet50.base_learning_rate"],
    ),
    "a sampling period that is no number": (
        {("sampling_period_s",): float("nan")},
        ["sampling_period_s"],
    ),
    "training years in the wrong order": (
        {("datasets", "waves", "train_years"): [1982, 1979]},
        ["train_years", "1982", "1979"],
    ),
    "test years in the wrong order": (
        {("datasets", "waves", "test_years"): [1985, 1984]},
        ["test_years", "1985", "1984"],
    ),
    "fine-tuning another network than was pre-trained": (
        {("models", "fourcastnet.finetune", "embed_dim"): 128},
        ["fine-tun", "embed_dim", "128", "64"],
    ),
}

CASES = GEOMETRY | UNKNOWN | VALUES


@pytest.mark.parametrize(("edits", "words"), CASES.values(), ids=CASES)
def test_a_campaign_is_refused_for(edits: Edits, words: list[str], refused: Refused) -> None:
    message = refused.campaign(edits)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


def test_two_series_must_not_disagree_on_the_validation_set_of_one_configuration(
    refused: Refused,
) -> None:
    # Both take 359 training samples at one GPU, but 90 and 89 for validation.
    edits = {
        **series("resnet50-scaled-lbs64", gpus=[1], dataset_fraction="n/4"),
        **series("resnet50-full-gbs64", gpus=[1], dataset_fraction="359/1437"),
        ("figures",): {},
    }
    message = refused.campaign(edits)
    for word in ("resnet50-full-gbs64", "resnet50-scaled-lbs64", "lbs0064-s0000359"):
        assert word in message


def test_a_whole_dataset_may_be_written_with_a_decimal_point() -> None:
    name = "resnet50-full-lbs64"
    assert demo(series(name, dataset_fraction=1.0)).configurations == demo().configurations


def test_a_last_batch_of_one_larger_image_is_accepted() -> None:
    name = "resnet50-full-lbs64"
    settings = {("series", name, "settings"): {"image_size": 64}}
    campaign = demo({**settings, **series(name, local_batch_size=718)})
    assert campaign.configurations[campaign.series[name].points[1]].updates_per_epoch == 3


FILES = {
    "a key given twice": (DEMO.read_text() + "\nname: other\n", ["'name'", "twice"]),
    "a key given twice deep inside": (
        DEMO.read_text().replace("classes: 10}", "classes: 10, classes: 11}"),
        ["'classes'", "twice"],
    ),
    "no YAML": ("name: [demo\nprotocol: paper\n", ["mine.yaml"]),
    "a tab": ("name: demo\n\tprotocol: paper\n", ["mine.yaml"]),
    "an unknown alias": (DEMO.read_text().replace("*small", "*smal"), ["smal"]),
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
    "a launcher's unknown placeholder": (
        {("launcher",): "mpiexec -n {ranks}"},
        ["launcher", "{ranks}", "{gpus}", "{nodes}"],
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
    path = write_yaml(refused.folder / "c.yaml", edited({limit: {"resnet50": 32}}, LOCAL))
    message = refused.message(DEMO, "--cluster", path)
    assert "resnet50-full-lbs64" in message and "64" in message and "at most 32" in message


def test_a_spec_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    from scalewatt.campaign.spec import read_spec

    for text in ("", "[]", '{"spec_version": 99}', "{"):
        path = tmp_path / "spec.json"
        path.write_text(text)
        with pytest.raises(InputError, match=r"spec\.json"):
            read_spec(path)
