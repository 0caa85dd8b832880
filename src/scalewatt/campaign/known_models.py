"""The models that a campaign may name: the two of the schema, and every file of `workloads` with MODEL.

MODEL is a literal, read without importing the file: a campaign is checked without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalewatt.campaign.validation import check, schema
from scalewatt.errors import InputError

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
COMMAND = "command"
"""What `workload` says in an entry of `models` that is a command of the user's."""
PHASES = {"resnet50": ("train",), "fourcastnet": ("pretrain", "finetune")}
FORMATS = {"resnet50": "imagenet", "fourcastnet": "era5"}
"""Of the models whose settings are in the campaign's schema."""
_DECLARATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["data_format", "settings"],
    "properties": {
        "phases": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"enum": ["train", "pretrain", "finetune"]},
        },
        "data_format": {"enum": ["imagenet", "era5"]},
        "settings": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["default", "description"],
                "properties": {"description": {"type": "string"}},
            },
        },
    },
}


@dataclass(frozen=True)
class KnownModel:
    """A model that `workloads` has."""

    name: str
    phases: tuple[str, ...]
    data_format: str
    """Format of the datasets that it trains on."""
    settings: Mapping[str, dict[str, Any]]
    """JSON schema of the settings, by `model_key` of each phase."""


def model_key(name: str, phase: str) -> str:
    """A model's key in `models`, in ids and in limits of devices."""
    return name if phase == "train" else f"{name}.{phase}"


@cache
def known_models(folder: Path = WORKLOADS) -> dict[str, KnownModel]:
    """All models by name; InputError where a file's MODEL is wrong."""
    parts = schema("campaign")["$defs"]
    found = {}
    for name, phases in PHASES.items():
        keys = [model_key(name, phase) for phase in phases]
        found[name] = KnownModel(name, phases, FORMATS[name], {key: parts[key] for key in keys})
    for path in sorted(folder.glob("*.py")):
        declared = _declared(path)
        if declared is not None:
            found[path.stem] = _model(path, declared)
    return found


def campaign_schema(content: Mapping[str, Any]) -> dict[str, Any]:
    """The campaign's schema with every known model, and with the commands that `content` names."""
    root = schema("campaign")
    settings = {
        key: part for model in known_models().values() for key, part in model.settings.items()
    }
    commands = [name for name in command_entries(content) if name not in settings]
    models = {key: {"$ref": f"#/$defs/{key}"} for key in settings}
    models |= {name: {"$ref": f"#/$defs/{COMMAND}"} for name in commands}
    allowed = [*known_models(), *commands]
    series = root["$defs"]["series"]
    model = {**series["properties"]["model"], "enum": allowed}
    properties = root["properties"]
    return {
        **root,
        "properties": {**properties, "models": {**properties["models"], "properties": models}},
        "$defs": {
            **root["$defs"],
            **settings,
            "series": {**series, "properties": {**series["properties"], "model": model}},
        },
    }


def command_entries(content: Mapping[str, Any]) -> list[str]:
    """Names of the entries of `models` that are commands; InputError where one cannot be a name."""
    models = content.get("models")
    if not isinstance(models, dict):
        return []
    found = []
    for name, entry in models.items():
        if isinstance(entry, dict) and "workload" in entry:
            if not isinstance(name, str) or not _is_name(name):
                raise InputError(
                    f"models: '{name}' cannot be the name of a command; allowed: lower-case "
                    "letters, digits and underscores, a letter first"
                )
            found.append(name)
    return found


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name == name.lower() and name[0] != "_"


def _declared(path: Path) -> Any:
    """The value of a file's MODEL, None without one."""
    text = path.read_text(encoding="utf-8")
    if "MODEL" not in text:
        return None
    try:
        assigned = {
            target.id: node.value
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        declared = ast.literal_eval(assigned["MODEL"]) if "MODEL" in assigned else None
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"{path}: MODEL cannot be read ({error}); allowed: a literal of dictionaries, lists, "
            "texts and numbers"
        ) from error
    if declared is not None and "WORKLOAD" not in assigned:
        raise InputError(
            f"{path}: has MODEL, but no WORKLOAD; expected a line WORKLOAD = its class"
        )
    return declared


def _model(path: Path, declared: Any) -> KnownModel:
    where, name = f"{path}: MODEL", path.stem
    check(declared, _DECLARATION, where, _DECLARATION)
    if not _is_name(name):
        raise InputError(f"{path}: a model's file is named by lower-case letters and digits")
    common = schema("campaign")["$defs"]["common"]
    for key, part in declared["settings"].items():
        _check_setting(key, part, f"{where}.settings.{key}")
    properties = {**common["properties"], **declared["settings"]}
    required = [key for key in common["required"] if "default" not in properties[key]]
    part = {
        **common,
        "description": f"Settings of {name}.",
        "properties": properties,
        "required": required,
    }
    phases = tuple(declared.get("phases", ["train"]))
    settings = {model_key(name, phase): part for phase in phases}
    return KnownModel(name, phases, declared["data_format"], settings)


def _check_setting(key: str, part: dict[str, Any], where: str) -> None:
    """A setting's schema must be one, and its default a value that it allows."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not key.isidentifier():
        raise InputError(f"{where}: is no name of a setting; allowed: letters, digits, underscores")
    try:
        Draft202012Validator.check_schema(part)
    except SchemaError as error:
        raise InputError(f"{where}: {error.message}; allowed: a JSON schema") from error
    check(part["default"], part, f"{where}.default", part)
