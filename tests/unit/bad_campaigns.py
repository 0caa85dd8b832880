"""Edits of the demo that a campaign must be refused for, by what is wrong."""

from __future__ import annotations

from typing import Any

from campaign_files import DELETE, Edits


def series(name: str, **values: Any) -> Edits:
    """Edits of one series of the demo."""
    return {("series", name, key): value for key, value in values.items()}


# what was given, and what the message must name: key, value, what is allowed
GEOMETRY = {
    "a global batch that does not divide": (
        series("resnet50-full-gbs32", gpus=[2, 3]),
        ["series.resnet50-full-gbs32.global_batch_size", "32", "3 GPUs", "allowed", "1, 2"],
    ),
    "a GPU count that does not fit the nodes": (
        series("resnet50-full-lbs16", gpus=[1, 2, 6]),
        ["series.resnet50-full-lbs16.gpus", "6", "nodes of 4", "up to 4", "multiple of 4"],
    ),
    "more GPUs than the device has": (
        series("resnet50-full-lbs16", device="a100", gpus=[512]),
        ["series.resnet50-full-lbs16.gpus", "512", "a100", "at most 256"],
    ),
    "a local batch above the known limit": (
        series("resnet50-full-lbs16", local_batch_size=2048),
        ["series.resnet50-full-lbs16", "local batch size", "2048", "at most 1024"],
    ),
    "a global batch whose local one is above the known limit": (
        series("resnet50-full-gbs16", global_batch_size=4096),
        ["series.resnet50-full-gbs16", "batch size", "4096", "at 1 GPU", "at most 1024"],
    ),
    "a local batch above the limit of one phase": (
        series("fourcastnet-finetune-lbs4", device="h100", local_batch_size=8, gpus=[4]),
        ["fourcastnet-finetune-lbs4", "8", "h100", "fourcastnet.finetune", "at most 4"],
    ),
    "both batch sizes": (
        series("resnet50-full-lbs16", global_batch_size=128),
        ["series.resnet50-full-lbs16", "local_batch_size and global_batch_size", "either"],
    ),
    "neither batch size": (
        series("resnet50-full-lbs16", local_batch_size=DELETE),
        ["series.resnet50-full-lbs16", "no batch size", "local_batch_size", "global_batch_size"],
    ),
    "more than the whole dataset": (
        series("resnet50-scaled-gbs16", gpus=[1, 2, 4]),
        ["series.resnet50-scaled-gbs16.dataset_fraction", "n/2", "4 GPUs", "at most 1"],
    ),
    "a fixed fraction above 1": (
        series("resnet50-full-lbs16", dataset_fraction="3/2"),
        ["series.resnet50-full-lbs16.dataset_fraction", "3/2", "at most 1"],
    ),
    "a part of whole years": (
        series("fourcastnet-pretrain-lbs4", dataset_fraction="n/4"),
        ["series.fourcastnet-pretrain-lbs4.dataset_fraction", "n/4", "allowed: 1"],
    ),
    "a fraction that leaves no sample for a GPU": (
        series("resnet50-full-lbs16", dataset_fraction="1/1000"),
        ["series.resnet50-full-lbs16.dataset_fraction", "0 training samples", "at least one"],
    ),
    "two series that disagree on the seeds": (
        series("resnet50-full-gbs32", seeds="varied"),
        [
            "series.resnet50-full-gbs32.seeds: varied",
            "series.resnet50-full-lbs16",
            "same",
            "resnet50-local-n002-lbs0016-full",
            "allowed",
        ],
    ),
    "varied seeds beyond the largest": (
        {
            **series("resnet50-scaled-gbs32", repeats=3, seeds="varied", gpus=[1]),
            ("seed",): 4294967294,
        },
        ["series.resnet50-scaled-gbs32.seeds", "4294967296", "at most 4294967293"],
    ),
    "seeds of another word": (
        series("resnet50-full-lbs16", seeds="different"),
        ["series.resnet50-full-lbs16.seeds", "different", "same", "varied"],
    ),
    "two series that disagree on the repeats": (
        series("resnet50-full-gbs32", repeats=2),
        [
            "series.resnet50-full-gbs32.repeats: 2",
            "series.resnet50-full-lbs16 asks for 1",
            "resnet50-local-n002-lbs0016-full",
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
        series("resnet50-full-lbs16", local_batch_size=383),
        [
            "series.resnet50-full-lbs16",
            "384 per GPU in batches of 383",
            "image_size 16",
            "allowed",
        ],
    ),
    "batches of one small image": (
        series("resnet50-full-lbs16", local_batch_size=1),
        ["series.resnet50-full-lbs16", "one image", "batches of 1"],
    ),
    "patches that do not fit the grid": (
        {("models", "fourcastnet.pretrain", "patch_size"): 5},
        ["patch_size 5", "[32, 64]", "divisor of both"],
    ),
    "more processes than the one machine is for": (
        series("resnet50-full-lbs16", gpus=[1, 8]),
        ["series.resnet50-full-lbs16.gpus", "8", "local", "at most 4"],
    ),
    "more scans than there are": (
        {("datasets", "scans", "train_samples"): 5000},
        ["dataset 'scans'", "5200 samples", "at most 1797"],
    ),
    "more initial conditions than the test year has room for": (
        {("models", "fourcastnet.pretrain", "initial_condition_spacing"): 4},
        ["36 initial conditions", "4 steps apart", "120 times", "at most 30"],
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
        series("resnet50-full-lbs16", repeat=5),
        ["series.resnet50-full-lbs16", "'repeat'", "did you mean 'repeats'?"],
    ),
    "a key of a model": (
        {("models", "resnet50", "epoch"): 5},
        ["models.resnet50", "'epoch'", "did you mean 'epochs'?"],
    ),
    "a key of a series' settings": (
        series("resnet50-full-lbs16", settings={"momentun": 0.8}),
        ["series.resnet50-full-lbs16.settings", "'momentun'", "did you mean 'momentum'?"],
    ),
    "a setting of another model": (
        series("resnet50-full-lbs16", settings={"patch_size": 4}),
        ["series.resnet50-full-lbs16.settings", "'patch_size'", "allowed", "momentum"],
    ),
    "a key of a dataset": (
        {("datasets", "scans", "class"): 10},
        ["datasets.scans", "'class'", "did you mean 'classes'?"],
    ),
    "a figure": (
        {("figures", "figure8"): {"series": ["resnet50-full-lbs16"]}},
        ["figures", "'figure8'", "allowed", "table1", "did you mean 'figure"],
    ),
    "a key of a figure": (
        {("figures", "figure2"): {"serie": ["resnet50-full-lbs16"]}},
        ["figures.figure2", "'serie'", "did you mean 'series'?"],
    ),
    "a key that is a number": ({(1,): 1}, ["unknown key '1'", "allowed"]),
    "a model": (
        series("resnet50-full-lbs16", model="resnet5"),
        ["series.resnet50-full-lbs16.model", '"resnet5"', "allowed", "did you mean 'resnet50'?"],
    ),
    "an entry of models": (
        {("models", "fourcastnet.pretrian"): {"dataset": "waves"}},
        ["models", "'fourcastnet.pretrian'", "did you mean 'fourcastnet.pretrain'?"],
    ),
    "a device": (
        series("resnet50-full-lbs16", device="a10"),
        ["series.resnet50-full-lbs16.device", "'a10'", "allowed: a100, h100", "add 'a10' to"],
    ),
    "a phase": (
        series("fourcastnet-pretrain-lbs4", phase="pretrian"),
        ["series.fourcastnet-pretrain-lbs4.phase", '"pretrian"', "did you mean 'pretrain'?"],
    ),
    "a phase that the model has not": (
        series("resnet50-full-lbs16", phase="pretrain"),
        ["series.resnet50-full-lbs16.phase", "'pretrain'", "resnet50", "allowed: train"],
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
        series("resnet50-full-lbs16", settings={"dataset": "imagenet"}),
        ["series.resnet50-full-lbs16", "'imagenet'", "allowed: scans, waves"],
    ),
    "a dataset of another model": (
        {("models", "resnet50", "dataset"): "waves"},
        ["resnet50", "format imagenet", "'waves'", "era5"],
    ),
    "a model without an entry": (
        {("models", "resnet50"): DELETE},
        ["series.resnet50-full-lbs16", "models", "'resnet50'"],
    ),
    "a series in a figure": (
        {("figures", "figure2", "series"): ["resnet50-full-lbs61"]},
        ["figures.figure2", "'resnet50-full-lbs61'", "did you mean 'resnet50-full-lbs16'?"],
    ),
    "a series in Table 1": (
        {("figures", "table1", "points"): [{"series": "resnet50-ful-lbs16", "gpus": 1}]},
        ["figures.table1", "'resnet50-ful-lbs16'", "did you mean 'resnet50-full-lbs16'?"],
    ),
    "a point in a figure": (
        {("figures", "figure5", "points"): [{"series": "resnet50-full-lbs16", "gpus": 8}]},
        ["figures.figure5", "series.resnet50-full-lbs16", "8 GPUs", "allowed: 1, 2, 4"],
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
    "a name that results of simulated runs have": (
        {("name",): "demo-simulated"},
        ["name", '"demo-simulated"', "not ending in -simulated"],
    ),
    "a model without a dataset": (
        {("models", "resnet50", "dataset"): DELETE},
        ["models.resnet50", "missing key 'dataset'"],
    ),
    "one GPU count instead of a list": (
        series("resnet50-full-lbs16", gpus=4),
        ["series.resnet50-full-lbs16.gpus", "4", "array"],
    ),
    "no GPU count": (series("resnet50-full-lbs16", gpus=[]), ["series.resnet50-full-lbs16.gpus"]),
    "zero GPUs": (
        series("resnet50-full-lbs16", gpus=[0]),
        ["series.resnet50-full-lbs16.gpus[0]", "0 is too small", "1 or more"],
    ),
    "a GPU count twice": (
        series("resnet50-full-lbs16", gpus=[1, 1]),
        ["series.resnet50-full-lbs16.gpus"],
    ),
    "a batch size in quotes": (
        series("resnet50-full-lbs16", local_batch_size="16"),
        ["series.resnet50-full-lbs16.local_batch_size", '"16"', "integer"],
    ),
    "a batch of nothing": (
        series("resnet50-full-lbs16", local_batch_size=0),
        ["series.resnet50-full-lbs16.local_batch_size", "0 is too small", "1 or more"],
    ),
    "no repeats": (
        series("resnet50-full-lbs16", repeats=0),
        ["series.resnet50-full-lbs16.repeats", "0 is too small", "1 or more"],
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
        series("resnet50-full-lbs16", dataset_fraction=0.5),
        ["series.resnet50-full-lbs16.dataset_fraction", "0.5", "n/256"],
    ),
    "a dataset fraction of n/0": (
        series("resnet50-full-lbs16", dataset_fraction="n/0"),
        ["series.resnet50-full-lbs16.dataset_fraction", '"n/0"', "n/256"],
    ),
    "a GPU count with a decimal point": (
        series("resnet50-full-lbs16", gpus=[1.0, 2.0]),
        ["series.resnet50-full-lbs16.gpus[0]", "1.0", "integer"],
    ),
    "a local batch size with a decimal point": (
        series("resnet50-full-lbs16", local_batch_size=16.0),
        ["series.resnet50-full-lbs16.local_batch_size", "16.0", "integer"],
    ),
    "repeats with a decimal point": (
        series("resnet50-full-lbs16", repeats=2.0),
        ["series.resnet50-full-lbs16.repeats", "2.0", "integer"],
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
    "a sampling period that would miss what a run does": (
        {("sampling_period_s",): 10.5},
        ["sampling_period_s", "10.5", "10"],
    ),
    "training years in the wrong order": (
        {("datasets", "waves", "train_years"): [1980, 1979]},
        ["train_years", "1980", "1979"],
    ),
    "test years in the wrong order": (
        {("datasets", "waves", "test_years"): [1983, 1982]},
        ["test_years", "1983", "1982"],
    ),
    "validation on years of the training": (
        {("datasets", "waves", "validation_years"): [1980, 1981]},
        ["waves", "validation_years", "[1980, 1981]", "train_years [1979, 1980]", "not trained on"],
    ),
    "a test on years of the training": (
        {("datasets", "waves", "test_years"): [1970, 1979]},
        ["test_years", "[1970, 1979]", "train_years [1979, 1980]"],
    ),
    "fine-tuning another network than was pre-trained": (
        {("models", "fourcastnet.finetune", "embed_dim"): 128},
        ["fine-tun", "embed_dim", "128", "64"],
    ),
}
