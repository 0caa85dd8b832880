"""Clocks and power limits that a series asks for, and how a cluster sets them.

An operating point is an object of the levers that were asked for, such as {"gpu_clock_mhz": 1200}; a
lever that it lacks stays as the node has it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from string import Formatter
from typing import Any

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of


@dataclass(frozen=True)
class Lever:
    """How a lever is called."""

    short: str
    """In ids of configurations."""
    words: str
    unit: str

    def id_part(self, value: float) -> str:
        """Return the lever's part of a configuration's id."""
        return f"{self.short}{_number(value)}{self.unit.lower()}"

    def label(self, value: float) -> str:
        """Return the lever in a label, as in "GPU clock 1200 MHz"."""
        return f"{self.words} {_number(value)} {self.unit}"

    def at(self, value: float | None, alone: bool = False) -> str:
        """Return "at a GPU clock of 1200 MHz" or "without a GPU clock"; `alone`: without its name."""
        if value is None:
            return "without one" if alone else f"without a {self.words}"
        return f"at {'' if alone else f'a {self.words} of '}{_number(value)} {self.unit}"


LEVERS = {
    "gpu_clock_mhz": Lever("gpuclock", "GPU clock", "MHz"),
    "gpu_power_limit_w": Lever("gpulimit", "GPU power limit", "W"),
    "cpu_clock_mhz": Lever("cpuclock", "CPU clock", "MHz"),
}
"""By the key of a series."""
PLACEHOLDERS = ("value", "khz", "gpus", "default_w")
"""Of the commands of a cluster file: the lever's value, MHz as kHz, the node's GPUs that the run holds
(as CUDA_VISIBLE_DEVICES lists them), and the first one's default power limit in W, by NVML."""
_LAUNCHER_PLACEHOLDERS = PLACEHOLDERS[:2]
_ID = re.compile("|".join(f"-{one.short}[0-9.]+{one.unit.lower()}" for one in LEVERS.values()))


