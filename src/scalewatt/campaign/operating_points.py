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
PLACEHOLDERS = ("value", "khz")
"""Of the launcher's options in a cluster file: the lever's value, and MHz as kHz."""


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


def _names_value(options: str) -> str:
    """Refuse options that set the same for every value."""
    if placeholders(options).isdisjoint(PLACEHOLDERS):
        raise ValueError(
            f"{options!r} sets the same for every value; allowed: with {{value}} or {{khz}}"
        )
    return options


_Options = Annotated[str, words_with(PLACEHOLDERS), AfterValidator(_names_value)]


@with_config(STRICT)
class Levers(TypedDict, total=False):
    """Options of the launcher that set the clocks and power limits a campaign asks for, by lever.

    Placeholders: {value}, and {khz} for a clock in kHz.
    """

    gpu_clock_mhz: _Options
    """The GPUs' clock, such as --gpu-freq={value} of srun."""
    gpu_power_limit_w: _Options
    """The GPUs' power limit."""
    cpu_clock_mhz: _Options
    """The CPUs' clock, such as --cpu-freq={khz} of srun."""


def launcher_options(point: Mapping[str, float] | None, levers: Mapping[str, Any]) -> list[str]:
    """Options of the launcher that set an operating point."""
    return [
        word
        for lever, value in _ordered(point)
        for word in shlex.split(
            levers[lever].format(value=_number(value), khz=_number(value * 1000))
        )
    ]


def require_ways(asked: Iterable[str], ways: Mapping[str, Any], where: str) -> None:
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
