"""What sampling costs: simulated energies by stage, and of sensors whose samples are not scaled.

The truth is the integral of the power that was simulated. By default a GPU's samples are scaled so that
their trapezoid is that integral, so a run's energy tests bookkeeping alone; stages, and runs that are
not scaled, test the integration as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_tables import EnergyTables
from simulated_runs import Simulated, cluster, simulate, spec_of

from scalewatt.campaign.cluster import powers

EXACT = 2e-6
ON_TWO_NODES = "resnet50-a100-n008-lbs0256-s0040036"
ON_ONE_GPU = "resnet50-a100-n001-lbs0256-s0005004"
WHOLE = "resnet50-a100-n004-lbs0256-full"
ON_H100 = "fourcastnet.pretrain-h100-n016-lbs0001-full"
RUNS = {ON_TWO_NODES: 100, ON_ONE_GPU: 100, WHOLE: 24, ON_H100: 2}
"""Epochs of each; the first two have epochs of 15 s."""
OF_A_STAGE, OF_A_LONG_STAGE, LONG = 0.05, 0.01, 50
"""How near an energy by stage is at 1 s where it is stated, and where pieces last so many periods. What comes
once in a run may be further off: by half a period's worth of the difference in power at its one end."""
LEAST_PERIODS = 5
"""A stage in shorter pieces is not stated (docs/guide/energy.md)."""
OF_A_RUN = 0.03
"""How near the energy of GPUs is, whose samples are not scaled: at up to 1 s with epochs of 15 s, at up to
10 s with epochs of minutes."""


def accounted(folder: Path, name: str, period_s: float) -> tuple[Simulated, EnergyTables]:
    """Simulate and account for a run."""
    run = simulate(folder, spec_of(name, epochs=RUNS[name]), period_s=period_s)
    return run, EnergyTables.of(run.folder, powers(cluster().devices[run.run.spec.device]))


def stage_seconds(run: Simulated, stage: str) -> list[float]:
    """Lengths of the pieces of a stage."""
    return [piece.seconds for piece in run.run.stages if piece.name == stage]


def at_one_end(run: Simulated, kind: str, stage: str) -> float:
    """What a stage that comes once may be off, as a part of its energy, sampled every second."""
    if stage not in ("startup", "shutdown"):
        return 0.0
    watts = {
        name: run.true_stage_j(kind)[name] / sum(stage_seconds(run, name))
        for name in ("train", stage)
    }
    return 0.5 * (watts["train"] / watts[stage] - 1) / sum(stage_seconds(run, stage))


@pytest.mark.parametrize("name", RUNS)
def test_at_one_second_what_is_stated_of_a_stage_is_true(name: str, tmp_path: Path) -> None:
    run, totals = accounted(tmp_path, name, 1.0)
    for kind in ("gpu", "cpu"):
        true, stated = run.true_stage_j(kind), totals.stages_j(kind)
        assert sum(stated.values()) == pytest.approx(sum(true.values()), rel=EXACT)
        for stage in set(true) - totals.short(kind):
            seconds = np.mean(stage_seconds(run, stage))
            assert seconds > 0.98 * LEAST_PERIODS
            near = OF_A_LONG_STAGE if seconds >= LONG else OF_A_STAGE
            near += at_one_end(run, kind, stage)
            assert stated[stage] == pytest.approx(true[stage], rel=near), (kind, stage)
    assert not {"train", "startup"} & totals.short("gpu")


def test_at_ten_seconds_nothing_is_stated_of_epochs_of_fifteen(tmp_path: Path) -> None:
    run, totals = accounted(tmp_path, ON_TWO_NODES, 10.0)
    for kind in ("gpu", "cpu"):
        assert totals.short(kind) == set(run.true_stage_j(kind))
        assert totals.joules(kind) == pytest.approx(run.true_j(kind), rel=EXACT)
    assert totals.codes == set()
    _, totals = accounted(tmp_path / "long", WHOLE, 10.0)
    assert not {"train", "evaluate_train"} & totals.short("gpu")


def as_read(samples: Any, time_s: Any, joules: Any, over_s: float = 0.0) -> Any:
    """Samples of a real sensor, in place of `scaled`: their integral has the error of sampling."""
    return samples * (joules / joules.mean())[:, None]


@pytest.mark.parametrize(
    ("name", "period_s"),
    [
        (ON_TWO_NODES, 0.2),
        (ON_ONE_GPU, 1.0),
        (WHOLE, 1.0),
        (WHOLE, 10.0),
        (ON_H100, 0.5),
        (ON_H100, 10.0),
    ],
)
def test_sampled_energies_agree_with_sampling_theory(
    name: str, period_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalewatt.scaling.simulation.simulate.scaled", as_read)
    run, totals = accounted(tmp_path, name, period_s)
    error = totals.joules("gpu") / run.true_j("gpu") - 1
    assert EXACT < abs(error) < OF_A_RUN
    # Counters integrate by themselves.
    assert totals.joules("cpu") == pytest.approx(run.true_j("cpu"), rel=EXACT)
    assert totals.coverage == 1.0
