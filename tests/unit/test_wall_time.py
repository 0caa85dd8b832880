"""The time a job asks for: by a stated rule, within the limit, and enough."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from campaign_files import ROOT, replaced
from hypothesis import given
from hypothesis import strategies as st
from plan_files import forecaster
from request_files import (
    UNLIMITED_MIN,
    bound,
    device,
    horeka,
    paper,
    refusal,
    spec,
)

from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.scheduling.job_request import (
    segments,
    step_time_s,
    wall_time_min,
)


def test_the_wall_time_follows_the_stated_rule() -> None:
    one = device(step_time=bound(0.2, 0.025))  # 1 s an update
    # 15 + 1.25 × 5000 / 60 + 10 = 129.2
    assert step_time_s(spec(), one) == pytest.approx(1.0)
    assert wall_time_min(spec(), one) == 130
    # 15 + 1.25 × 1000 / 60 + 10 = 45.8
    assert wall_time_min(spec(), one, done_updates=4000) == 50
    # 15 + 1.25 × 1000 / 60 + 2 = 37.8
    assert wall_time_min(spec(), one, done_updates=4000, stop_warning_s=120) == 40
    assert wall_time_min(spec(), one, done_updates=5000) == 30, "room for an epoch"


def test_without_a_known_time_of_an_update_the_limit_is_asked_for() -> None:
    assert wall_time_min(spec(), device()) == 1440
    other = device(step_time={"fourcastnet": {"base_s": 1, "per_sample_s": 1}})
    assert wall_time_min(spec(), other) == 1440
    unknown = spec(dataset_samples=None)
    assert wall_time_min(unknown, device(step_time=bound(0.2, 0.025))) == 1440


def test_a_phase_may_have_a_time_of_its_own() -> None:
    times = {
        "fourcastnet": {"base_s": 1, "per_sample_s": 0.1},
        "fourcastnet.finetune": {"base_s": 2, "per_sample_s": 0.1},
    }
    one = device(step_time=times)
    pretrain = spec(model="fourcastnet", phase="pretrain", local_batch_size=10)
    assert step_time_s(pretrain, one) == pytest.approx(2)
    assert step_time_s(replace(pretrain, phase="finetune"), one) == pytest.approx(3)


@given(
    epochs=st.integers(1, 500),
    per_epoch=st.integers(1, 20000),
    done=st.integers(0, 10**7),
    base_s=st.floats(0, 2),
    per_sample_s=st.floats(1e-5, 0.1),
    limit=st.integers(30, 5000),
)
def test_the_wall_time_is_never_above_the_limit_and_never_grows_with_progress(
    epochs: int, per_epoch: int, done: int, base_s: float, per_sample_s: float, limit: int
) -> None:
    one = device(step_time=bound(base_s, per_sample_s), time_limit_min=limit)
    run = spec(dataset_samples=per_epoch * 8 * 32, epochs=epochs)
    step_s = base_s + 32 * per_sample_s
    if 15 + per_epoch * step_s / 60 + 10 > limit:
        with pytest.raises(InputError, match="cannot make progress"):
            wall_time_min(run, one, done)
        return
    asked = wall_time_min(run, one, done)
    assert 0 < asked <= limit
    assert asked <= wall_time_min(run, one)
    remaining = max(epochs * per_epoch - done, per_epoch)
    enough = 15 + 1.25 * remaining * step_s / 60 + 10
    assert asked == limit or enough <= asked < enough + 10 + 1e-6


def published() -> list[dict[str, str]]:
    text = (ROOT / "reference" / "published_results.csv").read_text(encoding="utf-8")
    return [row for row in csv.DictReader(text.splitlines()) if row["runtime_h"]]


def published_spec(row: dict[str, str]) -> RunSpec:
    counts = ("gpus", "local_batch_size", "dataset_samples", "epochs")
    return spec(model=row["model"], phase=row["phase"], **{name: int(row[name]) for name in counts})


def published_id(row: dict[str, str]) -> str:
    names = ("model", "device", "gpus", "local_batch_size", "dataset_samples", "epochs")
    return "-".join(row[name] for name in names)


@pytest.mark.parametrize("row", published(), ids=published_id)
def test_no_published_run_takes_longer_than_the_rule_asks_for(row: dict[str, str]) -> None:
    one = horeka().devices[row["device"]]
    run, took_min = published_spec(row), 60 * float(row["runtime_h"])
    asked = wall_time_min(run, replaced(one, time_limit_min=UNLIMITED_MIN))
    assert 1.0 < asked / took_min < 3.0
    assert wall_time_min(run, one) == min(asked, 2880)
    # an update's bound is one, the start-up and the margin aside
    assert took_min * 60 / run.updates < step_time_s(run, one)


def test_of_every_training_of_the_paper_horeka_knows_the_time() -> None:
    for id_, configuration in paper().configurations.items():
        run = run_spec(paper(), id_, 1)
        assert step_time_s(run, horeka().devices[configuration.device]) is not None, id_


@pytest.mark.parametrize(
    ("limit_min", "step_s", "upper_s", "reason"),
    [
        (60, 60, None, "one epoch needs about 76 min"),
        (60, 0.2, 100 * 3600.0, "one epoch needs about 85 min"),
        (10, None, None, "10 min (stop_warning_s)"),
    ],
    ids=["step_time", "scaling model", "stop warning"],
)
def test_a_limit_below_an_epoch_cannot_make_progress(
    limit_min: int, step_s: float | None, upper_s: float | None, reason: str
) -> None:
    times = (
        {} if step_s is None else {"step_time": bound(step_s, 0.01 if upper_s is None else 0.025)}
    )
    one = device(time_limit_min=limit_min, **times)
    message = refusal(lambda: wall_time_min(spec(), one, upper_s=upper_s))
    assert "resnet50-a100-n008-lbs0032-full: this run cannot make progress" in message
    assert reason in message and f"devices.a100.time_limit_min is {limit_min}" in message


def test_segments_need_a_limit_that_leaves_time_to_train() -> None:
    assert segments(1e6, device(time_limit_min=None)) is None
    message = refusal(segments, 100.0, device(time_limit_min=20))
    assert "start-up (15 min) and stop_warning_s (10 min) leave no time to train" in message


# --- by the scaling model ------------------------------------------------------------------------


def test_with_a_scaling_model_its_upper_bound_takes_the_place_of_step_time() -> None:
    one = device(step_time=bound(0.2, 0.025))
    # 15 + 6000 / 60 + 10 = 125
    assert wall_time_min(spec(), one, upper_s=6000.0) == 130
    # 15 + 1000/5000 × 6000 / 60 + 10 = 45
    assert wall_time_min(spec(), one, done_updates=4000, upper_s=6000.0) == 50
    assert wall_time_min(spec(), device(), upper_s=6000.0) == 130


@given(
    upper_s=st.floats(1.0, 1e7),
    done=st.integers(0, 5000),
    limit=st.integers(40, 5000),
    warning_s=st.integers(1, 900),
)
def test_a_run_that_asks_for_less_than_the_limit_is_one_segment(
    upper_s: float, done: int, limit: int, warning_s: int
) -> None:
    one = device(time_limit_min=limit)
    run = spec()
    if 15 + upper_s / 100 / 60 + warning_s / 60 > limit:
        with pytest.raises(InputError, match="cannot make progress"):
            wall_time_min(run, one, done, warning_s, upper_s)
        return
    asked = wall_time_min(run, one, done, warning_s, upper_s)
    assert asked <= limit
    if wall_time_min(run, one, 0, warning_s, upper_s) < limit:
        assert segments(upper_s, one, warning_s) == 1
    if segments(upper_s, one, warning_s) > 1:
        assert wall_time_min(run, one, 0, warning_s, upper_s) == limit


def test_horekas_published_runs_fit_into_what_the_model_asks_for() -> None:
    took = {
        row["configuration"]: row["runtime_h_mean"] for row in records(published_configurations())
    }
    checked = 0
    for id_, configuration in paper().configurations.items():
        if took.get(id_) is not None:
            run = run_spec(paper(), id_, 1)
            one = replaced(horeka().devices[configuration.device], time_limit_min=UNLIMITED_MIN)
            upper_s = forecaster().upper_runtime_s(run)
            asked = wall_time_min(run, one, 0, 600, upper_s)
            by_rule = wall_time_min(run, one)
            assert 60 * took[id_] < asked <= max(by_rule, 70)
            checked += 1
    assert checked >= 25
