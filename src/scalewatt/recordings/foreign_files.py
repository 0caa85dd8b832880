"""Other tools' recordings in a run folder: whole copies, named by segment and node, with their options.

`segment-000.<node>.recording` is the file as it was; its format is told by its content.
`segment-000.<node>.recording.json` has the options that it needs, where it needs any.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.recordings.tables import Options

SUFFIX = ".recording"


def recording_name(segment: int, node: str) -> str:
    """Return the name of the file with a node's recording."""
    return f"segment-{segment:03d}.{node}{SUFFIX}"


def options_name(recording: str) -> str:
    """Return the name of the file with a recording's options."""
    return f"{recording}.json"


def options_content(options: Options) -> dict[str, str]:
    """Return the options that were given, ready for JSON; the columns by the name of their file."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    return {name: value.name if isinstance(value, Path) else value for name, value in given.items()}


def foreign_files(folder: Path, segment: int) -> list[tuple[Path, Options]]:
    """Return the files of a segment with their options, by name.

    Raises InputError for options that cannot be read.
    """
    stem = f"segment-{segment:03d}."
    found = sorted(folder.glob(f"{stem}*{SUFFIX}"))
    return [(path, _options(path, path.name[len(stem) : -len(SUFFIX)])) for path in found]


def _options(path: Path, node: str) -> Options:
    file = path.with_name(options_name(path.name))
    if not file.exists():
        return Options(node=node)
    content = read_json_object(file)
    allowed = set(Options.__dataclass_fields__)
    if not set(content) <= allowed or not all(isinstance(v, str) for v in content.values()):
        raise InputError(f"{file}: expected texts under {', '.join(sorted(allowed))}")
    columns = content.pop("columns", None)
    where = path.with_name(columns) if columns and Path(columns).name == columns else None
    return Options(**{"node": node, **content}, columns=where)
