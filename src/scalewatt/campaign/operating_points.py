"""Clocks and power limits that a series asks for, and how a cluster sets them.

An operating point is an object of the levers that were asked for, such as {"gpu_clock_mhz": 1200}; a
lever that it lacks stays as the node has it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, with_config
from typing_extensions import TypedDict

from scalewatt.campaign.command_text import placeholders, words_with
from scalewatt.common.errors import InputError
from scalewatt.common.settings import STRICT


@dataclass(frozen=True)
class Lever:
    """A lever's words; `short` stands in ids of configurations."""

    short: str
    words: str
    unit: str


LEVERS = {
    "gpu_clock_mhz": Lever("gpuclock", "GPU clock", "MHz"),
    "gpu_power_limit_w": Lever("gpulimit", "GPU power limit", "W"),
    "cpu_clock_mhz": Lever("cpuclock", "CPU clock", "MHz"),
}
"""By the key of a series."""
PLACEHOLDERS = ("value", "khz", "gpus")
"""Of the commands of a cluster file: the lever's value, MHz as kHz, and the node's GPUs that the run holds
(as CUDA_VISIBLE_DEVICES lists them)."""


def point_of(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """Operating point of a series, or of a registered point; None if it asks for none."""
    return {lever: float(entry[lever]) for lever in LEVERS if lever in entry} or None


def id_suffix(point: Mapping[str, float] | None) -> str:
    """What an operating point adds to a configuration's id."""
    return "".join(f"-{part}" for part in id_parts(point))


def id_parts(point: Mapping[str, float] | None) -> list[str]:
    """Levers of an operating point, as ids show them: "gpuclock1200mhz"."""
    values = [(LEVERS[lever], _number(value)) for lever, value in _ordered(point)]
    return [f"{lever.short}{value}{lever.unit.lower()}" for lever, value in values]


def without_point(configuration: str) -> str:
    """A configuration's id without its operating point: the same for all of a line."""
    for lever in LEVERS:
        configuration = re.sub(_in_id(lever), "", configuration)
    return configuration


def value_in_id(configuration: str, lever: str) -> float | None:
    """Value of a lever in a configuration's id; None if it stays as the node has it."""
    match = re.search(_in_id(lever), configuration)
    return float(match[1]) if match else None


def _in_id(lever: str) -> str:
    return f"-{LEVERS[lever].short}([0-9.]+){LEVERS[lever].unit.lower()}"


# --- how a cluster sets them ----------------------------------------------------------------------


@with_config(STRICT)
class Way(TypedDict, total=False):
    """How a lever is set: either launcher, or set and undo."""

    launcher: Annotated[str, words_with(PLACEHOLDERS[:2])]
    """Options added to the launcher, such as --gpu-freq={value} of srun. Placeholders: {value}, and {khz}
    for a clock in kHz."""
    set: Annotated[str, words_with(PLACEHOLDERS)]
    """Line of a shell that sets it, run on each node before its ranks. Placeholders: {value}, {khz}, {gpus}
    (the node's GPUs of the run, as in CUDA_VISIBLE_DEVICES)."""
    undo: Annotated[str, words_with(PLACEHOLDERS)]
    """Line of a shell that undoes it, run on each node when the run's ranks have ended, however they did.
    The same placeholders."""


def _is_way(way: Way) -> Way:
    """Refuse a way without its parts, or that sets the same for every value."""
    if set(way) not in ({"launcher"}, {"set", "undo"}):
        raise ValueError(
            f"gives {', '.join(way) or 'nothing'}; allowed: either launcher, or set and undo"
        )
    text = way.get("launcher") or way["set"]
    if placeholders(text).isdisjoint(PLACEHOLDERS[:2]):
        raise ValueError(
            f"{text!r} sets the same for every value; allowed: with {{value}} or {{khz}}"
        )
    return way


_Way = Annotated[Way, AfterValidator(_is_way)]


@with_config(STRICT)
class Levers(TypedDict, total=False):
    """How clocks and power limits that a campaign asks for are set."""

    gpu_clock_mhz: _Way
    """The GPUs' clock."""
    gpu_power_limit_w: _Way
    """The GPUs' power limit."""
    cpu_clock_mhz: _Way
    """The CPUs' clock."""


def launcher_options(point: Mapping[str, float] | None, ways: Mapping[str, Any]) -> list[str]:
    """Options of the launcher that set an operating point."""
    return [
        word
        for lever, value in _ordered(point)
        if "launcher" in ways.get(lever, {})
        for word in shlex.split(ways[lever]["launcher"].format(**_values(value)))
    ]


def commands_of(point: Mapping[str, float] | None, ways: Mapping[str, Any]) -> list[dict[str, str]]:
    """Commands {"set", "undo"} of an operating point, where {gpus} stays."""
    return [
        {key: ways[lever][key].format(**_values(value), gpus="{gpus}") for key in ("set", "undo")}
        for lever, value in _ordered(point)
        if "set" in ways.get(lever, {})
    ]


def require_ways(asked: Iterable[str], ways: Mapping[str, Any], where: str) -> None:
    """Raise InputError, which begins with `where`, if a cluster cannot set a lever that is asked for."""
    lacking = [f"levers.{lever}" for lever in LEVERS if lever in asked and lever not in ways]
    if lacking:
        raise InputError(
            f"{where}: the cluster file lacks {' and '.join(lacking)}, which says how they are set "
            "(docs/levers.md)"
        )


def _values(value: float) -> dict[str, str]:
    return {"value": _number(value), "khz": _number(value * 1000)}


def _ordered(point: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return [(lever, point[lever]) for lever in LEVERS if point and lever in point]


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
