"""The recording that is to be registered, read as the accounting reads it, and its files."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_json
from scalewatt.energies.account import Segment, find_recordings, read_segment, segment_numbers
from scalewatt.energies.node import node_window
from scalewatt.energies.read import read_only_segment
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import files_in, recording_name
from scalewatt.recordings.journal import SENSORS, TELEMETRY, beside, is_journal
from scalewatt.recordings.tables import Options, name_node
from scalewatt.recordings.terms import PERUN
from scalewatt.registration.run_descriptions import Description

COLUMNS = ".columns.yaml"
_NAMED = re.compile(r"(?:failed_)?segment-\d+\.")
_OF_FILES = ("host", "time_zone", "columns")


@dataclass(frozen=True)
class RecordedFile:
    """One file of a run."""

    path: Path
    sha256: str
    target: str
    """Its name in the run folder's perun/."""
    options: Mapping[str, str] | None = None
    """What the accounting needs to know besides: the run and round of perun's file of several, its time zone,
    or what the user said of another tool's file."""

    @property
    def identity(self) -> str:
        """Identity of a recording: its content, and the run in it."""
        options = self.options or {}
        return "/".join([self.sha256, *(options[k] for k in ("run", "round") if k in options)])


@dataclass(frozen=True)
class Recorded:
    """All files of one run, and what they say of it."""

    files: Sequence[RecordedFile]
    devices: pd.DataFrame
    """A row for each sensor of power or energy: segment, host, kind, index.

    A host without any has a row without a kind."""
    windows: Sequence[dict[str, Any]]
    """When each host was recorded, in unix seconds, where that is known."""
    clock_known: bool
    """Whether each host's samples have clock times."""
    samples_sha256: str | None
    """SHA-256 of all samples with their times, the same in a file that has grown; None if it is not known."""
    notes: Sequence[str] = ()
    """Files beside other tools' that were not read."""

    @property
    def identity(self) -> list[str]:
        """The files' identities, in a fixed order; how a table is read is no part of it."""
        return sorted(f.identity for f in self.files if not f.target.endswith(COLUMNS))

    @property
    def columns_sha256(self) -> str | None:
        """SHA-256 of the file that says what a table's columns are; None without one."""
        return next((f.sha256 for f in self.files if f.target.endswith(COLUMNS)), None)

    @property
    def hosts(self) -> dict[int, list[str]]:
        """Hosts by segment."""
        groups = self.devices.groupby("segment")["host"].unique()
        return {int(str(segment)): sorted(hosts) for segment, hosts in groups.items()}

    @property
    def gpus(self) -> dict[str, list[int]]:
        """Indices of the GPUs that were recorded, by host that has any."""
        gpus = self.devices[self.devices["kind"] == "gpu"].groupby("host")["index"].unique()
        return {str(host): sorted(map(int, indices)) for host, indices in gpus.items()}


def read_recording(about: Description) -> Recorded:
    """Read the recording that a description is of: a file, or a folder of the files of one run.

    InputError, which names the description or the file, for what cannot be read or is not clear.
    """
    path, reading = about.path, about.reading
    if not path.exists():
        raise InputError(f"{about.where}: {path} does not exist; expected a recording")
    folder = find_recordings(path)
    if path.is_dir() and (numbers := segment_numbers(folder)):
        if reading.run or reading.round:
            raise InputError(f"{about.where}: run and round are of one file; {path} is a folder")
        _refuse_facts(about, _OF_FILES)
        named = sorted(p for p in folder.iterdir() if p.is_file() and _NAMED.match(p.name))
        files = [RecordedFile(p, file_sha256(p), p.name) for p in named]
        return _recorded([read_segment(folder, n) for n in sorted(numbers)], files)

    tools = [path]
    if path.is_dir() and not (tools := files_in(path, reading, reading.stages)):
        raise InputError(
            f"{path}: holds neither a perun file nor a journal named by its segment; expected "
            "segment-000.hdf5, segment-000.<host>.csv, segment-001.hdf5, …"
        )
    if len(tools) > 1 and (reading.node or reading.run):
        raise InputError(f"{path}: holds {len(tools)} recordings; host and run are of one file")
    segment = read_only_segment(path, tools if path.is_dir() else [], reading)
    source = segment.recordings[0]
    if is_journal(path):
        _refuse_facts(about, _OF_FILES)
        files = _journal_files(path, segment.hosts[0])
    elif source.format == PERUN:
        _refuse_facts(about, ("host", "columns"))
        files = [_perun_file(path, source, reading.time_zone)]
    else:
        files = [*_tools_files(tools, reading)]
    return _recorded([segment], files)


