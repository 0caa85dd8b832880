"""Telling the format of another tool's recording by its content, and reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats import (
    codecarbon,
    dcgm,
    generic_csv,
    jpwr,
    mlperf_power,
    nvidia_smi,
    prometheus,
    slurm_profile,
    zeus,
)
from scalewatt.recordings.formats.format import Format, Head, Options
from scalewatt.recordings.series import Flag, Recording, by_node

FORMATS: tuple[Format, ...] = (
    mlperf_power.FORMAT,
    jpwr.FORMAT,
    jpwr.ENERGIES,
    slurm_profile.FORMAT,
    zeus.WINDOWS,
    zeus.POWER,
    zeus.TABLE,
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
    return _printable(replace(found.read(path, options or Options()), format=found.name))


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
    return (
        f"{path}: is no recording of a known format; allowed: perun, {known}; any other table{found} "
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
    first = head.lines[0] if head.lines else ""
    delimiter = max(generic_csv.DELIMITERS, key=first.count)
    names = [name.strip().strip('"') for name in first.split(delimiter)]
    if len(names) < 2:
        return ""
    more = f", and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return ", ".join(repr(printable(name)[:40]) for name in names[:MOST_COLUMNS]) + more


def read_together(paths: Sequence[tuple[Path, Options]]) -> Recording:
    """Read the files of one run, of several nodes and formats, as one recording.

    Raises InputError for a file that cannot be read, or if some state wall-clock times and some do not.
    """
    found = [read_foreign(path, options) for path, options in paths]
    if not found:
        raise ValueError("no file given")
    if len({one.t0_known for one in found}) > 1:
        unknown = next(one for one in found if not one.t0_known)
        raise InputError(f"{unknown.source}: states no wall-clock time, as the others beside it do")
    periods = [one.sampling_period_s for one in found if one.sampling_period_s]
    return Recording(
        nodes=by_node(
            (series for one in found for series in one.series),
            (host for one in found for host in one.hosts),
        ),
        t0_known=found[0].t0_known,
        sampling_period_s=max(periods, default=None),
        source=found[0].source,
        problems=tuple(problem for one in found for problem in one.problems),
        format="+".join(sorted({one.format for one in found})),
    )
