"""A sentence for each flag of the energy tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scalewatt.recordings.terms import EXCLUDED, UNKNOWN, Flag, flag_table

FLAG_WORDS = {code: row["sentence"] for code, row in flag_table().items()}
LEFT_OUT = tuple(code for code, row in flag_table().items() if row["severity"] == EXCLUDED)
"""Those that leave a run out: it is none of its configuration."""
NULL_ENERGY = tuple(code for code, row in flag_table().items() if row["severity"] == UNKNOWN)
"""Those that can be why a run's energy is not stated."""


def read_flags(text: str | None) -> list[Flag]:
    """Return the flags in a column `flags`."""
    flags: list[Flag] = json.loads(text or "[]")
    return flags


def details_of(row: Mapping[str, Any], code: str) -> list[str]:
    """Return the details of a row's flags of one code."""
    return [flag["detail"] for flag in read_flags(row["flags"]) if flag["code"] == code]


def left_out(flags: Iterable[Flag]) -> str | None:
    """Return why a run is left out by its flags: it did not run as its spec says. None if it did."""
    details = [flag["detail"] for flag in flags if flag["code"] in LEFT_OUT]
    return "; ".join(details) or None


def counts_processes(run: Mapping[str, Any]) -> bool:
    """Return True if the ranks of a run (a row of RUNS) are processes: on CPUs, or sharing a GPU."""
    return run["torch_device"] == "cpu" or bool(details_of(run, "gpus_shared"))
