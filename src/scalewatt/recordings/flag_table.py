"""The quality flags: `flags.csv`, with what each means and how much it weighs."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

NOTE, DOUBT, UNKNOWN, EXCLUDED = "note", "doubt", "unknown", "excluded"
"""Severities: nothing is wrong, a number may be, an energy may be null for it, the run is left out."""


@cache
def flag_table() -> dict[str, dict[str, str]]:
    """Table of flags by code: `severity` and `sentence` each."""
    with Path(__file__).with_name("flags.csv").open(encoding="utf-8", newline="") as file:
        return {row.pop("code"): row for row in csv.DictReader(file)}


def codes_of(severity: str) -> tuple[str, ...]:
    """List the codes of a severity, in the order of the table."""
    return tuple(code for code, row in flag_table().items() if row["severity"] == severity)