def point_of(entry: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the operating point of a series, or of a registered point; None if it asks for none."""
    return {lever: float(entry[lever]) for lever in LEVERS if lever in entry} or None


def id_suffix(point: Mapping[str, float] | None) -> str:
    """Return what an operating point adds to a configuration's id."""
    return "".join(f"-{part}" for part in id_parts(point))


def id_parts(point: Mapping[str, float] | None) -> list[str]:
    """Return the levers of an operating point, as ids show them."""
    return [LEVERS[lever].id_part(value) for lever, value in _ordered(point)]


def without_point(configuration: str) -> str:
    """Return a configuration's id without its operating point: the same for all of one line."""
    return _ID.sub("", configuration)


def value_in_id(configuration: str, lever: str) -> float | None:
    """Return the value of a lever in a configuration's id; None if it stays as the node has it."""
    one = LEVERS[lever]
    found = re.search(f"-{one.short}([0-9.]+){one.unit.lower()}", configuration)
    return float(found[1]) if found else None


def by_id(configurations: Mapping[str, Configuration]) -> dict[str, Configuration]:
    """Return configurations sorted by id, those of one line by their clocks and limits as numbers."""

    def key(item: tuple[str, Configuration]) -> tuple[str, list[float]]:
        point = item[1].operating_point or {}
        return without_point(item[0]), [point.get(lever, 0.0) for lever in LEVERS]

    return dict(sorted(configurations.items(), key=key))


def label_of(point: Mapping[str, float] | None) -> str:
    """Return an operating point in words; empty without one."""
    return ", ".join(LEVERS[lever].label(value) for lever, value in _ordered(point))


def check_point(point: Any, where: str) -> None:
    """Raise InputError if an object is no operating point of known levers above 0."""
    if point is None:
        return
    for lever, value in point.items():
        if lever not in LEVERS:
            raise InputError(f"{where}: unknown lever '{lever}'; {one_of(lever, LEVERS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise InputError(f"{where}.{lever}: {value!r}; expected a number above 0")
    if not point:
        raise InputError(f"{where}: names no lever; expected one of {', '.join(LEVERS)}, or null")


def with_single_points(
    content: dict[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a campaign's content with a series for each operating point that a series lists.

    What the figures say of such a series goes for all of them. The second value has the name in the file
    of each series. InputError, which begins with `where`, if two series would have one name.
    """
    names: dict[str, list[str]] = {}
    series: dict[str, Any] = {}
    for name, entry in content["series"].items():
        names[name] = []
        for one in _single_entries(entry):
            own = name + (id_suffix(_listed(entry, one)) if one is not entry else "")
            if own in series or (own != name and own in content["series"]):
                raise InputError(
                    f"{where}: series.{name}: its line '{own}' has the name of another series; allowed: "
                    "names that differ"
                )
            names[name].append(own)
            series[own] = one
    written = {one: name for name, own in names.items() for one in own}
    if all(own == name for own, name in written.items()):
        return content, written
    figures = {figure: _renamed(one, names) for figure, one in content["figures"].items()}
    return {**content, "series": series, "figures": figures}, written


def _single_entries(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    listed = [lever for lever in LEVERS if isinstance(entry.get(lever), list)]
    if not listed:
        yield entry
        return
    for values in product(*(entry[lever] for lever in listed)):
        point = dict(zip(listed, values, strict=True))
        label = {"label": f"{entry['label']}, {label_of(point)}"} if "label" in entry else {}
        yield {**entry, **point, **label}


def _listed(entry: Mapping[str, Any], single: Mapping[str, Any]) -> dict[str, float]:
    return {lever: float(single[lever]) for lever in LEVERS if isinstance(entry.get(lever), list)}


def _renamed(figure: dict[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return a figure's entry with all names of each series; unknown ones stay, to be refused later."""
    changed = dict(figure)
    for key in ("series", "baselines"):
        if key in figure:
            changed[key] = [own for name in figure[key] for own in names.get(name, [name])]
    if "points" in figure:
        changed["points"] = [
            {**point, "series": own}
            for point in figure["points"]
            for own in names.get(point["series"], [point["series"]])
        ]
    return changed


# --- how a cluster sets them ----------------------------------------------------------------------


def check_ways(ways: Mapping[str, Mapping[str, str]], where: str) -> None:
    """Raise InputError if a cluster file's `levers` have a wrong command or lack its undoing."""
    for lever, way in ways.items():
        for key, text in way.items():
            allowed = _LAUNCHER_PLACEHOLDERS if key == "launcher" else PLACEHOLDERS
            _check_command(text, allowed, f"{where}.{lever}.{key}")
            if key != "undo" and not any(f"{{{name}}}" in text for name in _LAUNCHER_PLACEHOLDERS):
                raise InputError(
                    f"{where}.{lever}.{key}: {text!r} sets the same for every value; allowed: with "
                    "{value}, or {khz} for a clock in kHz"
                )
        if ("set" in way) == ("launcher" in way) or ("set" in way) != ("undo" in way):
            raise InputError(
                f"{where}.{lever}: gives {', '.join(way) or 'nothing'}; allowed: either launcher, or "
                "set and undo"
            )


def _check_command(text: str, allowed: tuple[str, ...], where: str) -> None:
    words = ", ".join(f"{{{name}}}" for name in allowed)
    try:
        for _, name, form, conversion in Formatter().parse(text):
            if name is not None and (name not in allowed or form or conversion):
                raise ValueError(f"unknown placeholder {{{name}}}")
        if not shlex.split(text.format(**dict.fromkeys(allowed, 1))):
            raise ValueError("is empty")
    except (ValueError, IndexError, KeyError) as error:
        raise InputError(
            f"{where}: {text!r}: {error}; allowed: words as in a shell, with the placeholders {words}"
        ) from error


def launcher_options(
    point: Mapping[str, float] | None, ways: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return the options of the launcher that set an operating point."""
    words: list[str] = []
    for lever, value in _ordered(point):
        if "launcher" in ways.get(lever, {}):
            words += shlex.split(ways[lever]["launcher"].format(**_values(value)))
    return words


def commands_of(
    point: Mapping[str, float] | None, ways: Mapping[str, Mapping[str, str]]
) -> list[dict[str, str]]:
    """Return the commands {"set", "undo"} of an operating point, where {gpus} and {default_w} stay."""
    rest = {name: f"{{{name}}}" for name in PLACEHOLDERS[2:]}
    return [
        {key: ways[lever][key].format(**_values(value), **rest) for key in ("set", "undo")}
        for lever, value in _ordered(point)
        if "set" in ways.get(lever, {})
    ]


def require_ways(
    asked: Mapping[str, str], ways: Mapping[str, Any], cluster: str, file: str = ""
) -> None:
    """Raise InputError if a cluster has no way to set a lever that is asked for; it names all such.

    `asked`: by lever, where it is asked for; `file`: begins the message.
    """
    lacking = [lever for lever in LEVERS if lever in asked and lever not in ways]
    if lacking:
        one = len(lacking) == 1
        places = ", ".join(f"{asked[lever]}.{lever}" for lever in lacking)
        keys = " and ".join(f"levers.{lever}" for lever in lacking)
        raise InputError(
            f"{file}{places}: the cluster {cluster} does not say how to set {'it' if one else 'them'}; "
            f"allowed: with {keys} in its cluster file (docs/levers.md), or without "
            f"{'this key' if one else 'these keys'}"
        )


def _values(value: float) -> dict[str, str]:
    return {"value": _number(value), "khz": _number(value * 1000)}


def _ordered(point: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return [(lever, point[lever]) for lever in LEVERS if lever in point] if point else []


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
