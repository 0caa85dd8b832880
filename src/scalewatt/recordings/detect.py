"""Recordings of other tools: telling a file's format by its content, reading it, and joining those of a run.

A node that a file does not name has the file's name up to its first dot, or the one that the user gives.
Files of one node that several processes recorded are not taken for several nodes, nor those of two nodes for
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.node_names import nodes_by_name
from scalewatt.recordings.prometheus import Sensor, grouped, read_prometheus, recognises
from scalewatt.recordings.tables import (
    NO_OPTIONS,
    Options,
    Preset,
    decoded,
    find_preset,
    node_of,
    presets,
    read_table,
)
from scalewatt.recordings.terms import NODE, Flag, Floats, flag
from scalewatt.recordings.times import zone_named
from scalewatt.recordings.totals import read_totals

HEAD_BYTES = 1 << 16
PROMETHEUS: Preset = {"name": "prometheus"}
MOST_COLUMNS = 12
"""Columns of an unknown table that a message names."""
ALIKE = 0.005
"""Share by which mean powers differ at most if they are of one sensor, read by two processes."""
ALIKE_TOTALS = 0.03
"""The same of totals, which two processes begin and end at their own times."""
BY_NODE = (
    "name the node of each with --node FILE=NAME, or each file by its node up to the first dot"
)


@dataclass(frozen=True, eq=False)
class ReadFile:
    """A file of a run, read."""

    path: Path
    options: Options
    recording: Recording

    @property
    def names_node(self) -> bool:
        """True if the file's content or the user names its node, False if only the file's name does."""
        by_file = [node_of(self.path, NO_OPTIONS)]
        return self.options.node is not None or list(self.recording.nodes) != by_file


def head_of(path: Path) -> str:
    """Lines of a file's beginning; none of a binary one. Raises InputError for a file that cannot be read.

    A binary file has a NUL in its first line; in a later line a full disk left it.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path}: is not a regular file; expected a recording")
        with path.open("rb") as file:
            lines = [line for line in decoded(file.read(HEAD_BYTES)).splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return "" if "\0" in "".join(lines[:1]) else "\n".join(x for x in lines if "\0" not in x)


def find_format(path: Path, options: Options = NO_OPTIONS) -> Preset | None:
    """Find the description of a file by its content, its `name` the format's; None for an unknown format.

    A table whose columns the user's YAML names is read by it, whatever it looks like. Raises InputError for a
    file that cannot be read.
    """
    head = head_of(path)
    if options.columns is None and recognises(head):
        return PROMETHEUS
    return find_preset(head, options) if head or options.columns else None


def read_together(paths: Iterable[tuple[Path, Options]]) -> Recording:
    """Read the files of one run as one recording, as `joined` says."""
    return joined(read_files(paths))


def read_files(paths: Iterable[tuple[Path, Options]]) -> list[ReadFile]:
    """Read files by their options. Raises InputError for one that cannot be read."""
    return [ReadFile(path, options, read_foreign(path, options)) for path, options in paths]


def files_in(
    folder: Path, options: Options, nodes: Mapping[str, str] | None = None
) -> list[tuple[Path, Options]]:
    """List the other tools' files of a folder, with the options of each; `nodes` are named by file."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    nodes = nodes or {}
    if unknown := sorted(set(nodes) - {file.name for file in files}):
        raise InputError(f"{folder}: holds no file {', '.join(unknown)}, as --node names it")
    given = [(f, replace(options, node=nodes.get(f.name, options.node))) for f in files]
    return [(file, own) for file, own in given if find_format(file, own) is not None]


def read_foreign(path: Path, options: Options = NO_OPTIONS) -> Recording:
    """Read another tool's recording. Raises InputError for a file of no known format, or damaged."""
    preset = find_format(path, options)
    if preset is None:
        raise InputError(unknown_format(path))
    zone_named(options.time_zone, f"{path}: time zone")
    if "totals" in preset:
        return read_totals(path, preset, options)
    if options.run is not None:
        name = preset["name"]
        raise InputError(f"{path}: a recording of {name} holds one run; expected no name of a run")
    if preset is PROMETHEUS:
        return read_prometheus(path, options)
    return read_table(path, preset, options)


def joined(files: Sequence[ReadFile]) -> Recording:
    """Join the recordings of one run, of several nodes and formats.

    Samples of one sensor in several files follow each other in time; time that several have counts once
    where they are of one GPU by its UUID, or say the same of a node that the user names. Raises InputError
    for files that cannot be of one run, and for those that may be several processes' of one node.
    """
    if not files:
        raise ValueError("no file given")
    records = [file.recording for file in files]
    if len({record.clock_known for record in records}) > 1:
        unknown = next(record for record in records if not record.clock_known)
        raise InputError(f"{unknown.source}: states no wall-clock time, as the other files do")
    names = nodes_by_name(*(record.nodes for record in records))
    sensors = [sensor for file in files for sensor in _sensors(file, names)]
    _refuse_mixed(sensors)
    assumed = _check_nodes(sensors)
    blocks, flags = _joined_blocks(sensors, records[0].clock_known)
    nodes: dict[str, list[Block]] = {node: [] for node in sorted(set(names.values()))}
    for block in blocks:
        nodes[block.node].append(block)
    return Recording(
        nodes=nodes,
        clock_known=records[0].clock_known,
        period_s=max((r.period_s for r in records if r.period_s), default=None),
        source=records[0].source,
        flags=(*(one for record in records for one in record.flags), *assumed, *flags),
        format="+".join(sorted({record.format for record in records})),
    )


def _sensors(file: ReadFile, names: Mapping[str, str]) -> list[Sensor]:
    """The sensors of a file, each with its node, file, block, column, times and values."""
    return [
        {
            **{str(key): value for key, value in row.items()},
            "node": names[node],
            "file": file.recording.source,
            "names_node": file.names_node,
            "clock_known": file.recording.clock_known,
            "block": block,
            "column": column,
            "time_s": block.time_s,
            "values": block.values[:, column],
            "begin_s": float(block.time_s.min(initial=np.inf)),
            "end_s": float(block.time_s.max(initial=-np.inf)),
        }
        for node, blocks in file.recording.nodes.items()
        for block in blocks
        for column, row in enumerate(block.sensors.to_dict("records"))
    ]


def _refuse_mixed(sensors: Sequence[Sensor]) -> None:
    """Refuse a GPU under two names in two files, which would count twice, and two GPUs under one name."""
    known = [sensor for sensor in sensors if sensor["uuid"]]
    for first, *others in grouped(known, "uuid"):
        for other in others:
            apart = (other["node"], other["index"]) != (first["node"], first["index"])
            if apart and other["file"] != first["file"]:
                raise InputError(
                    f"{other['file']}: its GPU {other['index']} of {other['node']}, {other['uuid']}, is GPU "
                    f"{first['index']} of {first['node']} in {first['file']}; expected each GPU under one "
                    f"name: {BY_NODE}"
                )
    for first, *others in grouped(known, "node", "index"):
        for other in others:
            if other["uuid"] != first["uuid"]:
                raise InputError(
                    f"{other['file']}: its GPU {other['index']} of {other['node']} is {other['uuid']}, and "
                    f"in {first['file']} {first['uuid']}; {BY_NODE}"
                )


def _check_nodes(sensors: Sequence[Sensor]) -> list[Flag]:
    """Refuse nodes that a file's name alone tells apart and whose devices have equal means at a time.

    Returns a flag if such nodes differ: nothing but their files' names says that they are several. UUIDs do,
    and a node's own meter is read from outside, not by a process of each rank.
    """
    parts = (s for s in sensors if s["quantity"] != "utilisation" and s["kind"] != NODE)
    nodes = [
        {(s["kind"], s["index"], s["quantity"]): s for s in own}
        for own in grouped([s for s in parts if not s["uuid"]], "node")
    ]
    assumed = []
    for one, other in combinations(nodes, 2):
        common = [(one[key], other[key]) for key in one if key in other]
        if not common or all(s["names_node"] for pair in common for s in pair):
            continue
        names = [Path(sensor["file"]).name for sensor in common[0]]
        if all(_is_alike(a, b) for a, b in common):
            raise InputError(
                f"{common[0][0]['file']} and {names[1]} hold equal values of the same time, as two processes "
                f"of one node record them; {BY_NODE}"
            )
        assumed += names
    if not assumed:
        return []
    listed = ", ".join(dict.fromkeys(assumed))
    detail = f"{listed}: recorded on a node each, as their names alone say; --node FILE=NAME tells otherwise"
    return [flag("assumed", None, detail)]


def _is_alike(a: Sensor, b: Sensor) -> bool:
    """Tell whether two sensors have equal mean powers in the time of both, if that is most of one's."""
    begin_s, end_s = max(a["begin_s"], b["begin_s"]), min(a["end_s"], b["end_s"])
    shorter_s, longer_s = sorted(of["end_s"] - of["begin_s"] for of in (a, b))
    is_same_length = a["clock_known"] or shorter_s >= (1 - ALIKE_TOTALS) * longer_s
    if not end_s - begin_s > 0.5 * shorter_s or not is_same_length:
        return False
    first_w, second_w = (_mean_w(sensor, begin_s, end_s) for sensor in (a, b))
    share = ALIKE_TOTALS if a["totals"] or b["totals"] else ALIKE
    return abs(first_w - second_w) <= share * max(abs(first_w), abs(second_w))


def _mean_w(sensor: Sensor, begin_s: float, end_s: float) -> float:
    """Mean power in W from begin to end; of totals that of their whole time. NaN if unknown."""
    time_s, values = sensor["time_s"], sensor["values"]
    inside = np.isfinite(values) & ((time_s >= begin_s) & (time_s <= end_s) | sensor["totals"])
    time_s, values = time_s[inside], values[inside]
    if sensor["quantity"] != "counter":
        return float(values.mean()) if values.size else np.nan
    rises = np.diff(values)
    return float(rises[rises > 0].sum() / np.ptp(time_s)) if time_s.size > 1 else np.nan


def _joined_blocks(sensors: Sequence[Sensor], clock_known: bool) -> tuple[list[Block], list[Flag]]:
    """Blocks of all files under their nodes' names; sensors of several files are joined, a block each."""
    same = grouped(sensors, "node", "kind", "index", "name", "quantity")
    several = [group for group in same if len({sensor["file"] for sensor in group}) > 1]
    apart = {(id(s["block"]), s["column"]) for group in several for s in group}
    blocks, flags = [], []
    for block, node in {id(s["block"]): (s["block"], s["node"]) for s in sensors}.values():
        columns = [i for i in range(len(block.sensors)) if (id(block), i) not in apart]
        rows = block.sensors.iloc[columns].reset_index(drop=True)
        blocks.append(Block(node, block.time_s, block.values[:, columns], rows))
    for group in several:
        block, more = _one_after_the_other(sorted(group, key=lambda s: s["begin_s"]), clock_known)
        blocks.append(block)
        flags += more
    return blocks, flags


def _one_after_the_other(parts: Sequence[Sensor], clock_known: bool) -> tuple[Block, list[Flag]]:
    """Join a sensor's samples of several files, in order of their begins; time that two have counts once."""
    first, *rest = parts
    time_s, values, before = first["time_s"], first["values"], first
    flags = []
    for part in rest:
        if not clock_known or _overlaps(part, first, time_s):
            raise InputError(
                f"{part['file']}: overlaps {before['file']} in time, or may, on {part['name']} of "
                f"{part['node']}; {BY_NODE}"
            )
        after = part["time_s"] > time_s.max(initial=-np.inf)
        if part["totals"] and not after.all():  # a part of a total is unknown
            after[:] = False
        if not after.all():
            names = [Path(of["file"]).name for of in (part, before)]
            detail = (
                f"not added: {(~after).sum()} samples in {names[0]}, of a time that {names[1]} has"
            )
            flags.append(flag("second_sensor", part["name"], detail))
        time_s = np.concatenate((time_s, part["time_s"][after]))
        values = np.concatenate((values, part["values"][after]))
        before = part if after.any() else before
    uuid = next((part["uuid"] for part in parts if part["uuid"]), "")
    limit_w = max((part["limit_w"] for part in parts), key=lambda w: (not np.isnan(w), w))
    row = {**first["block"].sensors.iloc[first["column"]], "uuid": uuid, "limit_w": limit_w}
    return Block(
        first["node"], time_s, np.asfortranarray(values[:, None]), sensor_frame([row])
    ), flags


def _overlaps(part: Sensor, first: Sensor, time_s: Floats) -> bool:
    """Tell a part that begins before the others end, unless it is known to be of the same sensor."""
    is_same_gpu = bool(part["uuid"]) and part["uuid"] == first["uuid"]
    is_named = part["names_node"] and first["names_node"]
    is_before = bool((part["time_s"] < time_s.max(initial=-np.inf)).any())
    return is_before and not is_same_gpu and not (is_named and _is_alike(part, first))


def unknown_format(path: Path) -> str:
    """Say of a file of no known format what was looked for, and what it looks like."""
    head, names = head_of(path), _heading(path)
    known = ", ".join(["perun", *(str(preset["name"]) for preset in (PROMETHEUS, *presets()))])
    more = f", and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    what = f" (this one's columns: {', '.join(names[:MOST_COLUMNS])}{more})" if names else ""
    if any(re.fullmatch(r"'[-+]?\d+(\.\d*)?'", name) for name in names):
        what = " (this one has no heading)"
    if head.lstrip()[:1] in ("{", "["):
        what = " (this one is JSON)"
    empty = "" if path.stat().st_size else "is empty and "
    return (
        f"{path}: {empty}has no known format; allowed: {known}; any other table{what} needs a YAML file, "
        "given with --columns, that says what its columns are (docs/recordings.md)"
    )


def is_table(path: Path) -> bool:
    """Tell a file that begins with lines of text, of which the first has several columns."""
    begin = "".join(head_of(path).splitlines()[:5]).replace("\t", " ")
    is_text = begin.isprintable() and "\ufffd" not in begin and begin.lstrip()[:1] not in ("{", "[")
    return is_text and bool(_heading(path))


def _heading(path: Path) -> list[str]:
    """The names in a heading, quoted; none where the first line has one cell."""
    first = head_of(path).partition("\n")[0]
    cells = first.split(max(",;\t", key=first.count))
    return [repr(cell.strip().strip('"')[:40]) for cell in cells] if len(cells) > 1 else []
