"""The table `comparisons`: the same training on two devices, and whether they are equivalent.

Two one-sided t tests of the mean logarithms (Schuirmann 1987; variances may differ, Welch), by which
the ratio of two devices lies within the margin, at 5 %. Energies are compared over the device kinds
that both have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np

from scalewatt.campaign.series_expansion import without_device
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.results.tables.repeat_statistics import CONFIDENCE

Row = dict[str, Any]
MARGIN = 0.05
"""Two devices are equivalent where their ratio is within 1/(1 + MARGIN) … 1 + MARGIN."""
LEVEL = 0.05
POWER = 0.8
"""Probability of a verdict for which `repeats_needed` is counted."""
MOST_REPEATS = 1000
_PROBE_RUNS = 3
_SAMPLE = math.sqrt(_PROBE_RUNS / (_PROBE_RUNS - 1))
PUBLISHED_SPREADS = {
    "energy_kwh": _SAMPLE * 2 / 52,
    "runtime_h": _SAMPLE * 9 / 263,
    "gpu_hours": _SAMPLE * 9 / 263,
}
"""Relative sample standard deviation over three runs of the same training, FourCastNet on 64 A100:
52 ± 2 kWh and 263 ± 9 min (Huber et al. 2025, section 3.3.1), printed with n in place of n − 1. Taken
where a campaign has no repeats; of other quantities none is published."""
PUBLISHED_SPREAD = PUBLISHED_SPREADS["energy_kwh"]
_SAME = (
    *("campaign", "model", "phase", "gpus", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs", "protocol", "precision", "loader", "channels_last", "compile"),
)
_SHOWN = _SAME[:8]
_OF_ENERGY = ("energy_kwh", "p_gpuh_kw")


@dataclass(frozen=True)
class Equivalence:
    """What can be said of the ratio of two devices' means."""

    ratio: float
    low: float | None
    """95 % interval; null without repeats of both."""
    high: float | None
    p: float | None
    """Of the two one-sided tests."""
    verdict: str
    """equivalent, different or unresolved."""


def same_training(row: Row) -> tuple[Any, ...]:
    """What rows of runs or configurations share where they are one training on whatever device.

    Settings without a column count as well: the configuration's id names what departs from the campaign's.
    """
    return (*(row[name] for name in _SAME), without_device(row["configuration"], row["device"]))


def comparison_rows(runs: Iterable[Row]) -> list[Row]:
    """One row per pair of devices with the same training, and quantity; excluded runs do not count."""
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for run in runs:
        if run["excluded"] is None:
            groups.setdefault(same_training(run), {}).setdefault(run["device"], []).append(run)
    everything = [own for by_device in groups.values() for own in by_device.values()]
    return [
        row
        for by_device in groups.values()
        for one, other in combinations(sorted(by_device), 2)
        for row in _pair(by_device[other], by_device[one], everything)
    ]


def _pair(own: list[Row], baseline: list[Row], everything: list[list[Row]]) -> list[Row]:
    kinds = [k for k in DEVICE_KINDS if all(k in _scope(r).split("+") for r in own + baseline)]
    origins = {r["energy_origin"] for r in own + baseline}
    alike = [group for group in everything if {r["energy_origin"] for r in group} == origins]
    rows = []
    for quantity, value in _quantities(kinds if len(origins) == 1 else []).items():
        ones, others = _known(own, value), _known(baseline, value)
        if not ones or not others:
            continue
        of_energy = quantity in _OF_ENERGY
        repeats = [_known(group, value) for group in (alike if of_energy else everything)]
        spread, source = _spread(ones, others, repeats, PUBLISHED_SPREADS.get(quantity))
        found = equivalence(ones, others, MARGIN)
        rows.append(
            {
                **{name: own[0][name] for name in _SHOWN},
                "device": own[0]["device"],
                "configuration": own[0]["configuration"],
                "baseline_device": baseline[0]["device"],
                "baseline": baseline[0]["configuration"],
                "quantity": quantity,
                "energy_scope": "+".join(kinds) if of_energy else None,
                "energy_origin": origins.copy().pop() if of_energy else None,
                "n_repeats": len(ones),
                "baseline_n_repeats": len(others),
                "ratio": found.ratio,
                "ratio_low": found.low,
                "ratio_high": found.high,
                "margin": MARGIN,
                "tost_p": found.p,
                "verdict": found.verdict,
                "repeats_needed": _needed(found, spread, min(len(ones), len(others))),
                "spread": spread,
                "spread_source": source,
            }
        )
    return rows


