"""What the doctor says of one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK, LIMITED, MISSING, UNKNOWN = "ok", "limited", "missing", "unknown"
"""It works; it works in part; it is not there or does not work; it gave no answer."""


Mend = tuple[str, ...]
"""Commands that mend something."""
SET_UP: Mend = ("rm -f .venv/.ready && make setup", ". .venv/bin/activate")
"""Sets .venv up anew, whatever was done to it, and takes it."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: str
    found: str
    """What is there, in one line."""
    means: str = ""
    """What that means for measurements; empty where all is as it should be."""
    mend: Mend = ()
    """Commands that mend it."""
    needed: bool = False
    """Whether runs of the profile need it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was found, for programs."""
    ask: tuple[str, ...] = ()
    """What no command mends: whom to ask, or what to choose."""

    def as_json(self) -> dict[str, Any]:
        """All of it, with the same keys for every check."""
        return {
            "name": self.name,
            "outcome": self.outcome,
            "needed": self.needed,
            "found": self.found,
            "means": self.means or None,
            "mend": list(self.mend),
            "ask": list(self.ask),
            "facts": dict(self.facts),
        }


def unknown(name: str, reason: str, needed: bool = False) -> Check:
    """A check that did not come to its end."""
    return Check(name, UNKNOWN, reason, "nobody knows whether it works", needed=needed)
