"""The node's meters on HPE Cray machines: the counters in /sys/cray/pm_counters.

Each file holds a value and its unit, on newer machines followed by the time of the value in µs
(`1234567 J 1697543215000000 us`). All are renewed together, about ten times a second, and `freshness` counts
that: where it has changed between the first file and the last, the values are of two moments. `energy`
and `power` are of the whole node, accelerators included; `accel<i>_energy` of one accelerator, which may
be a module with two GPUs, in an order of Cray's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PM_COUNTERS = Path("/sys/cray/pm_counters")
STALLED_S = 2.0
"""`freshness` and energies that have not changed for longer stand still: ten times a second is usual."""
_ATTEMPTS = 5
_UNITS = {"energy": "J", "power": "W"}
_VALUE = re.compile(r"(\d+)\s+(J|W)(?:\s+\d+\s+us)?\s*")
_ACCELERATOR = re.compile(r"accel(\d*)_energy")


def node_file(folder: Path) -> str | None:
    """Return the name of the node's own counter, or else of its power; None where there is neither."""
    return next((name for name in _UNITS if _reads(folder / name) is not None), None)


def accelerator_files(folder: Path) -> dict[int, str]:
    """Return the names of the accelerators' counters by number; one that reads 0 has no accelerator."""
    found = {}
    for path in folder.glob("accel*_energy"):
        name = _ACCELERATOR.fullmatch(path.name)
        if name is not None and (_reads(path) or 0.0) > 0:
            found[int(name[1]) if name[1] else -1] = path.name
    alone = found.pop(-1, None)  # machines with one accelerator do not number it
    return dict(sorted(found.items())) if found or alone is None else {0: alone}


class CrayCounters:
    """Reads some files of one moment, in J or W: None for what stands still or cannot be read.

    `clock` gives seconds that only ever grow.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._names, self._clock = folder, tuple(names), clock
        self._seen: dict[str, tuple[str, float]] = {}
        """The last text of each file, and when it was first read."""

    def __call__(self) -> list[float | None]:
        """Return the values in the order of the names; all None where no two counts of freshness agree."""
        for _ in range(_ATTEMPTS):
            before = self._text("freshness")
            texts = [self._text(name) for name in self._names]
            if before is not None and before == self._text("freshness"):
                stalled = self._stands_still("freshness", before)
                return [
                    None if self._is_stalled(name, text) or stalled else _value(name, text)
                    for name, text in zip(self._names, texts, strict=True)
                ]
        return [None] * len(self._names)

    def _is_stalled(self, name: str, text: str | None) -> bool:
        """Return True for an energy that does not grow; a power may stay the same."""
        return text is not None and name.endswith("energy") and self._stands_still(name, text)

    def _stands_still(self, name: str, text: str) -> bool:
        first, since = self._seen.get(name, ("", 0.0))
        if first != text:
            since = self._clock()
            self._seen[name] = text, since
        return self._clock() - since > STALLED_S

    def _text(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text(encoding="ascii")
        except (OSError, ValueError):
            return None


def _value(name: str, text: str | None) -> float | None:
    """Return the value of a file's text; None if it is not of the form or unit that the name asks for."""
    found = _VALUE.fullmatch(text or "")
    unit = _UNITS[name.rpartition("_")[2]]
    return float(found[1]) if found and found[2] == unit else None


def _reads(path: Path) -> float | None:
    try:
        return _value(path.name, path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
