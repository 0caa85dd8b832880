"""What lies at a path that is to be registered: the recording of one run, by segments and hosts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_json
from scalewatt.energies.node import node_window
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.detect import (
    files_in,
    find_format,
    flag_unread,
    joined,
    options_content,
    read_foreign,
    recording_name,
)
from scalewatt.recordings.journal import beside, is_journal, read_journal
from scalewatt.recordings.perun_file import choose_run, list_runs, open_perun_file
from scalewatt.recordings.tables import Options, node_of
from scalewatt.registration.run_descriptions import Description

SENSORS = ".sensors.json"
_NAMED = re.compile(r"^(?:failed_)?segment-(\d+)\.")
_NAMES = "segment-000.hdf5, segment-000.<host>.csv, segment-001.hdf5, …"
_NOT_IN_NAMES = r"[^A-Za-z0-9._-]"


@dataclass(frozen=True)
class RecordedFile:
    """One file of a run."""

    path: Path
    sha256: str
    target: str
    """Its name in the run folder's perun/."""
    part: tuple[str, str, str] | None = None
    """Application, run and round, where the file holds others that are left out."""
    options: Mapping[str, str] | None = None
    """What the user said of another tool's file, by key."""

    @property
    def identity(self) -> str:
        """Identity of a recording: its content, and the part of it."""
        run = (self.options or {}).get("run")
        return "/".join([self.sha256, *(self.part or ()), *filter(None, [run])])


@dataclass(frozen=True)
class Recorded:
    """All files of one run, and what they say of it."""

    files: tuple[RecordedFile, ...]
    sensors: pd.DataFrame
    """A row for each sensor of power or energy: segment, host, kind, index, quantity, mean_w, limit_w.

    A host without any has a row without a kind. `limit_w` is the device's own, where the recording has it."""
    windows: tuple[dict[str, Any], ...]
    """When each host was recorded, in unix seconds, where that is known."""
    problems: tuple[str, ...] = ()
    """Problems found while reading the files, as sentences."""

    @property
    def identity(self) -> list[str]:
        """The files' identities, in a fixed order."""
        return sorted(file.identity for file in self.files)

    @property
    def hosts(self) -> dict[int, list[str]]:
        """Hosts by segment."""
        pairs = sorted(set(zip(self.sensors["segment"], self.sensors["host"], strict=True)))
        return {segment: [host for n, host in pairs if n == segment] for segment, _ in pairs}

    @property
    def gpus(self) -> dict[str, list[int]]:
        """Indices of the GPUs that were recorded, by host that has any."""
        gpus = self.sensors[self.sensors["kind"] == "gpu"]
        pairs = sorted(set(zip(gpus["host"], gpus["index"], strict=True)))
        return {host: [int(i) for name, i in pairs if name == host] for host, _ in pairs}

    @property
    def kinds(self) -> list[str]:
        """Kinds of the devices that were recorded."""
        return sorted(set(self.sensors["kind"].dropna()))


def open_recording(about: Description) -> Recorded:
    """Read the recording that a description is of: a file, or a folder of the files of one run.

    InputError, which names the description or the file, for what cannot be read or is not clear.
    """
    path, given = about.path, about.given
    if not path.exists():
        raise InputError(
            f"{about.where}: {path} does not exist; expected a perun file, journal or folder"
        )
    if files := _foreign_files(path, about.options):
        return _read_foreign(path, files)
    is_chosen = given.run is not None or given.round is not None
    if is_chosen and (path.is_dir() or is_journal(path)):
        raise InputError(
            f"{about.where}: run and round choose from one perun file; {path} is none: name the file"
        )
    return _read_folder(path) if path.is_dir() else _read(path, 0, None, given.run, given.round)


def _recorded(
    segment: int,
    nodes: Mapping[str, Sequence[Block]],
    files: Iterable[RecordedFile],
    problems: Iterable[str],
    has_clock: Callable[[str], bool],
) -> Recorded:
    """What the blocks of a segment's nodes say; `has_clock`: whether a node's times are of a known clock."""
    rows: list[dict[str, Any]] = []
    windows = []
    for host, blocks in nodes.items():
        at = {"segment": segment, "host": host}
        rows.append({**at, **dict.fromkeys(("kind", "index", "quantity", "mean_w", "limit_w"))})
        for block in blocks:
            for sensor, column in zip(block.rows, block.values.T, strict=True):
                known = column[np.isfinite(column)]
                rows.append(
                    {
                        **at,
                        "kind": sensor.kind,
                        "index": sensor.index,
                        "quantity": sensor.quantity,
                        "mean_w": known.mean() if known.size else np.nan,
                        "limit_w": sensor.limit_w,
                    }
                )
        if has_clock(host) and (window := node_window(blocks)) is not None:
            windows.append({"host": host, "start_s": window[0], "end_s": window[1]})
    sensors = pd.DataFrame(rows, dtype=object)
    counted = sensors[sensors["quantity"] != "utilisation"]
    return Recorded(tuple(files), counted, tuple(windows), tuple(problems))


def _together(parts: Sequence[Recorded]) -> Recorded:
    return Recorded(
        tuple(file for part in parts for file in part.files),
        pd.concat([part.sensors for part in parts], ignore_index=True),
        tuple(window for part in parts for window in part.windows),
        tuple(problem for part in parts for problem in part.problems),
    )


# --- perun's files and journals -------------------------------------------------------------------


