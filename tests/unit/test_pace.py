"""How far a run is, how fast, what it draws, and how long it takes."""

from __future__ import annotations

import time

import pytest
from energy_files import gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from status_files import (
    ONE,
    TWO,
    Made,
    begin_segment,
    epochs_of_14_s,
    marks,
    record,
    running,
    submitted,
)

from scalewatt.run_files.record import Progress
from scalewatt.tracking.eta import time_left
from scalewatt.tracking.status import updates_of
from scalewatt.tracking.status_text import status_text


def test_the_time_left_is_that_of_updates_and_of_what_lies_between_epochs(made: Made) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    run = made.run()
    assert run.left is not None and not run.left.at_least
    assert run.left.seconds == pytest.approx(55 + 6 * 4)
    assert run.progress is not None and run.ends_s is not None
    assert run.ends_s - run.progress.written_s == pytest.approx(79)


def test_before_the_first_epochs_end_it_is_at_least_the_time_of_the_updates(made: Made) -> None:
    folder = running(made, 5)
    marks(folder, (0, "startup", 0, 30), (0, "train", 0, 5.0))
    run = made.run()
    assert run.left is not None and run.left.at_least
    assert run.left.seconds == pytest.approx(95)
    assert run.ends_s is None
    assert "at least 1 min" in status_text(made.status())


@pytest.mark.parametrize(("limit_s", "known"), [(4000, True), (650, False)])
def test_an_end_beyond_the_jobs_limit_is_none(made: Made, limit_s: int, known: bool) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    ends = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + limit_s))
    submitted(made, "7", "RUNNING", "None", ends, "n1")
    run = made.run()
    assert (run.ends_s is not None) == known, "the job is warned 600 s before its limit"
    assert run.left is not None
    assert ("of training left" in status_text(made.status())) != known


def test_the_campaigns_end_is_known_once_all_that_is_left_runs(made: Made) -> None:
    epochs_of_14_s(running(made, 45), 4, step_s=5.0)
    for configuration, repeat in ((ONE, 1), (ONE, 2)):
        made.publish(configuration, repeat)
    assert made.status().ends_s is None
    made.publish(TWO, 2)
    assert made.status().ends_s == made.run().ends_s
    assert "ends     about" in status_text(made.status())
    made.publish(TWO, 1)
    assert made.status().ends_s is None


@settings(max_examples=200)
@given(
    epochs=st.integers(1, 6),
    steps=st.integers(1, 5),
    done=st.integers(0, 29),
    update_s=st.floats(0.1, 50),
    between_s=st.floats(0, 50),
    first=st.integers(0, 29),
)
def test_the_time_left_of_an_even_pace_is_exact(
    epochs: int, steps: int, done: int, update_s: float, between_s: float, first: int
) -> None:
    total = epochs * steps
    done = min(done, total - 1)
    first = min(first, done)
    now, epoch, found = 0.0, first // steps, []
    for update in range(first, done):
        if update == first or update % steps == 0:
            found.append({"segment": 1, "stage": "train", "epoch": update // steps, "start_s": now})
        now += update_s
        if (update + 1) % steps == 0:
            found.append({"segment": 1, "stage": "validate", "epoch": epoch, "start_s": now})
            now += between_s
            epoch += 1
            found.append({"segment": 1, "stage": "checkpoint", "epoch": epoch, "start_s": now})
    if done > first:
        found.append({"segment": 1, "stage": "train", "epoch": epoch, "start_s": now})
    at = Progress(1, done // steps, epochs, done % steps, steps, done, total, None, "train", now)
    left = time_left(at, first, found)
    if done == first:
        assert left is None
        return
    assert left is not None
    assert left.at_least == (first // steps == done // steps)
    expected = (total - done) * update_s
    if not left.at_least:
        expected += (epochs - done // steps) * between_s
    assert left.seconds == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_running_ones_power_is_that_of_its_nodes_last_samples(made: Made) -> None:
    folder = running(made)
    begin_segment(folder)
    sensors = {
        "CUDA:0_POWER": gpu(60, 300),
        "CUDA:1_POWER": gpu(60, 250),
        "CUDA:2_POWER": gpu(60, 90),
    }
    record(folder, {**sensors, "CPU_BUSY": [50.0] * 60})
    run = made.run()
    assert run.power is not None
    cpus_w = 2 * 0.74 * 150 * (0.1 + 0.9 * 0.5)  # the estimate of two sockets at half load
    assert run.power.watts == pytest.approx(300 + 250 + cpus_w)
    assert run.power.origin == "mixed"
    assert run.kwh == pytest.approx(59 * (550 + cpus_w) / 3.6e6)


def test_updates_add_up_over_runs_and_what_is_not_known_is_left_out(made: Made) -> None:
    running(made, 45)
    made.publish(ONE)
    assert updates_of(made.status().runs) == (245, 600)
