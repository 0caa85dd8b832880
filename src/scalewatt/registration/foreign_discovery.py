"""What lies at a path that another tool recorded: one file, or a folder with the files of one run."""

from __future__ import annotations

import re
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.recordings.foreign_files import options_content, recording_name
from scalewatt.recordings.formats.detect import (
    find_format,
    joined,
    read_foreign,
    with_nodes,
)
from scalewatt.recordings.formats.format import Options, node_of
from scalewatt.recordings.series import Recording
from scalewatt.registration.plausible_power import GpuPower
from scalewatt.registration.recording_discovery import Recorded, RecordedFile, Window, facts_of


def open_foreign(path: Path, options: Options) -> Recorded | None:
    """Read what another tool recorded at `path`; None if there is nothing of the kind.

    Each file of a folder is of one node, named by its content, by `options`, or by its own name. All
    of them are one segment. InputError for a file that cannot be read.
    """
    files = [path] if path.is_file() else _files_in(path)
    foreign = [file for file in files if find_format(file, options) is not None]
    if not foreign:
        return None
    if options.node is not None and len(foreign) > 1:
        raise InputError(
            f"{path}: holds {len(foreign)} recordings; node names that of a single file"
        )
    if options.run is not None and len(foreign) > 1:
        raise InputError(f"{path}: holds {len(foreign)} recordings; run chooses from a single file")
    recordings = with_nodes([read_foreign(file, options) for file in foreign])
    joined(recordings)  # refuses files that cannot be of one run
    found = list(zip(foreign, recordings, strict=True))
    kept: list[RecordedFile] = []
    for file, recording in found:
        kept += _kept(file, recording, options, {one.target for one in kept})
    windows, gpus, powers = _facts(found, options)
    hosts = {host for _, recording in found for host in recording.hosts}
    problems = tuple(
        f"{f}: {one['detail']}" for f, recording in found for one in recording.problems
    )
    return Recorded(tuple(kept), (tuple(sorted(hosts)),), gpus, windows, problems, powers)


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a folder; none of one that a run of ours has."""
    if (folder / "perun").is_dir() or not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))


def _kept(
    file: Path, recording: Recording, options: Options, taken: set[str]
) -> list[RecordedFile]:
    """Return what the run folder keeps of a file: its copy, what was told of it, and its columns."""
    # A format may take the node from its file's name in a way of its own, and the copy has another.
    own = recording.hosts[0] if len(recording.hosts) == 1 else node_of(file, options)
    node = re.sub(r"[^A-Za-z0-9._-]", "_", own)
    names = (recording_name(0, f"{node}{f'.{k}' if k else ''}") for k in range(len(taken) + 1))
    target = next(name for name in names if name not in taken)
    columns = f"{target}.columns.yaml"
    told = {**options_content(options), **({"columns": columns} if options.columns else {})}
    told = {"node": own, **told}
    kept = [RecordedFile(file, file_sha256(file), 0, target, options=tuple(sorted(told.items())))]
    if options.columns is not None:
        kept.append(RecordedFile(options.columns, file_sha256(options.columns), 0, columns))
    return kept


def _facts(
    found: list[tuple[Path, Recording]], options: Options
) -> tuple[tuple[Window, ...], dict[str, list[int]], tuple[GpuPower, ...]]:
    """Return when each host was recorded, as far as its name is known and its GPUs with their powers."""
    windows: list[Window] = []
    powers: list[GpuPower] = []
    gpus: dict[str, set[int]] = {}
    for file, recording in found:
        own, indices, of_gpus = facts_of(recording.nodes.items(), recording.t0_known)
        powers += of_gpus
        # The file's name says nothing of which machine it was.
        windows += [w for w in own if options.node or w.host != node_of(file, Options())]
        for host in recording.hosts:
            gpus.setdefault(host, set()).update(indices[host])
    own_gpus = {host: sorted(one) for host, one in sorted(gpus.items()) if one}
    return tuple(windows), own_gpus, tuple(powers)
