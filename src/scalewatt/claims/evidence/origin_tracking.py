"""Which origins of energy a check looked at: noted where points are asked, for the verdict's detail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SEEN: ContextVar[set[str] | None] = ContextVar("origins of energies looked at", default=None)


@contextmanager
def origins_looked_at() -> Iterator[set[str]]:
    """Collect the origins of all energies that are looked at in the block."""
    found: set[str] = set()
    token = _SEEN.set(found)
    try:
        yield found
    finally:
        _SEEN.reset(token)


def look_at(origin: str | None) -> None:
    """Note the origin of an energy."""
    seen = _SEEN.get()
    if seen is not None:
        seen.add(str(origin))


def is_of_energy(name: str) -> bool:
    """Return True if a quantity is an energy, or follows from one."""
    return any(part in name for part in ("energy", "power", "p_gpuh", "carbon", "cost"))


def is_of_power(name: str) -> bool:
    """Return True if a quantity is a power, or a ratio of energies: what rated powers alone make of it."""
    return is_of_energy(name) and any(part in name for part in ("power", "p_gpuh", "share"))
