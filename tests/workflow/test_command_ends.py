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
    process = Direct(tmp_path, "failing", monkeypatch).start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 70, output
    assert "no such optimiser" in output
    assert "the command of rank 1" in output and "exit code 1" in output
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        "python crashing.py 2>&1 | tee out.txt",
        "cd not-there; python plain.py",
        "python crashing.py\necho trained",
    ],
)
def test_a_command_that_fails_before_the_last_of_a_shell_line_fails_the_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "crashing", monkeypatch, command=line, shell=True)
    output, _ = run.start().communicate(timeout=PATIENCE_S)
    assert "the command of rank" in output and "exit code 1" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("way", ["launcher", "spawn"])
def test_a_script_that_reports_from_a_world_of_its_own_fails(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "launcher":  # as hidden from the campaign's check as in a script
        name, line = "whose", "$(which torchrun) --standalone --nproc_per_node=2 whose.py"
    else:
        name, line = "spawning", "python spawning.py"
    run = Direct(tmp_path, name, monkeypatch, command=line, shell=True)
    output, _ = run.start().communicate(timeout=PATIENCE_S)
    words = {
        "launcher": "another launcher started this process",
        "spawn": "rank [01] of 2 is rank 0 of 3",
    }
    assert re.search(rf"training failed \(exit code 70\): {words[way]}", output)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rank", ["1", "0"])
def test_a_rank_that_never_ends_is_named_and_ended_and_the_trained_run_counts(
    rank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "lingering", monkeypatch)
    run.cluster = {"closing_s": 8}
    process = run.start(HANGS=rank)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    log = (tmp_path / "out" / "train.log").read_text()
    said = rf"rank {rank} on \S+ still runs \d+ s after rank {1 - int(rank)} ended"
    assert re.search(said, log), log
    history = pq.read_table(tmp_path / "out" / "history.parquet").to_pylist()
    assert len(history) == 4
    reports = json.loads((tmp_path / "out" / "provenance.json").read_text())["reports"]
    assert reports["ended"] == [int(rank)]


def test_a_rank_that_never_ends_fails_a_run_that_did_not_report_all_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "lingering", monkeypatch)
    run.cluster = {"closing_s": 8}
    process = run.start(REPORTED="3")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 70
    assert "the command of rank 1 ran on after the others and was ended, and not all 4" in output
    assert not (tmp_path / "out").exists()


def test_a_request_to_stop_reaches_ranks_that_run_on_after_the_command_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "lingering", monkeypatch).start()
    try:
        wait_for(lambda: list(tmp_path.glob("work/*/script-history.jsonl")))
        wait_for(lambda: list(tmp_path.glob("work/*/*.ended")))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    assert (tmp_path / "out" / "provenance.json").exists(), "its training had finished"


@pytest.mark.parametrize(
    "victim",
    [
        "command",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("recorder", "launcher")),
    ],
)
def test_nothing_stays_after_a_kill_of_the(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "waiting", monkeypatch)
    process = run.start()
    try:
        wait_for(lambda: len(run.process_ids()) == 4)
        everybody = psutil.Process(process.pid).children(recursive=True)
        command = psutil.Process(run.process_ids()[0])
        recorder = command.parent()
        assert recorder is not None
        launcher = next(p for p in everybody if p.name().startswith("mpiexec"))
        {"command": command, "recorder": recorder, "launcher": launcher}[victim].kill()
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 70, output
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive


@pytest.mark.parametrize(
    "told", ["supervisor", pytest.param("one rank", marks=pytest.mark.nightly)]
)
def test_a_signal_reaches_all_ranks_commands(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "listening", monkeypatch).start()
    try:
        wait_for(lambda: len(list(tmp_path.glob("work/*/script/*-ready"))) == 2)
        if told == "supervisor":
            process.send_signal(signal.SIGINT)
        else:
            recorders = [
                p
                for p in psutil.Process(process.pid).children(recursive=True)
                if "scalewatt.execution.rank" in p.cmdline() and "sh" not in p.name()
            ]
            commands = [
                p for p in recorders if any("listening.py" in c.cmdline() for c in p.children())
            ]
            commands[0].send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 75, output
    got = sorted(path.read_text() for path in tmp_path.glob("work/*/script/*-got"))
    assert got == (["SIGUSR1"] * 2 if told == "supervisor" else ["SIGTERM", "SIGUSR1"])
    assert "stopped at a checkpoint" in output


def test_a_command_whose_sampler_dies_is_stopped_and_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "followed", monkeypatch).start()
    try:
        wait_for(lambda: len(list(tmp_path.glob("work/*/script/*-ready"))) == 2)
        wait_for(lambda: list(tmp_path.glob("work/*/perun/*.sensors.json")))
        recorders = {
            p.pid: p
            for p in psutil.Process(process.pid).children(recursive=True)
            if "scalewatt.execution.rank" in p.cmdline() and "python" in p.name()
        }
        (sampler,) = [p for p in recorders.values() if p.ppid() in recorders]
        sampler.kill()
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    assert "the energy was no longer recorded" in output
    segments = json.loads((tmp_path / "out" / "provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["monitor_lost", "finished"]
