"""Signs of life between the nodes of a training, for ranks that MPI lets wait for ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

BEAT_S = 5.0
"""How often a node shows that it lives, and looks at others."""


class Heartbeat:
    """Shows the other nodes that this one lives, and notices when one of `watched` shows nothing.

    A node lives as long as its file `<stem>.<host>.heartbeat` in the shared folder changes its
    time. Only changes count, against the reader's own clock: the nodes' clocks may differ. Writing
    takes no space, so that a full disk stops no heart. `on_silence` is called with a host and the
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
        self._judging = True
        self._own.touch()

    def check(self, elapsed_s: float) -> None:
        """To be called often, with the seconds since the last call."""
        self._waited_s += elapsed_s
        if self._waited_s < BEAT_S:
            return
        waited_s, self._waited_s = self._waited_s, 0.0
        self._own.touch()
        for host, path in self._others.items():
            self._look(host, path, waited_s)

    def training_ended(self) -> None:
        """Nobody is judged any more; the others may still judge this node."""
        self._judging = False

    def stop(self) -> None:
        """Take the own file away."""
        with suppress(OSError):
            self._own.unlink()

    def _look(self, host: str, path: Path, waited_s: float) -> None:
        beat = _last_beat(path)
        self._silent_s[host] = 0.0 if beat != self._seen[host] else self._silent_s[host] + waited_s
        self._seen[host] = beat
        if self._judging and self._silent_s[host] > self.limit_s:
            self.on_silence(host, self._silent_s[host])


def _path(folder: Path, stem: str, host: str) -> Path:
    return folder / f"{stem}.{host}.heartbeat"


def _last_beat(path: Path) -> int | None:
    """The file's time in ns, None without one. Opening it makes NFS ask the server."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
