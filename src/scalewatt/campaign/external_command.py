"""Series of the user's own training programs (`workload: command`)."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import PASS_KEYS, VARIED, Campaign, Series
from scalewatt.campaign.command_text import placeholders
from scalewatt.campaign.model_registry import COMMAND, PLACEHOLDERS
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256

DATASET = {"name": COMMAND, "format": COMMAND}
"""Stands for the dataset of a command, which is the command's affair."""
SPEC_VARIABLE = "SCALEWATT_SPEC"
"""Names the file with all settings of a run in the environment of its command."""
OVERRIDABLE = ("epochs", "samples", "precision", *PASS_KEYS)
"""Settings that a series may change."""
_LAUNCHER = re.compile(
    r"""(?:^|[\s;&|()`'"/])(torchrun|deepspeed|horovodrun|mpiexec|mpirun|srun|accelerate[- ]launch"""
    r"""|torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)(?![^\s;&|()`'"])"""
)
"""Programs, and modules of Python, that start ranks. What a script starts is not looked at."""


def is_command(content: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """True if the model of a series is a command."""
    model = content["models"].get(entry["model"])
    return isinstance(model, dict) and model.get("workload") == COMMAND


def is_command_spec(spec: RunSpec) -> bool:
    """True if a run is that of a command."""
    return spec.dataset["format"] == COMMAND


def command_models(campaign: Campaign, runs: Path | None = None) -> set[str]:
    """Names of the models that are commands; of those with specs in the folder `runs`, as these say.

    A job that waited in a cluster's queue is what its spec says, whatever the campaign has become.
    """
    commands = dict.fromkeys(campaign.commands(), True)
    for path in sorted(runs.glob("*/*/spec.json")) if runs else ():
        with suppress(InputError):  # a damaged spec of another run is no matter of this job
            commands[path.parts[-3].partition("-")[0]] = is_command_spec(read_spec(path))
    return {model for model, known in commands.items() if known}


# --- the command ------------------------------------------------------------------------------------


def command_words(spec: RunSpec) -> list[str]:
    """Program and arguments of a run of a command."""
    values = {name: getattr(spec, name) for name in PLACEHOLDERS if name != "samples"}
    text = spec.settings["command"].format(**values, samples=spec.dataset_samples)
    # As Snakemake does: the first command that fails ends the line, also within a pipe.
    return ["bash", "-euo", "pipefail", "-c", text] if spec.settings["shell"] else shlex.split(text)


# --- a campaign of commands -------------------------------------------------------------------------


def check_commands(campaign: Campaign) -> None:
    """Raise InputError if a command starts ranks itself, lacks a placeholder, or a file is missing."""
    for model, settings in _commands(campaign).items():
        where, folder = f"{campaign.path}: models.{model}", Path(settings["folder"])
        if launcher := _LAUNCHER.search(settings["command"]):
            raise InputError(
                f"{where}.command: '{launcher[1]}' starts ranks, but the command already runs once per "
                "rank; allowed: the script alone, such as python train.py, which finds RANK, "
                "WORLD_SIZE and MASTER_ADDR as under torchrun"
            )
        if not folder.is_dir():
            raise InputError(
                f"{where}.folder: '{folder}' is not a folder; allowed: one relative to {Path.cwd()}"
            )
        files_sha256(folder, settings["files"], f"{where}.files")
    check_passed(campaign)


def _commands(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """Settings of a campaign's commands by their model."""
    configurations = campaign.configurations.values()
    return {c.model: c.settings for c in configurations if c.dataset["format"] == COMMAND}


def check_passed(campaign: Campaign) -> None:
    """Raise InputError if a series changes what its command does not receive.

    A command receives placeholders, or all by {configuration} or a script that reads SCALEWATT_SPEC.
    """
    commands = _commands(campaign)
    for series in campaign.series.values():
        if series.model not in commands or _receives_all(commands[series.model]):
            continue
        given = placeholders(commands[series.model]["command"])
        for change, names in _changes(campaign, series):
            if given.isdisjoint(names):
                raise InputError(
                    f"{campaign.path}: series.{series.name} changes {change}, but "
                    f"models.{series.model}.command has no {{{names[0]}}}; allowed: a command that "
                    f"passes it on, such as --{names[0].replace('_', '-')} {{{names[0]}}}"
                )


def _changes(campaign: Campaign, series: Series) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a series changes, and the placeholders of which a command needs one to receive it."""
    points = [c for c in campaign.configurations.values() if c.model == series.model]
    yield from ((key, (key,)) for key in ("epochs", *PASS_KEYS) if key in series.changed)
    if "precision" in series.changed:  # a label without a placeholder
        yield "precision", ("configuration",)
    if series.fraction_rule != "1" or "samples" in series.changed:
        yield "the number of samples", ("samples",)
    if any(point.seeds == VARIED for point in points) and series.repeats > 1:
        yield "the seed", ("seed", "repeat")
    if len({point.local_batch_size for point in points}) > 1:
        yield "the local batch size", ("local_batch_size", "global_batch_size")


def _receives_all(settings: Mapping[str, Any]) -> bool:
    command, folder = settings["command"], Path(settings["folder"])
    if "configuration" in placeholders(command) or SPEC_VARIABLE in command:
        return True
    files = [path for pattern in settings["files"] for path in folder.glob(pattern)]
    return any(SPEC_VARIABLE.encode() in path.read_bytes() for path in files if path.is_file())


# --- the files of a command -------------------------------------------------------------------------


def files_sha256(folder: Path, patterns: list[str], where: str) -> dict[str, str]:
    """SHA-256 of every file that the patterns name, by its name; InputError if a pattern names none."""
    hashes: dict[str, str] = {}
    for pattern in patterns:
        try:
            paths = [
                p for p in folder.glob(pattern) if p.is_file() and "__pycache__" not in p.parts
            ]
        except (ValueError, IndexError, NotImplementedError) as error:
            raise InputError(
                f"{where}: '{pattern}': {error}; allowed: names below the key `folder`, or patterns such as "
                "lib/**/*.py"
            ) from error
        if not paths:
            raise InputError(f"{where}: '{pattern}' names no file in {folder.resolve()}")
        hashes |= {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}
    return dict(sorted(hashes.items()))


def command_files(spec: RunSpec) -> dict[str, str]:
    """SHA-256 of each file that a run depends on, as it is now; InputError if a file is missing."""
    folder = Path(spec.settings["folder"])
    return files_sha256(folder, spec.settings["files"], f"files of {spec.configuration}")


def check_unchanged(spec: RunSpec, begun_with: Mapping[str, str]) -> None:
    """Raise InputError if a run's files are not those that it has begun with."""
    for name in differing_files(begun_with, command_files(spec)):
        raise InputError(
            f"{Path(spec.settings['folder']) / name}: has changed since {spec.configuration} was started; "
            "start the workflow again"
        )


def differing_files(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of files that were changed, added or taken away."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def digest_of_files(files: Mapping[str, str]) -> str:
    """SHA-256 over the names and the SHA-256 of a command's files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
