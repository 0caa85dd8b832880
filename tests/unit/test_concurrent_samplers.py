"""Samplers of one node see each other while they live."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scalewatt.recordings import telemetry as module
from scalewatt.recordings.telemetry import (
    GROUP_VARIABLE,
    announce_sampler,
    count_samplers,
)

OTHER = """
import sys
from scalewatt.recordings.telemetry import announce_sampler
mark = announce_sampler(sys.argv[1])
print(mark is not None, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path))


@contextmanager
def other(host: str = "n1") -> Iterator[subprocess.Popen[str]]:
    """Another process that measures; killed at the end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", OTHER, host], text=True, **pipes)
    try:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_live_samplers_of_a_host_see_each_other() -> None:
    first = announce_sampler("n1")
    assert first is not None and count_samplers("n1") == 1
    with other() as process, other("n2"):
        assert count_samplers("n1") == 2
        process.send_signal(signal.SIGSTOP)
        assert count_samplers("n1") == 2, "a stopped one still measures"
        process.kill()
        process.wait()
        assert count_samplers("n1") == 1


def test_who_cannot_see_others_does_not_claim_to_be_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_SOCKETS", tmp_path / "none")
    assert count_samplers("n1") is None
