"""Faults of a simulated run, on request: what is asked for and how it is written.

A fault is written `KIND[:option=value,…]`. What each does: `cuts` (segments), `losses` (samples, files).
The true energy that the simulator notes is the same with and without a fault of the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from scalewatt.common.errors import InputError

ZERO, NOTHING = "zero", "nothing"
JOURNALS, OTHERS, TORN = "journals", "others", "torn"


def _number(default: Any, least: float, most: float = math.inf, whole: bool = False) -> Any:
    convert = int if whole else float
    return field(default=default, metadata={"as": convert, "least": least, "most": most})


def _word(default: str, *words: str) -> Any:
    return field(default=default, metadata={"as": str, "words": (default, *words)})


@dataclass(frozen=True)
class Fault:
    """One fault; InputError where an option has a value that is not allowed."""

    def __post_init__(self) -> None:
        """Check all options."""
        for one in fields(self):
            value = getattr(self, one.name)
            if not (value is None and one.default is None) and not _is_allowed(one, value):
                raise InputError(
                    f"fault {kind_of(self)}: {one.name}={value}; allowed: {_allowed(one)}"
                )

    def __str__(self) -> str:
        """As it is written on the command line, with all options that are not the default."""
        options = [
            f"{one.name}={value}"
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default
        ]
        return ":".join([kind_of(self), *([",".join(options)] if options else [])])


@dataclass(frozen=True)
class SensorLoss(Fault):
    """One sensor says nothing true from a time on."""

    kind: str = _word("gpu", "cpu", "ram")
    device: int = _number(0, 0, whole=True)
    node: int = _number(0, 0, whole=True)
    segment: int = _number(0, 0, whole=True)
    at: float = _number(0.5, 0.0, 1.0)
    """From when on, as part of the segment's time."""
    seconds: float | None = _number(None, 0.0)
    """For how long; None: to the segment's end."""
    reads: str = _word(ZERO, NOTHING)
    """zero: as perun notes a failed read, of power and counters; nothing: there is no sample."""


@dataclass(frozen=True)
class NodeLoss(Fault):
    """A node dies: its segment ends, all since its last checkpoint is done again in the next one."""

    at: float = _number(0.5, 1e-6, 1 - 1e-6)
    """As part of the time of the run, as it is without this loss."""
    node: int = _number(0, 0, whole=True)
    leaves: str = _word(JOURNALS, OTHERS, NOTHING, TORN)
    """journals: of all nodes; others: all but the dead node's; nothing: no recording at all; torn:
    all journals beside a file of perun's that cannot be read."""
    unsynced_s: float = _number(0.0, 0.0)
    """What the dead node's journal lacks at its end."""


@dataclass(frozen=True)
class TimeLimit(Fault):
    """Each job is told to stop after so many minutes of training, so the run has more segments."""

    minutes: float = _number(60.0, 0.1)


@dataclass(frozen=True)
class CounterWrap(Fault):
    """Counters of a smaller range, which wrap often; the file states it."""

    range_j: float = _number(5000.0, 1.0, 1e6)
    kind: str = _word("all", "cpu", "ram")
    period_s: float | None = _number(None, 0.1, 3600.0)
    """Another sampling period, which all sensors have: so wraps can lie between two samples."""


KINDS: dict[str, type[Fault]] = {
    "sensor_loss": SensorLoss,
    "node_loss": NodeLoss,
    "time_limit": TimeLimit,
    "counter_wrap": CounterWrap,
}
"""By the word that asks for one."""
_SINGLE = (TimeLimit, CounterWrap)
_AnyFault = TypeVar("_AnyFault", bound=Fault)


def parse_fault(text: str) -> Fault:
    """Return the fault that `KIND[:option=value,…]` asks for; InputError says what is allowed."""
    word, _, options = text.partition(":")
    kind = KINDS.get(word)
    if kind is None:
        raise InputError(f"--fault {text}: no kind {word!r}; allowed: {', '.join(KINDS)}")
    known = {one.name: one for one in fields(kind)}
    values: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        if name not in known or name in values:
            said = "given twice" if name in values else "no such option"
            raise InputError(f"--fault {text}: {name}: {said}; allowed: {', '.join(known)}")
        try:
            values[name] = known[name].metadata["as"](value)
        except ValueError:
            said = f"{name}={value}; allowed: {_allowed(known[name])}"
            raise InputError(f"--fault {text}: {said}") from None
    return kind(**values)


def kind_of(fault: Fault) -> str:
    """The word that asks for a fault."""
    return next(word for word, kind in KINDS.items() if type(fault) is kind)


def of_kind(faults: Iterable[Fault], kind: type[_AnyFault]) -> list[_AnyFault]:
    """The faults of one kind."""
    return [one for one in faults if isinstance(one, kind)]


def check_together(faults: Sequence[Fault]) -> None:
    """InputError where two of a kind are asked for that a run can have only one of."""
    for kind in _SINGLE:
        if len(several := of_kind(faults, kind)) > 1:
            raise InputError(
                f"fault {kind_of(several[0])}: given {len(several)} times; allowed: once a run"
            )


def _is_allowed(one: Field[Any], value: Any) -> bool:
    allowed = one.metadata
    if "words" in allowed:
        return value in allowed["words"]
    return isinstance(value, int | float) and allowed["least"] <= value <= allowed["most"]


def _allowed(one: Field[Any]) -> str:
    allowed = one.metadata
    if "words" in allowed:
        return ", ".join(allowed["words"])
    number = "a whole number" if allowed["as"] is int else "a number"
    most = f" to {allowed['most']:g}" if math.isfinite(allowed["most"]) else " or more"
    return f"{number}, {allowed['least']:g}{most}"
