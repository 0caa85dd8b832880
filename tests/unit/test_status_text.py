"""The status of a campaign in words and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from run_files import WHOLE
from status_files import (
    CAMPAIGN,
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
from scalewatt.tracking.status_text import WIDTH, bar, clock, duration, status_text


def test_the_text_says_what_runs_and_what_failed_and_fits_the_width(made: Made) -> None:
    everything(made)
    for every_run in (False, True):
        text = status_text(made.status(), every_run)
        assert "1 done, 1 running, 1 failed, 1 out of date" in text
        assert "epoch 5 of 10, step 5 of 10, train, 320 samples/s" in text
        assert "job 7 on n1, segment 0 since" in text
        assert "torch.OutOfMemoryError: CUDA out of memory." in text
        assert "0.457 kWh so far (0.00111 estimated, 0.456 measured)" in text
        assert "0.456 to 0.461 kWh by what is estimated (docs/energy.md)" in text
        assert max(map(len, text.splitlines())) <= WIDTH
        assert (f"{ONE}       1  done" in text) == every_run
        assert not any(line != line.rstrip() for line in text.splitlines())


def test_long_names_give_way_to_numbers(tmp_path: Path) -> None:
    series = {f"{'images' * 16}{i}": CAMPAIGN["series"]["images"] for i in range(2)}  # type: ignore[index]
    made = Made.create(tmp_path, series=series, figures={"figure2": {"series": list(series)}})
    for line in status_text(made.status()).splitlines():
        assert len(line) <= WIDTH
    assert "…" in status_text(made.status())


def test_unknown_energy_is_named_and_the_sum_is_a_least(made: Made) -> None:
    rows = [{**row, "energy_j": None} for row in WHOLE]
    made.publish()
    made.account(rows=rows)
    text = status_text(made.status())
    assert "at least 0.45 kWh so far" in text
    assert f"more was used than was recorded by (all: --json): {TWO} repeat 1" in text


def test_the_budget_is_shown_beside_what_was_used(tmp_path: Path) -> None:
    made = Made.create(tmp_path, energy_budget_kwh=12.5)
    assert "0 kWh so far of 12.5" in status_text(made.status())


def test_json_has_all_runs_and_null_for_what_is_not_known(made: Made) -> None:
    everything(made)
    said = json.loads(json.dumps(made.status(), allow_nan=False))
    assert len(said["runs"]) == said["runs_total"] == sum(said["counts"].values()) == 4
    (series,) = said["series"]
    assert (series["series"], series["runs_total"], series["counts"]) == (
        "images",
        4,
        said["counts"],
    )
    keys = {frozenset(run) for run in said["runs"]}
    assert len(keys) == 1
    (done,) = (run for run in said["runs"] if run["state"] == "done")
    assert [done[key] for key in ("epoch", "power_w", "job", "reason")] == [None] * 4


def test_the_power_after_the_first_sample_is_not_known(made: Made) -> None:
    folder = running(made, 45)
    describe(folder, [("n1", 0)])
    add_up(record(folder, {"CUDA:0_POWER": gpu(1)}))
    (run,) = (run for run in made.status()["runs"] if run["state"] == "running")
    assert run["power_w"] is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_wrong_time_between_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--watch", seconds]) == 1
    assert "--watch: " in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_a_bar_is_full_only_when_all_is_done() -> None:
    assert bar(0, 0) == f"[{'.' * 40}]   0 %"
    assert bar(999_999, 1_000_000) == f"[{'#' * 39}.]  99 %"
    assert bar(7, 7) == f"[{'#' * 40}] 100 %"


def test_a_time_of_another_day_has_its_date() -> None:
    noon = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
    assert clock(noon, noon + 60) == "12:00:00"
    assert clock(noon, noon + 86_400) == "2026-11-22 12:00:00"


def test_every_key_of_the_json_and_every_state_is_documented(made: Made) -> None:
    text = (Path(__file__).parents[2] / "docs" / "status.md").read_text()
    said = made.status()
    for key in (*said, *said["runs"][0], *said["series"][0]):
        assert f"`{key}`" in text, key
    for state in said["counts"]:
        assert f"| {state.replace('_', ' ')} |" in text, state
