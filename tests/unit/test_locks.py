"""Locks: waited for where another holds them, an error where there can be none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.files import waiting_lock


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(
            InputError, match=r"nowhere/lock: cannot be opened for locking \(No such file"
        ),
        waiting_lock(tmp_path / "nowhere" / "lock", "waiting"),
    ):
        pass


def test_a_file_system_without_locks_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none_left(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none_left)
    with (
        pytest.raises(InputError, match=r"lock: cannot be locked \(No locks available\)"),
        waiting_lock(tmp_path / "lock", "waiting"),
    ):
        pass
    assert capsys.readouterr().err == ""


def test_an_error_inside_is_not_taken_for_the_locks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), waiting_lock(tmp_path / "lock", "waiting"):
        (tmp_path / "nowhere").stat()
    with waiting_lock(tmp_path / "lock", "it was released"):
        pass
