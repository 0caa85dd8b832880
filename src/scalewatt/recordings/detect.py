"""Recordings of other tools: recognising a file's format by its content, and joining the files of a run.

In a run folder a recording is a whole copy, named by segment and node, `segment-000.<node>.recording`; the
JSON beside it, `….recording.json`, has the options that it needs, where it needs any.

A node that a file does not name has the file's name up to its first dot, or the one that the user gives.
Files of one node that several processes recorded are not read as several nodes, nor those of two nodes as
one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.recordings import tables
from scalewatt.recordings.block import Recording, in_stretches, make_blocks
from scalewatt.recordings.prometheus import DEVICE, read_prometheus, recognises
from scalewatt.recordings.tables import NO_OPTIONS, Options, Preset, name_node
from scalewatt.recordings.terms import NODE, Flag, flag
from scalewatt.recordings.times import zone_named
from scalewatt.recordings.totals import read_totals

HEAD_BYTES = 1 << 16
PROMETHEUS: Preset = {"name": "prometheus"}
DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".log", ".out", ".prom", ".json", ".jsonl", ".hdf5", ".h5")
ALIKE, ALIKE_TOTALS, ALIKE_ERRORS = 0.01, 0.03, 3.0
"""Mean powers may be of one device, read by two processes, if they differ by less than such a share (more of
totals, which begin and end at other times), and by so many standard errors of samples at other times."""
BY_NODE = (
    "name the node of each with --node FILE=NAME, or each file by its node up to the first dot"
)


# --- formats ------------------------------------------------------------------------------------------


def read_head(path: Path) -> str:
    """Lines of a file's beginning; none of a binary file. Raises InputError for a file that cannot be read.

    A binary file has a NUL in its first line; in a later line a full disk left it.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    whole = head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1] or head
    lines = [line for line in tables.decoded(whole).splitlines() if line.strip()]
    return "" if "\0" in "".join(lines[:1]) else "\n".join(x for x in lines if "\0" not in x)


def find_format(path: Path, options: Options = NO_OPTIONS) -> Preset | None:
    """Find the description of a file by its content, its `name` the format's; None for an unknown format.

    A table whose columns the user's YAML names is read by it, whatever it looks like.
    """
    head = read_head(path)
    if options.columns is None and recognises(head):
        return PROMETHEUS
    return tables.find_preset(head, options) if head or options.columns else None


def unknown_format(path: Path) -> str:
    """Message about a file of no known format: the formats, and how the file begins."""
    head = read_head(path)
    if not head.strip():
        return f"{path}: is empty, compressed or no text; expected a recording"
    first = head.partition("\n")[0]
    known = ", ".join(["perun", *(preset["name"] for preset in (PROMETHEUS, *tables.presets()))])
    what = "JSON" if re.match(r"\s*(\{|\[\s*[\[{\"])", first) else "text"
    return (
        f"{path}: has no known format ({what}: {first[:80]!r}); allowed: {known}; any other table needs "
        "a YAML file, given with --columns, that says what its columns are (docs/guide/formats.md)"
    )


# --- files --------------------------------------------------------------------------------------------


def files_in(folder: Path, options: Options, stages: str | PathLike[str] | None) -> list[Path]:
    """List the other tools' files of a folder; the file of stages is none.

    Described columns are those of every file with a suffix of data.
    """
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return [
        file
        for file in files
        if stages is None or file.resolve() != Path(stages).resolve()
        if options.columns is None or file.suffix in DATA_SUFFIXES
        if find_format(file, options) is not None
    ]


def flag_unread(folder: Path, known: Iterable[Path]) -> list[Flag]:
    """Flag the files of a folder that may be recordings, and are none of the known files."""
    read = {path.resolve() for path in known}
    others = (p for p in folder.iterdir() if p.suffix in DATA_SUFFIXES and p.is_file())
    names = sorted(path.name for path in others if path.resolve() not in read)
    detail = f"not read, as of no known format: {', '.join(names)}"
    return [flag("unreadable", None, detail)] if names else []


