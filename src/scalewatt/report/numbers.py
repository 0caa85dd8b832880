"""Numbers and flags as the report prints them; what is missing is an en dash."""

from __future__ import annotations

import json
from typing import Any

MISSING = "–"


def number(value: Any, digits: int = 4) -> str:
    """A number with `digits` significant digits, text as it is, null as a dash."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)
    if value != value:
        return MISSING
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10_000:
        return f"{rounded:,.0f}".replace(",", "\u202f")
    if rounded and abs(rounded) < 1e-6:
        return f"{rounded:.1e}"
    text = f"{rounded:.12f}"
    return text.rstrip("0").rstrip(".")


def with_interval(row: dict[str, Any], name: str) -> str:
    """`mean ± half the 95 % interval` of a column of configurations; the mean alone for one run."""
    mean, low, high = (row.get(f"{name}_{part}") for part in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return number(mean)
    return f"{number(mean)} ± {number((high - low) / 2, 2)}"


def flags(stored: str | None) -> str:
    """A run's quality flags (JSON list of code, device, detail) as a sentence."""
    if not stored:
        return MISSING
    try:
        entries = json.loads(stored)
    except ValueError:
        return stored
    if not isinstance(entries, list):
        return str(entries)
    return "; ".join(dict.fromkeys(_flag(entry) for entry in entries)) or MISSING


def _flag(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    # What a node has no sensor of is the same in every run, and shown by the scope.
    absent = entry.get("code") == "absent"
    detail = " ".join(str(entry[k]) for k in ("device", "detail") if entry.get(k) and not absent)
    return f"{entry.get('code', '?')} ({detail})" if detail else str(entry.get("code", "?"))
