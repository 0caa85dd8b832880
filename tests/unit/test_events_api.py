"""scalewatt.events: what a user's script says, and how it is joined with what was seen from outside."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_files import make_spec

from scalewatt import events
from scalewatt.execution.command_rank import history_rows, report_summary, stage_marks
from scalewatt.recordings.stage_log import STAGES, read_json_lines, stages_between
from scalewatt.results.tables.run_row import script_flags

SPEC = make_spec(epochs=2, dataset_samples=100)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of rank 0 of a run's second segment."""
    monkeypatch.setenv(events.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(events.SEGMENT_VARIABLE, "1")
    monkeypatch.setattr(events, "_joined", None)
    return tmp_path


def test_outside_a_run_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (events.FOLDER_VARIABLE, events.STOP_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    events.stage("train", epoch=0)
    events.report(epoch=0, metric=1.0)
    assert events.stop_requested() is False
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_stage_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(ValueError, match="'training' is no stage; allowed") as refused:
        events.stage("training")
    assert all(name in str(refused.value) for name in STAGES)


def test_a_process_that_another_launcher_started_may_not_report(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "mynet-1-0"}
    monkeypatch.setenv(events.PLACE_VARIABLE, json.dumps(variables))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    events.stage("startup")
    for name, value in (("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "none"), ("PMI_RANK", "0")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(RuntimeError, match=f"another launcher .* {name} .* rank 0 of 2"):
                events.report(epoch=0)
    assert not (inside / events.HISTORY_FILE).exists()


# --- stages ---------------------------------------------------------------------------------------


def test_a_scripts_stages_stand_for_the_one_seen_from_outside_also_of_a_killed_segment(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = [
        *((0, "startup", 0), (0, "train", 2)),
        *((1, "startup", 50), (1, "train", 51)),
        *((2, "startup", 80), (2, "train", 82), (2, "shutdown", 88), (2, None, 89)),
    ]
    marks = [{"segment": n, "stage": s, "epoch": None, "start_s": at} for n, s, at in outside]
    (inside / "events.jsonl").write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    for segment, stage, at in ((1, "train", 55.0), (2, "train", 83.0), (2, "validate", 86.0)):
        monkeypatch.setenv(events.SEGMENT_VARIABLE, str(segment))
        monkeypatch.setattr(events.time, "time", lambda at=at: at)
        events.stage(stage, epoch=1)
    with open(inside / events.EVENTS_FILE, "a") as file:
        file.write('{"segment": 1, "stage": "vali')
    rows = stages_between(stage_marks(inside), {0: 7.0, 1: 60.0})
    assert [(r["segment"], r["stage"], r["start_s"], r["end_s"]) for r in rows] == [
        (0, "startup", 0, 2), (0, "train", 2, 7),
        (1, "startup", 50, 55), (1, "train", 55, 60),
        (2, "startup", 80, 83), (2, "train", 83, 86), (2, "validate", 86, 88),
        (2, "shutdown", 88, 89),
    ]  # fmt: skip


# --- history --------------------------------------------------------------------------------------


def test_half_a_line_of_a_full_disk_swallows_no_other(inside: Path) -> None:
    history = inside / events.HISTORY_FILE
    history.write_text('{"segment": 1, "epo')
    for epoch in (2, 3):
        events.report(epoch=epoch)
    assert [row["epoch"] for row in read_json_lines(history)] == [2, 3]
    assert len(history.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        (([0, 1, 2, 3], [0, 1]), [(0, 1), (1, 1)]),
        (([0, 1, 2], [2, 3]), [(0, 0), (1, 0), (2, 1), (3, 1)]),
        (([0, 1, 2, 3], [0], [1, 2]), [(0, 1), (1, 2), (2, 2)]),
        (([0, 1], []), [(0, 0), (1, 0)]),
    ],
    ids=["begun anew", "gone on", "begun anew and gone on", "nothing left to train"],
)
def test_what_an_abandoned_attempt_reported_is_left_out(
    attempts: tuple[list[int], ...],
    kept: list[tuple[int, int]],
    inside: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for segment, epochs in enumerate(attempts):
        monkeypatch.setenv(events.SEGMENT_VARIABLE, str(segment))
        for epoch in epochs:
            events.report(epoch=epoch)
    rows = history_rows(inside, SPEC, len(attempts) - 1)
    assert [(row["epoch"], row["segment"]) for row in rows] == kept


def test_declared_samples_stand_in_where_every_epoch_is_reported_without(inside: Path) -> None:
    events.report(epoch=0, samples=96)
    assert [row["samples"] for row in history_rows(inside, SPEC, 1)] == [96]
    events.report(epoch=1)
    assert [row["samples"] for row in history_rows(inside, SPEC, 1)] == [96, 100]


def flags(folder: Path) -> dict[str, str]:
    """Flags of a run by what its script has reported."""
    run = make_spec(epochs=2, dataset_samples=100, local_batch_size=10, global_batch_size=20)
    provenance = {"reports": report_summary(folder, run)}
    flagged = script_flags(run, provenance, history_rows(folder, run, 1))
    return {flag["code"]: flag["detail"] for flag in flagged}


@pytest.mark.parametrize(
    ("samples", "updates", "contradiction"),
    [
        (100, 5, None),
        (110, 6, None),
        (200, 5, "400 samples were reported where 200 were declared"),
        (100, 10, "20 updates were reported where 10 were declared"),
    ],
)
def test_reports_that_contradict_the_campaign_by_more_than_a_batch_are_flagged(
    inside: Path, samples: int, updates: int, contradiction: str | None
) -> None:
    for epoch in range(2):
        events.report(epoch=epoch, samples=samples, updates=updates)
    assert flags(inside).get("contradicts_spec") == contradiction


@pytest.mark.parametrize(("world", "code"), [(None, "contradicts_spec"), ((0, 2), None)])
def test_ranks_that_formed_no_world_are_flagged(
    inside: Path, monkeypatch: pytest.MonkeyPatch, world: tuple[int, int] | None, code: str | None
) -> None:
    monkeypatch.setenv(events.PLACE_VARIABLE, json.dumps({"RANK": "0", "WORLD_SIZE": "2"}))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(events, "_joined", None)
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: world is not None,
        get_rank=lambda: world and world[0],
        get_world_size=lambda: world and world[1],
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    for name in ("jax", "tensorflow", "horovod", "mpi4py", "paddle"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for epoch in range(2):
        events.report(epoch=epoch, samples=100)
    assert set(flags(inside)) == ({code} if code else set())


def test_a_value_that_is_not_finite_is_not_a_missing_value(inside: Path) -> None:
    events.report(epoch=0, metric=5.0, train_loss=math.inf, samples=100)
    events.report(epoch=1, metric=math.nan, train_loss=1.0, samples=100)
    assert [row["metric"] for row in history_rows(inside, SPEC, 1)] == [5.0, None]
    summary = report_summary(inside, SPEC)
    assert summary["not_finite"] == {"train_loss": [0], "metric": [1]}
    assert flags(inside)["not_finite"] == "metric not finite since epoch 1"


# --- stopping -------------------------------------------------------------------------------------

ASKING = """
import os, signal, time
from scalewatt.events import stop_requested
print(stop_requested(), flush=True)
while not stop_requested():
    time.sleep(0.02)
print("asked", signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN, flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGTERM, "file"])
def test_a_script_is_asked_to_stop_by(how: Any, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    process = subprocess.Popen(
        [sys.executable, "-c", ASKING],
        env={**os.environ, events.STOP_VARIABLE: str(stop)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "False\n"
        stop.touch() if how == "file" else process.send_signal(how)
        # Another rank's request may come when the interpreter has taken its handlers down.
        assert process.stdout.readline() == "asked True\n"
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
