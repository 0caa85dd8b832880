"""Series of the user's own training programs (`workload: command`)."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import PASS_KEYS, VARIED, Campaign, Series
from scalewatt.campaign.command_text import placeholders
from scalewatt.campaign.model_registry import COMMAND, PLACEHOLDERS
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256

DATASET = {"name": COMMAND, "format": COMMAND}
"""In place of the dataset of a command, which reads its data itself."""
SPEC_VARIABLE = "SCALEWATT_SPEC"
"""Names the file with all settings of a run in the environment of its command."""
OVERRIDABLE = ("epochs", "samples", "precision", *PASS_KEYS)
"""Settings that a series may change."""
_LAUNCHER = re.compile(
    r"""(?:^|[\s;&|()`'"/])(torchrun|deepspeed|horovodrun|mpiexec|mpirun|srun|accelerate[- ]launch"""
    r"""|torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)(?![^\s;&|()`'"])"""
)
"""Programs, and modules of Python, that start ranks. What a script starts is not looked at."""


def is_command_spec(spec: RunSpec) -> bool:
    """True if a run is that of a command."""
    return spec.dataset["format"] == COMMAND


def command_words(spec: RunSpec) -> list[str]:
    """Program and arguments of a run of a command."""
    values = {name: getattr(spec, name) for name in PLACEHOLDERS if name != "samples"}
    text = spec.settings["command"].format(**values, samples=spec.dataset_samples)
    # As Snakemake does: the first command that fails ends the line, also within a pipe.
    return ["bash", "-euo", "pipefail", "-c", text] if spec.settings["shell"] else shlex.split(text)


def find_launcher(command: str) -> str | None:
    """Name of a program in a command that starts ranks; None without one.

    The value of a script's option is none.
    """
    for match in _LAUNCHER.finditer(command):
        if not re.search(r"\.py\s(.*\s)?--[\w-]+\s+$", command[: match.start(1)]):
            return match[1]
    return None


# --- a campaign of commands -------------------------------------------------------------------------


def check_commands(campaign: Campaign) -> None:
    """Raise InputError if a command starts ranks, lacks a file, or does not receive what a series changes."""
    for model, settings in campaign.command_settings().items():
        where, folder = f"{campaign.path}: models.{model}", Path(settings["folder"])
        if launcher := find_launcher(settings["command"]):
            raise InputError(
                f"{where}.command: '{launcher}' starts ranks, but the command already runs once per "
                "rank; allowed: the script alone, such as python train.py"
            )
        if not folder.is_dir():
            raise InputError(f"{where}.folder: '{folder}' is not a folder in {Path.cwd()}")
        files = files_sha256(folder, settings["files"], f"{where}.files")
        received = placeholders(settings["command"])
        # {configuration}, or a script that reads the spec, receives everything.
        reads_spec = SPEC_VARIABLE in settings["command"] or any(
            SPEC_VARIABLE.encode() in (folder / name).read_bytes() for name in files
        )
        if reads_spec or "configuration" in received:
            continue
        for series in campaign.series.values():
            for change, names in (
                _changes(campaign, series).items() if series.model == model else ()
            ):
                if received.isdisjoint(names):
                    raise InputError(
                        f"{campaign.path}: series.{series.name} changes {change}, but "
                        f"models.{model}.command has no {{{names[0]}}}"
                    )


def _changes(campaign: Campaign, series: Series) -> dict[str, tuple[str, ...]]:
    """What a series changes, each with the placeholders of which a command needs one."""
    points = [c for c in campaign.configurations.values() if c.model == series.model]
    # A precision is a label without a placeholder.
    needed = {"precision": ("configuration",)}
    changes: dict[str, tuple[str, ...]] = {
        key: needed.get(key, (key,)) for key in series.changed if key != "protocol"
    }
    if series.fraction_rule != "1":
        changes["samples"] = ("samples",)
    if any(point.seeds == VARIED for point in points) and series.repeats > 1:
        changes["seed"] = ("seed", "repeat")
    if len({point.local_batch_size for point in points}) > 1:
        changes["local_batch_size"] = ("local_batch_size", "global_batch_size")
    return changes


# --- the files of a command -------------------------------------------------------------------------


def files_sha256(folder: Path, patterns: list[str], where: str) -> dict[str, str]:
    """SHA-256 of every file that the patterns name, by its name; InputError if a pattern names none."""
    hashes: dict[str, str] = {}
    for pattern in patterns:
        try:
            paths = [p for p in folder.glob(pattern) if p.is_file()]
        except (ValueError, IndexError, NotImplementedError) as error:
            raise InputError(
                f"{where}: '{pattern}': {error}; allowed: such as lib/**/*.py"
            ) from error
        if not paths:
            raise InputError(f"{where}: '{pattern}' names no file in {folder.resolve()}")
        kept = [path for path in paths if "__pycache__" not in path.parts]
        hashes |= {path.relative_to(folder).as_posix(): file_sha256(path) for path in kept}
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
