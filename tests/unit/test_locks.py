"""Locks: waited for where another holds them, on file systems without any as well."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from contenders import contend
from no_flock import no_flock

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock


@pytest.mark.parametrize("number", [None, errno.ENOSYS])
def test_one_holds_at_a_time_with_and_without_locks(tmp_path: Path, number: int | None) -> None:
    lock = 'file_locks.waiting_lock(folder / "lock", "waiting")'
    environment = no_flock(tmp_path / "stub", number) if number else None
    contend(tmp_path, lock, "from scalewatt.common import file_locks", environment)


def test_what_cannot_be_locked_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be locked"), waiting_lock(tmp_path / "file/a", ""):
        pass
