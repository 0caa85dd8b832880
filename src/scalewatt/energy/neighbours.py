"""Who else measures on this node: what every live sampler announces in two places.

One is a locked file in a folder that all jobs share: the lock is held as long as the sampler lives,
whatever ends it, and the file of a dead one is removed by the next sampler that sees it. The other
is a socket with an abstract name, which is seen by jobs that have a /dev/shm of their own as well.
Samplers that state another host name are not seen, nor are those of a container that shares neither
files nor network with this one.
"""

from __future__ import annotations

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
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "SCALEWATT_SAMPLERS"
"""Environment variable that names another folder, as tests do."""

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


class Neighbours:
    """Announces this sampler while it lives, and lists the others.

    `usable` is False where it can be announced in neither place; then nobody is seen.
    """

    def __init__(self, run: str, host: str, folder: Path | None = None) -> None:
        self._host = host
        self._folder = shared_folder() if folder is None else folder
        self._lock: int | None = None
        self._own = ""
        self._socket: socket.socket | None = None
        # Only samplers of one host and one folder belong together.
        place = hashlib.sha256(f"{self._folder}\0{host}".encode()).hexdigest()[:12]
        self._prefix = f"scalewatt-sampler/{place}/"
        self._id = uuid.uuid4().hex[:12]
        facts = {"run": run, "host": host, "since": time.time(), "pid": os.getpid()}
        with suppress(OSError):
            self._announce_by_file({**facts, "id": self._id})
        with suppress(OSError):
            self._announce_by_socket(facts)

    @property
    def usable(self) -> bool:
        """Whether this sampler is announced."""
        return self._lock is not None or self._socket is not None

    def others(self) -> list[dict[str, Any]]:
        """Return {"run", "host", "since", "pid"} of every other live sampler of this host."""
        if not self.usable:
            return []
        found = {one.pop("id"): one for one in (*self._by_socket(), *self._by_file())}
        found.pop(self._id, None)
        return list(found.values())

    def close(self) -> None:
        """Stop being announced."""
        if self._own:
            with suppress(OSError):
                os.unlink(self._folder / self._own)
        if self._lock is not None:
            os.close(self._lock)
        if self._socket is not None:
            self._socket.close()
        self._lock, self._own, self._socket = None, "", None

    def _by_file(self) -> list[dict[str, Any]]:
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []
        of_samplers = (name for name in names if name.endswith(_SUFFIX) and name[0] != ".")
        found = [self._look(self._folder / name) for name in of_samplers if name != self._own]
        return [one for one in found if one is not None and one["host"] == self._host]

    def _by_socket(self) -> list[dict[str, Any]]:
        try:
            lines = _SOCKETS.read_text(errors="replace").splitlines()
        except OSError:
            return []
        names = (line.partition(f" @{self._prefix}")[2] for line in lines)
        said = (re.fullmatch(r"(\w+)/(\d+)/(\d+)/(.*)", name) for name in names if name)
        return [
            {
                "run": one[4],
                "host": self._host,
                "since": float(one[3]),
                "pid": int(one[2]),
                "id": one[1],
            }
            for one in said
            if one is not None
        ]

    def _announce_by_socket(self, facts: dict[str, Any]) -> None:
        run = " ".join(facts["run"].split())
        name = f"{self._prefix}{self._id}/{facts['pid']}/{facts['since']:.0f}/{run}"
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
        # Locked before it can be seen, or another sampler would take it for a dead one's.
        handle, hidden = tempfile.mkstemp(prefix=".", dir=self._folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, json.dumps(facts).encode()[:_LIMIT_BYTES])
            os.fchmod(handle, 0o644)
            os.rename(hidden, self._folder / name)
        except OSError:
            os.close(handle)
            with suppress(OSError):
                os.unlink(hidden)
            raise
        self._lock, self._own = handle, name

    def _look(self, path: Path) -> dict[str, Any] | None:
        try:
            handle = os.open(path, _READ)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            if _is_free(handle):
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
    """Whether nobody holds the lock of a file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _facts(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
        return {
            "run": str(value["run"]),
            "host": str(value["host"]),
            "since": float(value["since"]),
            "pid": int(value["pid"]),
            "id": str(value["id"]),
        }
    except (ValueError, TypeError, KeyError):
        return None
