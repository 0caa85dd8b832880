"""The models that a campaign may name, and their settings: ResNet50, FourCastNet, and files with MODEL.

MODEL is a literal, read without importing the file: a campaign is checked without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    create_model,
)

from scalewatt.campaign.campaign_file import (
    Command,
    Finetuning,
    ModelSettings,
    Pretraining,
    ResNet50,
)
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.settings import Settings, validated

MODELS = Path(__file__).resolve().parents[1] / "models"
COMMAND = "command"
"""What `workload` says in an entry of `models` that is a command of the user's."""
_TYPES = {"integer": StrictInt, "number": StrictFloat, "string": StrictStr, "boolean": StrictBool}


@dataclass(frozen=True)
class KnownModel:
    """A model that a campaign may name."""

    name: str
    phases: tuple[str, ...]
    data_format: str
    """Format of the datasets that it trains on."""
    settings: Mapping[str, type[ModelSettings]]
    """Its settings, by `model_key` of each phase."""
    network: tuple[str, ...] = ()
    """The settings that its weights depend on: in fine-tuning those of pre-training."""


_PAPERS_MODELS = {
    "resnet50": KnownModel("resnet50", ("train",), "imagenet", {"resnet50": ResNet50}),
    "fourcastnet": KnownModel(
        "fourcastnet",
        ("pretrain", "finetune"),
        "era5",
        {"fourcastnet.pretrain": Pretraining, "fourcastnet.finetune": Finetuning},
        network=("patch_size", "embed_dim", "depth", "num_blocks", "mlp_ratio"),
    ),
}


def model_key(name: str, phase: str) -> str:
    """A model's key in `models`, in ids and in limits of devices."""
    return name if phase == "train" else f"{name}.{phase}"


@cache
def known_models(folder: Path = MODELS) -> dict[str, KnownModel]:
    """All models by name; InputError if a file's MODEL is wrong."""
    models = dict(_PAPERS_MODELS)
    for path in sorted(folder.glob("*.py")):
        declared = _declared(path)
        if declared is not None:
            models[path.stem] = _model(path, declared)
    return models


def defaults_of(key: str) -> dict[str, Any]:
    """Default settings of a model by its key; none of an unknown model."""
    for model in known_models().values():
        if key in model.settings:
            fields = model.settings[key].model_fields.items()
            return {name: field.default for name, field in fields if not field.is_required()}
    return {}


def campaign_models(models: Mapping[str, Any], where: str) -> dict[str, ModelSettings | Command]:
    """Settings of a campaign's models by key; InputError names the file and the key."""
    known = {key: kind for model in known_models().values() for key, kind in model.settings.items()}
    result: dict[str, ModelSettings | Command] = {}
    for key, entry in models.items():
        is_a_command = isinstance(entry, dict) and "workload" in entry
        if is_a_command:
            _check_name(key, f"{where}: models", known_models())
        elif key not in known:
            raise InputError(f"{where}: models: unknown key '{key}'; {one_of(key, known)}")
        kind = Command if is_a_command else known[key]
        result[key] = validated(kind, entry, where, f"models.{key}")
    return result


def _check_name(name: str, where: str, taken: Container[str]) -> None:
    """Raise InputError for a name that a file, a command or a folder of results cannot have."""
    if not (name.isidentifier() and name.isascii() and name.islower() and name[0] != "_"):
        raise InputError(
            f"{where}: '{name}' cannot be the name of a model or command; allowed: lower-case letters, "
            "digits and underscores, a letter first"
        )
    if name in taken:
        raise InputError(f"{where}: '{name}' cannot be the name: a model has it; allowed: another")


# --- MODEL ------------------------------------------------------------------------------------------


class _Setting(Settings):
    """A setting in MODEL, in the words of JSON schema."""

    type: Literal["integer", "number", "string", "boolean"]
    default: Any
    description: str
    enum: list[str | int | float] | None = Field(None, min_length=1)
    minimum: float | None = None
    maximum: float | None = None
    exclusiveMinimum: float | None = None
    exclusiveMaximum: float | None = None

    def kind(self) -> Any:
        """Type of a pydantic field."""
        kind: Any = Literal[tuple(self.enum)] if self.enum else _TYPES[self.type]
        bounds: dict[str, Any] = {
            "ge": self.minimum,
            "le": self.maximum,
            "gt": self.exclusiveMinimum,
            "lt": self.exclusiveMaximum,
        }
        return Annotated[kind, Field(description=self.description, **bounds)]


class _Model(Settings):
    """MODEL of a file."""

    data_format: Literal["imagenet", "era5"]
    """Format of the datasets that it trains on: imagenet or era5."""
    settings: dict[str, _Setting]
    """The settings by name, each with type, default and description."""
    phases: list[Literal["train", "pretrain", "finetune"]] = Field(["train"], min_length=1)
    network: list[str] | None = None
    """A list of the settings that the network's weights depend on, which fine-tuning has from
    pre-training."""


def _declared(path: Path) -> Any:
    """Value of a file's line MODEL = …; None without one."""
    text = path.read_text(encoding="utf-8")
    try:
        for node in ast.parse(text).body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name("MODEL")], value=value)
                    | ast.AnnAssign(target=ast.Name("MODEL"), value=ast.expr() as value)
                ):
                    return ast.literal_eval(value)
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"{path}: MODEL cannot be read ({error}); allowed: a literal of dictionaries, lists, "
            "texts and numbers"
        ) from error
    return None


def _model(path: Path, declared: Any) -> KnownModel:
    name, where = path.stem, f"{path}: MODEL"
    _check_name(name, str(path), _PAPERS_MODELS)
    model: _Model = validated(_Model, declared, where)
    if "finetune" in model.phases and ("pretrain" not in model.phases or model.network is None):
        raise InputError(
            f"{where}.phases: finetune starts from the weights of pretrain; expected pretrain too, and "
            "'network', a list of the settings that the network's weights depend on"
        )
    fields: dict[str, Any] = {}
    for key, setting in model.settings.items():
        kind = setting.kind()
        default = validated(kind, setting.default, f"{where}.settings.{key}.default")
        fields[key] = (kind, default)
    settings = create_model(name, __base__=ModelSettings, __doc__=f"Settings of {name}.", **fields)
    by_phase = {model_key(name, phase): settings for phase in model.phases}
    return KnownModel(
        name, tuple(model.phases), model.data_format, by_phase, tuple(model.network or ())
    )
