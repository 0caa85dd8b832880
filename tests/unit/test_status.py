"""The status of a campaign, whatever its files hold and whatever becomes of them meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from energy_files import gpu
from status_files import (
    ONE,
    Made,
    begin_segment,
    epochs_of_14_s,
    everything,
    record,
    running,
    submitted,
)

from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.tracking import status as status_module
from scalewatt.tracking.status_text import status_text


def test_the_queue_is_asked_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(status_module, "queued_jobs", lambda: asked.append(1) or {})
    everything(made)
    made.status()
    assert asked == [1]


WRONG = [
    b"",
    b"null",
    b"[1]",
    b"{}",
    b"[[]]",
    b'{"segments": [1]}',
    b'{"segments": {"a": 1}, "checkpoint": 3, "ended": []}',
    b"\xff\x00",
    b"1e999",
]


def test_whatever_damaged_files_hold_there_is_a_status(made: Made) -> None:
    everything(made)
    submitted(made)
    dice = random.Random(3)
    kept = {path: path.read_bytes() for path in sorted(made.folder.rglob("*")) if path.is_file()}
    for path, content in kept.items():
        path.write_bytes(dice.choice([*WRONG, content[: len(content) // 2], dice.randbytes(200)]))
        assert_is_stated(made)
        path.unlink()
        assert_is_stated(made)
        path.write_bytes(content)


def assert_is_stated(made: Made) -> None:
    status = made.look()
    json.dumps(status.as_json(), allow_nan=False)
    assert len(status.runs) == 4 and status_text(status)


def test_files_that_come_and_go_meanwhile_do_no_harm(made: Made) -> None:
    folder = running(made, 45)
    done = threading.Event()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while not done.is_set():
                running(made, 45)
                epochs_of_14_s(folder, 4, step_s=5.0)
                record(folder, {"CUDA:0_POWER": gpu(30), "CUDA:1_POWER": gpu(30)})
                made.publish(ONE)
                made.account(ONE)
                for path in (folder, made.results / "runs" / ONE, made.results / "energy"):
                    shutil.rmtree(path, ignore_errors=True)
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(60):
            assert_is_stated(made)
    finally:
        done.set()
        other.join()
    assert not errors


def test_it_needs_neither_torch_nor_perun() -> None:
    code = "import sys, scalewatt.tracking.status_text; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "'pyarrow'" in loaded
    for package in ("torch", "perun", "mpi4py", "snakemake"):
        assert f"'{package}'" not in loaded


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A campaign of a script on one and two GPUs, 6 epochs of 50 and 25 updates."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print()\n")
    entry = {"workload": "command", "command": "python train.py {local_batch_size}"}
    model = {**entry, "files": ["train.py"], "epochs": 6, "samples": 500}
    series = {"model": "net", "device": "a100", "gpus": [1, 2], "local_batch_size": 10}
    figures = {"figure2": {"series": ["net"]}}
    return Made.create(tmp_path, models={"net": model}, series={"net": series}, figures=figures)


SCRIPT = "net-a100-n002-lbs0010-full"


def reports(folder: Path, epochs: int, updates: int = 25) -> None:
    rows = [{"segment": 0, "epoch": epoch, "updates": updates} for epoch in range(epochs)]
    (folder / HISTORY_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    mark = {"segment": 0, "stage": "validate", "epoch": epochs, "start_s": 1.0}
    (folder / EVENTS_FILE).write_text(json.dumps(mark) + "\n")


def test_what_a_commands_script_reports_is_shown(scripted: Made) -> None:
    folder = scripted.work_folder(SCRIPT)
    begin_segment(folder)
    scripted.held(folder)
    assert "segment 0, starts" in scripted.text()
    reports(folder, 2)
    assert "2 of 6 epochs reported, 50 updates, validate" in scripted.text()
    run = scripted.run(SCRIPT)
    shown = [run[name] for name in ("epoch", "epochs", "updates", "updates_total", "stage")]
    assert shown == [2, 6, 50, 150, "validate"]
    (folder / HISTORY_FILE).write_text('{"epoch": "x"}\n[]\n')
    assert "starts" in scripted.text(), "damaged"
