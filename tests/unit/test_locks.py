"""Locks: waited for where another holds them, on file systems without any as well."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from contenders import contend
from no_flock import no_flock

from scalewatt.common import file_locks
from scalewatt.common.file_locks import waiting_lock


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.EBADF])
def test_on_a_file_system_without_locks_one_holds_at_a_time(tmp_path: Path, number: int) -> None:
    lock = 'file_locks.waiting_lock(folder / "lock", "waiting")'
    environment = no_flock(tmp_path / "stub", number)
    contend(tmp_path, lock, "from scalewatt.common import file_locks", environment)
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left <= {"lock", "lock.held"}, "a killed one's record, at most"


def test_a_holder_on_another_machine_is_dead_after_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_locks, "flock", lambda *_: False)
    for name, seconds in {"SILENT_S": 0.6, "BEAT_S": 0.1}.items():
        monkeypatch.setattr(file_locks, name, seconds)
    record = tmp_path / "lock.held"
    with waiting_lock(tmp_path / "lock", "waiting"):
        here = record.read_text()
    assert not record.exists()
    elsewhere = here.replace("host=", "host=elsewhere-").replace("pid=", "pid=9")
    record.write_text(elsewhere)
    began_s = time.monotonic()
    with waiting_lock(tmp_path / "lock", "waiting"):
        assert record.read_text() != elsewhere
    assert time.monotonic() - began_s > 0.6
