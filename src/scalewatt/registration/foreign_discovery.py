"""What lies at a path that another tool recorded: one file, or a folder with the files of one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.recordings.block import Recording
from scalewatt.recordings.detect import (
    files_in,
    find_format,
    flag_unread,
    joined,
    options_content,
    read_foreign,
    recording_name,
)
from scalewatt.recordings.tables import Options, node_of
from scalewatt.registration.recording_discovery import Recorded, RecordedFile, facts_of


def open_foreign(path: Path, options: Options) -> Recorded | None:
    """Read what another tool recorded at `path`; None if there is nothing of the kind.

    Each file of a folder is of one node, named by its content, by `options`, or by its own name. All
    of them are one segment. InputError for a file that cannot be read.
    """
    files = _files_at(path, options)
    if not files:
        return None
    for name in ("node", "run") if len(files) > 1 else ():
        if getattr(options, name) is not None:
            raise InputError(f"{path}: holds {len(files)} recordings; {name} is of a single file")
    read = [(file, given, read_foreign(file, given)) for file, given in files]
    whole = joined([recording for *_, recording in read])  # refuses files of several runs
    unread = flag_unread(path, [file for file, _ in files]) if path.is_dir() else []
    kept: list[RecordedFile] = []
    for each in read:
        kept += _kept(*each, {file.target for file in kept})
    windows, gpus, powers = facts_of(whole.nodes.items(), whole.clock_known)
    return Recorded(
        tuple(kept),
        {0: tuple(whole.nodes)},
        {node: own for node, own in gpus.items() if own},
        # A file's name does not tell which machine it was.
        tuple(window for window in windows if window.host not in whole.named_by_file),
        tuple(f"{path}: {each['detail']}" for each in (*whole.flags, *unread)),
        powers,
    )


def _files_at(path: Path, options: Options) -> Sequence[tuple[Path, Options]]:
    """The other tools' files at a path, with their options; none of a folder that a run of ours has."""
    if path.is_file():
        return [(path, options)] if find_format(path, options) is not None else []
    return files_in(path, options, {}) if path.is_dir() and not (path / "perun").is_dir() else []


def _kept(
    path: Path, options: Options, recording: Recording, taken: set[str]
) -> list[RecordedFile]:
    """What the run folder keeps of a file: its copy, what its user said of it, and its columns."""
    nodes = list(recording.nodes)
    node = nodes[0] if len(nodes) == 1 else node_of(path, options)
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", node)
    names = (recording_name(0, f"{stem}{f'.{k}' if k else ''}") for k in range(len(taken) + 1))
    target = next(name for name in names if name not in taken)
    columns = f"{target}.columns.yaml"
    content = {"node": node, **options_content(options)}
    if options.columns is None:
        return [_file(path, target, content)]
    copy = _file(path, target, {**content, "columns": columns})
    return [copy, _file(options.columns, columns)]


def _file(path: Path, target: str, options: dict[str, str] | None = None) -> RecordedFile:
    given = tuple(sorted((options or {}).items()))
    return RecordedFile(path, file_sha256(path), 0, target, options=given)
