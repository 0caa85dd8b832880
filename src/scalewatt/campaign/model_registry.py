"""The models that a campaign may name, and their settings: ResNet50, FourCastNet, commands of the user's.

A further model is a file in `scalewatt.models` with SETTINGS (docs/guide/add-a-model.md), imported on demand.
The settings of the paper's models stand here, so that its campaign is checked without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from scalewatt.campaign.command_text import placeholders, words_with
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.settings import Count, EachOnce, Settings, matching, validated

Precision = Annotated[
    Literal["torch_default", "fp32", "tf32", "fp16", "bf16"],
    Field(
        description="Arithmetic (docs/paper/protocols.md). torch_default: fp32, TF32 only where torch's "
        "defaults use it (cuDNN); fp32, tf32: without, with TF32 everywhere; fp16, bf16: autocast, fp16 "
        "with a gradient scaler. On a CPU fp16 computes as fp32."
    ),
]
Size = Annotated[int, Field(ge=1, le=10**6)]
Epochs = Annotated[int, Field(ge=1, le=100_000, description="Passes over the training set.")]
Positive = Annotated[float, Field(gt=0)]
AdamRate = Annotated[
    Positive, Field(description="Adam's learning rate, annealed to 0 by a cosine.")
]
NotNegative = Annotated[float, Field(ge=0)]


class ModelSettings(Settings):
    """Settings that every model has (docs/guide/add-a-model.md)."""

    data_format: ClassVar[str] = "imagenet"
    """Format of the datasets that it trains on."""
    network: ClassVar[tuple[str, ...]] = ()
    """The settings that its weights depend on: in fine-tuning those of pre-training."""

    dataset: str
    """Which of `datasets` it trains on."""
    epochs: Epochs
    loader_workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = 4
    """Data-loader worker processes per rank; 0 loads in the training process, auto takes half of its
    cores, at most 12."""
    precision: Precision = "torch_default"
    compile: bool = False
    """torch.compile the network."""
    gradient_accumulation_steps: Size = 1
    """Passes whose gradients are added up for one update, so that larger local batches fit; batch sizes
    count an update."""

    def check_dataset(self, dataset: Mapping[str, Any]) -> None:
        """Raise InputError if it cannot be trained on a dataset of its format."""


class ResNet50(ModelSettings):
    """ResNet50's settings."""

    epochs: Epochs = 100
    image_size: Annotated[int, Field(ge=16, le=16_384)] = 224
    """Edge of the square input in pixels."""
    base_learning_rate: Positive = 0.1
    """Learning rate at a global batch of 256; the reference rate is this times GBS/256."""
    warmup_epochs: Annotated[int, Field(ge=0, le=100_000)] = 5
    """Epochs of the linear warm-up; 0 for none."""
    warmup_start: Positive = 0.1
    """Learning rate at which the warm-up starts."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD momentum."""
    weight_decay: NotNegative = 0.0001
    """Weight decay, on every parameter."""
    plateau_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """ReduceLROnPlateau: factor."""
    plateau_patience: Annotated[int, Field(ge=0, le=100_000)] = 5
    """ReduceLROnPlateau: patience in epochs."""
    crop_scale: Annotated[
        list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=2, max_length=2)
    ] = [0.5, 1.0]
    """Least and greatest area of the random crop, as parts of the image."""
    horizontal_flip: bool = True
    """Mirror every second training image."""
    channels_last: bool = False
    """Images and weights in memory with the channels last."""
    loader: Literal["pil", "synthetic"] = "pil"
    """How images are loaded. pil: decoded and transformed by Pillow; synthetic: no images at all, one
    random batch that stays on the device."""

    @field_validator("crop_scale")
    @classmethod
    def _check_crop(cls, areas: list[float]) -> list[float]:
        if areas[0] > areas[1]:
            raise ValueError(f"{areas} is the wrong way round; allowed: least and greatest area")
        return areas


class Pretraining(ModelSettings):
    """FourCastNet's settings in pre-training."""

    data_format = "era5"
    network = ("patch_size", "embed_dim", "depth", "num_blocks", "mlp_ratio")

    epochs: Epochs = 80
    learning_rate: AdamRate = 0.0005
    weight_decay: NotNegative = 0.0
    """Adam's weight decay."""
    patch_size: Size = 8
    """Edge of a square patch in grid points; divides both edges of the grid."""
    embed_dim: Size = 768
    """Width of the embedding; a multiple of num_blocks."""
    depth: Size = 12
    """Number of AFNO blocks."""
    num_blocks: Size = 8
    """Diagonal blocks of the spectral weights."""
    mlp_ratio: Positive = 4.0
    """Width of the MLP's hidden layer over embed_dim."""
    sparsity_threshold: NotNegative = 0.01
    """Soft-shrink threshold of the spectral layer."""
    initial_conditions: Size = 36
    """Forecasts of the test year that the metric averages over."""
    initial_condition_spacing: Size = 36
    """Steps between two initial conditions."""
    precision: Precision = "fp16"
    loader: Literal["hdf5", "synthetic"] = "hdf5"
    """hdf5: single steps from the yearly files; synthetic: no data at all, one random sample that stays
    on the device."""

    @model_validator(mode="after")
    def _check_blocks(self) -> Pretraining:
        if self.embed_dim % self.num_blocks:
            raise ValueError(
                f"embed_dim {self.embed_dim} is not a multiple of num_blocks {self.num_blocks}"
            )
        return self

    def check_dataset(self, dataset: Mapping[str, Any]) -> None:
        """Refuse patches that do not divide the grid, and forecasts that do not fit the test years."""
        if any(edge % self.patch_size for edge in dataset["grid"]):
            raise InputError(
                f"model: patch_size {self.patch_size} does not divide the grid {dataset['grid']}; allowed: "
                "a divisor of both edges"
            )
        first, last = dataset["test_years"]
        times = (last - first + 1) * dataset["samples_per_year"]
        spacing = self.initial_condition_spacing
        if (self.initial_conditions - 1) * spacing >= times:
            raise InputError(
                f"model: {self.initial_conditions} initial conditions {spacing} steps apart do not fit the "
                f"{times} times of the test years; allowed: at most {(times - 1) // spacing + 1}"
            )


