"""How far a run is, how fast, what it draws, and how long it takes."""

from __future__ import annotations

import pytest
from energy_files import gpu
from status_files import (
    ONE,
    Made,
    add_up,
    begin_segment,
    describe,
    epochs_of_14_s,
    record,
    running,
)

from scalewatt.tracking.status import time_left


def test_the_rest_takes_as_long_an_update_as_the_segment_did_evaluations_included(
    made: Made,
) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    run = made.run()
    assert run["left_s"] == pytest.approx(55 * 61 / 45)
    assert "; by its pace 1.24 min left" in made.text()


@pytest.mark.parametrize(
    ("first", "done", "expected"),
    [(20, 40, 60 * 3.0), (0, 40, 60 * 1.5), (40, 40, None), (None, 40, None)],
)
def test_only_updates_of_this_segment_set_the_pace(
    first: int | None, done: int, expected: float | None
) -> None:
    stages = [
        {"segment": 0, "stage": "validate", "epoch": 1, "start_s": 10.0},
        {"segment": 1, "stage": "startup", "epoch": 0, "start_s": 20.0},
        {"segment": 1, "stage": "train", "epoch": 2, "start_s": 40.0},
    ]
    now = {"segment": 1, "updates": done, "updates_total": 100, "written_s": 100.0}
    assert time_left(now, first, stages) == expected


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


def test_updates_add_up_over_runs_and_what_is_not_known_is_left_out(made: Made) -> None:
    running(made, 45)
    made.publish(ONE)
    status = made.status()
    assert (status["updates"], status["updates_total"]) == (245, 600)
