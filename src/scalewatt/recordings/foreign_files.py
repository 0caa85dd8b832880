"""Other tools' recordings in a run folder: whole copies, named by segment and node, with their options.

`segment-000.<node>.recording` is the file as it was; its format is told by its content.
`segment-000.<node>.recording.json` has the options that it needs, where it needs any.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from scalewatt.common.files import read_json_object
from scalewatt.recordings.tables import Options

SUFFIX = ".recording"


def recording_name(segment: int, node: str) -> str:
    """Name of the file with a node's recording."""
    return f"segment-{segment:03d}.{node}{SUFFIX}"


def options_name(recording: str) -> str:
    """Name of the file with a recording's options."""
    return f"{recording}.json"


def options_content(options: Options) -> dict[str, str]:
    """Options that were given, ready for JSON; the columns by the name of their file."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    return {name: value.name if isinstance(value, Path) else value for name, value in given.items()}


def foreign_files(folder: Path, segment: int) -> list[tuple[Path, Options]]:
    """Files of a segment with their options, by name."""
    stem = recording_name(segment, "").removesuffix(SUFFIX)
    files = sorted(folder.glob(f"{stem}*{SUFFIX}"))
    return [(path, _read_options(path, path.name[len(stem) : -len(SUFFIX)])) for path in files]


def _read_options(path: Path, node: str) -> Options:
    file = path.with_name(options_name(path.name))
    content = read_json_object(file) if file.exists() else {}
    if "columns" in content:
        content["columns"] = path.with_name(content["columns"])
    return Options(**{"node": node, **content})
