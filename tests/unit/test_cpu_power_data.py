"""Estimates of CPU power, held against all machines whose power at steps of load is public.

SCALEWATT_OTHERS/codecarbon/<CPU>.csv: CodeCarbon, data/hardware/cpu_load_profiling (`cpu_load` in % of all
cores, `rapl_power` in W). Rows below 5 % load are artefacts of starting (0.2 to 1.4 W) and do not count.

Of n machines, points' logarithms of measured over estimated power vary between machines (variance b of
their means) and within them (w). A point of another machine then lies within exp(t · √(b (1 + 1/n) + w)),
with Student's t of n − 1 degrees of freedom at 97.5 %; two points of one machine differ in their error by
at most exp(t · √(2 w)).
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scalewatt.energies.node import FACTOR, IDLE_SHARE, TDP_SHARE

RATED_W = {
    "AMD_EPYC_8024P_8C": 90.0,
    "AMD_Threadripper": 180.0,
    "E3-1240": 69.0,
    "E5-1240": 69.0,
    "E5-2620": 170.0,  # 24 threads: two sockets of a CPU of 85 W
}
"""The makers' TDPs."""
LEAST_LOAD = 0.05
Machines = dict[str, tuple[np.ndarray, np.ndarray]]
"""Load (0..1) and power in W by machine, in the order of load."""


@pytest.fixture(scope="module")
def machines() -> Machines:
    folder = os.environ.get("SCALEWATT_OTHERS")
    if not folder:
        pytest.skip("SCALEWATT_OTHERS does not name the folder with codecarbon's CPU powers")
    read = {}
    for name in RATED_W:
        rows = csv.DictReader((Path(folder) / "codecarbon" / f"{name}.csv").open(encoding="utf-8"))
        points = sorted((float(row["cpu_load"]) / 100, float(row["rapl_power"])) for row in rows)
        load, power = np.array([point for point in points if point[0] >= LEAST_LOAD]).T
        assert power.size >= 10
        read[name] = load, power
    return read


def logs(machines: Machines, share: float = TDP_SHARE) -> dict[str, np.ndarray]:
    """ln(measured / estimated) of each machine's points."""
    return {
        name: np.log(power / (share * RATED_W[name] * (IDLE_SHARE + (1 - IDLE_SHARE) * load)))
        for name, (load, power) in machines.items()
    }


def factor_of_others(errors: list[np.ndarray]) -> float:
    """The factor within which 95 % of the points of another machine lie."""
    n = len(errors)
    between = np.var([error.mean() for error in errors], ddof=1)
    within = np.mean([error.var(ddof=1) for error in errors])
    t = stats.t.ppf(0.975, n - 1)
    return math.exp(t * math.sqrt(between * (1 + 1 / n) + within))


def test_the_formula_and_its_factor_are_what_the_data_say(machines: Machines) -> None:
    errors = logs(machines, 1.0)
    means = [error.mean() for error in errors.values()]
    assert np.exp(np.mean(means)) == pytest.approx(TDP_SHARE, abs=0.005)
    left_out = {n: factor_of_others([e for m, e in errors.items() if m != n]) for n in errors}
    assert max(left_out.values()) == pytest.approx(FACTOR, abs=0.05)
    for name, factor in left_out.items():  # which holds all points of the machine left out
        centre = np.mean([error.mean() for other, error in errors.items() if other != name])
        assert np.exp(np.abs(errors[name] - centre).max()) < factor, name


def test_the_truth_lies_inside_the_stated_intervals_on_all_machines(machines: Machines) -> None:
    for name, errors in logs(machines).items():
        assert np.exp(np.abs(errors).max()) <= FACTOR, name


def test_a_line_from_a_fifth_of_the_tdp_errs_as_the_documents_say(machines: Machines) -> None:
    errors = np.concatenate(
        [RATED_W[n] * (0.2 + 0.8 * load) / power - 1 for n, (load, power) in machines.items()]
    )
    assert np.abs(errors).mean() == pytest.approx(0.74, abs=0.005)
    assert [errors.min(), errors.max()] == pytest.approx([-0.33, 2.89], abs=0.005)
