"""How well a CPU's power follows from its load: the figures behind estimates and their intervals.

    SCALEWATT_OTHERS=FOLDER python benchmarks/cpu_power_from_load.py

Reads FOLDER/codecarbon/<CPU>.csv (CodeCarbon, data/hardware/cpu_load_profiling: `cpu_load` in % of
all cores, `rapl_power` in W) and leaves one machine out at a time. Rows below 5 % load are artefacts of
starting (0.2 to 1.4 W) and do not count. TDPs are the makers'; E5-2620.csv has 24 threads, two sockets
of a 6-core CPU, so its rated power is twice 85 W.

Of n machines, points' logarithms of measured over estimated power vary between machines (variance b of
their means) and within them (w). A point of another machine then lies within exp(t · √(b (1 + 1/n) + w)),
with Student's t of n − 1 degrees of freedom at 97.5 %; two points of one machine differ in their error by
at most exp(t · √(2 w)).
"""

from __future__ import annotations

import csv
import math
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scalewatt.energies.integration.rated_power import IDLE_SHARE, TDP_SHARE, cpu_power_w

Floats = NDArray[np.float64]
RATED_W = {
    "AMD_EPYC_8024P_8C": 90.0,
    "AMD_Threadripper": 180.0,
    "E3-1240": 69.0,
    "E5-1240": 69.0,
    "E5-2620": 170.0,
}
TWINS = ("E3-1240", "E5-1240")
"""Two machines so alike that they may be of one model."""
LEAST_LOAD = 0.05
THREE_POINTS = (0.1, 0.5, 1.0)
TWO_POINTS = (0.1, 1.0)


def read_machines(folder: Path) -> dict[str, tuple[Floats, Floats]]:
    """Return load (0..1) and power in W by machine, in the order of load."""
    found = {}
    for name in RATED_W:
        with open(folder / "codecarbon" / f"{name}.csv", encoding="utf-8") as file:
            rows = [
                (float(r["cpu_load"]) / 100, float(r["rapl_power"])) for r in csv.DictReader(file)
            ]
        points = np.array(sorted(row for row in rows if row[0] >= LEAST_LOAD))
        found[name] = points[:, 0], points[:, 1]
    return found


def logs(machines: dict[str, tuple[Floats, Floats]], share: float = TDP_SHARE) -> list[Floats]:
    """Return ln(measured / estimated) of each machine's points."""
    return [
        np.log(power / (share * RATED_W[name] * (IDLE_SHARE + (1 - IDLE_SHARE) * load)))
        for name, (load, power) in machines.items()
    ]


def factors(found: list[Floats]) -> tuple[float, float]:
    """Return the factor of a point of another machine, and that between two loads of one machine."""
    n = len(found)
    between = float(np.var([one.mean() for one in found], ddof=1))
    within = float(np.mean([one.var(ddof=1) for one in found]))
    t = float(stats.t.ppf(0.975, n - 1))
    return math.exp(t * math.sqrt(between * (1 + 1 / n) + within)), math.exp(
        t * math.sqrt(2 * within)
    )


def left_out(
    machines: dict[str, tuple[Floats, Floats]],
) -> dict[str, tuple[float, float, float, float]]:
    """Return for each machine what the others give, and what it needs.

    The four are: share of the TDP at full load, factor, shape factor, and the factor by which its
    farthest point is off.
    """
    found = {}
    for name in machines:
        others = logs({key: value for key, value in machines.items() if key != name}, 1.0)
        centre = float(np.mean([one.mean() for one in others]))
        (own,) = logs({name: machines[name]}, 1.0)
        needed = math.exp(float(np.abs(own - centre).max()))
        found[name] = (math.exp(centre), *factors(others), needed)
    return found


def curve_errors(load: Floats, power: Floats, at: tuple[float, ...]) -> tuple[Floats, float]:
    """Return estimated over measured power − 1 between points taken near `at`, and that of the sum of all."""
    nearest = sorted({int(np.abs(load - one).argmin()) for one in at})
    points = [[100 * load[i], power[i]] for i in nearest]
    estimate = cpu_power_w(np.clip(load, load[nearest[0]], load[nearest[-1]]), {"load_w": points})[
        0
    ]
    others = [i for i in range(load.size) if i not in nearest]
    return (estimate / power - 1)[others], float(estimate.sum() / power.sum() - 1)


def with_twins_as_one(machines: dict[str, tuple[Floats, Floats]]) -> float:
    """Return the largest factor that the machines but one give if the two of TDP 69 W count as one."""
    names = [name for name in machines if name not in TWINS]
    found = [*logs({name: machines[name] for name in names})]
    found.append(np.concatenate(logs({name: machines[name] for name in TWINS})))
    return max(factors(found[:i] + found[i + 1 :])[0] for i in range(len(found)))


def curves_left_out(machines: dict[str, tuple[Floats, Floats]]) -> tuple[int, int, float]:
    """Return how the curve through three points does on a machine that its interval has not seen.

    The three are: how many points of left-out machines lie in the range of the others', of how many,
    and the largest factor that the machines but one give, as for the estimate by the TDP.
    """
    ratios = [1 / (1 + curve_errors(*one, THREE_POINTS)[0]) for one in machines.values()]
    inside, factor = 0, 1.0
    for place, own in enumerate(ratios):
        others = ratios[:place] + ratios[place + 1 :]
        seen = np.concatenate(others)
        inside += int(((own >= seen.min()) & (own <= seen.max())).sum())
        factor = max(factor, factors([np.log(one) for one in others])[0])
    return inside, sum(one.size for one in ratios), factor


def main() -> int:
    """Print all figures; 1 without the data."""
    folder = os.environ.get("SCALEWATT_OTHERS")
    if not folder:
        print("SCALEWATT_OTHERS is not set: the folder that holds codecarbon/", file=sys.stderr)
        return 1
    machines = read_machines(Path(folder))
    line = {n: RATED_W[n] * (0.2 + 0.8 * load) / power - 1 for n, (load, power) in machines.items()}
    every = np.concatenate(list(line.values()))
    print(
        f"a line from a fifth of the TDP to the TDP: {100 * np.abs(every).mean():.0f} % in the mean, "
        f"{100 * every.min():+.0f} to {100 * every.max():+.0f} %"
    )
    print(
        f"share of the TDP at full load: {math.exp(np.mean([o.mean() for o in logs(machines, 1.0)])):.3f}"
    )
    print("all machines: factor {:.2f}, between loads {:.2f}".format(*factors(logs(machines))))
    for name, (share, factor, shape, needed) in left_out(machines).items():
        print(
            f"without {name}: {share:.2f}, factor {factor:.2f}, between loads {shape:.2f}; "
            f"its farthest point is off by {needed:.2f}"
        )
    print(
        f"with {' and '.join(TWINS)} as one machine: factor up to {with_twins_as_one(machines):.1f}"
    )
    for at in (THREE_POINTS, TWO_POINTS):
        errors = [curve_errors(*machine, at) for machine in machines.values()]
        points, sums = np.concatenate([e for e, _ in errors]), [s for _, s in errors]
        print(
            f"curve through {len(at)} points: {100 * points.min():+.0f} to {100 * points.max():+.0f} % a "
            f"point, {100 * min(sums):+.0f} to {100 * max(sums):+.0f} % over a sweep"
        )
    inside, points_, factor = curves_left_out(machines)
    print(
        f"three points, one machine left out: {inside} of {points_} points in the range of the others', "
        f"factor {factor:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
