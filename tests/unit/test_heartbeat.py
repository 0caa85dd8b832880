"""Signs of life between nodes: only a node that shows none is told, whatever its clock says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scalewatt.execution.watchdog import BEAT_S, Heartbeat

STEM, LIMIT_S = "segment-000", 120.0
Silences = list[tuple[str, float]]


@pytest.fixture
def silences() -> Silences:
    return []


def heart(folder: Path, host: str, watched: list[str], silences: Silences) -> Heartbeat:
    return Heartbeat(folder, STEM, host, watched, LIMIT_S, lambda h, s: silences.append((h, s)))


def test_nodes_that_beat_are_left_alone(tmp_path: Path, silences: Silences) -> None:
    hearts = [heart(tmp_path, h, [o], silences) for h, o in (("n1", "n2"), ("n2", "n1"))]
    for _ in range(600):
        for one in hearts:
            one.check(1.0)
    assert silences == []


def test_a_node_that_no_longer_beats_is_reported_after_the_limit(
    tmp_path: Path, silences: Silences
) -> None:
    first, second = (heart(tmp_path, h, ["n2"], silences) for h in ("n1", "n2"))
    for _ in range(100):
        first.check(1.0)
        second.check(1.0)
    for _ in range(int(LIMIT_S)):
        first.check(1.0)
    assert silences == []
    for _ in range(2 * int(BEAT_S)):
        first.check(1.0)
    host, seconds = silences[0]
    assert host == "n2" and LIMIT_S < seconds <= LIMIT_S + BEAT_S


def test_a_node_that_never_beat_is_reported(tmp_path: Path, silences: Silences) -> None:
    one = heart(tmp_path, "n1", ["n2"], silences)
    for _ in range(200):
        one.check(1.0)
    assert silences[0][0] == "n2"


def test_a_clock_that_is_wrong_or_goes_backwards_is_a_sign_of_life(
    tmp_path: Path, silences: Silences
) -> None:
    one = heart(tmp_path, "n1", ["n2"], silences)
    other = tmp_path / f"{STEM}.n2.heartbeat"
    other.touch()
    for beat in range(100):
        stamp = 4e9 - 3600 * beat
        os.utime(other, (stamp, stamp))
        for _ in range(int(BEAT_S)):
            one.check(1.0)
    assert silences == []


def test_a_file_that_is_rewritten_only_once_is_no_heartbeat(
    tmp_path: Path, silences: Silences
) -> None:
    one = heart(tmp_path, "n1", ["n2"], silences)
    (tmp_path / f"{STEM}.n2.heartbeat").write_text("n2")
    for _ in range(200):
        one.check(1.0)
    assert silences


def test_after_the_training_nothing_is_reported_and_this_node_still_beats(
    tmp_path: Path, silences: Silences
) -> None:
    one = heart(tmp_path, "n1", ["n2"], silences)
    own = tmp_path / f"{STEM}.n1.heartbeat"
    one.training_ended()
    for _ in range(200):
        os.utime(own, (1.0, 1.0))
        one.check(BEAT_S)
        assert own.stat().st_mtime > 1.0
    assert silences == []
    one.stop()
    assert not own.exists()


def test_a_deleted_own_file_comes_back(tmp_path: Path, silences: Silences) -> None:
    one = heart(tmp_path, "n1", [], silences)
    own = tmp_path / f"{STEM}.n1.heartbeat"
    own.unlink()
    one.check(BEAT_S)
    assert own.exists()
