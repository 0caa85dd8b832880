"""Telling the format of another tool's recording by its content, and reading it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats import (
    codecarbon,
    dcgm,
    generic_csv,
    nvidia_smi,
    prometheus,
    zeus,
)
from scalewatt.recordings.formats.format import Format, Head, Options, number
from scalewatt.recordings.formats.text_columns import delimiter_of
from scalewatt.recordings.series import (
    Flag,
    Recording,
    SensorSeries,
    by_node,
    flag,
    nodes_by_name,
)
from scalewatt.recordings.text_times import zone_named

FORMATS: tuple[Format, ...] = (
    zeus.WINDOWS,
    zeus.POWER,
    codecarbon.FORMAT,
    nvidia_smi.FORMAT,
    dcgm.FORMAT,
    prometheus.FORMAT,
    generic_csv.FORMAT,
)
"""In the order in which they are tried; a generic CSV, which needs a description, comes last."""

MOST_COLUMNS = 12
"""Of a table of no known format are named in a message."""


def find_format(path: Path, options: Options | None = None) -> Format | None:
    """Return the format of a file by its content; None if it is none of other tools'.

    A table whose columns the user's YAML names is one of `generic_csv`, whatever it looks like.
    Raises InputError for a file that cannot be read.
    """
    head = Head.of(path)
    if options is not None and generic_csv.describes(options):
        return generic_csv.FORMAT
    return next((one for one in FORMATS if one.recognises(head)), None)


def read_foreign(path: Path, options: Options | None = None) -> Recording:
    """Read another tool's recording. Raises InputError for a file of no known format, or damaged."""
    found = find_format(path, options)
    if found is None:
        raise InputError(unknown_format(path))
    if options is not None and options.run is not None and found.records and not found.holds_runs:
        raise InputError(
            f"{path}: a recording of {found.name} holds one run; expected no name of a run"
        )
    options = options or Options()
    zone_named(options.time_zone, f"{path}: time zone")
    record = replace(found.read(path, options), format=found.name)
    return _printable(_without_repeats(record))


def _without_repeats(record: Recording) -> Recording:
    """Leave out samples that say again what the one before said, at the same time, and flag them."""
    series = [_once(one) for one in record.series]
    kept = sum(one.time_s.size for one in series)
    repeats = sum(one.time_s.size for one in record.series) - kept
    if not repeats:
        return record
    name = Path(record.source).name
    detail = f"{name}: {repeats} samples repeat one with the same time and value"
    problems = (*record.problems, flag("duplicate", None, detail))
    return replace(record, nodes=by_node(series, record.hosts), problems=problems)


def _once(series: SensorSeries) -> SensorSeries:
    time_s, values = series.time_s, series.values
    same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    kept = np.ones(time_s.size, dtype=np.bool_)
    kept[1:] = ~(same & (time_s[1:] == time_s[:-1]))
    return series if kept.all() else replace(series, time_s=time_s[kept], values=values[kept])


def _printable(recording: Recording) -> Recording:
    """Escape what would move a terminal's cursor in a file's names of nodes, sensors and devices."""
    named = (
        replace(
            one,
            node=printable(one.node),
            sensor=printable(one.sensor),
            uuid=None if one.uuid is None else printable(one.uuid),
            flags=tuple(map(_printable_flag, one.flags)),
        )
        for one in recording.series
    )
    nodes = by_node(named, map(printable, recording.hosts))
    return replace(recording, nodes=nodes, problems=tuple(map(_printable_flag, recording.problems)))


def _printable_flag(one: Flag) -> Flag:
    return {name: printable(text) if isinstance(text, str) else text for name, text in one.items()}


def unknown_format(path: Path) -> str:
    """Return the message for a file of no known format: what was looked for, and what was found."""
    known = ", ".join(one.name for one in FORMATS if one.records)
    head = Head.of(path)
    names = _columns(head)
    found = f" (this one's columns: {names})" if names else ""
    if names and np.isfinite([number(cell) for cell in _cells(head)]).any():
        found = " (this one has no heading)"
    empty = "" if head.begin else "is empty and "
    return (
        f"{path}: {empty}is no recording of a known format; allowed: perun, {known}; any other table{found} "
        "needs a YAML file, given with --columns, that says what its columns are (docs/recordings.md)"
    )


def is_table(path: Path) -> bool:
    """Return True if a file begins with lines of text, of which the first has several columns."""
    head = Head.of(path)
    begin = "".join(head.lines[:5]).replace("\t", " ")
    is_text = begin.isprintable() and "\ufffd" not in begin and begin.lstrip()[:1] not in ("{", "[")
    return is_text and bool(_columns(head))


def _columns(head: Head) -> str:
    """Return the names in a heading, for a message; empty where the first line is none."""
    names = [name.strip().strip('"') for name in _cells(head)]
    if len(names) < 2:
        return ""
    more = f", and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return ", ".join(repr(printable(name)[:40]) for name in names[:MOST_COLUMNS]) + more


def _cells(head: Head) -> list[str]:
    first = head.lines[0] if head.lines else ""
    return first.split(delimiter_of(first))


