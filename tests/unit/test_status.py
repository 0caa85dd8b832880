"""The status of a campaign, whatever its files hold and whatever becomes of them meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest
from energy_files import gpu
from run_files import WHOLE
from status_files import (
    ONE,
    TWO,
    Made,
    add_up,
    begin_segment,
    describe,
    everything,
    record,
    running,
    submitted,
)

from scalewatt.cli import main
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.tracking.status import status_text

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
    for number, (path, content) in enumerate(kept.items()):
        path.write_bytes(dice.choice([*WRONG, content[: len(content) // 2], dice.randbytes(200)]))
        assert_is_stated(made)
        if number % 3 == 0:
            path.unlink()
            assert_is_stated(made)
        path.write_bytes(content)


def assert_is_stated(made: Made) -> None:
    status = made.status()
    json.dumps(status, allow_nan=False)
    assert len(status["runs"]) == 4 and status_text(status)


def test_files_that_come_and_go_meanwhile_do_no_harm(made: Made) -> None:
    folder = running(made, 45)
    done = threading.Event()
    errors: list[BaseException] = []

    def come_and_go() -> None:
        try:
            while not done.is_set():
                running(made, 45)
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
        for _ in range(20):
            assert_is_stated(made)
    finally:
        done.set()
        other.join()
    assert not errors


def test_the_text_says_what_runs_and_what_failed(made: Made) -> None:
    everything(made)
    for every_run in (False, True):
        text = made.text(every_run)
        assert "1 done, 1 running, 1 failed, 1 out of date" in text
        assert "0.457 kWh so far (1.11 Wh estimated, 0.456 kWh measured)" in text
        assert f"failed: {ONE} 2, job 7: torch.OutOfMemoryError: CUDA out of memory." in text
        (running,) = [
            line for line in text.splitlines() if line.startswith(f"{TWO} 1 ") and " n1 " in line
        ]
        assert running.split()[2:9] == ["0", "4", "10", "5", "10", "train", "320"]
        (row, *_) = [line.split() for line in text.splitlines() if line.startswith(f"{ONE} 1")] or [
            []
        ]
        assert row[2:4] == (["done", "100"] if every_run else [])


def test_unknown_energy_is_named_and_the_sum_is_a_least(made: Made) -> None:
    rows = [{**row, "energy_j": None} for row in WHOLE]
    made.publish()
    made.account(rows=rows)
    text = made.text()
    assert "at least 0.45 kWh so far" in text
    assert f"more was used than was recorded by (all: --json): {TWO} repeat 1" in text


def test_the_budget_is_shown_beside_what_was_used(tmp_path: Path) -> None:
    made = Made.create(tmp_path, energy_budget_kwh=12.5)
    assert "0 kWh so far of 12.5 kWh" in made.text()


def test_json_has_all_runs_and_null_for_what_is_not_known(made: Made) -> None:
    everything(made)
    status = json.loads(json.dumps(made.status(), allow_nan=False))
    assert len(status["runs"]) == status["runs_total"] == sum(status["counts"].values()) == 4
    (series,) = status["series"]
    assert (series["series"], series["runs_total"], series["counts"]) == (
        "images",
        4,
        status["counts"],
    )
    keys = {frozenset(run) for run in status["runs"]}
    assert len(keys) == 1
    (done,) = (run for run in status["runs"] if run["state"] == "done")
    assert [done[key] for key in ("epoch", "power_w", "job", "reason")] == [None] * 4


def test_a_running_ones_power_is_what_its_nodes_sensors_read_last(made: Made) -> None:
    folder = running(made)
    begin_segment(folder)
    sensors = {
        "CUDA:0_POWER": gpu(60, 300),
        "CUDA:1_POWER": gpu(60, 250),
        "CUDA:2_POWER": gpu(60, 90),
    }
    journal = record(folder, {**sensors, "CPU_BUSY": [50.0] * 60})
    assert made.run()["power_w"] is None, "no running total yet"
    add_up(journal)
    assert made.run()["power_w"] == pytest.approx(300 + 250)
    describe(folder, [("n1", 0), ("n2", 0)])
    assert made.run()["power_w"] is None, "of n2 nothing is recorded"


def test_what_is_left_goes_by_the_last_rate(made: Made) -> None:
    running(made, 45)
    assert made.run()["left_s"] == pytest.approx(55 * 32 / 320)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_wrong_time_between_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", seconds]) == 1
    assert "--watch: " in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_every_key_of_the_json_and_every_state_is_documented(made: Made) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "status.md").read_text()
    status = made.status()
    for key in (*status, *status["runs"][0], *status["series"][0]):
        assert f"`{key}`" in text, key
    for state in status["counts"]:
        assert f"| {state.replace('_', ' ')} |" in text, state


# --- commands -----------------------------------------------------------------------------------


def test_what_a_commands_script_reports_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a script on one and two GPUs: 6 epochs of 50 and 25 updates."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print()\n")
    entry = {"workload": "command", "command": "python train.py {local_batch_size}"}
    model = {**entry, "files": ["train.py"], "epochs": 6, "samples": 500}
    series = {"model": "net", "device": "a100", "gpus": [1, 2], "local_batch_size": 10}
    figures = {"figure2": {"series": ["net"]}}
    made = Made.create(tmp_path, models={"net": model}, series={"net": series}, figures=figures)
    script = "net-a100-n002-lbs0010-full"
    folder = made.work_folder(script)
    begin_segment(folder)
    made.held(folder)
    assert made.run(script)["segment"] == 0
    rows = [{"segment": 0, "epoch": epoch, "updates": 25} for epoch in (0, 1)]
    (folder / HISTORY_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    mark = {"segment": 0, "stage": "validate", "epoch": 2, "start_s": 1.0}
    (folder / EVENTS_FILE).write_text(json.dumps(mark) + "\n")
    run = made.run(script)
    shown = [run[name] for name in ("epoch", "epochs", "updates", "updates_total", "stage")]
    assert shown == [2, 6, 50, 150, "validate"]
    (folder / HISTORY_FILE).write_text('{"epoch": "x"}\n[]\n')
    assert made.run(script)["epoch"] is None, "damaged"