def _refuse_facts(about: Description, keys: Sequence[str]) -> None:
    """Raise InputError for what is stated of a recording that states it itself."""
    for key in keys:
        if getattr(about.given, key) is not None:
            raise InputError(f"{about.where}: {key}: {about.path} states it itself; leave it out")


def _recorded(segments: Iterable[Segment], files: Sequence[RecordedFile]) -> Recorded:
    """What the nodes of a run's segments recorded; InputError for a file among others that is damaged."""
    rows, windows, notes = [], [], list[str]()
    samples, clock_known = hashlib.sha256(), True
    for segment in segments:
        by_file = {node for source in segment.recordings for node in source.named_by_file}
        flags = [*segment.flags]
        for host in segment.hosts:
            node = segment.node(host)
            flags += node.flags
            sensors = [row for block in node.blocks for row in block.rows]
            known = {(s.kind, s.index) for s in sensors if s.quantity != "utilisation"}
            clock_known &= node.clock_known
            samples.update(f"{segment.number} {host}".encode())
            for block in node.blocks:
                samples.update(" ".join(sensor.name for sensor in block.rows).encode())
                samples.update(block.time_s.tobytes() + block.values.tobytes())
            rows += [(segment.number, host, *device) for device in sorted(known) or [(None, None)]]
            # Unknown: perun's local time, and which machine it was that a file's name alone names.
            is_assumed = any(each["code"] == "time_assumed" for each in node.flags)
            has_clock = node.clock_known and not is_assumed and host not in by_file
            if has_clock and (window := node_window(node.blocks)) is not None:
                windows.append({"host": host, "start_s": window[0], "end_s": window[1]})
        problems = [each["detail"] for each in flags if each["code"] == "unreadable"]
        if problems and not segment.alone:
            raise InputError(problems[0])
        notes += problems
    devices = pd.DataFrame(rows, columns=["segment", "host", "kind", "index"])
    is_known = clock_known and devices["kind"].notna().any()
    digest = samples.hexdigest() if is_known else None
    return Recorded(files, devices, windows, clock_known, digest, notes)


# --- files ----------------------------------------------------------------------------------------


def _journal_files(path: Path, host: str) -> list[RecordedFile]:
    """A journal, what its columns are, and its telemetry, by its segment and its host, which is no path."""
    target = Path(f"segment-000.{_as_name(host)}.csv")
    names = {path: target.name}
    names |= {beside(path, end): beside(target, end).name for end in (SENSORS, TELEMETRY)}
    return [RecordedFile(p, file_sha256(p), name) for p, name in names.items() if p.exists()]


def _perun_file(path: Path, source: Recording, zone: str | None) -> RecordedFile:
    """A perun file; of one with several runs, or rounds of which one is asked for, with their names."""
    options = {"run": source.run or "", "round": source.round or ""} if source.is_part else {}
    options |= {"time_zone": zone} if zone else {}
    return RecordedFile(path, file_sha256(path), "segment-000.hdf5", options)


def _tools_files(tools: Iterable[Path], options: Options) -> Iterator[RecordedFile]:
    """Copies of other tools' files by their nodes, what their user said of them, and their columns."""
    for number, path in enumerate(tools):
        node = name_node(path, options)
        target = recording_name(0, _as_name(node) + (f".{number}" if number else ""))
        facts = {"node": node, "time_zone": options.time_zone, "run": options.run}
        content = {name: value for name, value in facts.items() if value is not None}
        if options.columns is not None:
            columns = Path(options.columns)
            content["columns"] = f"{target}{COLUMNS}"
            yield RecordedFile(columns, file_sha256(columns), content["columns"])
        yield RecordedFile(path, file_sha256(path), target, content)


def _as_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", host)


def copy_recording(file: RecordedFile, folder: Path) -> None:
    """Copy a file to its name in `folder`; InputError if it changed since it was read.

    A copy, not a link: perun adds later runs to the same file.
    """
    target = folder / file.target
    try:
        shutil.copyfile(file.path, target)
    except OSError as error:
        raise InputError(f"{file.path}: cannot be copied to {target} ({error.strerror})") from error
    if file_sha256(target) != file.sha256:
        raise InputError(f"{file.path}: changed while it was registered; register it again")
    if file.options:
        write_json(folder / f"{file.target}.json", dict(sorted(file.options.items())))
