"""How a run of a command starts: in which Python, with which files, and when it does not."""

from __future__ import annotations

import hashlib
import json
import venv
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import Direct

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_command_runs_in_the_python_that_was_active_where_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    venv.create(other)
    code, output = Direct(tmp_path, "whose", monkeypatch).run(PATH=f"{other}/bin:/usr/bin:/bin")
    assert code == 0, output
    assert (tmp_path / "out/train.log").read_text().count(f"mine is {other}\n") == 2
    (row,) = pq.read_table(tmp_path / "out/history.parquet").to_pylist()
    assert row["metric"] == 1.0
    provenance = json.loads((tmp_path / "out/provenance.json").read_text())
    assert provenance["packages_of"] == "the recorder"


@pytest.mark.parametrize(
    ("line", "shell", "program"),
    [
        ("pythn waiting.py", False, "pythn"),
        # of scalewatt's Python alone
        ("pytest waiting.py", False, "pytest"),
        ("python waiting.py | cat", True, "bash"),
    ],
)
def test_a_command_that_is_not_there_is_named_and_not_tried_again(
    line: str, shell: bool, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    run = Direct(tmp_path, "waiting", monkeypatch, command=line, shell=shell)
    code, output = run.run(PATH=str(tmp_path / "bin"))
    assert code == 64, output
    assert f"the command '{program}' cannot be started (No such file or directory)" in output


def test_a_run_that_is_asked_to_stop_before_its_commands_start_is_no_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "marked", monkeypatch)
    asked = """sh -c 'cd work/*-*/ && touch stop && cd ../.. && exec mpiexec -n {gpus} "$@"' sh"""
    code, output = run.run(launcher=asked)
    assert code == 75, output
    assert not list(tmp_path.glob("work/*/script-*.jsonl"))
    code, output = run.run()
    assert code == 0, output
    segments = json.loads((tmp_path / "out/provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["stopped", "finished"]
    history = pq.read_table(tmp_path / "out/history.parquet").to_pylist()
    assert [(row["epoch"], row["segment"]) for row in history] == [(0, 1), (1, 1), (2, 1)]
    events = pq.read_table(tmp_path / "out/events.parquet").to_pylist()
    assert [row["stage"] for row in events if row["segment"] == 0] == ["startup", "shutdown"]


def test_a_script_that_changed_since_its_run_stopped_is_refused_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "stopped", monkeypatch)
    script = tmp_path / "scripts" / "stopped.py"
    text = script.read_text()
    code, output = run.run()
    assert code == 75, output
    (begun,) = tmp_path.glob("work/*/run.json")
    script.write_text(text + "# a comment\n")
    code, output = run.run()
    assert code == 1, output
    said = "its files have changed since it stopped at a checkpoint; restore them to go on"
    assert said in output
    assert f"or remove work/{begun.parent.name} to begin afresh" in output
    assert len(json.loads(begun.read_text())["segments"]) == 1
    assert len(list(tmp_path.glob("work/*/spec.json"))) == 1
    script.write_text(text)
    code, output = run.run()
    assert code == 0, output
    history = pq.read_table(tmp_path / "out/history.parquet").to_pylist()
    assert [(row["epoch"], row["segment"]) for row in history] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    used = json.loads((tmp_path / "out/provenance.json").read_text())["files"]
    assert used == {"stopped.py": hashlib.sha256(text.encode()).hexdigest()}
