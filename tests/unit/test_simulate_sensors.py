"""Simulated sensors: what each kind of them says of a known course of power."""

from __future__ import annotations

import numpy as np
import pytest
from campaign_files import replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from injected_faults import CounterWrap, disturbed, joules_between, truth_of
from simulated_runs import MODEL, cluster, spec_of

from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.power_profile import Course, counted
from scalewatt.scaling.simulation.sensors import NodeSamples
from scalewatt.scaling.simulation.simulated_run import Simulation, simulation

FULL_1 = "resnet50-a100-n001-lbs0256-full"
ON_H100 = "fourcastnet.pretrain-h100-n016-lbs0001-full"
STEPS = Course(
    np.array([0.0, 10.0, 10.4, 30.0]),
    np.array([100.0, 300.0, 50.0, 200.0]),
    np.ones(4, dtype=bool),
    0.0,
    {},
)


def simulated(name: str, period_s: float | None = None) -> Simulation:
    spec = spec_of(name)
    on = (
        cluster()
        if period_s is None
        else replaced(cluster(), simulate={"sampling_period_s": period_s})
    )
    return simulation(spec, on, read_model(MODEL).of(kind_of_spec(spec)))


def first_node(one: Simulation) -> NodeSamples:
    return next(one.nodes.sampled(one.segments[0]))


def test_the_energy_of_a_course_is_its_integral() -> None:
    assert STEPS.joules(np.array([0.0, 5.0, 10.0, 10.2, 10.4, 30.0, 31.0])) == pytest.approx(
        [0, 500, 1000, 1060, 1120, 1120 + 980, 1120 + 980 + 200]
    )


def test_a_sensor_that_averages_gives_means_over_the_time_before() -> None:
    means = STEPS.means(np.array([0.0, 0.5, 5.0, 10.2, 11.0, 11.4, 30.5]), 1.0)
    assert means == pytest.approx(
        [100, 100, 100, 0.8 * 100 + 0.2 * 300, 0.4 * 300 + 0.6 * 50, 50, 0.5 * 50 + 0.5 * 200]
    )


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 60.0), st.integers(0, 1000))
def test_a_counter_counts_all_energy_however_seldom_it_is_read(period_s: float, seed: int) -> None:
    times = np.append(np.arange(0.0, 100.0, period_s), 100.0)
    found = counted(STEPS, times, 3, np.random.default_rng(seed))
    assert found[:, 0] == pytest.approx([0, 0, 0])
    assert found[:, -1] == pytest.approx([STEPS.joules(np.array([100.0]))[0]] * 3)
    # What it has counted by then is near the true energy by then: only noise lies between.
    assert np.abs(found - STEPS.joules(times)).max() < 0.3 * found[0, -1]
    assert (np.diff(found, axis=1) > 0).all()


@pytest.mark.parametrize("period_s", [1.0, 300.0, 3000.0])
def test_a_counter_that_wraps_several_times_between_samples_has_lost_nothing(
    period_s: float,
) -> None:
    one = simulated(FULL_1, period_s)
    node = first_node(one)
    true = truth_of(one, one.nodes)["segments"][0]["joules"][node.host]
    for kind in ("cpu", "ram"):
        own = [s.counted_uj for s in node.sensors if s.device_kind == kind]
        assert sum(int(c[-1]) for c in own if c is not None) * 1e-6 == pytest.approx(
            true[kind], rel=1e-6
        )
    end_s = float(node.time_s[-1])
    assert joules_between(node, 0.0, end_s, 1) == pytest.approx(true, rel=2e-6)
    wrap = CounterWrap(1e5, "cpu")
    (wrapped,) = disturbed([node], 0, [wrap])
    for before, after in zip(node.sensors, wrapped.sensors, strict=True):
        if before.device_kind != "cpu":
            assert after is before
            continue
        assert before.counted_uj is not None
        first = int(before.raw[0]) % after.valid_max
        expected = (before.counted_uj + np.uint64(first)) % np.uint64(after.valid_max)
        assert (after.raw == np.maximum(expected, 1)).all()
        assert after.valid_max == 10**11


def test_counters_of_an_epyc_wrap_where_those_of_an_epyc_do() -> None:
    ranges = {
        name: {s.device_kind: s.valid_max for s in first_node(simulated(name)).sensors}
        for name in (FULL_1, ON_H100)
    }
    assert ranges[FULL_1] == {"gpu": 400_000, "cpu": 262_143_328_850, "ram": 65_712_999_613}
    assert ranges[ON_H100]["cpu"] == 65_532_610_987
