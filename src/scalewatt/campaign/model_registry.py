"""The models that a campaign may name.

The two of the schema, every file of `workloads` with MODEL, and every module of other packages in the group
`scalewatt.workloads` of their entry points, whose names are the models'.

MODEL is a literal, read without importing the file: a campaign is checked without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, schema

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
ENTRY_POINTS = "scalewatt.workloads"
"""The group of other packages' models."""
COMMAND = "command"
"""What `workload` says in an entry of `models` that is a command of the user's."""
PHASES = {"resnet50": ("train",), "fourcastnet": ("pretrain", "finetune")}
FORMATS = {"resnet50": "imagenet", "fourcastnet": "era5"}
"""Of the models whose settings are in the campaign's schema."""
_NETWORK = ("patch_size", "embed_dim", "depth", "num_blocks", "mlp_ratio")
"""FourCastNet's."""


@dataclass(frozen=True)
class KnownModel:
    """A model that `workloads` has."""

    name: str
    phases: tuple[str, ...]
    data_format: str
    """Format of the datasets that it trains on."""
    settings: Mapping[str, dict[str, Any]]
    """JSON schema of the settings, by `model_key` of each phase."""
    network: tuple[str, ...] = ()
    """The settings that its weights depend on: in fine-tuning those of pre-training."""


def model_key(name: str, phase: str) -> str:
    """Return a model's key in `models`, in ids and in limits of devices."""
    return name if phase == "train" else f"{name}.{phase}"


@cache
def known_models(folder: Path = WORKLOADS) -> dict[str, KnownModel]:
    """Return all models by name; InputError if a file's MODEL is wrong."""
    parts = schema("campaign")["$defs"]
    found = {}
    for name, phases in PHASES.items():
        keys = [model_key(name, phase) for phase in phases]
        settings = {key: parts[key] for key in keys}
        network = _NETWORK if "finetune" in phases else ()
        found[name] = KnownModel(name, phases, FORMATS[name], settings, network)
    for path in sorted(folder.glob("*.py")):
        declared = _declared(path)
        if declared is not None:
            found[path.stem] = _model(path, path.stem, declared)
    for name, module in modules_of_packages().items() if folder == WORKLOADS else ():
        path = _file_of(name, module)
        declared = _declared(path)
        if declared is None:
            raise InputError(
                f"{path}: entry point '{name}' of {ENTRY_POINTS} names this file, which has no MODEL; "
                "expected one, as docs/add-a-model.md shows"
            )
        if name in found:
            raise InputError(
                f"{path}: entry point '{name}' of {ENTRY_POINTS}: there is a model of that name; "
                f"allowed: any but {', '.join(found)}"
            )
        found[name] = _model(path, name, declared)
    return found


@cache
def modules_of_packages() -> dict[str, str]:
    """Return the modules of the installed packages' models, by model; InputError for a name given twice."""
    found: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if found.setdefault(point.name, point.module) != point.module:
            raise InputError(
                f"entry point '{point.name}' of {ENTRY_POINTS} is both {found[point.name]} and "
                f"{point.module}; allowed: one; uninstall a package"
            )
    return dict(sorted(found.items()))


def _file_of(name: str, module: str) -> Path:
    """Return the file of a module, which is found without importing anything; InputError if there is none."""
    top, *below = module.split(".")
    spec, full = find_spec(top), top
    for part in below:
        if spec is None:
            break
        full = f"{full}.{part}"
        spec = PathFinder.find_spec(full, spec.submodule_search_locations)
    if spec is not None and spec.origin:
        return Path(spec.origin)
    raise InputError(f"entry point '{name}' of {ENTRY_POINTS}: there is no module {module}")


