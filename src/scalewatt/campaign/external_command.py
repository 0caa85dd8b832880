"""Series of the user's own training programs (`workload: command`)."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from math import floor
from pathlib import Path
from string import Formatter
from typing import Any

from scalewatt.campaign.campaign_types import PASS_KEYS, VARIED, Campaign
from scalewatt.campaign.command_launchers import launcher_in
from scalewatt.campaign.model_registry import COMMAND
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.campaign.series_expansion import Expansion
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.common.redaction import without_secrets
from scalewatt.common.schema_validation import nearest

DATASET = {"name": COMMAND, "format": COMMAND}
"""Stands for the dataset of a command: its own affair."""
PLACEHOLDERS = {
    "gpus": "gpus",
    "nodes": "nodes",
    "ranks_per_node": "ranks_per_node",
    "local_batch_size": "local_batch_size",
    "global_batch_size": "global_batch_size",
    "gpus_per_replica": "gpus_per_replica",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "epochs": "epochs",
    "seed": "seed",
    "samples": "dataset_samples",
    "configuration": "configuration",
    "repeat": "repeat",
}
"""What a command may name in braces, and the key of the spec that it stands for."""
STRICT_SHELL = ("bash", "-euo", "pipefail", "-c")
"""Runs a shell line as Snakemake does: the first command that fails ends it, also within a pipe."""
SPEC_VARIABLE = "SCALEWATT_SPEC"
"""Names the file with all settings of a run in the environment of its command."""
_SCRIPT_BYTES = 1_000_000
_OVERRIDABLE = ("epochs", "samples", "precision", *PASS_KEYS)


def is_command(content: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Return True if the model of a series is a command."""
    model = content["models"].get(entry["model"])
    return isinstance(model, dict) and model.get("workload") == COMMAND


def is_command_spec(spec: RunSpec) -> bool:
    """Return True if a run is one of a command."""
    return spec.dataset["format"] == COMMAND


def command_models(campaign: Campaign, runs: Path | None = None) -> set[str]:
    """Return names of the models that are commands; of those with specs in the folder `runs`, as these say.

    A job that waited in a cluster's queue is what its spec says, whatever the campaign has become.
    """
    names, seen = set(campaign.commands()), set()
    for path in sorted(runs.glob("*/*/spec.json")) if runs else ():
        model = path.parts[-3].partition("-")[0]
        if model in seen:
            continue
        with suppress(InputError):  # a damaged spec of another run is no matter of this job
            spec = read_spec(path)
            seen.add(model)
            (names.add if is_command_spec(spec) else names.discard)(model)
    return names


class CommandExpansion(Expansion):
    """A series entry whose model is a command."""

    apart = ("samples", "epochs")

    def _phases(self) -> tuple[str, ...]:
        return ("train",)

    def _part(self) -> dict[str, Any]:
        return self.root["$defs"][COMMAND]

    def _overridable(self, part: dict[str, Any]) -> dict[str, Any]:
        properties = {key: part["properties"][key] for key in _OVERRIDABLE}
        return {**part, "properties": properties, "required": []}

    def _settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        settings, changed = super()._settings()
        where = f"{_file_of(self.where)}: models.{self.model}"
        _check_command(settings, f"{where}.command")
        # What is at its default stays out of the spec, as in those that are older than these keys.
        apart = {key for key in PASS_KEYS if settings[key] == 1}
        return {key: value for key, value in settings.items() if key not in apart}, changed

    def _dataset(self) -> dict[str, Any]:
        return DATASET

    def _check_part(self, rule: str) -> None:
        if self.settings["samples"] is None:
            raise InputError(
                f"{self.where}.dataset_fraction: {rule}: of how many samples is not known; allowed: "
                f"1, or `samples` in models.{self.model}"
            )

    def _samples(self, gpus: int, local: int, fraction: Fraction) -> tuple[Any, Any]:
        whole = self.settings["samples"]
        if whole is None:
            return None, None
        samples = floor(whole * fraction)
        if samples < gpus // self._per_replica:
            raise InputError(
                f"{self.where}.dataset_fraction: leaves {samples} training samples for {gpus} GPUs; "
                "allowed: at least one per GPU, or per copy of the model"
            )
        return samples, None


def _file_of(where: str) -> str:
    return where.partition(": series.")[0]


