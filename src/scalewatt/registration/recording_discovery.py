"""What lies at a path that is to be registered: perun files and journals, sorted to segments."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_json
from scalewatt.energies.node import node_window
from scalewatt.recordings.block import Block
from scalewatt.recordings.foreign_files import options_name
from scalewatt.recordings.journal import beside, is_journal, read_journal
from scalewatt.recordings.perun_file import choose_run, list_runs, open_perun_file
from scalewatt.recordings.terms import Flag

_NAMED = re.compile(r"^(?:failed_)?segment-(\d+)\.")
_NAMES = "segment-000.hdf5, segment-000.<host>.csv, segment-001.hdf5, …"


@dataclass(frozen=True)
class Window:
    """Unix seconds between which a host was recorded."""

    host: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class GpuPower:
    """Mean of a GPU's power samples in W, and its limit where the recording states it, else NaN."""

    host: str
    index: int
    mean_w: float
    limit_w: float


@dataclass(frozen=True)
class RecordedFile:
    """One file of a run."""

    path: Path
    sha256: str
    segment: int
    target: str
    """Its name in the run folder's perun/."""
    part: tuple[str, str, str] | None = None
    """Application, run and round, where the file holds others that are left out."""
    options: tuple[tuple[str, str], ...] = ()
    """What was told of another tool's file, by key."""

    @property
    def identity(self) -> str:
        """Return what identifies a recording: its content, and the part of it."""
        chosen = [value for key, value in self.options if key == "run"]
        return "/".join([self.sha256, *(self.part or ()), *chosen])


@dataclass(frozen=True)
class Recorded:
    """All files of one run, and what they say of it."""

    files: tuple[RecordedFile, ...]
    hosts: tuple[tuple[str, ...], ...]
    """The hosts of each segment."""
    gpus: dict[str, list[int]]
    """Indices of the GPUs whose power or energy was recorded, by host."""
    windows: tuple[Window, ...]
    """Where the files state wall-clock times."""
    problems: tuple[str, ...] = ()
    """Problems found while reading the files, as sentences."""
    powers: tuple[GpuPower, ...] = ()
    """Mean powers of the GPUs, where their power was sampled; each segment's."""

    @property
    def identity(self) -> list[str]:
        """Return the files' identities, in a fixed order."""
        return sorted(file.identity for file in self.files)

    @property
    def segments(self) -> list[int]:
        """Return the numbers of the segments."""
        return sorted({file.segment for file in self.files})

    @property
    def hostnames(self) -> list[str]:
        """Return all hosts of all segments."""
        return sorted({host for hosts in self.hosts for host in hosts})


@dataclass(frozen=True)
class _Read:
    """One recording, read."""

    path: Path
    journal: bool
    hosts: tuple[str, ...]
    gpus: dict[str, list[int]]
    windows: tuple[Window, ...]
    problems: tuple[Flag, ...]
    powers: tuple[GpuPower, ...]
    part: tuple[str, str, str] | None = None


def open_recording(path: Path, run: str | None, round_: str | None, where: str) -> Recorded:
    """Read what lies at `path`: a file, or a folder of the segments of one run.

    `run` and `round_` choose from a perun file that holds several. InputError, which names `where`
    or the file, for what cannot be read or is not clear.
    """
    if not path.exists():
        raise InputError(
            f"{where}: {path} does not exist; expected a perun file, journal or folder"
        )
    if not path.is_dir():
        return _recorded([(0, _read(path, run, round_))])
    if run is not None or round_ is not None:
        raise InputError(
            f"{where}: run and round choose from one perun file; {path} is a folder: name the file"
        )
    folder = path / "perun" if (path / "perun").is_dir() else path
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    named = [p for p in files if _NAMED.match(p.name)]
    recordings = [p for p in named or files if _is_recording(p)]
    if not recordings:
        raise InputError(f"{path}: holds neither a perun file nor a journal")
    if not named:
        return _recorded([(0, read) for read in _of_one_segment(recordings, path)])
    recorded = _recorded([(_number(p), _read(p, None, None)) for p in recordings], keep_names=True)
    beside = [
        RecordedFile(p, file_sha256(p), _number(p), p.name) for p in named if p not in recordings
    ]
    return replace(recorded, files=(*recorded.files, *beside))


def place(file: RecordedFile, folder: Path) -> None:
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
        write_json(folder / options_name(file.target), dict(file.options))
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


def _is_recording(path: Path) -> bool:
    """Return True if a file is a journal, or HDF5 with a run; InputError if it is damaged HDF5."""
    if is_journal(path):
        return True
    return (path.suffix in (".hdf5", ".h5") or h5py.is_hdf5(path)) and bool(list_runs(path))