def campaign_schema(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the campaign's schema with every known model, and with the commands that `content` names.

    InputError, which begins with `where`, for a command that cannot be named so.
    """
    root = schema("campaign")
    settings = {
        key: part for model in known_models().values() for key, part in model.settings.items()
    }
    commands = _command_names(content, where)
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


def _command_names(content: Mapping[str, Any], where: str) -> list[str]:
    """Return names of the entries of `models` that are commands; InputError if one cannot be a name."""
    models = content.get("models")
    if not isinstance(models, dict):
        return []
    found = []
    for name, entry in models.items():
        if isinstance(entry, dict) and "workload" in entry:
            if not isinstance(name, str) or not _is_name(name):
                raise InputError(
                    f"{where}: models: '{name}' cannot be the name of a command; allowed: lower-case "
                    "letters, digits and underscores, a letter first"
                )
            if name in known_models():
                raise InputError(
                    f"{where}: models: '{name}' cannot be the name of a command, as there is a model "
                    f"of that name; allowed: any but {', '.join(known_models())}"
                )
            found.append(name)
    return found


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name == name.lower() and name[0] != "_"


def _declared(path: Path) -> Any:
    """Return the value of a file's MODEL, None without one."""
    text = path.read_text(encoding="utf-8")
    if "MODEL" not in text:
        return None
    try:
        tree = ast.parse(text)
        assigned = _assigned(tree)
        declared = ast.literal_eval(assigned["MODEL"]) if "MODEL" in assigned else None
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"{path}: MODEL cannot be read ({error}); allowed: a literal of dictionaries, lists, "
            "texts and numbers"
        ) from error
    if declared is None and _names(tree, "MODEL"):
        raise InputError(
            f"{path}: names MODEL, but does not say what it is; expected a line MODEL = {{…}} of its "
            "own, not indented"
        )
    if declared is not None and "WORKLOAD" not in assigned:
        raise InputError(
            f"{path}: has MODEL, but no WORKLOAD; expected a line WORKLOAD = its class"
        )
    return declared


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what the module's own lines `name = value` and `name: type = value` assign."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = node.value
            found |= {target.id: value for target in targets if isinstance(target, ast.Name)}
    return found


def _names(tree: ast.Module, name: str) -> bool:
    """Return True if code (no comment, no text) has the name, by itself or imported."""
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.alias) and name in (node.name, node.asname))
        for node in ast.walk(tree)
    )


def _model(path: Path, name: str, declared: Any) -> KnownModel:
    where = f"{path}: MODEL"
    check(declared, schema("model"), where, schema("model"))
    _check_name(path, name)
    phases, network = tuple(declared.get("phases", ["train"])), _network(declared, where)
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
    settings = {model_key(name, phase): part for phase in phases}
    return KnownModel(name, phases, declared["data_format"], settings, network)


def _check_name(path: Path, name: str) -> None:
    taken = schema("campaign")["$defs"]
    if not _is_name(name):
        raise InputError(
            f"{path}: model '{name}'; allowed: a name of lower-case letters and digits"
        )
    if name in taken or name in PHASES:
        raise InputError(
            f"{path}: a model cannot be named '{name}': the campaign's schema has that word for "
            "something else; allowed: another name"
        )


def _network(declared: dict[str, Any], where: str) -> tuple[str, ...]:
    """Return the settings that the weights depend on; InputError if fine-tuning could not start."""
    phases = declared.get("phases", ["train"])
    for name in declared.get("network", ()):
        if name not in declared["settings"]:
            raise InputError(
                f"{where}.network: '{name}' is not among its settings; "
                f"{one_of(name, declared['settings'])}"
            )
    if "finetune" not in phases:
        return ()
    if "pretrain" not in phases:
        raise InputError(
            f"{where}.phases: finetune starts from the weights of pretrain, which is not there; "
            "allowed: both"
        )
    if "network" not in declared:
        raise InputError(
            f"{where}: missing key 'network'; allowed: a list of the settings that the network's "
            "weights depend on, which fine-tuning has from pre-training"
        )
    return tuple(declared["network"])


def _check_setting(key: str, part: dict[str, Any], where: str) -> None:
    """Check that a setting's schema is one, and that it allows its default."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not key.isidentifier():
        raise InputError(f"{where}: is no name of a setting; allowed: letters, digits, underscores")
    try:
        Draft202012Validator.check_schema(part)
    except SchemaError as error:
        raise InputError(f"{where}: {error.message}; allowed: a JSON schema") from error
    check(part["default"], part, f"{where}.default", part)
