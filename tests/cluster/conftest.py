"""One miniature HoreKa for all tests of a session."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from minislurm import MiniSlurm, missing

sys.path.append(
    str(Path(__file__).parents[1] / "workflow")
)  # what tests of workflows have in common


@pytest.fixture(scope="session")
def slurm() -> Iterator[MiniSlurm]:
    """A running Slurm; skips where it is not installed."""
    reason = missing()
    if reason:
        pytest.skip(f"no Slurm of its own can be started: {reason}")
    # Not below pytest's folder: the names of sockets may have 107 characters.
    base = Path(tempfile.mkdtemp(prefix="minislurm-"))
    try:
        with MiniSlurm(base) as cluster:
            yield cluster
    finally:
        shutil.rmtree(base, ignore_errors=True)
