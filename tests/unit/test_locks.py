"""Locks: waited for where another holds them, on file systems without any as well."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dying_takers import dying_takers
from no_flock import no_flock
from run_files import make_spec

from scalewatt.common import file_locks
from scalewatt.common.file_locks import waiting_lock
from scalewatt.scheduling.submissions import Submissions

# --- file systems without locks -------------------------------------------------------------------

TAKERS = dying_takers(
    "from scalewatt.common import file_locks\nfile_locks._LOOK_S = 0.01\n",
    'file_locks.waiting_lock(folder / "lock", "waiting")',
)
HOLDS = """
import sys, time
from pathlib import Path
from scalewatt.common.file_locks import waiting_lock
with waiting_lock(Path(sys.argv[1]), "waiting for the other"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.EBADF])
def test_on_a_file_system_without_locks_one_holds_at_a_time(tmp_path: Path, number: int) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", TAKERS, str(tmp_path), "10"]
    environment = no_flock(tmp_path / "stub", number)
    takers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [taker.communicate(timeout=60)[0] for taker in takers] == [""] * 3
    assert (tmp_path / "count").read_text() == "30"
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left <= {"count", "lock", "lock.held"}, "a killed one's record, at most"


def test_without_locks_a_living_owner_is_waited_for_and_said(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock")]
    options: Any = {"env": no_flock(tmp_path / "stub", errno.ENOSYS), "text": True}
    with subprocess.Popen([*command, "1.5"], stdout=subprocess.PIPE, **options) as first:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        began_s = time.monotonic()
        second = subprocess.run([*command, "0"], capture_output=True, timeout=30, **options)
        assert (second.stdout, second.stderr) == ("held\n", "waiting for the other\n")
        assert time.monotonic() - began_s > 1


def test_a_holder_on_another_machine_is_dead_after_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_locks, "flock", lambda *_: False)
    for name, seconds in {"SILENT_S": 0.6, "BEAT_S": 0.1, "_LOOK_S": 0.01}.items():
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


def test_a_stale_handle_of_a_working_directory_refuses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor would take any error for a reason not to submit the run."""
    spec = make_spec()
    workdir = tmp_path / f"{spec.key}-data"
    workdir.mkdir()
    (tmp_path / "spec.json").write_text(spec.text)
    (tmp_path / "provenance.json").write_text(json.dumps({"spec_sha256": spec.sha256}))

    real = Path.stat

    def stale(self: Path, **options: Any) -> os.stat_result:
        if self in (workdir, tmp_path / "provenance.json") or workdir in self.parents:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stale)
    submissions = Submissions(tmp_path, crash_retries=3)
    assert not submissions.is_published(tmp_path / "spec.json")
    assert not submissions.is_trained(spec)
    assert submissions._held(spec) is None
