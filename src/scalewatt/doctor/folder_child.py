"""Try a folder, in a process of its own: a file system that has lost its server may hang.

`python -m scalewatt.doctor.folder_child FOLDER` prints {"exists", "tried", "free_gib", "error"}.
What does not exist is not made: the folder above that exists is tried in its place. `exists` is null
where a folder above may not be looked into; then nothing is tried.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_TRIED_BYTES = 1 << 20
"""A quota shows only where something is written."""


def try_folder(folder: Path) -> dict[str, Any]:
    """Write a file and delete it; `error` is null where that works. Never raises OSError."""
    tried = folder.absolute()
    hidden: OSError | None = None
    while tried != tried.parent:
        try:
            if tried.exists():
                break
        except OSError as error:  # below a folder that may not be searched, a dead mount
            hidden = hidden or error
        tried = tried.parent
    found: dict[str, Any] = {"exists": tried == folder.absolute(), "tried": str(tried)}
    if hidden is not None:
        said = hidden.strerror or str(hidden)
        return {**found, "exists": None, "free_gib": None, "error": said}
    try:
        room = os.statvfs(tried)
        found["free_gib"] = room.f_bavail * room.f_frsize / (1 << 30)
        with tempfile.TemporaryFile(dir=tried, prefix=".scalewatt-") as file:
            file.write(bytes(_TRIED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return {"free_gib": None, **found, "error": error.strerror or str(error)}
    return {**found, "error": None}


if __name__ == "__main__":
    print(json.dumps(try_folder(Path(sys.argv[1]))))