def read_together(paths: Sequence[tuple[Path, Options]]) -> Recording:
    """Read the files of one run as one recording, as `joined` says.

    Raises InputError for a file that cannot be read.
    """
    return joined([read_foreign(path, options) for path, options in paths])


def joined(found: Sequence[Recording]) -> Recording:
    """Return the recordings of one run, of several nodes and formats, as one.

    What several files hold of one sensor is joined in order of time. Time that several have counts once
    where a uuid says that it is one GPU's. Raises InputError where none does, for two files that disagree
    on which GPU is which, and if some state wall-clock times and some do not.
    """
    if not found:
        raise ValueError("no file given")
    if len({one.t0_known for one in found}) > 1:
        unknown = next(one for one in found if not one.t0_known)
        raise InputError(f"{unknown.source}: states no wall-clock time, as the others beside it do")
    found = with_nodes(found)
    _refuse_mixed(found)
    periods = [one.sampling_period_s for one in found if one.sampling_period_s]
    return Recording(
        nodes=by_node(
            _joined(found),
            (host for one in found for host in one.hosts),
        ),
        t0_known=found[0].t0_known,
        sampling_period_s=max(periods, default=None),
        source=found[0].source,
        problems=tuple(problem for one in found for problem in one.problems),
        format="+".join(sorted({one.format for one in found})),
    )


def with_nodes(found: Sequence[Recording]) -> list[Recording]:
    """Give a node that has several names in the files one name."""
    nodes = nodes_by_name(*(record.hosts for record in found))
    return [
        replace(
            record,
            nodes={
                nodes[host]: tuple(replace(one, node=nodes[host]) for one in series)
                for host, series in record.nodes.items()
            },
        )
        for record in found
    ]


def _refuse_mixed(found: Sequence[Recording]) -> None:
    """Refuse one GPU under two names, which would count twice, and two GPUs under one."""
    places: dict[str, tuple[tuple[str, int], str]] = {}
    uuids: dict[tuple[str, int], tuple[str, str]] = {}
    for record in found:
        for one in record.series:
            if one.uuid is None:
                continue
            place = (one.node, one.device_index)
            (node, index), file = places.setdefault(one.uuid, (place, record.source))
            if (node, index) != place and file != record.source:
                raise InputError(
                    f"{record.source}: its GPU {place[1]} of {place[0]}, {one.uuid}, is GPU {index} of "
                    f"{node} in {file}; expected the files of one run, each GPU under one name"
                )
            uuid, file = uuids.setdefault(place, (one.uuid, record.source))
            if uuid != one.uuid:
                raise InputError(
                    f"{record.source}: its GPU {place[1]} of {place[0]} is {one.uuid}, and in {file} {uuid}; "
                    "expected files named by their nodes"
                )


def _joined(found: Sequence[Recording]) -> Iterator[SensorSeries]:
    """Yield the sensors of all files; what one sensor says in several, one after the other, as one."""
    parts: dict[tuple[str, str, int, str, str], list[tuple[SensorSeries, str]]] = {}
    for record in found:
        for one in record.series:
            key = (one.node, one.device_kind, one.device_index, one.sensor, one.quantity)
            parts.setdefault(key, []).append((one, record.source))
    for own in parts.values():
        if len(own) == 1:
            yield own[0][0]
        elif not found[0].t0_known:
            raise InputError(
                f"{own[1][1]}: holds {own[0][0].sensor} of {own[0][0].node}, as {own[0][1]} does, and its "
                f"times are no wall clock's; {_BY_NODE}"
            )
        else:
            yield _one_after_the_other(sorted(own, key=lambda part: _begin_s(part[0])))


def _begin_s(series: SensorSeries) -> float:
    return float(series.time_s.min(initial=np.inf))


_BY_NODE = "expected files named by their nodes up to the first point (n1.csv), or one at a time with --node"


def _one_after_the_other(parts: Sequence[tuple[SensorSeries, str]]) -> SensorSeries:
    """Return the samples of a sensor's parts, in order of their begins; twice recorded time counts once.

    Raises InputError where parts overlap and no uuid says that they are of one sensor.
    """
    (joined, first), *rest = parts
    for one, file in rest:
        end_s = float(joined.time_s.max(initial=-np.inf))
        after = one.time_s > end_s
        is_same = one.uuid is not None and one.uuid == joined.uuid
        if not is_same and (one.time_s < end_s).any():
            raise InputError(
                f"{file}: overlaps {first} in time on {one.sensor} of {one.node}; {_BY_NODE}"
            )
        if one.totals and not after.all():  # a part of a total is none
            after[:] = False
        flags = joined.flags + tuple(known for known in one.flags if known not in joined.flags)
        if not after.all():
            count, name, other = np.count_nonzero(~after), Path(file).name, Path(first).name
            detail = f"not added: {count} samples in {name}, of a time that {other} has"
            flags += (flag("second_sensor", one.sensor, detail),)
        joined = replace(
            joined,
            time_s=np.concatenate((joined.time_s, one.time_s[after])),
            values=np.concatenate((joined.values, one.values[after])),
            uuid=joined.uuid or one.uuid,
            limit_w=max((w for w in (joined.limit_w, one.limit_w) if w is not None), default=None),
            flags=flags,
        )
        first = file if after.any() else first
    return joined
