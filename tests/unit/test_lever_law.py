"""Clocks and power limits between calibrated ones: by a law where leaving one out says so, else refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from operating_runs import campaign, energy_j, train_s

from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.scaling.model.cost_terms import EnergyTerms, TimeTerms, load_of_spec
from scalewatt.scaling.model.kind_model import KindModel, Point
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.posterior import Draws
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.planning.forecast import Forecaster

DRAWS = 200
CLOCKS = (705, 930, 1005, 1155, 1410)


def spec_at(clock_mhz: float, lever: str = "gpu_clock_mhz") -> RunSpec:
    of = campaign((705,))
    spec = run_spec(of, "resnet50-local-n002-lbs0016-full-gpuclock705mhz", 1)
    return replace(
        spec, operating_point={lever: float(clock_mhz)}, configuration=f"made-{clock_mhz:g}"
    )


def kind_model(spec: RunSpec, runtime_s: float, joules: float) -> KindModel:
    """The model of a kind of which one point is known exactly: time by samples, energy by time."""
    load, kind = load_of_spec(spec), kind_of_spec(spec)
    point = Point(
        "made", "made", spec.configuration, kind, load, runtime_s, joules, {}, "measured", "gpu", 3
    )
    per_sample_s = runtime_s / (load.samples / load.gpus)
    per_gpu_hour = joules / (runtime_s / 3600 * load.gpus)
    spread = np.full(DRAWS, 1e-4)
    return KindModel(
        kind=kind, points=(point,), time_terms=TimeTerms(("sample",)),
        time=Draws(np.full((DRAWS, 1), per_sample_s), spread), energy_terms=EnergyTerms(("gpu",)),
        energy={"total": Draws(np.full((DRAWS, 1), per_gpu_hour), spread)}, origin="measured", scope="gpu",
    )  # fmt: skip


def forecaster(
    clocks: tuple[float, ...] = CLOCKS,
    time: Callable[[float], float] = lambda clock: train_s(clock, 2),
    energy: Callable[[float], float] = lambda clock: energy_j(clock, 2),
    lever: str = "gpu_clock_mhz",
) -> Forecaster:
    kinds = tuple(kind_model(spec_at(c, lever), time(c), energy(c)) for c in clocks)
    return Forecaster(ScalingModel(kinds, ("made",)))


@pytest.mark.parametrize("clock", [800, 1080, 1300])
def test_a_clock_between_calibrated_ones_follows_the_law(clock: float) -> None:
    found = forecaster()
    runs = found.runs(spec_at(clock))
    assert np.median(runs.runtime_s) == pytest.approx(train_s(clock, 2), rel=2e-3)
    assert runs.total_j is not None
    assert np.median(runs.total_j) == pytest.approx(energy_j(clock, 2), rel=5e-3)
    (said,) = found.warnings(spec_at(clock))
    assert said.startswith(
        f"GPU clock {clock} MHz was not calibrated: by a law of the clock, whose largest"
    )


def test_a_calibrated_clock_is_as_it_was_calibrated() -> None:
    assert forecaster().warnings(spec_at(1155)) == []


def test_power_limits_are_interpolated_and_the_interval_is_as_wide_as_the_error() -> None:
    limits = (100.0, 125.0, 150.0, 175.0, 200.0, 225.0, 250.0)
    # Zeus's ResNet-50 on ImageNet at batch 256 has such a shape (seconds and joules of an epoch).
    found = forecaster(
        limits,
        lambda w: 2.7 + 1.2e5 / w**2.1,
        lambda w: 1e3 * (3 + w / 100 + 900 / w**1.3),
        "gpu_power_limit_w",
    )
    runs = found.runs(spec_at(160, "gpu_power_limit_w"))
    low, median, high = np.quantile(runs.runtime_s, [0.05, 0.5, 0.95])
    assert low < 2.7 + 1.2e5 / 160**2.1 < high
    (said,) = found.warnings(spec_at(160, "gpu_power_limit_w"))
    assert "interpolated between neighbours" in said
    assert (high - low) / 2 / median == pytest.approx(float(said.split()[-2]) / 100, rel=0.25)


@pytest.mark.parametrize(
    ("clocks", "wanted", "words"),
    [
        (CLOCKS[:3], 800, "3 values of gpu_clock_mhz are calibrated; expected at least 4"),
        (CLOCKS, 600, "600 MHz is beyond the calibrated 705 to 1410 MHz"),
        (CLOCKS, 1500, "1500 MHz is beyond the calibrated 705 to 1410 MHz"),
    ],
)
def test_few_points_and_extrapolation_are_refused(
    clocks: tuple[float, ...], wanted: float, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        forecaster(clocks).of_kind(spec_at(wanted))


def test_where_leaving_one_out_fails_nothing_is_predicted() -> None:
    jumps = {705: 1.0, 930: 1.3, 1005: 0.8, 1155: 1.2, 1410: 0.9}
    found = forecaster(time=lambda clock: 100 * jumps[int(clock)])
    with pytest.raises(
        InputError, match=r"a left-out gpu_clock_mhz is predicted with an error of up to"
    ):
        found.of_kind(spec_at(800))


def test_kinds_that_differ_in_more_than_the_lever_say_nothing() -> None:
    other = replace(spec_at(800), settings={**spec_at(800).settings, "precision": "bf16"})
    words = (
        r"it differs in precision \(torch_default, not bf16\), and was calibrated at a GPU clock of "
        "705 MHz, not at 800 MHz"
    )
    with pytest.raises(InputError, match=words):
        forecaster().of_kind(other)


def with_point(point: dict[str, float] | None) -> RunSpec:
    return replace(spec_at(705), operating_point=point)


@pytest.mark.parametrize(
    ("calibrated", "wanted", "words"),
    [
        (None, {"gpu_clock_mhz": 1110.0}, "without a GPU clock, not at 1110 MHz"),
        ({"gpu_clock_mhz": 705.0}, None, "at a GPU clock of 705 MHz, not without one"),
        ({"gpu_power_limit_w": 250.5}, {"gpu_power_limit_w": 300.0},
         "at a GPU power limit of 250.5 W, not at 300 W"),
        (None, {"cpu_clock_mhz": 2000.0, "gpu_power_limit_w": 300.0},
         "without a GPU power limit, not at 300 W, and without a CPU clock, not at 2000 MHz"),
    ],
)  # fmt: skip
def test_another_operating_point_is_told_in_words(
    calibrated: dict[str, float] | None, wanted: dict[str, float] | None, words: str
) -> None:
    found = ScalingModel((kind_model(with_point(calibrated), 1.0, 1.0),), ("made",))
    with pytest.raises(InputError) as raised:
        found.of(kind_of_spec(with_point(wanted)))
    message = str(raised.value)
    assert f"; it was calibrated {words}" in message
    assert "differs in" not in message and "None" not in message and "1 values" not in message


def test_the_calibrated_kind_that_differs_least_is_compared() -> None:
    other = replace(spec_at(705), settings={**spec_at(705).settings, "precision": "bf16"})
    kinds = tuple(kind_model(one, 1.0, 1.0) for one in (other, with_point(None)))
    found = ScalingModel(kinds, ("made",))
    with pytest.raises(InputError, match="it was calibrated without a GPU clock, not at 800 MHz"):
        found.of(kind_of_spec(spec_at(800)))
