"""Other samplers on this node: every live one holds a socket with an abstract name of its host.

The kernel removes the socket with its process. Samplers that state another host name are not seen, nor
are those of a container that does not share the network with this one.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

GROUP_VARIABLE = "SCALEWATT_SAMPLERS"
"""Environment variable that names a group: samplers of another group are not seen."""
_SOCKETS = Path("/proc/net/unix")


def announce_sampler(host: str) -> socket.socket | None:
    """Socket that announces this process as a sampler of a host while it is open; None if refused."""
    try:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mark.bind(f"\0{_prefix(host)}{os.urandom(6).hex()}")
    except OSError:
        return None
    return mark


def count_samplers(host: str) -> int | None:
    """Count the live samplers of a host; None if sockets cannot be listed."""
    try:
        return _SOCKETS.read_text(errors="replace").count(f" @{_prefix(host)}")
    except OSError:
        return None


def _prefix(host: str) -> str:
    group = f"{os.environ.get(GROUP_VARIABLE, '')}\0{host}".encode()
    return f"scalewatt-sampler/{hashlib.sha256(group).hexdigest()[:12]}/"
