"""A program that takes a lock many times, and is killed with it every second time."""

from __future__ import annotations

# A round is a forked process: it holds, adds one to a number, and half of them die as they hold.
_ROUNDS = """
folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for number in range(rounds):
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


def dying_takers(prepared: str, lock: str) -> str:
    """Python that holds `lock`, an expression with `folder`, in so many rounds; arguments: folder, rounds.

    `prepared` are lines that come first.
    """
    imports = "import errno, fcntl, os, random, signal, sys, time\nfrom pathlib import Path\n"
    return imports + prepared + _ROUNDS.format(lock=lock)