def _read_folder(path: Path) -> Recorded:
    folder = path / "perun" if (path / "perun").is_dir() else path
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    named = {p: int(match[1]) for p in files if (match := _NAMED.match(p.name))}
    recordings = [p for p in named if _is_recording(p)]
    if not recordings:
        raise InputError(
            f"{path}: holds neither a perun file nor a journal named by its segment; expected {_NAMES}"
        )
    recorded = _together([_read(p, named[p], p.name) for p in recordings])
    read = {file.path for file in recorded.files}
    others = [RecordedFile(p, file_sha256(p), p.name) for p in named if p not in read]
    return replace(recorded, files=(*recorded.files, *others))


def _is_recording(path: Path) -> bool:
    """True if a file is a journal, or HDF5 with a run; InputError if it is damaged HDF5."""
    if is_journal(path):
        return True
    return (path.suffix in (".hdf5", ".h5") or h5py.is_hdf5(path)) and bool(list_runs(path))


def _read(
    path: Path, number: int, target: str | None, run: str | None = None, round_: str | None = None
) -> Recorded:
    """Read one file of a segment, which is kept under the name `target`; None: by its content."""
    if is_journal(path):
        recording = read_journal([path])
        host = re.sub(_NOT_IN_NAMES, "_", next(iter(recording.nodes)))  # it is no path
        journal = Path(target or f"segment-{number:03d}.{host}.csv")
        names = {path: journal.name, beside(path, SENSORS): beside(journal, SENSORS).name}
        files = [RecordedFile(p, file_sha256(p), name) for p, name in names.items()]
    else:
        runs = list_runs(path)
        with open_perun_file(path, run, round_) as recording:
            chosen = choose_run(runs, run)
            others = len(runs) > 1 or (round_ is not None and len(chosen.round_ids) > 1)
            part = (chosen.app, chosen.run_id, recording.round or "") if others else None
            name = target or f"segment-{number:03d}.hdf5"
            nodes = {host: [*blocks] for host, blocks in recording.nodes.items()}
        files = [RecordedFile(path, file_sha256(path), name, part)]
        recording = replace(recording, nodes=nodes)
    problems = [f"{path}: {each['detail']}" for each in recording.flags]
    return _recorded(number, recording.nodes, files, problems, lambda host: recording.clock_known)


# --- other tools' files ---------------------------------------------------------------------------


def _foreign_files(path: Path, options: Options) -> list[tuple[Path, Options]]:
    """The other tools' files at a path, with their options; none of a folder that a run of ours has."""
    if path.is_file():
        return [(path, options)] if find_format(path, options) is not None else []
    if (path / "perun").is_dir() or not (files := files_in(path, options)):
        return []
    for name in ("node", "run") if len(files) > 1 else ():
        if getattr(options, name) is not None:
            raise InputError(f"{path}: holds {len(files)} recordings; {name} is of a single file")
    return files


def _read_foreign(path: Path, files: Sequence[tuple[Path, Options]]) -> Recorded:
    """Read what other tools recorded: one segment, each file of one node."""
    read = [(file, options, read_foreign(file, options)) for file, options in files]
    whole = joined([recording for *_, recording in read])  # refuses files of several runs
    unread = flag_unread(path, [file for file, _ in files]) if path.is_dir() else []
    kept: list[RecordedFile] = []
    for file, options, recording in read:
        kept += _kept(file, options, recording, {file.target for file in kept})
    problems = [f"{path}: {each['detail']}" for each in (*whole.flags, *unread)]

    def has_clock(node: str) -> bool:
        # A file's name does not tell which machine it was.
        return whole.clock_known and node not in whole.named_by_file

    return _recorded(0, whole.nodes, kept, problems, has_clock)


def _kept(
    path: Path, options: Options, recording: Recording, taken: set[str]
) -> list[RecordedFile]:
    """What the run folder keeps of a file: its copy, what its user said of it, and its columns."""
    nodes = list(recording.nodes)
    node = nodes[0] if len(nodes) == 1 else node_of(path, options)
    stem = re.sub(_NOT_IN_NAMES, "_", node)
    names = (recording_name(0, f"{stem}{f'.{k}' if k else ''}") for k in range(len(taken) + 1))
    target = next(name for name in names if name not in taken)
    content = {"node": node, **options_content(options)}
    if options.columns is None:
        return [RecordedFile(path, file_sha256(path), target, options=content)]
    columns = f"{target}.columns.yaml"
    return [
        RecordedFile(path, file_sha256(path), target, options={**content, "columns": columns}),
        RecordedFile(options.columns, file_sha256(options.columns), columns),
    ]


# --- copies ---------------------------------------------------------------------------------------


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
    if file.part is not None:
        _keep_round(target, *file.part)


def _keep_round(path: Path, app: str, run: str, round_: str) -> None:
    """Leave one round in a perun file, with all its metadata."""
    whole = path.with_name(path.name + ".whole")
    path.rename(whole)
    with h5py.File(whole, "r") as group, h5py.File(path, "w") as into:
        for name in (app, run):
            into.attrs.update(group.attrs)
            group, into = group[name], into.create_group(name)
            for other in set(group) - {"nodes"}:
                group.copy(other, into)
            into.attrs.update(group.attrs)
            group, into = group["nodes"], into.create_group("nodes")
        into.attrs.update(group.attrs)
        group.copy(round_, into)
    whole.unlink()
