"""Tables of samples of any tool, read by a description: a preset of the package, or the user's own YAML.

Presets (`presets/*.yaml`, chosen by the file's heading) and users' files have one form, schema `columns`;
docs/recordings.md explains it. A preset with the key `totals` is read by `recordings.totals`.

Steps: the file's lines, below each heading; cells as texts, and values in W, J or as a share (`table_rows`);
times (`row_times`); the rows of each node and device, which are Blocks (`table_blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, schema, shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.block import Recording
from scalewatt.recordings.row_times import RowTimes
from scalewatt.recordings.table_blocks import Table, read_blocks
from scalewatt.recordings.table_rows import (
    DESCRIBED,
    UNITS,
    Preset,
    damage_flags,
    decoded,
    edited,
    fits,
    read_frame,
    read_lines,
)

__all__ = ["UNITS", "damage_flags", "decoded", "read_lines"]  # beside what is defined below

PRESETS = Path(__file__).parent / "presets"
_HEAD_LINES = 60


@dataclass(frozen=True)
class Options:
    """What a file does not say of itself, and its user may."""

    node: str | None = None
    """Name of the node, where the file names none; else the file's name without its suffixes."""
    time_zone: str | None = None
    """Zone of local times that name none: an IANA name such as Europe/Berlin, or UTC."""
    columns: Path | None = None
    """YAML file that describes the table's columns."""
    run: str | None = None
    """Which run, window or row of a file that holds several; None: what the format's reader says."""


NO_OPTIONS = Options()


def node_of(path: Path, options: Options) -> str:
    """Name of the node that a file without one is of: the user's, or the file's up to its first point."""
    return options.node or path.name.split(".")[0] or str(path)


# --- descriptions ---------------------------------------------------------------------------------


@cache
def presets() -> tuple[Preset, ...]:
    """All presets of the package, each with its `name` (the file's stem), in order of names."""
    files = sorted(PRESETS.glob("*.yaml"))
    return tuple({**read_yaml(path), "name": path.stem} for path in files)


def described(options: Options) -> dict[str, Any]:
    """Content of the user's YAML; empty without one. Raises InputError where its schema does not allow it."""
    if options.columns is None:
        return {}
    content, rules = read_yaml(options.columns), schema("columns")
    check(content, rules, str(options.columns), rules)
    return content


def find_preset(head: str, options: Options = NO_OPTIONS) -> Preset | None:
    """Choose the description of a table from its decoded beginning; None if no preset fits.

    A user's YAML (`options.columns`) with `sensors` describes the table whatever it looks like; one without
    adds to the preset that fits (`header` of a file without a heading, `time.period_s`), or to that of its
    key `preset`. Raises InputError for a YAML that the schema does not allow.
    """
    stated = described(options)
    if "sensors" in stated:
        return {**stated, "name": DESCRIBED}
    names = [preset["name"] for preset in presets()]
    wanted = stated.pop("preset", None)
    if wanted is not None and wanted not in names:
        raise InputError(f"{options.columns}: preset: {shown(wanted)}; {one_of(wanted, names)}")
    lines = [
        ",".join(stated.get("header", ())),
        *filter(str.strip, head.splitlines()[:_HEAD_LINES]),
    ]
    for preset in presets():
        if preset["name"] == wanted or (not wanted and fits(preset, lines)):
            return {
                **preset,
                **stated,
                "time": {**preset.get("time", {}), **stated.get("time", {})},
            }
    return None


def read_table(path: Path, preset: Preset, options: Options = NO_OPTIONS) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    place = str(options.columns or path)
    if not preset.get("sensors") or not preset.get("time"):
        raise InputError(
            f"{place}: expected a YAML file with 'time' and 'sensors' that names the table's columns"
        )
    rules = {**preset, "header": list(preset["extract"])} if "extract" in preset else preset
    lines, torn = read_lines(path, rules.get("skip_lines", 0))
    frame, columns, lost = read_frame(path, edited(lines, rules) or lines, rules)
    times = RowTimes(path, place, options.time_zone, rules, frame)
    table = Table(path, rules, frame, columns, times)
    nodes = read_blocks(table, node_of(path, options), place)
    flags = (*times.flags(), *table.flags, *damage_flags(path, lost + table.lost.sum(), torn))
    return Recording(nodes, times.clock_known, None, str(path), flags, format=rules["name"])
