"""Who else measures on this node: one locked file per live sampler in a folder that all jobs share.

A file's lock is held as long as its sampler lives, whatever ends it; the file of a dead one is
removed by the next sampler that sees it. Samplers that state another host name are not seen, nor
are those of jobs that have a /dev/shm of their own.
"""

from __future__ import annotations

import fcntl
import json
import os
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

    `usable` is False where the folder cannot be used; then nobody is announced and none is seen.
    """

    def __init__(self, run: str, host: str, folder: Path | None = None) -> None:
        self._host = host
        self._folder = shared_folder() if folder is None else folder
        self._lock: int | None = None
        self._own = ""
        try:
            self._announce({"run": run, "host": host, "since": time.time(), "pid": os.getpid()})
        except OSError:
            self.close()

    @property
    def usable(self) -> bool:
        """Whether this sampler is announced."""
        return self._lock is not None

    def others(self) -> list[dict[str, Any]]:
        """Return {"run", "host", "since", "pid"} of every other live sampler of this host."""
        if not self.usable:
            return []
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []
        found = (self._look(self._folder / name) for name in names if self._is_other(name))
        return [one for one in found if one is not None and one["host"] == self._host]

    def close(self) -> None:
        """Stop being announced."""
        if self._own:
            with suppress(OSError):
                os.unlink(self._folder / self._own)
        if self._lock is not None:
            os.close(self._lock)
        self._lock, self._own = None, ""

    def _is_other(self, name: str) -> bool:
        return name.endswith(_SUFFIX) and not name.startswith(".") and name != self._own

    def _announce(self, facts: dict[str, Any]) -> None:
        _make_shared(self._folder)
        name = f"{facts['pid']}.{self._host}.{uuid.uuid4().hex[:8]}{_SUFFIX}"
        # Locked before it can be seen, or another sampler would take it for a dead one's.
        handle, hidden = tempfile.mkstemp(prefix=".", dir=self._folder)
        self._lock = handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, json.dumps(facts).encode()[:_LIMIT_BYTES])
            os.fchmod(handle, 0o644)
            os.rename(hidden, self._folder / name)
        except OSError:
            with suppress(OSError):
                os.unlink(hidden)
            raise
        self._own = name

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
        }
    except (ValueError, TypeError, KeyError):
        return None
