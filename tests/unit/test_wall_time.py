"""The time a job asks for: by a stated rule, within the limit, and enough."""

from __future__ import annotations

import pytest
from campaign_files import replaced
from hypothesis import given
from hypothesis import strategies as st
from plan_files import scaling_model
from request_files import UNLIMITED_MIN, device, horeka, paper, refusal, spec

from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.scheduling.job_request import usable_s, wall_time_min


def test_the_wall_time_follows_the_stated_rule() -> None:
    # 15 + 6000 / 60 + 10 = 125
    assert wall_time_min(spec(), device(), upper_s=6000.0) == 130
    # 15 + 1000/5000 × 6000 / 60 + 10 = 45
    assert wall_time_min(spec(), device(), 4000, upper_s=6000.0) == 50
    # 15 + 1000/5000 × 6000 / 60 + 2 = 37
    assert wall_time_min(spec(), device(), 4000, 120, upper_s=6000.0) == 40
    assert wall_time_min(spec(), device(), 5000, upper_s=6000.0) == 30, "room for an epoch"


def test_without_a_known_time_or_number_of_updates_the_limit_is_asked_for() -> None:
    assert wall_time_min(spec(), device()) == 1440
    assert wall_time_min(spec(dataset_samples=None), device(), upper_s=6000.0) == 1440


@given(
    epochs=st.integers(1, 500),
    per_epoch=st.integers(1, 20000),
    done=st.integers(0, 10**7),
    step_s=st.floats(1e-3, 3),
    limit=st.integers(30, 5000),
)
def test_the_wall_time_is_never_above_the_limit_and_never_grows_with_progress(
    epochs: int, per_epoch: int, done: int, step_s: float, limit: int
) -> None:
    limited = device(time_limit_min=limit)
    run = spec(dataset_samples=per_epoch * 8 * 32, epochs=epochs)
    upper_s = epochs * per_epoch * step_s
    if 15 + per_epoch * step_s / 60 + 10 > limit:
        with pytest.raises(InputError, match="cannot make progress"):
            wall_time_min(run, limited, done, upper_s=upper_s)
        return
    asked = wall_time_min(run, limited, done, upper_s=upper_s)
    assert 0 < asked <= limit
    assert asked <= wall_time_min(run, limited, upper_s=upper_s)
    remaining = max(epochs * per_epoch - done, per_epoch)
    enough = 15 + remaining * step_s / 60 + 10
    assert asked == limit or enough - 1e-6 <= asked < enough + 10 + 1e-6


@pytest.mark.parametrize(
    ("limit_min", "upper_s", "reason"),
    [
        (60, 100 * 3600.0, "one epoch needs about 85 min"),
        (10, None, "longer than stop_warning_s (10 min)"),
    ],
    ids=["epoch", "stop warning"],
)
def test_a_limit_below_an_epoch_cannot_make_progress(
    limit_min: int, upper_s: float | None, reason: str
) -> None:
    limited = device(time_limit_min=limit_min)
    message = refusal(lambda: wall_time_min(spec(), limited, upper_s=upper_s))
    assert "resnet50-a100-n008-lbs0032-full: this run cannot make progress" in message
    assert reason in message and f"devices.a100.time_limit_min is {limit_min}" in message


def test_a_limit_that_leaves_no_time_to_train_is_refused() -> None:
    message = refusal(usable_s, device(time_limit_min=20))
    assert "start-up (15 min) and stop_warning_s (10 min) leave no time to train" in message


def test_horekas_published_runs_fit_into_what_the_model_asks_for() -> None:
    took = {
        row["configuration"]: row["runtime_h_mean"] for row in records(published_configurations())
    }
    checked = 0
    for id_, configuration in paper().configurations.items():
        if took.get(id_) is not None:
            run = run_spec(paper(), id_, 1)
            limited = replaced(horeka().devices[configuration.device], time_limit_min=UNLIMITED_MIN)
            upper_s = scaling_model().upper_runtime_s(run)
            asked = wall_time_min(run, limited, 0, 600, upper_s)
            assert 60 * took[id_] < asked <= 3 * 60 * took[id_] + 70
            checked += 1
    assert checked >= 25
