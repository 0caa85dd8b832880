"""Other samplers on this node: every live one has a socket with an abstract name that says who it is.

The kernel removes the socket with its process. Samplers that state another host name are not seen, nor
are those of a container that does not share the network with this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.recordings.stage_log import read_json_lines

GROUP_VARIABLE = "SCALEWATT_SAMPLERS"
"""Environment variable that names a group: samplers of another group are not seen."""
_SOCKETS = Path("/proc/net/unix")
_NAME_BYTES = 107


class ConcurrentSamplers:
    """Announces this sampler while it lives, and lists the others."""

    def __init__(self, run: str, host: str) -> None:
        self._host, self._id = host, uuid.uuid4().hex[:12]
        self._socket: socket.socket | None = None
        name = f"\0{_prefix(host)}{self._id}/{os.getpid()}/{' '.join(run.split())}"
        with suppress(OSError):
            mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            mark.bind(name.encode(errors="replace")[: _NAME_BYTES + 1])
            self._socket = mark

    def others(self) -> list[dict[str, Any]] | None:
        """List {"run", "host", "pid"} of every other live sampler of this host; None if unseen."""
        announced = _announced(self._host)
        if announced is None or self._socket is None:
            return None
        return [sampler for id_, sampler in announced.items() if id_ != self._id]


def samplers_of(host: str) -> list[dict[str, Any]]:
    """List {"run", "host", "pid"} of the live samplers of a host, as far as they can be seen."""
    return list((_announced(host) or {}).values())


def _prefix(host: str) -> str:
    group = f"{os.environ.get(GROUP_VARIABLE, '')}\0{host}".encode()
    return f"scalewatt-sampler/{hashlib.sha256(group).hexdigest()[:12]}/"


def _announced(host: str) -> dict[str, dict[str, Any]] | None:
    """Samplers of a host, {"run", "host", "pid"}, by their ids; None if the sockets cannot be listed."""
    name = re.compile(rf" @{_prefix(host)}(\w+)/(\d+)/(.*)")
    try:
        matches = map(name.search, _SOCKETS.read_text(errors="replace").splitlines())
    except OSError:
        return None
    return {m[1]: {"run": m[3], "host": host, "pid": int(m[2])} for m in matches if m}


def note_samplers(path: Path, samplers: Iterable[dict[str, Any]]) -> None:
    """Add samplers that were seen just now to the notes in `path`, a JSON object a line. Raises OSError."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            "".join(json.dumps({"t": time.time(), **sampler}) + "\n" for sampler in samplers)
        )


def read_samplers(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return {"t" (unix s), "run", "host", "pid"} of all samplers that were seen, in order of time."""
    noted = (sampler for path in paths for sampler in read_json_lines(path))
    return sorted(noted, key=lambda sampler: float(sampler["t"]))
