"""Functions called in a child process with limits of time and memory, for what may never return.

A library that reads damaged files may loop for ever, take all memory, or end its process. One child
serves all calls of this process; after its death the next call starts another. Arguments and results
are pickled, arrays passed beside the pickle.

    python -m scalewatt.common.limited_calls FD

is the child: it serves calls from the socket FD until the other end is closed.
"""

from __future__ import annotations

import atexit
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from scalewatt.common.errors import InputError
from scalewatt.common.processes import ignore_stop_signals

_Result = TypeVar("_Result")
_SIZE = struct.Struct("<Q")
_START_S = 60.0
_END_S = 1.0


class CallFailed(Exception):
    """The call did not return; the message is the reason, in a few words."""


@dataclass(frozen=True)
class Limits:
    """What one call may take."""

    cpu_s: float
    wall_s: float
    memory_bytes: int
    """Beyond what the child takes by itself."""


class _Child:
    """A child process that serves calls one after the other."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        self._socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
        # Threads of numerical libraries would reserve memory that counts against the limit.
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **threads},
            )

    def call(self, function: Callable[..., Any], args: Any, limits: Limits) -> tuple[str, Any]:
        """Return the answer, as `_serve` gives it; after any exception the child cannot be called again.

        CallFailed where there is no answer.
        """
        until = time.monotonic() + limits.wall_s + _START_S
        try:
            _send(self._socket, (function, args, limits))
            if not select.select([self._socket], [], [], until - time.monotonic())[0]:
                raise CallFailed(f"it takes over {limits.wall_s:.0f} s")
            return _receive(self._socket)
        except (OSError, EOFError) as error:
            raise CallFailed(self._reason(limits)) from error

    def kill(self) -> None:
        """Kill the process, where this one has started it; whoever waits for an answer gets none."""
        if self.parent == os.getpid():
            self._process.kill()

    def end(self, grace_s: float = 0.0) -> None:
        """End the process, where this one has started it."""
        self._socket.close()
        self._errors.close()
        if self.parent == os.getpid():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
            self._process.kill()
            self._process.wait()

    def _reason(self, limits: Limits) -> str:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the process that reads it does not respond"
        if code == -signal.SIGXCPU:
            return f"it takes over {limits.cpu_s:.0f} s of computing"
        if code < 0:
            name = signal.Signals(-code).name
            return f"the process that read it ended by {name}"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(said) if line.strip()), "")
        return f"the process that read it ended with exit code {code}: {last}"


_lock = threading.Lock()
_child: _Child | None = None


def call_limited(function: Callable[..., _Result], *args: Any, limits: Limits) -> _Result:
    """Call a function of a module in the child process.

    Raises InputError where the function does, else CallFailed: with its words where it raises another
    exception, with the reason where the limits end it or the process dies.
    """
    global _child
    with _lock:
        if _child is not None and _child.parent != os.getpid():
            _child.end()  # this process was forked: that child serves its parent
            _child = None
        if _child is None:
            try:
                _child = _Child()
            except OSError as error:
                raise CallFailed(f"no process can be started: {error.strerror}") from error
        try:
            outcome, value = _child.call(function, args, limits)
        except BaseException:
            _child.end()  # dead, or in the middle of an answer
            _child = None
            raise
    if outcome == "refused":
        raise InputError(value)
    if outcome == "failed":
        raise CallFailed(value)
    return value


def interrupt_call() -> None:
    """End the call that another thread waits for, if there is one: it raises CallFailed there."""
    child = _child
    if child is not None and _lock.locked():
        child.kill()


@atexit.register
def _end() -> None:
    if _child is not None:
        _child.end(_END_S)


def _send(to: socket.socket, value: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    to.sendall(_SIZE.pack(len(parts)) + b"".join(_SIZE.pack(part.nbytes) for part in parts))
    for part in parts:
        to.sendall(part)


def _receive(source: socket.socket) -> Any:
    (count,) = _SIZE.unpack(_bytes(source, _SIZE.size))
    sizes = struct.unpack(f"<{count}Q", _bytes(source, count * _SIZE.size))
    head, *buffers = [_bytes(source, size) for size in sizes]
    return pickle.loads(head, buffers=buffers)


def _bytes(source: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        count = source.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return found


def _serve(source: socket.socket) -> NoReturn:
    """Answer calls until the other end is closed."""
    ignore_stop_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    own = _address_space()
    while True:
        try:
            function, args, limits = _receive(source)
        except EOFError:
            sys.exit(0)
        _limit(limits, own)
        try:
            answer = ("done", function(*args))
        except InputError as error:
            answer = ("refused", str(error))
        except Exception as error:  # whatever a library raises for damage
            answer = ("failed", " ".join(str(error).split()) or type(error).__name__)
        try:
            _send(source, answer)
        except MemoryError:
            _send(source, ("failed", "MemoryError"))


def _limit(limits: Limits, own_bytes: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime + limits.cpu_s) + 1
    _lower(resource.RLIMIT_CPU, cpu_s)
    _lower(resource.RLIMIT_AS, own_bytes + limits.memory_bytes)


def _lower(what: int, value: int) -> None:
    """Set a soft limit, as far as the hard one allows."""
    hard = resource.getrlimit(what)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (soft, hard))


def _address_space() -> int:
    """Return the bytes of address space that this process has."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return 1 << 30


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
