"""What lies at a path that is to be registered: perun files and journals, sorted to segments."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_json
from scalewatt.energies.node import node_window
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.journal import beside, is_journal, read_journal
from scalewatt.recordings.perun_file import choose_run, list_runs, open_perun_file

SENSORS = ".sensors.json"
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
        """Identity of a recording: its content, and the part of it."""
        chosen = [value for key, value in self.options if key == "run"]
        return "/".join([self.sha256, *(self.part or ()), *chosen])


@dataclass(frozen=True)
class Recorded:
    """All files of one run, and what they say of it."""

    files: tuple[RecordedFile, ...]
    hosts: dict[int, tuple[str, ...]]
    """Hosts by segment."""
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
        """The files' identities, in a fixed order."""
        return sorted(file.identity for file in self.files)

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments."""
        return sorted(self.hosts)

    @property
    def hostnames(self) -> list[str]:
        """All hosts of all segments."""
        return sorted({host for hosts in self.hosts.values() for host in hosts})


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
        return _read(path, 0, None, run, round_)
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
        return _of_one_segment([_read(p, 0, None) for p in recordings], path)
    recorded = _together([_read(p, _number(p), p.name) for p in recordings])
    read = {file.path for file in recorded.files}
    others = (RecordedFile(p, file_sha256(p), _number(p), p.name) for p in named if p not in read)
    return replace(recorded, files=(*recorded.files, *others))


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
        write_json(folder / f"{file.target}.json", dict(file.options))
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
    """True if a file is a journal, or HDF5 with a run; InputError if it is damaged HDF5."""
    if is_journal(path):
        return True
    return (path.suffix in (".hdf5", ".h5") or h5py.is_hdf5(path)) and bool(list_runs(path))


def _number(path: Path) -> int:
    found = _NAMED.match(path.name)
    assert found is not None
    return int(found.group(1))


def _read(
    path: Path, number: int, target: str | None, run: str | None = None, round_: str | None = None
) -> Recorded:
    """Read one file of a segment, which is kept under the name `target`; None: by its content."""
    if is_journal(path):
        if run is not None or round_ is not None:
            raise InputError(f"{path}: run and round choose from a perun file; this is a journal")
        recording = read_journal(path)
        host = re.sub(r"[^A-Za-z0-9._-]", "_", next(iter(recording.nodes)))  # it is no path
        journal = Path(target or f"segment-{number:03d}.{host}.csv")
        names = {path: journal.name}
        names |= {beside(path, SENSORS): beside(journal, SENSORS).name}
        files = [RecordedFile(p, file_sha256(p), number, name) for p, name in names.items()]
        return _recorded(path, number, files, recording)
    runs = list_runs(path)
    with open_perun_file(path, run, round_) as recording:
        chosen = choose_run(runs, run)
        others = len(runs) > 1 or (round_ is not None and len(chosen.round_ids) > 1)
        part = (chosen.app, chosen.run_id, recording.round or "") if others else None
        name = target or f"segment-{number:03d}.hdf5"
        files = [RecordedFile(path, file_sha256(path), number, name, part)]
        return _recorded(path, number, files, recording)


def _recorded(
    path: Path, number: int, files: Sequence[RecordedFile], recording: Recording
) -> Recorded:
    windows, gpus, powers = facts_of(recording.nodes.items(), recording.clock_known)
    problems = tuple(f"{path}: {each['detail']}" for each in recording.flags)
    hosts = {number: tuple(sorted(recording.nodes))}
    return Recorded(tuple(files), hosts, gpus, windows, problems, powers)


def facts_of(
    nodes: Iterable[tuple[str, Sequence[Block]]], clock_known: bool
) -> tuple[tuple[Window, ...], dict[str, list[int]], tuple[GpuPower, ...]]:
    """When each host was recorded, where that is known; its GPUs by index; and their mean powers."""
    windows: list[Window] = []
    powers: list[GpuPower] = []
    gpus: dict[str, list[int]] = {}
    for host, blocks in nodes:
        indices: set[int] = set()
        seen: set[int] = set()
        for block in blocks:
            for column, sensor in enumerate(block.sensors.to_dict("records")):
                if sensor["kind"] != "gpu" or sensor["quantity"] not in ("power", "counter"):
                    continue
                known = block.values[:, column]
                known = known[np.isfinite(known)]
                if sensor["quantity"] == "power" and known.size and sensor["index"] not in seen:
                    mean_w, limit_w = float(known.mean()), float(sensor["limit_w"])
                    powers.append(GpuPower(host, sensor["index"], mean_w, limit_w))
                    seen.add(sensor["index"])
                indices.add(int(sensor["index"]))
        gpus[host] = sorted(indices)
        if clock_known and (window := node_window(blocks)) is not None:
            windows.append(Window(host, *window))
    return tuple(windows), gpus, tuple(powers)


def _of_one_segment(files: list[Recorded], path: Path) -> Recorded:
    """Join a folder's files whose names say no segment; InputError unless they can be of one."""
    recorded = _together(files)
    names = [file.target for file in recorded.files]
    windows = sorted(recorded.windows, key=lambda window: window.start_s)
    ends_s = accumulate((window.end_s for window in windows), max)
    apart = any(w.start_s > end_s for w, end_s in zip(windows[1:], ends_s, strict=False))
    if apart or len(set(names)) < len(names):
        raise InputError(
            f"{path}: holds several perun files, or journals of one host or of different times; expected "
            f"names that say their segment: {_NAMES}"
        )
    return recorded


def _together(parts: Sequence[Recorded]) -> Recorded:
    """Join what several files of a run say."""
    hosts: dict[int, tuple[str, ...]] = {}
    gpus: dict[str, list[int]] = {}
    for part in parts:
        for number, names in part.hosts.items():
            hosts[number] = tuple(sorted({*hosts.get(number, ()), *names}))
        for host, indices in part.gpus.items():
            gpus[host] = sorted({*gpus.get(host, ()), *indices})
    return Recorded(
        files=tuple(file for part in parts for file in part.files),
        hosts=dict(sorted(hosts.items())),
        gpus=dict(sorted(gpus.items())),
        windows=tuple(window for part in parts for window in part.windows),
        problems=tuple(problem for part in parts for problem in part.problems),
        powers=tuple(power for part in parts for power in part.powers),
    )
