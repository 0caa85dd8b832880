"""What perun monitors: it waits for PROGRAM_S seconds, then fails where PROGRAM_FAILS is set."""

from __future__ import annotations

import os
import time


def main() -> None:
    """Wait, and fail if asked to."""
    time.sleep(float(os.environ["PROGRAM_S"]))
    if os.environ.get("PROGRAM_FAILS"):
        raise RuntimeError("asked to fail")


main()
