"""The stages of a run that was made elsewhere, where its user knows them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.validation import one_of
from scalewatt.energy.publish import EVENTS_SCHEMA
from scalewatt.errors import InputError
from scalewatt.registration.tables import stage_rows
from scalewatt.training.events import STAGES

_TYPES: dict[str, tuple[type, ...]] = {
    "segment": (int,),
    "stage": (str,),
    "epoch": (int, type(None)),
    "start_s": (int, float),
    "end_s": (int, float),
}


def read_stages(path: Path | None, segments: Collection[int]) -> pa.Table:
    """The stages as EVENTS_SCHEMA has them, ordered by time; no row where there is no `path`.

    InputError names the row and the key: an unknown stage or segment, an end before its start.
    """
    rows = [] if path is None else stage_rows(path)
    if path is not None and not rows:
        raise InputError(f"{path}: has no row; expected one for each stage")
    checked = [_checked(row, f"{path}: row {i}", segments) for i, row in enumerate(rows)]
    checked.sort(key=lambda row: (row["segment"], row["start_s"]))
    return pa.Table.from_pylist(checked, schema=EVENTS_SCHEMA)


def _checked(row: dict[str, Any], where: str, segments: Collection[int]) -> dict[str, Any]:
    unknown = next((key for key in row if key not in _TYPES), None)
    if unknown is not None:
        raise InputError(f"{where}: unknown key '{unknown}'; {one_of(unknown, _TYPES)}")
    full = {"segment": 0, "epoch": None, **row}
    for key, types in _TYPES.items():
        value = full.get(key)
        if not isinstance(value, types) or isinstance(value, bool):
            raise InputError(f"{where}: {key}: {value!r} should be {_WORDS[key]}")
    if full["stage"] not in STAGES:
        raise InputError(f"{where}: stage: '{full['stage']}'; {one_of(full['stage'], STAGES)}")
    if full["segment"] not in segments:
        raise InputError(
            f"{where}: segment: {full['segment']}; {one_of(full['segment'], segments)}"
        )
    if not full["start_s"] <= full["end_s"]:
        raise InputError(f"{where}: end_s: {full['end_s']} is before start_s {full['start_s']}")
    return full


_WORDS = {
    "segment": "a segment's number, from 0",
    "stage": "the name of a stage",
    "epoch": "a number of an epoch, from 0, or nothing",
    "start_s": "a time in unix seconds",
    "end_s": "a time in unix seconds",
}