def _check_command(settings: dict[str, Any], where: str) -> None:
    """Raise InputError if a command has an unknown placeholder, or no words."""
    command = settings["command"]
    if "\0" in command or not _is_text(command):
        raise InputError(
            f"{where}: holds a character that no command can have; allowed: UTF-8 text without NUL"
        )
    try:
        fields = [found[1:] for found in Formatter().parse(command) if found[1] is not None]
    except ValueError as error:
        raise InputError(
            f"{where}: {error}; allowed: a brace of the command itself is doubled: {{{{"
        ) from error
    for name, form, conversion in fields:
        if name not in PLACEHOLDERS:
            raise InputError(
                f"{where}: unknown placeholder '{{{name}}}'; allowed: "
                f"{', '.join(f'{{{known}}}' for known in PLACEHOLDERS)}"
                f"{nearest(name, PLACEHOLDERS)}; a brace of the command itself is doubled: {{{{"
            )
        if form or conversion:
            raise InputError(
                f"{where}: '{{{name}}}' with more than its name in the braces; allowed: {{{name}}} "
                "alone, which stands for its value; a brace of the command itself is doubled: {{"
            )
        if name == "samples" and settings["samples"] is None:
            raise InputError(
                f"{where}: '{{samples}}' is not known; allowed: with the key `samples`"
            )
    numbers: dict[str, Any] = {**dict.fromkeys(PLACEHOLDERS, 1), "configuration": "a"}
    try:
        words = shlex.split(command.format(**numbers))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InputError(f"{where}: {error}; allowed: words as in a shell") from error
    if not words:
        raise InputError(f"{where}: is empty; allowed: a program and its arguments")


def _is_text(word: str) -> bool:
    """Return True if a word can be written as UTF-8: YAML can name half a character."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def files_sha256(folder: Path, patterns: list[str], where: str) -> dict[str, str | None]:
    """Return the SHA-256 of every file that the patterns name, by its name; a pattern without a file: None.

    InputError if a pattern is none, or a file cannot be read.
    """
    found: dict[str, str | None] = {}
    for pattern in patterns:
        if Path(pattern).is_absolute():
            raise InputError(f"{where}: '{pattern}'; allowed: names relative to the key `folder`")
        try:
            paths = sorted(p for p in folder.glob(pattern) if p.is_file())
        except (ValueError, IndexError, NotImplementedError, OSError) as error:
            reason = getattr(error, "strerror", None) or "is no pattern of files"
            raise InputError(
                f"{where}: '{pattern}': {reason}; allowed: names or patterns of files such as "
                "lib/**/*.py"
            ) from error
        names = {p.relative_to(folder).as_posix(): p for p in paths if not _is_cache(p)}
        if not names:
            found[pattern] = None
        found |= {name: _sha256(path, where) for name, path in names.items()}
    return dict(sorted(found.items()))


def _is_cache(path: Path) -> bool:
    return "__pycache__" in path.parts


def _sha256(path: Path, where: str) -> str:
    try:
        return file_sha256(path)
    except InputError as error:
        raise InputError(f"{where}: {error}; expected a file that can") from error


def check_commands(campaign: Campaign) -> None:
    """Raise InputError if a command starts ranks itself, lacks a placeholder, or a file is missing."""
    check_passed(campaign)
    of_models = {
        one.model: one.settings
        for one in campaign.configurations.values()
        if one.dataset["format"] == COMMAND
    }
    for model, settings in of_models.items():
        where = f"{campaign.path}: models.{model}"
        launcher = launcher_in(settings["command"], settings["shell"])
        if launcher is not None:
            raise InputError(
                f"{where}.command: '{launcher}' starts ranks, but the command already runs once per "
                "rank; allowed: the script alone, such as python train.py, which finds RANK, "
                "WORLD_SIZE and MASTER_ADDR as under torchrun"
            )
        if not Path(settings["folder"]).is_dir():
            raise InputError(
                f"{where}.folder: '{settings['folder']}' is no folder; allowed: one relative to "
                f"{Path.cwd()}"
            )
        files = files_sha256(Path(settings["folder"]), settings["files"], f"{where}.files")
        for name, sha256 in files.items():
            if sha256 is None:
                raise InputError(
                    f"{where}.files: '{name}' names no file in {Path(settings['folder']).resolve()}"
                )


def check_passed(campaign: Campaign) -> None:
    """Raise InputError if a series changes what its command does not receive.

    A command receives placeholders, or all by {configuration} or a script that reads SCALEWATT_SPEC.
    """
    sizes: dict[str, set[int]] = {}
    for one in campaign.configurations.values():
        sizes.setdefault(one.model, set()).add(one.local_batch_size)
    for series in campaign.series.values():
        points = [campaign.configurations[id_] for id_ in series.points.values()]
        settings, where = points[0].settings, f"{campaign.path}: models.{series.model}"
        if points[0].dataset["format"] != COMMAND or _receives_all(settings, where):
            continue
        changed: list[tuple[str, tuple[str, ...]]]
        changed = [(key, (key,)) for key in ("epochs", *PASS_KEYS) if key in series.changed]
        if "precision" in series.changed:  # a label without a placeholder of its own
            changed.append(("precision", ("configuration",)))
        if series.fraction_rule != "1" or "samples" in series.changed:
            changed.append(("the number of samples", ("samples",)))
        if any(point.seeds == VARIED for point in points) and series.repeats > 1:
            changed.append(("the seed", ("seed", "repeat")))
        if len(sizes[series.model]) > 1:
            changed.append(("the local batch size", ("local_batch_size", "global_batch_size")))
        for what, names in changed:
            if placeholders(settings["command"]).isdisjoint(names):
                raise InputError(
                    f"{campaign.path}: series.{series.written} changes {what}, but "
                    f"models.{series.model}.command has no {{{names[0]}}}; allowed: a command that "
                    f"passes it on, such as --{names[0].replace('_', '-')} {{{names[0]}}}"
                )


def placeholders(command: str) -> set[str]:
    """Return the names in braces of a command."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def _receives_all(settings: Mapping[str, Any], where: str) -> bool:
    command, folder = settings["command"], Path(settings["folder"])
    if "configuration" in placeholders(command) or SPEC_VARIABLE in command:
        return True
    files = files_sha256(folder, settings["files"], f"{where}.files")
    return any(_mentions_spec(folder / name) for name in files)