def _number(path: Path) -> int:
    found = _NAMED.match(path.name)
    assert found is not None
    return int(found.group(1))


def _read(path: Path, run: str | None, round_: str | None) -> _Read:
    if is_journal(path):
        if run is not None or round_ is not None:
            raise InputError(f"{path}: run and round choose from a perun file; this is a journal")
        recording = read_journal(path)
        windows, gpus, powers = facts_of(recording.nodes.items(), recording.clock_known)
        return _Read(path, True, tuple(recording.nodes), gpus, windows, recording.flags, powers)
    runs = list_runs(path)
    with open_perun_file(path, run, round_) as recording:
        chosen = choose_run(runs, run)
        others = len(runs) > 1 or (round_ is not None and len(chosen.round_ids) > 1)
        part = (chosen.app, chosen.run_id, recording.round or "") if others else None
        windows, gpus, powers = facts_of(recording.nodes.items(), recording.clock_known)
        facts = (gpus, windows, tuple(recording.flags), powers, part)
        return _Read(path, False, tuple(recording.nodes), *facts)


def facts_of(
    nodes: Iterable[tuple[str, Sequence[Block]]], clock_known: bool
) -> tuple[tuple[Window, ...], dict[str, list[int]], tuple[GpuPower, ...]]:
    """When each host was recorded, where that is known; its GPUs by index; and their mean powers."""
    windows: list[Window] = []
    powers: list[GpuPower] = []
    gpus: dict[str, list[int]] = {}
    for host, blocks in nodes:
        indices: set[int] = set()
        for block in blocks:
            for column, sensor in enumerate(block.sensors.to_dict("records")):
                if sensor["kind"] != "gpu" or sensor["quantity"] not in ("power", "counter"):
                    continue
                known = block.values[:, column]
                known = known[np.isfinite(known)]
                if sensor["quantity"] == "power" and known.size and sensor["index"] not in indices:
                    mean_w, limit_w = float(known.mean()), float(sensor["limit_w"])
                    powers.append(GpuPower(host, sensor["index"], mean_w, limit_w))
                indices.add(int(sensor["index"]))
        gpus[host] = sorted(indices)
        if clock_known and (window := node_window(blocks)) is not None:
            windows.append(Window(host, *window))
    return tuple(windows), gpus, tuple(powers)


def _of_one_segment(recordings: list[Path], path: Path) -> list[_Read]:
    """Read a folder's files whose names say no segment; InputError unless they can be of one."""
    reads = [_read(recording, None, None) for recording in recordings]
    hosts = [host for read in reads if read.journal for host in read.hosts]
    if len(set(hosts)) < len(hosts) or sum(not read.journal for read in reads) > 1:
        raise InputError(
            f"{path}: holds several perun files, or journals of one host; expected names that say "
            f"their segment: {_NAMES}"
        )
    return reads


def _recorded(found: list[tuple[int, _Read]], keep_names: bool = False) -> Recorded:
    files: list[RecordedFile] = []
    gpus: dict[str, set[int]] = {}
    hosts: dict[int, set[str]] = {}
    for number, read in found:
        taken = {file.target for file in files}
        target = read.path.name if keep_names else _target(number, read, taken)
        files.append(RecordedFile(read.path, file_sha256(read.path), number, target, read.part))
        if read.journal and not keep_names:
            sensors, named = (beside(p, ".sensors.json") for p in (read.path, Path(target)))
            files.append(RecordedFile(sensors, file_sha256(sensors), number, named.name))
        hosts.setdefault(number, set()).update(read.hosts)
        for host, indices in read.gpus.items():
            gpus.setdefault(host, set()).update(indices)
    return Recorded(
        files=tuple(files),
        hosts=tuple(tuple(sorted(hosts[number])) for number in sorted(hosts)),
        gpus={host: sorted(indices) for host, indices in sorted(gpus.items())},
        windows=tuple(w for _, read in found for w in read.windows),
        problems=tuple(
            f"{read.path}: {one['detail']}" for _, read in found for one in read.problems
        ),
        powers=tuple(power for _, read in found for power in read.powers),
    )


def _target(number: int, read: _Read, taken: set[str]) -> str:
    stem = f"segment-{number:03d}"
    if not read.journal:
        return f"{stem}.hdf5"
    host = re.sub(r"[^A-Za-z0-9._-]", "_", read.hosts[0])  # what a file says is no path
    names = (f"{stem}.{host}{f'.{k}' if k else ''}.csv" for k in range(len(taken) + 1))
    return next(name for name in names if name not in taken)