def read_foreign(path: Path, options: Options = NO_OPTIONS) -> Recording:
    """Read another tool's recording. Raises InputError for a file of no known format, or damaged."""
    preset = find_format(path, options)
    if preset is None:
        raise InputError(unknown_format(path))
    try:
        zone_named(options.time_zone, "time zone")
        if options.run is not None and "totals" not in preset:
            what = f"a recording of {preset['name']} holds one run"
            raise InputError(f"{what}; leave out the name of a run")
        if preset is PROMETHEUS:
            recording = read_prometheus(path, options)
        else:
            read = read_totals if "totals" in preset else tables.read_table
            recording = read(path, preset, options)
    except (InputError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from error
    flags = tuple({**each, "detail": f"{path.name}: {each['detail']}"} for each in recording.flags)
    by_file = name_node(path, NO_OPTIONS)
    is_named = options.node_of(path) is not None or list(recording.nodes) != [by_file]
    return replace(recording, flags=flags, named_by_file=() if is_named else (by_file,))


def recording_name(segment: int, node: str) -> str:
    """Name of the copy of a node's recording in a run folder."""
    return f"segment-{segment:03d}.{node}.recording"


def list_copies(folder: Path, segment: int) -> list[tuple[Path, Options]]:
    """List the copies of a segment's recordings in a run folder, with their options."""
    copies = []
    for path in sorted(folder.glob(recording_name(segment, "*"))):
        file = path.with_name(f"{path.name}.json")
        content = read_json_object(file) if file.exists() else {}
        if "columns" in content:
            content["columns"] = path.with_name(content["columns"])
        node = path.name.split(".", 1)[1].removesuffix(".recording")
        copies.append((path, Options(**{"node": node, **content})))
    return copies


# --- joining files ------------------------------------------------------------------------------------


def join_recordings(records: Sequence[Recording]) -> Recording:
    """Join the recordings of one run, of several nodes and formats.

    Samples of one sensor in several files follow each other in time; time that several have counts once
    where they are of one GPU by its UUID, or alike and of a node that a file or the user names. Raises
    InputError for files that cannot be of one run, and for those that may be several processes' of one node.
    """
    if len(records) == 1:
        return records[0]
    unknown = [record for record in records if not record.clock_known]
    if 0 < len(unknown) < len(records):
        raise InputError(f"{unknown[0].source}: states no wall-clock time, as the other files do")
    sensors = pd.DataFrame([row for record in records for row in _sensors(record)])

    # A GPU that two files name differently would count twice, and two GPUs of one name are not one
    known = sensors[sensors["uuid"] != ""]
    for key, facts in (["uuid"], ["node", "index"]), (["node", "index"], ["uuid"]):
        for _, same in known.drop_duplicates([*key, *facts]).groupby(key):
            if same["file"].nunique() > 1:
                first, second = same.iloc[0], same[same["file"] != same["file"].iloc[0]].iloc[0]
                gpus = [f"GPU {s['index']} of {s['node']} is {s['uuid']}" for s in (second, first)]
                what = f"{gpus[0]}, and in {first['file']} {gpus[1]}"
                raise InputError(f"{second['file']}: {what}; {BY_NODE}")

    flags = [each for record in records for each in record.flags] + _check_nodes(sensors)
    parts = [same for _, same in sensors.groupby([*DEVICE, "name", "quantity"])]
    rows = [_one_after_the_other(same.sort_values("begin_s"), flags) for same in parts]
    return Recording(
        nodes=make_blocks(rows),
        clock_known=not unknown,
        period_s=None,
        source=records[0].source,
        flags=tuple(flags),
        format="+".join(sorted({record.format for record in records})),
        named_by_file=tuple(sorted({node for record in records for node in record.named_by_file})),
    )


def _sensors(record: Recording) -> Iterator[dict[str, Any]]:
    """Rows for `make_blocks` of a recording's sensors, with their file and the ends of their time."""
    for block in chain.from_iterable(record.nodes.values()):
        facts = {
            "node": block.node,
            "file": record.source,
            "is_named": block.node not in record.named_by_file,
            "clock_known": record.clock_known,
            "time_s": block.time_s,
            "begin_s": block.time_s.min(initial=np.inf),
            "end_s": block.time_s.max(initial=-np.inf),
        }
        for sensor, values in zip(block.rows, block.values.T, strict=True):
            flags = [each for each in block.flags if each["device"] == sensor.name]
            yield {**sensor._asdict(), **facts, "values": values, "flags": flags}


def _check_nodes(sensors: pd.DataFrame) -> list[Flag]:
    """Refuse nodes that only a file's name tells apart, and whose devices have like means at one time.

    Returns a flag if their means differ: nothing but the names says that they are several. UUIDs do, and a
    node's meter is read from outside, not by a process of each rank.
    """
    parts = sensors[(sensors["quantity"] != "utilisation") & (sensors["kind"] != NODE)]
    nodes = [devices for _, devices in parts.drop_duplicates(DEVICE).groupby("node")]
    assumed: dict[str, None] = {}
    for pairs in ([*_comparable(*two)] for two in combinations(nodes, 2)):
        if all(sensor.is_named for pair in pairs for side in pair for sensor in side):
            continue
        files = [str(side[0].file) for side in pairs[0]]
        if all(_are_alike(*pair) for pair in pairs):
            what = "hold like values of the same time, as two processes of one node do"
            raise InputError(f"{files[0]} and {Path(files[1]).name} {what}; {BY_NODE}")
        assumed |= {Path(file).name: None for file in files}
    detail = (
        f"{', '.join(assumed)}: a node each, as their names say; --node FILE=NAME says otherwise"
    )
    return [flag("assumed", None, detail)] if assumed else []


def _comparable(first: pd.DataFrame, second: pd.DataFrame) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the devices of two nodes that UUIDs do not tell apart, in pairs by their index.

    All devices of a kind are one pair where a node states their total, or UUIDs alone: then their numbers say
    nothing.
    """
    for kind in sorted({*first["kind"]} & {*second["kind"]}):
        sides = [node[node["kind"] == kind] for node in (first, second)]
        have_uuids = [bool((side["uuid"] != "").all()) for side in sides]
        a, b = (list[Any](side.itertuples(index=False)) for side in sides)
        if any(have_uuids) or any(sensor.totals for sensor in (*a, *b)):
            if not all(have_uuids):
                yield a, b
        else:
            others = {sensor.index: sensor for sensor in b}
            yield from (([each], [others[each.index]]) for each in a if each.index in others)


def _are_alike(a: list[Any], b: list[Any]) -> bool:
    """True if two groups of sensors have like mean powers in their common time, most of the shortest one.

    Of totals the power over their whole time counts.
    """
    both, has_totals = [*a, *b], any(sensor.totals for sensor in (*a, *b))
    begin_s, end_s = max(of.begin_s for of in both), min(of.end_s for of in both)
    lengths_s = sorted(of.end_s - of.begin_s for of in both)
    is_same_length = a[0].clock_known or lengths_s[0] >= (1 - ALIKE_TOTALS) * lengths_s[-1]
    if not end_s - begin_s > 0.5 * lengths_s[0] or not is_same_length:
        return False
    means = [[_mean_power(sensor, begin_s, end_s) for sensor in side] for side in (a, b)]
    (a_w, a_square), (b_w, b_square) = (np.sum(side, axis=0) for side in means)
    share = ALIKE_TOTALS if has_totals else ALIKE
    most_w = share * max(abs(a_w), abs(b_w)) + ALIKE_ERRORS * np.sqrt(a_square + b_square)
    return bool(abs(a_w - b_w) <= most_w)


def _mean_power(sensor: Any, begin_s: float, end_s: float) -> tuple[float, float]:
    """Mean power in W within a time, of a total over its whole time, and its squared error; else NaN."""
    inside = (sensor.time_s >= begin_s) & (sensor.time_s <= end_s) | sensor.totals
    inside &= np.isfinite(sensor.values)
    time_s, values = sensor.time_s[inside], sensor.values[inside]
    if values.size < 2:
        return np.nan, np.nan
    if sensor.quantity == "counter":
        return np.diff(values).clip(0).sum() / np.ptp(time_s), 0.0
    return values.mean(), values.var() / values.size


def _one_after_the_other(parts: pd.DataFrame, flags: list[Flag]) -> dict[str, Any]:
    """Join a sensor's rows of several files in order of time; time that two have counts once."""
    first, *rest = list[Any](parts.itertuples(index=False))
    time_s, values, before = first.time_s, first.values, first
    for part in rest:
        end_s = time_s.max(initial=-np.inf)
        is_after = part.time_s > end_s if part.totals else ~in_stretches(part.time_s, time_s)
        follows = is_after.all() or not (part.totals or (part.time_s < end_s).any())
        is_same = first.uuid and part.uuid == first.uuid
        is_same = is_same or (first.is_named and part.is_named and _are_alike([part], [first]))
        if not part.clock_known or not (follows or is_same):
            what = f"overlaps {before.file} in time, or may: {part.name} of {part.node}"
            raise InputError(f"{part.file}: {what}; {BY_NODE}")
        if part.totals and not is_after.all():  # a part of a total is unknown
            is_after[:] = False
        if not follows:
            count, names = (~is_after).sum(), [Path(of.file).name for of in (part, before)]
            detail = f"not added: {count} samples in {names[0]}, of a time that {names[1]} has"
            flags.append(flag("second_sensor", part.name, detail))
        joined_s = np.concatenate((time_s, part.time_s[is_after]))
        order = np.argsort(joined_s, kind="stable")
        time_s, values = joined_s[order], np.concatenate((values, part.values[is_after]))[order]
        before = part if is_after.any() else before
    limit_w = parts["limit_w"].max()
    facts = {"limit_w": limit_w, "flags": [*chain.from_iterable(parts["flags"])]}
    return {**first._asdict(), "time_s": time_s, "values": values, **facts}
