"""Samplers of one node see each other while they live."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scalewatt.recordings import concurrent_samplers as module
from scalewatt.recordings.concurrent_samplers import (
    GROUP_VARIABLE,
    ConcurrentSamplers,
    note_samplers,
    read_samplers,
    samplers_of,
)

OTHER = """
import sys
from scalewatt.recordings.concurrent_samplers import ConcurrentSamplers
one = ConcurrentSamplers(sys.argv[1], sys.argv[2])
print(len(one.others()), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path))


@contextmanager
def other(run: str = "b repeat 2", host: str = "n1") -> Iterator[subprocess.Popen[str]]:
    """Another process that measures; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, run, host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline().strip().isdigit()
        yield process
    finally:
        process.kill()
        process.communicate()


def runs(samplers: ConcurrentSamplers) -> list[str]:
    """Names of the other runs."""
    return [sampler["run"] for sampler in samplers.others() or ()]


def test_live_samplers_of_a_host_see_each_other_with_what_they_are() -> None:
    first = ConcurrentSamplers("a repeat 1", "n1")
    assert first.others() == []
    with other() as process, other("d", host="n2"):
        assert first.others() == [{"run": "b repeat 2", "host": "n1", "pid": process.pid}]
        second = ConcurrentSamplers("c repeat 1", "n1")
        assert sorted(runs(second)) == ["a repeat 1", "b repeat 2"]
        assert len(samplers_of("n1")) == 3
        process.send_signal(signal.SIGSTOP)
        assert "b repeat 2" in runs(first), "a stopped one still measures"
        process.kill()
        process.wait()
        assert runs(first) == ["c repeat 1"]


def test_samplers_of_another_group_are_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ConcurrentSamplers("a", "n1")
    monkeypatch.setenv(GROUP_VARIABLE, "another")
    second = ConcurrentSamplers("b", "n1")
    assert second.others() == []
    monkeypatch.setenv(GROUP_VARIABLE, str(tmp_path))
    assert first.others() == []


def test_who_cannot_see_others_does_not_claim_to_be_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(module.socket, "socket", refuse)
    assert ConcurrentSamplers("a", "n1").others() is None


@pytest.mark.parametrize("run", [500 * "x", 500 * "ü", "a\nb /c @scalewatt-sampler/", ""])
def test_any_name_of_a_run_is_seen_once(run: str) -> None:
    first, second = ConcurrentSamplers("a", "n1"), ConcurrentSamplers(run, "n1")
    assert len(runs(first)) == 1 and runs(second) == ["a"]


def test_who_was_met_is_read_from_all_notes_in_order_of_time(tmp_path: Path) -> None:
    met = {"run": "b repeat 2 ü", "host": "n1", "pid": 7}
    first, second = tmp_path / "segment-000.n1.samplers.jsonl", tmp_path / "second"
    note_samplers(first, [met])
    note_samplers(second, [met | {"host": "n2"}])
    note_samplers(first, [met | {"pid": 8}, met | {"pid": 9}])
    with open(first, "a") as file:
        file.write('{"t": 17')
    found = read_samplers([second, first, tmp_path / "none"])
    assert [one["host"] + str(one["pid"]) for one in found] == ["n17", "n27", "n18", "n19"]
