"""Of many that take a run over from the dead, one holds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dying_takers import dying_takers
from holder_records import (
    on_this_machine,
    put_record,
    sleep_by,
)

from scalewatt.common.processes import process_started_s
from scalewatt.run_files import run_lock as hold
from scalewatt.run_files.lock_owner import (
    LockOwner,
    read_owner,
)
from scalewatt.run_files.run_lock import locked, run_target

pytestmark = pytest.mark.usefixtures("outside_of_slurm")


TAKERS = dying_takers(
    """from scalewatt.run_files import run_lock as hold
def none(descriptor, operation):
    raise OSError(errno.ENOLCK, "no locks")
fcntl.flock = none
hold.RECORD_LOOK_S = 0.01
""",
    "hold.locked(hold.run_target(folder))",
)


def test_of_many_takers_without_locks_one_holds_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", TAKERS, str(tmp_path), "20"]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [taker.communicate(timeout=120)[0] for taker in takers]
    assert said == [""] * 4
    assert (tmp_path / "count").read_text() == "80"
    left = {path.name for path in tmp_path.iterdir()} - {"count", "lock", "holder.json"}
    assert not {name for name in left if name.endswith(".claim")}


def test_a_taker_that_comes_too_late_leaves_the_new_holder_alone(tmp_path: Path) -> None:
    dead = put_record(tmp_path, **on_this_machine())
    target = run_target(tmp_path)
    with locked(target) as new, hold._own_record(target) as (mine, _):
        hold._removed(target, dead.token, mine)  # it still believes in the dead one
        found = read_owner(tmp_path)
        assert found is not None and found.token == new.token
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def claim_of(workdir: Path, dead: LockOwner, pid: int, started_s: float | None) -> Path:
    claim = workdir / f".holder-{dead.token}.claim"
    fields = on_this_machine(pid=pid, pid_started_s=started_s, job=None, since_s=1.7e9)
    claim.write_text(json.dumps(fields))
    return claim


def test_a_taker_on_its_way_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = put_record(tmp_path, **on_this_machine())
    claim = claim_of(tmp_path, dead, os.getpid(), process_started_s(os.getpid()))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert read_owner(tmp_path) == dead
        if len(waits) == 3:
            claim.unlink()

    sleep_by(monkeypatch, sleep)
    with locked(run_target(tmp_path)):
        pass
    assert len(waits) == 3
