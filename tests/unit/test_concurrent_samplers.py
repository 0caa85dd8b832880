"""Samplers of one node see each other while they live, whatever lies in their folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from scalewatt.recordings import concurrent_samplers as module
from scalewatt.recordings.concurrent_samplers import (
    FOLDER_VARIABLE,
    ConcurrentSamplers,
    note_samplers,
    read_samplers,
    shared_folder,
)

NOBODY = 65534
OTHER = """
import os, sys
from scalewatt.recordings.concurrent_samplers import ConcurrentSamplers
if sys.argv[3]:
    os.setuid(int(sys.argv[3]))
one = ConcurrentSamplers(sys.argv[1], sys.argv[2])
print(len(one.others()), flush=True)
sys.stdin.read()
"""


def announced(run: str, host: str, folder: Path) -> ConcurrentSamplers:
    """A sampler of this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
        return ConcurrentSamplers(run, host)


@contextmanager
def other(
    folder: Path, run: str = "b repeat 2", host: str = "n1", user: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, run, host, str(user or "")],
        env={**os.environ, FOLDER_VARIABLE: str(folder)},
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


def runs(samplers: ConcurrentSamplers) -> list[str]:
    """Names of the other runs."""
    others = samplers.others()
    assert others is not None
    return [one["run"] for one in others]


def test_one_that_is_alone_sees_no_other(tmp_path: Path) -> None:
    assert announced("a repeat 1", "n1", tmp_path / "s").others() == []


def test_two_see_each_other_with_what_they_are(tmp_path: Path) -> None:
    first = announced("a repeat 1", "n1", tmp_path / "s")
    with other(tmp_path / "s") as process:
        (seen,) = first.others() or ()
        assert (seen["run"], seen["host"], seen["pid"]) == ("b repeat 2", "n1", process.pid)
        second = announced("c repeat 1", "n1", tmp_path / "s")
        assert sorted(runs(second)) == ["a repeat 1", "b repeat 2"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_one_is_gone_and_its_file_is_removed(tmp_path: Path, number: int) -> None:
    first = announced("a repeat 1", "n1", tmp_path)
    with other(tmp_path) as process:
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        process.wait()
        assert first.others() == []
        assert len(list(tmp_path.iterdir())) == 1


def test_a_frozen_one_still_measures(tmp_path: Path) -> None:
    first = announced("a repeat 1", "n1", tmp_path)
    with other(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert runs(first) == ["b repeat 2"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
def test_users_see_each_other_and_only_the_owner_removes_what_is_dead(files_only: None) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(parent) / "samplers"
        first = announced("a repeat 1", "n1", folder)
        with other(folder, run="dead repeat 3"):
            pass
        with other(folder, user=NOBODY):
            assert len(list(folder.iterdir())) == 3
            assert runs(first) == ["b repeat 2"]
            assert len(list(folder.iterdir())) == 2
        assert first.others() == []


def test_other_host_names_are_other_nodes(tmp_path: Path) -> None:
    first = announced("a repeat 1", "n1", tmp_path)
    with other(tmp_path, host="n2"):
        assert first.others() == []


def test_the_folder_is_for_all_users_and_its_files_only_for_their_owners(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        announced("a", "n1", tmp_path / "s")
    finally:
        os.umask(mask)
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
    samplers = announced("a", "n1", folder)
    assert samplers.others() == []
    assert sorted(set(folder.iterdir()) - {folder / samplers._own}) == before
    assert target.exists()


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"run": "x"}', '{"run": 1, "pid": "x"}'])
def test_a_locked_file_that_says_nothing_is_ignored(
    tmp_path: Path, text: str, files_only: None
) -> None:
    first, second = (announced(run, "n1", tmp_path) for run in ("a", "b"))
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
    first = announced("a repeat 1", "n1", folder)
    with other(folder) as process:
        expected = {"run": "b repeat 2", "host": "n1", "pid": process.pid}
        assert first.others() == [expected]
    assert first.others() == []


@SPOILT
@pytest.mark.parametrize("place", ["nowhere to announce", "nowhere to look"])
def test_who_cannot_see_others_does_not_claim_to_be_alone(
    tmp_path: Path, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "nowhere to announce":
        monkeypatch.setattr(module.socket, "socket", refuse)
    else:
        monkeypatch.setattr(module, "_SOCKETS", tmp_path / "none")
    assert announced("a", "n1", spoilt(tmp_path, kind)).others() is None


def test_a_folder_that_vanished_tells_nothing(tmp_path: Path, files_only: None) -> None:
    samplers = announced("a", "n1", tmp_path / "s")
    shutil.rmtree(tmp_path / "s")
    assert samplers.others() is None


def refuse(*_: object) -> None:
    """Stands in for socket.socket."""
    raise OSError("not permitted")


@pytest.mark.parametrize("run", [500 * "x", 500 * "ü", "a\nb /c @scalewatt-sampler/", "", "\udcff"])
def test_any_name_of_a_run_is_seen_once(tmp_path: Path, run: str) -> None:
    first, second = announced("a", "n1", tmp_path), announced(run, "n1", tmp_path)
    assert len(runs(first)) == 1
    (tmp_path / second._own).unlink()
    assert len(runs(first)) == 1


def test_sockets_of_other_folders_and_hosts_are_not_seen(tmp_path: Path) -> None:
    first = announced("a", "n1", tmp_path / "missing" / "s")
    second = announced("b", "n1", tmp_path / "missing" / "t")
    third = announced("c", "n2", tmp_path / "missing" / "s")
    assert first.others() == second.others() == third.others() == []


def test_jobs_that_share_no_folder_see_each_other_by_their_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    host, found = uuid.uuid4().hex, []
    for name in ("shm", "tmp"):
        monkeypatch.setattr(module, "shared_folder", lambda name=name: tmp_path / name)
        found.append(ConcurrentSamplers(f"{name} repeat 1", host))
    assert [runs(one) for one in found] == [["tmp repeat 1"], ["shm repeat 1"]]


def test_a_host_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    assert announced("a", "../n1", tmp_path / "s").others() == []
    assert list(tmp_path.rglob("*.sampler")) == []


def test_the_folder_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert shared_folder().name == "scalewatt-samplers"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert shared_folder() == tmp_path


def test_who_was_met_is_read_from_all_notes_in_order_of_time(tmp_path: Path) -> None:
    met = {"run": "b repeat 2 ü", "host": "n1", "pid": 7}
    first, second = tmp_path / "segment-000.n1.samplers.jsonl", tmp_path / "second"
    note_samplers(first, [met])
    note_samplers(second, [met | {"host": "n2"}])
    note_samplers(first, [met | {"pid": 8}, met | {"pid": 9}])
    found = read_samplers([second, first, tmp_path / "none"])
    assert [(one["host"], one["pid"]) for one in found] == [
        ("n1", 7),
        ("n2", 7),
        ("n1", 8),
        ("n1", 9),
    ]
    assert {one["run"] for one in found} == {"b repeat 2 ü"}
    assert all(a["t"] <= b["t"] for a, b in pairwise(found))


def test_notes_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    note_samplers(path, [{"run": "b", "host": "n1", "pid": 7}])
    whole = path.read_bytes()
    bad = (b"\n", b"[]\n", b"\xff\n", b'{"t": 1}\n', b'{"t": "x", "run": 1}\n', whole[:-9])
    path.write_bytes(b"".join(bad[:-1]) + whole + bad[-1])
    assert [one["run"] for one in read_samplers([path])] == ["b"]
