"""Run a command with stand-in RAPL counters: two packages at 70 W and their DRAM at 7 W.

Started in a mount namespace of its own (unshare -m), where it covers /sys/class/powercap. perun's
own RAPL backend reads the counters. Their range is that of real ones, in which a late sample leaves
no doubt about the number of wraps; they begin shortly before its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WRAP_UJ = 262_143_328_850
WRAPS_AFTER_S = 4.0
WATTS = {"package": 70.0, "dram": 7.0}


def counter(folder: Path, name: str) -> int:
    """Make one counter; a file descriptor to write it."""
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{WRAP_UJ}\n")
    return os.open(folder / "energy_uj", os.O_CREAT | os.O_WRONLY)


def mount(*arguments: str | Path) -> None:
    """Mount something in this namespace."""
    subprocess.run(["mount", *arguments], check=True)


def cover(root: Path) -> None:
    """Put an empty folder in the place of RAPL's."""
    if root.exists():
        mount("-t", "tmpfs", "tmpfs", root)
        return
    # A machine without RAPL has no such folder, and none can be made in sysfs: cover its parent,
    # and bring back the network's, which MPI looks at.
    kept, net = Path(tempfile.mkdtemp()), root.parent / "net"
    mount("--bind", net, kept)
    mount("-t", "tmpfs", "tmpfs", root.parent)
    net.mkdir()
    mount("--bind", kept, net)
    root.mkdir()


def main(command: list[str]) -> int:
    """Feed the counters while `command` runs; its exit code."""
    root = Path("/sys/class/powercap")
    cover(root)
    counters = []
    for socket in range(2):
        package = root / f"intel-rapl:{socket}"
        counters.append((counter(package, f"package-{socket}"), WATTS["package"]))
        counters.append((counter(package / f"intel-rapl:{socket}:0", "dram"), WATTS["dram"]))
    over = threading.Event()

    def feed() -> None:
        started = time.monotonic()
        while not over.is_set():
            spent = time.monotonic() - started
            for file, watts in counters:
                reading = int(WRAP_UJ + (spent - WRAPS_AFTER_S) * watts * 1e6) % WRAP_UJ
                # Fixed width: a reader never sees half of an older, longer number.
                os.pwrite(file, f"{reading:>12}\n".encode(), 0)
            over.wait(0.01)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        return subprocess.run(command).returncode
    finally:
        over.set()
        feeder.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
