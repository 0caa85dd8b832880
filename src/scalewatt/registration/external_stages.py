"""The stages of a run that was made elsewhere, where its user knows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_files import EVENTS_SCHEMA, STAGES_SCHEMA, read_stages


def stages_of(
    given: Path | None, folder: Path, segments: Sequence[int]
) -> tuple[Path | None, pa.Table]:
    """The file that says a run's stages, None without one, and the stages ordered by time.

    The file is the `given` one, else the run folder's own. A table that states no segment is of the
    only one. InputError names the file, the row and the key.
    """
    own = folder / "events.parquet"
    path = given or (own if (folder / "perun").is_dir() and own.exists() else None)
    if path is None:
        return None, EVENTS_SCHEMA.empty_table()
    rows = read_stages(path, segments=segments, own=given is None).to_pylist()
    if len(segments) > 1 and any(row["segment"] is None for row in rows):
        allowed = ", ".join(map(str, segments))
        raise InputError(f"{path}: missing key 'segment'; allowed: {allowed}, as recorded")
    full = [{**row, "segment": segments[0]} if row["segment"] is None else row for row in rows]
    full.sort(key=lambda row: (row["segment"], row["start_s"]))
    ended = all(row["end_s"] is not None for row in full)
    return path, pa.Table.from_pylist(full, schema=EVENTS_SCHEMA if ended else STAGES_SCHEMA)