class Finetuning(Pretraining):
    """FourCastNet's settings in fine-tuning."""

    epochs: Epochs = 50
    learning_rate: AdamRate = 0.0001


PLACEHOLDERS = (
    *("gpus", "nodes", "ranks_per_node", "local_batch_size", "global_batch_size"),
    *("gpus_per_replica", "gradient_accumulation_steps", "epochs", "seed", "samples"),
    *("configuration", "repeat"),
)
"""What a command may name in braces: keys of the spec; samples are its dataset_samples."""


_METRIC = "lower-case letters, digits and underscores, such as top1_error_percent"


class Command(Settings):
    """A training program of the user's, run as it is (docs/your-script.md)."""

    workload: Literal["command"]
    """The word command: an entry of any other name than a model's."""
    command: Annotated[str, words_with(PLACEHOLDERS)]
    """Started once per rank, without a shell; with placeholders such as {local_batch_size}."""
    shell: bool = False
    """Give the command to bash, which ends at the first failing one (-euo pipefail)."""
    folder: Annotated[str, Field(min_length=1)] = "."
    """Folder in which the command runs and from which `files` count, relative to the one where the
    workflow is started."""
    files: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), EachOnce]
    """What the run depends on, as names or patterns (lib/**/*.py). A changed file trains no finished run
    again; it is reported."""
    epochs: Epochs
    samples: Count | None = None
    """Training samples of one epoch at dataset_fraction 1; null if unknown."""
    precision: str | None = None
    """Arithmetic, as the tables shall name it."""
    gpus_per_replica: Size = 1
    """GPUs that share one copy of the model (tensor, pipeline or context parallel): batch sizes count
    copies."""
    gradient_accumulation_steps: Size = 1
    """Passes whose gradients a copy of the model adds up for one update; batch sizes count an update."""
    metric_name: Annotated[str, matching(r"[a-z][a-z0-9_]{0,99}", _METRIC)] | None = None
    """What the reported metric is: lower-case letters, digits and underscores, such as top1_error_percent."""
    metric_goal: Literal["min", "max"] = "min"
    """Whether a smaller or a larger metric is better."""

    @model_validator(mode="after")
    def _has_samples(self) -> Command:
        if self.samples is None and "samples" in placeholders(self.command):
            raise ValueError("command: '{samples}' is not known; allowed: with the key `samples`")
        return self


# --- by name ----------------------------------------------------------------------------------------

COMMAND = "command"
"""What `workload` says in an entry of `models` that is a command of the user's."""
MODELS: dict[str, type[ModelSettings]] = {
    "resnet50": ResNet50,
    "fourcastnet.pretrain": Pretraining,
    "fourcastnet.finetune": Finetuning,
}
"""Settings by `model_key`. Fine-tuning starts from the weights of the pre-training of its name."""


def settings_of(key: str) -> type[ModelSettings] | None:
    """Settings of a model by its key; None of an unknown model. Reads SETTINGS of a further model's file."""
    name = key.partition(".")[0]
    module = f"scalewatt.models.{name}"
    if key not in MODELS and name.isidentifier() and find_spec(module):
        MODELS.update(getattr(import_module(module), "SETTINGS", {}))
    return MODELS.get(key)


def model_key(name: str, phase: str) -> str:
    """A model's key in `models`, in ids and in limits of devices."""
    return name if phase == "train" else f"{name}.{phase}"


def phases_of(model: str) -> tuple[str, ...]:
    """Phases of a model; none of an unknown one."""
    keys = (key.partition(".") for key in MODELS)
    return tuple(phase or "train" for name, _, phase in keys if name == model)


def defaults_of(key: str) -> dict[str, Any]:
    """Default settings of a model by its key; none of an unknown model."""
    settings = settings_of(key)
    fields = settings.model_fields.items() if settings else ()
    return {name: field.default for name, field in fields if not field.is_required()}


def campaign_models(models: Mapping[str, Any], where: str) -> dict[str, ModelSettings | Command]:
    """Settings of a campaign's models by key; InputError names the file and the key."""
    result: dict[str, ModelSettings | Command] = {}
    for key, entry in models.items():
        is_command = isinstance(entry, dict) and "workload" in entry
        settings = settings_of(key)
        is_free = key.isidentifier() and key.isascii() and key.islower() and not phases_of(key)
        if is_command and not is_free:
            raise InputError(
                f"{where}: models: '{key}' cannot be the name of a command; allowed: lower-case letters, "
                "digits and underscores, a letter first, and no model's name"
            )
        if not is_command and settings is None:
            raise InputError(f"{where}: models: unknown key '{key}'; {one_of(key, MODELS)}")
        kind = Command if is_command else settings
        result[key] = validated(kind, entry, where, f"models.{key}")
    return result
