"""How a run of a command ends: failed, killed, or asked to stop."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE_S, Direct, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_failing_rank_ends_the_run_with_its_exit_code_and_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = Direct(tmp_path, "failing", monkeypatch).run()
    assert code == 70, output
    assert "no such optimiser" in output
    assert "the command of rank 1" in output and "exit code 1" in output
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        (  # as hidden from the campaign's check as in a script
            "whose",
            "$(which torchrun) --standalone --nproc_per_node=2 whose.py",
            "another launcher started this process",
        ),
        ("spawning", "python spawning.py", "rank [01] of 2 is rank 0 of 3"),
    ],
    ids=["launcher", "spawn"],
)
def test_a_script_that_reports_from_a_world_of_its_own_fails(
    name: str, line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, output = Direct(tmp_path, name, monkeypatch, command=line, shell=True).run()
    assert re.search(rf"training failed \(exit code 70\): {words}", output)
    assert not (tmp_path / "out").exists()


def test_a_rank_that_runs_on_after_rank_0_is_ended_and_the_trained_run_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "lingering", monkeypatch)
    run.cluster = {"closing_s": 8}
    code, output = run.run()
    assert code == 0, output
    log = (tmp_path / "out" / "train.log").read_text()
    assert re.search(r"the command of rank 1 on \S+ ran on after rank 0's and was ended", log), log
    assert pq.read_table(tmp_path / "out" / "history.parquet").num_rows == 4
    reports = json.loads((tmp_path / "out" / "provenance.json").read_text())["reports"]
    assert reports["ended"] == [1]


def test_nothing_stays_after_a_kill_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "waiting", monkeypatch)
    process = run.start()
    try:
        wait_for(lambda: len(run.process_ids()) == 4)
        everybody = psutil.Process(process.pid).children(recursive=True)
        psutil.Process(run.process_ids()[0]).kill()
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 70, output
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive


def test_a_request_to_stop_reaches_all_ranks_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "listening", monkeypatch).start()
    try:
        wait_for(lambda: len(list(tmp_path.glob("work/*/script/*-ready"))) == 2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 75, output
    got = sorted(path.read_text() for path in tmp_path.glob("work/*/script/*-got"))
    assert got == ["SIGUSR1"] * 2
    assert "stopped at a checkpoint" in output