def _needed(found: Equivalence, spread: float | None, present: int) -> int | None:
    """Repeats for a verdict; where as many as are there gave none, at least one more."""
    count = None if spread is None else repeats_needed(spread, MARGIN, found.ratio)
    return max(count, present + 1) if count and found.verdict == "unresolved" else count


def equivalence(ones: Sequence[float], others: Sequence[float], margin: float) -> Equivalence:
    """Compare the means of positive values by their logarithms; single values cannot be resolved."""
    from scipy.special import stdtr, stdtrit

    (mean, square), (usual, other_square) = _logarithms(ones), _logarithms(others)
    difference = mean - usual
    if square is None or other_square is None:
        return Equivalence(math.exp(difference), None, None, None, "unresolved")
    error = math.sqrt(square + other_square)
    if error == 0:
        inside = abs(difference) < math.log1p(margin)
        ratio = math.exp(difference)
        return Equivalence(
            ratio, ratio, ratio, float(not inside), _verdict(not inside, ratio, ratio)
        )
    freedom = error**4 / (square**2 / (len(ones) - 1) + other_square**2 / (len(others) - 1))
    room = math.log1p(margin) - abs(difference)
    p = float(stdtr(freedom, -room / error))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    low, high = math.exp(difference - half), math.exp(difference + half)
    return Equivalence(math.exp(difference), low, high, p, _verdict(p, low, high))


def _verdict(p: float, low: float, high: float) -> str:
    if p < LEVEL:
        return "equivalent"
    return "different" if low > 1 or high < 1 else "unresolved"


def repeats_needed(spread: float, margin: float, ratio: float = 1.0) -> int | None:
    """How many repeats of each device give a verdict with POWER, were `ratio` the true one.

    The verdict is `equivalent`, or `different`. `spread` is the relative standard deviation of a single
    run. None for more than MOST_REPEATS.
    """
    from scipy.special import stdtr, stdtrit

    n = np.arange(2, MOST_REPEATS + 1)
    freedom, error = 2 * n - 2, max(spread, 1e-12) * np.sqrt(2 / n)
    apart = abs(math.log(ratio))
    critical = stdtrit(freedom, 1 - LEVEL)
    ends = [(math.log1p(margin) + sign * apart) / error - critical for sign in (1, -1)]
    equivalent = stdtr(freedom, ends[0]) + stdtr(freedom, ends[1]) - 1
    different = stdtr(freedom, apart / error - stdtrit(freedom, (1 + CONFIDENCE) / 2))
    enough = np.maximum(equivalent, different) >= POWER
    return int(n[enough.argmax()]) if enough.any() else None


def _logarithms(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean of the logarithms, and the square of its standard error."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return mean, None
    variance = math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    return mean, variance / len(logs)


def _spread(
    ones: list[float], others: list[float], everything: list[list[float]], published: float | None
) -> tuple[float | None, str | None]:
    """Relative standard deviation of one run, pooled; of other trainings where these have no repeats."""
    for groups, source in (([ones, others], "these runs"), (everything, "the campaign's repeats")):
        repeated = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in repeated)
        if freedom:
            squares = sum(
                (len(group) - 1) * len(group) * (_logarithms(group)[1] or 0.0) for group in repeated
            )
            return math.sqrt(squares / freedom), source
    return published, None if published is None else "published probe"


def _quantities(kinds: list[str]) -> dict[str, Callable[[Row], float | None]]:
    """What is compared; energies over `kinds`, where there are any."""

    def energy_kwh(run: Row) -> float | None:
        parts = [run[f"{kind}_energy_kwh"] for kind in kinds]
        return None if None in parts else sum(parts)

    def power_kw(run: Row) -> float | None:
        energy = energy_kwh(run)
        return None if energy is None or not run["gpu_hours"] else energy / run["gpu_hours"]

    found: dict[str, Callable[[Row], float | None]] = {
        name: itemgetter(name) for name in ("runtime_h", "gpu_hours", "metric_last")
    }
    return found | ({"energy_kwh": energy_kwh, "p_gpuh_kw": power_kw} if kinds else {})


def _known(runs: list[Row], value: Callable[[Row], float | None]) -> list[float]:
    """The values of runs, all positive; none where one is not."""
    found = [value(run) for run in runs]
    return [v for v in found if v] if all(v is not None and v > 0 for v in found) else []


def _scope(run: Row) -> str:
    return run["energy_scope"] or ""