def _mentions_spec(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return SPEC_VARIABLE.encode() in file.read(_SCRIPT_BYTES)
    except OSError:
        return False


def told_secrets(campaign: Campaign) -> list[str]:
    """Return where a command may give a secret away: spec.json keeps it, as it decides the run."""
    found = {
        f"{campaign.path}: models.{one.model}.command"
        for one in campaign.configurations.values()
        if one.dataset["format"] == COMMAND
        and without_secrets([one.settings["command"]]) != [one.settings["command"]]
    }
    return sorted(found)


def missing_programs(campaign: Campaign) -> list[str]:
    """Return a sentence for each program or script of a command that is not found on this machine.

    No error: a cluster's `setup` may bring it, or a node have it alone. A shell line is not looked into.
    """
    found: dict[str, None] = {}
    for one in campaign.configurations.values():
        if one.dataset["format"] != COMMAND or one.settings["shell"]:
            continue
        folder = Path(one.settings["folder"])
        program, *others = shlex.split(one.settings["command"])
        absent = [] if _program_is_there(program, folder) else [program]
        absent += [word for word in others if _is_absent_script(word, folder)]
        for word in absent:
            where = f"{campaign.path}: models.{one.model}.command"
            found[f"{where}: '{word}' is not found on this machine; runs need it on theirs"] = None
    return list(found)


def _program_is_there(program: str, folder: Path) -> bool:
    path = folder / program if "/" in program else program
    return "{" in program or shutil.which(path) is not None


def _is_absent_script(word: str, folder: Path) -> bool:
    is_script = word.endswith((".py", ".sh")) and not word.startswith("-")
    return is_script and not set("{}=") & set(word) and not (folder / word).is_file()


def command_files(spec: RunSpec) -> dict[str, str]:
    """Return the SHA-256 of each file that a run depends on, as it is now; InputError if one is missing."""
    folder = Path(spec.settings["folder"])
    files = files_sha256(folder, spec.settings["files"], spec.configuration)
    for name, sha256 in files.items():
        if sha256 is None:
            raise InputError(f"{folder / name}: is missing; {spec.configuration} depends on it")
    return {name: sha256 for name, sha256 in files.items() if sha256 is not None}


def check_unchanged(spec: RunSpec, begun_with: Mapping[str, str]) -> None:
    """Raise InputError if a run's files are not those that it has begun with."""
    files = command_files(spec)
    for name in differing_files(begun_with, files):
        raise InputError(
            f"{Path(spec.settings['folder']) / name}: has changed since {spec.configuration} was started; "
            "start the workflow again"
        )


def differing_files(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of files that were changed, added or taken away."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def digest_of_files(files: Mapping[str, str]) -> str:
    """Return one SHA-256 over the names and the SHA-256 of a command's files."""
    text = json.dumps(files, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def command_words(spec: RunSpec) -> list[str]:
    """Return the program and its arguments of a run of a command."""
    settings = spec.settings
    text = settings["command"].format(
        **{name: getattr(spec, key) for name, key in PLACEHOLDERS.items()}
    )
    return [*STRICT_SHELL, text] if settings["shell"] else shlex.split(text)
