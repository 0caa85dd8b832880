"""Clocks and power limits that a series asks for, and how a cluster sets them.

An operating point is an object of the levers that were asked for, such as {"gpu_clock_mhz": 1200}; a
lever that it lacks stays as the node has it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, with_config
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
PLACEHOLDERS = ("value", "khz")
"""Of what sets a lever in a cluster file: the lever's value, and MHz as kHz."""


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


def _names_value(words: str) -> str:
    """Refuse words that set the same for every value."""
    if placeholders(words).isdisjoint(PLACEHOLDERS):
        raise ValueError(
            f"{words!r} sets the same for every value; allowed: with {{value}} or {{khz}}"
        )
    return words


_Words = Annotated[str, words_with(PLACEHOLDERS), AfterValidator(_names_value)]


@with_config(STRICT)
class LeverCommand(TypedDict):
    """Commands of a training's job, where the launcher has no option for a lever."""

    set: _Words
    """Run before the training, once a job."""
    undo: Annotated[str, Field(min_length=1)]
    """Run when the job ends, however it does, but for a kill (-9)."""


Levers = dict[
    Literal["gpu_clock_mhz", "gpu_power_limit_w", "cpu_clock_mhz"],
    Annotated[
        Annotated[_Words, Tag("options")] | Annotated[LeverCommand, Tag("command")],
        Discriminator(lambda way: "command" if isinstance(way, dict) else "options"),
    ],
]


def launcher_options(point: Mapping[str, float] | None, levers: Mapping[Any, Any]) -> list[str]:
    """Options of the launcher that set an operating point."""
    ways = [(levers[lever], value) for lever, value in _ordered(point)]
    return [
        word
        for way, value in ways
        if isinstance(way, str)
        for word in shlex.split(_with(way, value))
    ]


def lever_commands(point: Mapping[str, float] | None, levers: Mapping[Any, Any]) -> str:
    """Beginning of a shell line that sets an operating point, and undoes that when the shell ends."""
    ways = [(levers[lever], value) for lever, value in _ordered(point) if lever in levers]
    commands = [(way, value) for way, value in ways if isinstance(way, dict)]
    if not commands:
        return ""
    undo = "; ".join(way["undo"] for way, _ in commands)
    # A signal ends this shell, and thereby runs the undo, once the training has ended.
    steps = [f"trap {shlex.quote(undo)} EXIT", "trap : TERM HUP USR1"]
    return "; ".join([*steps, *(_with(way["set"], value) for way, value in commands), ""])


def _with(words: str, value: float) -> str:
    return words.format(value=_number(value), khz=_number(value * 1000))


def require_ways(asked: Iterable[str], ways: Mapping[Any, Any], where: str) -> None:
    """Raise InputError, which begins with `where`, if a cluster cannot set a lever that is asked for."""
    lacking = [f"levers.{lever}" for lever in LEVERS if lever in asked and lever not in ways]
    if lacking:
        raise InputError(
            f"{where}: the cluster file lacks {' and '.join(lacking)}, which says how they are set "
            "(docs/guide/compare-settings.md)"
        )


def _ordered(point: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return [(lever, point[lever]) for lever in LEVERS if point and lever in point]


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
