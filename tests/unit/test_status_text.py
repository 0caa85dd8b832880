"""The status of a campaign in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_files import WHOLE
from status_files import (
    ONE,
    TWO,
    Made,
    add_up,
    describe,
    everything,
    gpu,
    record,
    running,
)

from scalewatt.cli import main
from scalewatt.tracking.status_text import progress_bar


def test_the_text_says_what_runs_and_what_failed(made: Made) -> None:
    everything(made)
    for every_run in (False, True):
        text = made.text(every_run)
        assert "1 done, 1 running, 1 failed, 1 out of date" in text
        assert "segment 0, epoch 5 of 10, step 5 of 10, train, 320 samples/s" in text
        assert "job 7 on n1 since" in text
        assert "torch.OutOfMemoryError: CUDA out of memory." in text
        assert "0.457 kWh so far (1.11 Wh estimated, 0.456 kWh measured)" in text
        rows = [line.split() for line in text.splitlines() if line.startswith(f"{ONE} ")]
        assert [row[2] for row in rows] == (["done", "failed"] if every_run else [])


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


def test_the_power_after_the_first_sample_is_not_known(made: Made) -> None:
    folder = running(made, 45)
    describe(folder, [("n1", 0)])
    add_up(record(folder, {"CUDA:0_POWER": gpu(1)}))
    (run,) = (run for run in made.status()["runs"] if run["state"] == "running")
    assert run["power_w"] is None


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_wrong_time_between_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", seconds]) == 1
    assert "--watch: " in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_a_bar_is_full_only_when_all_is_done() -> None:
    assert progress_bar(999_999, 1_000_000) == f"[{'#' * 39}.]  99 %"
    assert progress_bar(7, 7) == f"[{'#' * 40}] 100 %"


def test_every_key_of_the_json_and_every_state_is_documented(made: Made) -> None:
    text = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    status = made.status()
    for key in (*status, *status["runs"][0], *status["series"][0]):
        assert f"`{key}`" in text, key
    for state in status["counts"]:
        assert f"| {state.replace('_', ' ')} |" in text, state
