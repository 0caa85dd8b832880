"""Samplers of one node see each other while they live, whatever lies in their folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scalewatt.energy import neighbours as module
from scalewatt.energy.neighbours import FOLDER_VARIABLE, Neighbours, shared_folder

NOBODY = 65534
OTHER = """
import os, sys
from pathlib import Path
from scalewatt.energy.neighbours import Neighbours
if sys.argv[4]:
    os.setuid(int(sys.argv[4]))
one = Neighbours(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
print(len(one.others()), flush=True)
sys.stdin.read()
"""


@contextmanager
def other(
    folder: Path, run: str = "b repeat 2", host: str = "n1", user: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, run, host, str(folder), str(user or "")],
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


@pytest.fixture()
def files_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with a network of its own."""
    monkeypatch.setattr(module, "_SOCKETS", tmp_path / "none")


def runs(neighbours: Neighbours) -> list[str]:
    """Names of the other runs."""
    return [one["run"] for one in neighbours.others()]


def test_one_that_is_alone_sees_nobody(tmp_path: Path) -> None:
    neighbours = Neighbours("a repeat 1", "n1", tmp_path / "s")
    assert neighbours.usable and neighbours.others() == []


def test_two_see_each_other_with_what_they_are(tmp_path: Path) -> None:
    first = Neighbours("a repeat 1", "n1", tmp_path / "s")
    with other(tmp_path / "s") as process:
        (seen,) = first.others()
        assert (seen["run"], seen["host"], seen["pid"]) == ("b repeat 2", "n1", process.pid)
        second = Neighbours("c repeat 1", "n1", tmp_path / "s")
        assert sorted(runs(second)) == ["a repeat 1", "b repeat 2"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_one_is_gone_and_its_file_is_removed(tmp_path: Path, number: int) -> None:
    first = Neighbours("a repeat 1", "n1", tmp_path)
    with other(tmp_path) as process:
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        process.wait()
        assert first.others() == []
        assert len(list(tmp_path.iterdir())) == 1


def test_a_frozen_one_still_measures(tmp_path: Path) -> None:
    first = Neighbours("a repeat 1", "n1", tmp_path)
    with other(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert runs(first) == ["b repeat 2"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
def test_users_see_each_other_and_only_the_owner_removes_what_is_dead(files_only: None) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(parent) / "samplers"
        first = Neighbours("a repeat 1", "n1", folder)
        with other(folder, run="dead repeat 3"):
            pass
        with other(folder, user=NOBODY):
            assert len(list(folder.iterdir())) == 3
            assert runs(first) == ["b repeat 2"]
            assert len(list(folder.iterdir())) == 2
        assert first.others() == []


def test_other_host_names_are_other_nodes(tmp_path: Path) -> None:
    first = Neighbours("a repeat 1", "n1", tmp_path)
    with other(tmp_path, host="n2"):
        assert first.others() == []


def test_who_has_closed_is_seen_no_more(tmp_path: Path) -> None:
    first, second = (Neighbours(run, "n1", tmp_path) for run in ("a", "b"))
    assert runs(first) == ["b"]
    second.close()
    assert first.others() == [] and not second.usable and second.others() == []


def test_the_folder_is_for_all_users_and_its_files_only_for_their_owners(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        neighbours = Neighbours("a", "n1", tmp_path / "s")
    finally:
        os.umask(mask)
    assert neighbours.usable
    assert (tmp_path / "s").stat().st_mode & 0o7777 == 0o1777
    (file,) = (tmp_path / "s").iterdir()
    assert file.stat().st_mode & 0o777 == 0o644


def test_foreign_things_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text(json.dumps({"run": "x", "host": "n1", "since": 0, "pid": 1}))
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "1.n1.link.sampler").symlink_to(target)
    (folder / "1.n1.loop.sampler").symlink_to(folder / "1.n1.loop.sampler")
    (folder / "1.n1.dir.sampler").mkdir()
    os.mkfifo(folder / "1.n1.fifo.sampler")
    (folder / "notes.txt").write_text("mine")
    before = sorted(folder.iterdir())
    neighbours = Neighbours("a", "n1", folder)
    assert neighbours.others() == []
    neighbours.close()
    assert sorted(folder.iterdir()) == before and target.exists()


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"run": "x"}', '{"run": 1, "pid": "x"}'])
def test_a_locked_file_that_says_nothing_is_ignored(
    tmp_path: Path, text: str, files_only: None
) -> None:
    first, second = (Neighbours(run, "n1", tmp_path) for run in ("a", "b"))
    assert runs(first) == ["b"]
    for path in tmp_path.iterdir():
        path.write_text(text)
    assert first.others() == second.others() == []


def spoilt(folder: Path, kind: str) -> Path:
    """A folder that cannot be used."""
    if kind == "file":
        (folder / "s").write_text("")
    elif kind == "link":
        (folder / "s").symlink_to(folder)
    else:
        return folder / "none" / "s"
    return folder / "s"


SPOILT = pytest.mark.parametrize("kind", ["file", "link", "missing parent"])


@SPOILT
def test_where_no_folder_can_be_used_sockets_still_tell(tmp_path: Path, kind: str) -> None:
    folder = spoilt(tmp_path, kind)
    first, second = (Neighbours(f"{run} repeat 1", "n1", folder) for run in "ab")
    assert first.usable and runs(first) == ["b repeat 1"]
    with other(folder) as process:
        seen = {one["pid"]: one for one in first.others()}
        assert seen[process.pid]["run"] == "b repeat 2" and seen[process.pid]["host"] == "n1"
        process.kill()
        process.wait()
        assert runs(first) == ["b repeat 1"]
    second.close()
    assert first.others() == []


@SPOILT
def test_who_can_be_announced_nowhere_sees_nobody(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.socket, "socket", refuse)
    neighbours = Neighbours("a", "n1", spoilt(tmp_path, kind))
    assert not neighbours.usable and neighbours.others() == []
    neighbours.close()


def refuse(*_: object) -> None:
    """Stands in for socket.socket."""
    raise OSError("not permitted")


@pytest.mark.parametrize("run", [500 * "x", 500 * "ü", "a\nb /c @scalewatt-sampler/", "", "\udcff"])
def test_any_name_of_a_run_is_seen_once(tmp_path: Path, run: str) -> None:
    first, second = Neighbours("a", "n1", tmp_path), Neighbours(run, "n1", tmp_path)
    assert len(first.others()) == 1
    (tmp_path / second._own).unlink()
    assert len(first.others()) == 1


def test_sockets_of_other_folders_and_hosts_are_not_seen(tmp_path: Path) -> None:
    first = Neighbours("a", "n1", tmp_path / "missing" / "s")
    second = Neighbours("b", "n1", tmp_path / "missing" / "t")
    third = Neighbours("c", "n2", tmp_path / "missing" / "s")
    assert first.others() == second.others() == third.others() == []


def test_a_host_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    neighbours = Neighbours("a", "../n1", tmp_path / "s")
    assert neighbours.usable
    assert list(tmp_path.rglob("*.sampler")) == []


def test_the_folder_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert shared_folder().name == "scalewatt-samplers"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert shared_folder() == tmp_path
