"""Heartbeats between the nodes of a training, for ranks that MPI leaves waiting for ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

BEAT_S = 5.0
"""How often a node beats, and looks at others."""


class Heartbeat:
    """Beats for the other nodes, and notices when one of `watched` stops.

    A node is alive as long as its file `<stem>.<host>.heartbeat` in the shared folder changes its
    time. Only changes count, measured by the reader's own clock: the nodes' clocks may differ. A beat
    takes no space, so that a full disk does not stop it. `on_silence` is called with a host and the
    seconds for which it has been silent.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        host: str,
        watched: Sequence[str],
        limit_s: float,
        on_silence: Callable[[str, float], None],
    ) -> None:
        self._own = _path(folder, stem, host)
        self._others = {other: _path(folder, stem, other) for other in watched}
        self._seen: dict[str, int | None] = dict.fromkeys(watched)
        self._silent_s = dict.fromkeys(watched, 0.0)
        self.limit_s, self.on_silence = limit_s, on_silence
        self._waited_s = 0.0
        self._watching = True
        self._own.touch()

    def check(self, elapsed_s: float) -> None:
        """Beat and look at the others; call this often, with the seconds since the last call."""
        self._waited_s += elapsed_s
        if self._waited_s < BEAT_S:
            return
        waited_s, self._waited_s = self._waited_s, 0.0
        self._own.touch()
        for host, path in self._others.items():
            self._look(host, path, waited_s)

    def training_ended(self) -> None:
        """Stop looking at other nodes, which may still look at this one."""
        self._watching = False

    def stop(self) -> None:
        """Remove this node's file."""
        with suppress(OSError):
            self._own.unlink()

    def _look(self, host: str, path: Path, waited_s: float) -> None:
        beat = _last_beat(path)
        self._silent_s[host] = 0.0 if beat != self._seen[host] else self._silent_s[host] + waited_s
        self._seen[host] = beat
        if self._watching and self._silent_s[host] > self.limit_s:
            self.on_silence(host, self._silent_s[host])


def _path(folder: Path, stem: str, host: str) -> Path:
    return folder / f"{stem}.{host}.heartbeat"


def _last_beat(path: Path) -> int | None:
    """Return the file's time in ns, None if there is no file. Opening it makes NFS ask the server."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
