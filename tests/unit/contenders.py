"""Processes that contend for a lock, and half of them die as they hold it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A round is a forked process: it holds the lock and adds one to a number.
_ROUNDS = """
folder = Path(sys.argv[1])
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for number in range({rounds}):
    child = os.fork()
    if child == 0:
        with {lock}:
            count = int((folder / "count").read_text())
            time.sleep(random.random() / 200)
            (folder / "count").write_text(str(count + 1))
            if number % 2:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL):
        print("failed", status, flush=True)
"""
CONTENDERS, ROUNDS = 3, 16


def contend(
    folder: Path, lock: str, prepared: str, environment: Mapping[str, str] | None = None
) -> None:
    """Have processes take `lock`, an expression with `folder`, and assert that one holds it at a time.

    `prepared`: lines of Python that come first.
    """
    imports = "import errno, fcntl, os, random, signal, sys, time\nfrom pathlib import Path\n"
    code = f"{imports}{prepared}\n{_ROUNDS.format(lock=lock, rounds=ROUNDS)}"
    (folder / "count").write_text("0")
    command = [sys.executable, "-c", code, str(folder)]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(CONTENDERS)
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == [""] * CONTENDERS
    assert (folder / "count").read_text() == str(CONTENDERS * ROUNDS)
    (folder / "count").unlink()
