"""Other samplers on this node: every live one announces itself in two places.

One is a locked file in a folder that all jobs share: the lock is held as long as the sampler lives,
whatever ends it, and the file of a dead one is removed by the next sampler that sees it. The other
is a socket with an abstract name, which is seen by jobs that have a /dev/shm of their own as well.
Samplers that state another host name are not seen, nor are those of a container that shares neither
files nor network with this one. Those that were met are noted, a JSON object a line.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.common.file_locks import flock
from scalewatt.common.untrusted_text import parse_json

FOLDER_VARIABLE = "SCALEWATT_SAMPLERS"
"""Environment variable that names another folder; samplers of other folders are not seen then."""

_NOTED = {"run": str, "host": str, "pid": int}
_SUFFIX = ".sampler"
_SOCKETS = Path("/proc/net/unix")
_NAME_BYTES = 107
_LIMIT_BYTES = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def shared_folder() -> Path:
    """Return the folder that all samplers of this node share."""
    if os.environ.get(FOLDER_VARIABLE):
        return Path(os.environ[FOLDER_VARIABLE])
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    return (memory if usable else Path("/tmp")) / "scalewatt-samplers"


class ConcurrentSamplers:
    """Announces this sampler while it lives, and lists the others."""

    def __init__(self, run: str, host: str) -> None:
        self._host = host
        self._folder = shared_folder()
        self._lock: int | None = None
        self._own = ""
        self._socket: socket.socket | None = None
        self._prefix = _socket_prefix(host)
        self._id = uuid.uuid4().hex[:12]
        facts = {"run": run, "host": host, "pid": os.getpid()}
        with suppress(OSError):
            self._announce_by_file({**facts, "id": self._id})
        with suppress(OSError):
            self._announce_by_socket(facts)

    def others(self) -> list[dict[str, Any]] | None:
        """Return {"run", "host", "pid"} of every other live sampler of this host.

        None if they could not be seen: neither place can be both written to and read.
        """
        by_socket, by_file = self._by_socket(), self._by_file()
        if by_socket is None and by_file is None:
            return None
        found = {one.pop("id"): one for one in (*(by_socket or ()), *(by_file or ()))}
        found.pop(self._id, None)
        return list(found.values())

    def _by_file(self) -> list[dict[str, Any]] | None:
        if self._lock is None:
            return None
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return None
        of_samplers = (name for name in names if name.endswith(_SUFFIX) and name[0] != ".")
        found = [_look(self._folder / name) for name in of_samplers if name != self._own]
        return [one for one in found if one is not None and one["host"] == self._host]

    def _by_socket(self) -> list[dict[str, Any]] | None:
        return None if self._socket is None else _by_socket(self._prefix, self._host)

    def _announce_by_socket(self, facts: dict[str, Any]) -> None:
        run = " ".join(facts["run"].split())
        name = f"{self._prefix}{self._id}/{facts['pid']}/{run}"
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(b"\0" + name.encode(errors="replace")[:_NAME_BYTES])
        except OSError:
            mark.close()
            raise
        self._socket = mark

    def _announce_by_file(self, facts: dict[str, Any]) -> None:
        _make_shared(self._folder)
        name = f"{facts['pid']}.{self._host}.{self._id}{_SUFFIX}"
        # Locked before it can be seen, or another sampler would presume its owner dead.
        handle, hidden = tempfile.mkstemp(prefix=".", dir=self._folder)
        try:
            _require_lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, json.dumps(facts).encode()[:_LIMIT_BYTES])
            os.fchmod(handle, 0o644)
            os.rename(hidden, self._folder / name)
        except OSError:
            os.close(handle)
            with suppress(OSError):
                os.unlink(hidden)
            raise
        self._lock, self._own = handle, name


def samplers_of(host: str) -> list[dict[str, Any]]:
    """Return {"run", "host", "pid"} of the live samplers of a host; remove no file."""
    files = sorted(shared_folder().glob(f"[!.]*{_SUFFIX}"))
    by_file = (_look(path, remove=False) for path in files)
    by_socket = _by_socket(_socket_prefix(host), host) or ()
    seen = (*by_socket, *(one for one in by_file if one is not None))
    found = {one["id"]: one for one in seen if one["host"] == host}
    return [{key: one[key] for key in _NOTED} for one in found.values()]


def _socket_prefix(host: str) -> str:
    # Which folder it is may differ from job to job, so it counts only where it was named.
    place = f"{os.environ.get(FOLDER_VARIABLE, '')}\0{host}".encode()
    return f"scalewatt-sampler/{hashlib.sha256(place).hexdigest()[:12]}/"


def _by_socket(prefix: str, host: str) -> list[dict[str, Any]] | None:
    try:
        lines = _SOCKETS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    names = (line.partition(f" @{prefix}")[2] for line in lines)
    parsed = (re.fullmatch(r"(\w+)/(\d+)/(.*)", name) for name in names if name)
    return [
        {"run": one[3], "host": host, "pid": int(one[2]), "id": one[1]}
        for one in parsed
        if one is not None
    ]


def _look(path: Path, remove: bool = True) -> dict[str, Any] | None:
    try:
        handle = os.open(path, _READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        if _is_free(handle):
            if remove:
                with suppress(OSError):
                    os.unlink(path)
            return None
        return _facts(os.read(handle, _LIMIT_BYTES))
    except OSError:
        return None
    finally:
        os.close(handle)


def _make_shared(folder: Path) -> None:
    try:
        folder.mkdir()
        folder.chmod(0o1777)
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise


def _is_free(handle: int) -> bool:
    """Return True if nobody holds the lock of a file; OSError if it cannot be told."""
    try:
        _require_lock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _require_lock(handle: int, operation: int) -> None:
    """Lock a file; OSError also where the file system has no locks: nobody is seen there."""
    if not flock(handle, operation):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


def _facts(text: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(text)
        return {"id": str(value["id"]), **{key: kind(value[key]) for key, kind in _NOTED.items()}}
    except (ValueError, TypeError, KeyError):
        return None


def note_samplers(path: Path, met: Iterable[dict[str, Any]]) -> None:
    """Add those that were met just now to the notes in `path`. Raises OSError."""
    facts = ({"t": time.time(), **{key: one[key] for key in _NOTED}} for one in met)
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(one) + "\n" for one in facts))


def sampler_files(folder: Path, stem: str) -> list[Path]:
    """Return the files of samplers that were met."""
    return sorted(folder.glob(f"{stem}.samplers.jsonl"))


def read_samplers(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return {"t" (unix s), "run", "host", "pid"} of all who were met, in order of time.

    What cannot be read is left out.
    """
    found = []
    for path in paths:
        with suppress(OSError):
            noted = (_noted(line) for line in path.read_bytes().splitlines())
            found += [one for one in noted if one is not None]
    return sorted(found, key=lambda one: one["t"])


def _noted(line: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(line)
        return {"t": float(value["t"]), **{key: kind(value[key]) for key, kind in _NOTED.items()}}
    except (ValueError, TypeError, KeyError):
        return None
