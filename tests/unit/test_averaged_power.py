"""GPUs whose sensor reports the mean over the second before: the edges of stages are where they were."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from energy_files import make_run, write_journal
from run_files import make_spec

import scalewatt

LOW_W, HIGH_W = 100.0, 500.0
SECONDS = 130
PERIOD_S = WINDOW_S = 1.0
MOST_MISPLACED_S = 9 / 32
"""Seconds of a step in power that are put to the wrong side of an edge at most. With the edge x s after a
sample, the next one shows 1 - x of the step, at the middle between them; the power is even between such
middles: before the edge (x + 1/2) (1 - x) / 2 of the step are too much, 9/32 at most."""


@dataclass(frozen=True)
class Steps:
    """100 W, in training 500 W, then `after_w`."""

    after_w: float = LOW_W
    begin_s: float = 40.0
    end_s: float = 90.0

    @property
    def stages(self) -> list[tuple[int, str, float, float]]:
        return [
            (0, "startup", 0.0, self.begin_s),
            (0, "train", self.begin_s, self.end_s),
            (0, "validate", self.end_s, float(SECONDS)),
        ]

    @property
    def beside_w(self) -> dict[str, float]:
        """Return the steps in power at the ends of each stage, added up."""
        first, last = HIGH_W - LOW_W, abs(HIGH_W - self.after_w)
        return {"startup": first, "train": first + last, "validate": last}

    def joules(self, begin_s: float | np.ndarray, end_s: float | np.ndarray) -> np.ndarray:
        """Return the true energy between two times."""
        knots = np.array([-10.0, self.begin_s, self.end_s, 1e3])
        used = np.cumsum(np.array([LOW_W, HIGH_W, self.after_w]) * np.diff(knots))
        first, last = (np.interp(t, knots, [0.0, *used]) for t in (begin_s, end_s))
        return np.asarray(last - first)

    def read_w(self) -> np.ndarray:
        """Return the mean power over the second before each second."""
        time_s = np.arange(0.0, SECONDS + PERIOD_S, PERIOD_S)
        return self.joules(time_s - WINDOW_S, time_s) / WINDOW_S


def stage_energies(folder: Path, steps: Steps, device_name: str) -> dict[str, float]:
    """Account for a run on one GPU."""
    run = make_run(folder, stages=steps.stages, gpus={"n1": [0]}, device_name=device_name)
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    sensors = {"CUDA:0_POWER": 1000 * steps.read_w()}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", sensors)
    found = scalewatt.energy(run)
    of_gpus = found.stages[found.stages.device_kind == "gpu"]
    assert found.coverage == 1.0
    assert of_gpus.energy_j.sum(skipna=False) == pytest.approx(found.joules("gpu"))
    return dict(zip(of_gpus.stage, of_gpus.energy_j, strict=True))


@pytest.mark.parametrize("begin_s", [40.0, 40.25, 40.5, 40.9])
@pytest.mark.parametrize("after_w", [LOW_W, 300.0, HIGH_W])
def test_a_stage_of_an_h100_has_the_energy_that_was_used_in_it(
    tmp_path: Path, begin_s: float, after_w: float
) -> None:
    steps = Steps(after_w, begin_s)
    found = stage_energies(tmp_path, steps, "NVIDIA H100 80GB HBM3")
    for _, stage, first_s, last_s in steps.stages:
        misplaced_j = MOST_MISPLACED_S * steps.beside_w[stage]
        true_j = float(steps.joules(first_s, last_s))
        assert found[stage] == pytest.approx(true_j, abs=misplaced_j + 1e-3), stage
    true_j = float(steps.joules(0.0, SECONDS))
    assert sum(found.values()) == pytest.approx(true_j, rel=1e-9)


@pytest.mark.parametrize("device_name", ["NVIDIA A100-SXM4-40GB", "a GPU that nobody knows"])
def test_a_power_that_is_not_known_to_be_averaged_counts_at_its_stamp(
    tmp_path: Path, device_name: str
) -> None:
    found = stage_energies(tmp_path, Steps(), device_name)
    watts = Steps().read_w()
    edges = [(0, 40), (40, 90), (90, SECONDS)]
    expected = [np.trapezoid(watts[begin : end + 1]) for begin, end in edges]
    assert list(found.values()) == pytest.approx(expected)
