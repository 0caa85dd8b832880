"""The energy of a journal so far, added up by the sampler while it samples: for status and budget.

`segment-000.<host>.total.json`, at most TOTAL_EVERY_S behind the journal: `host`, `period_s`, `seconds` since
the first sample, `last_s` (unix s), and by sensor of power or energy (`sensors`) {kind, index, uuid, joules,
covered_s, power_w (mean since the total before)}. The energy tables have the last word.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.recordings.journal import beside
from scalewatt.recordings.terms import PLAUSIBLE_W, QUANTITIES, bridge_s

TOTAL_EVERY_S = 10.0


class _Sum:
    """One sensor's energy."""

    def __init__(self, facts: Mapping[str, Any], period_s: float) -> None:
        self.facts, self.mag = facts, float(facts.get("mag", 1.0))
        self.is_counter = QUANTITIES[facts["unit"]] == "counter"
        top = float(facts.get("valid_max") or math.inf) * self.mag
        self.range_j = top if self.is_counter else math.inf
        self.most_w = PLAUSIBLE_W[facts["kind"]]
        self.longest_s = bridge_s(period_s)
        if self.is_counter:  # a longer step may hide a wrap
            self.longest_s = self.range_j / self.most_w
        self.joules = self.covered_s = 0.0
        self._written = 0.0, 0.0
        self._last = math.nan, math.nan

    def add(self, mono: float, raw: Any) -> None:
        """Count the step from the last good sample to this one."""
        value = float(raw) * self.mag if isinstance(raw, int | float | np.number) else math.nan
        step_s, before = mono - self._last[0], self._last[1]
        if not value > 0 or (value == before if self.is_counter else value > self.most_w):
            return  # a failed read, or a counter that has not moved yet
        self._last = mono, value
        used_j = self._used_j(before, value, step_s)
        if step_s <= self.longest_s and 0 <= used_j <= self.most_w * step_s:
            self.joules += used_j
            self.covered_s += step_s

    def _used_j(self, before: float, value: float, step_s: float) -> float:
        if not self.is_counter:
            return (before + value) / 2 * step_s
        return value - before + (self.range_j if value < before else 0.0)

    def row(self) -> dict[str, Any]:
        """What the file has of it; the power is since the last call."""
        joules, covered_s = self.joules - self._written[0], self.covered_s - self._written[1]
        self._written = self.joules, self.covered_s
        facts = {key: self.facts[key] for key in ("kind", "index", "uuid") if key in self.facts}
        power = {"power_w": joules / covered_s} if covered_s > 0 else {}
        return {**facts, "joules": self.joules, "covered_s": self.covered_s, **power}


class RunningTotal:
    """Adds up the samples of a node, and writes the total every TOTAL_EVERY_S."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        self._about = {"host": about["host"], "period_s": about["sampling_period_s"]}
        self._sums = [
            (column, name, _Sum(facts, about["sampling_period_s"]))
            for column, (name, facts) in enumerate(about["sensors"].items())
            if QUANTITIES[facts["unit"]] != "utilisation"
        ]
        self._first: float | None = None
        self._due_s = -math.inf

    def add(self, t: float, mono: float, values: Sequence[Any]) -> None:
        """Count a sample of all columns of the journal."""
        self._first = mono if self._first is None else self._first
        for column, _, total in self._sums:
            total.add(mono, values[column])
        if mono >= self._due_s:
            self._due_s = mono + TOTAL_EVERY_S
            self._write(t, mono - self._first)

    def _write(self, t: float, seconds: float) -> None:
        """Replace the file at once; it is not synced, as that may hold up sampling."""
        sensors = {name: total.row() for _, name, total in self._sums}
        about = {**self._about, "seconds": seconds, "last_s": t, "sensors": sensors}
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(json.dumps(about))
        os.replace(temporary, self._path)


def read_total(journal: Path) -> dict[str, Any] | None:
    """Read the total of the journal at a path; None without one."""
    keys = ("host", "period_s", "seconds", "last_s", "sensors")
    try:
        return read_json_object(beside(journal, ".total.json"), *keys)
    except (OSError, InputError):
        return None
