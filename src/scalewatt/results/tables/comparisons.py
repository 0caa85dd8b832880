"""The table `comparisons`: the same training on two devices, and whether they are equivalent.

Two one-sided t tests of the mean logarithms (Schuirmann 1987; variances may differ, Welch), by which
the ratio of two devices lies within the margin, at 5 %. Energies are compared over the device kinds
that both have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import add, itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.series_expansion import without_device
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.frames import column_of, frame_of, records, values
from scalewatt.results.tables.repeat_statistics import CONFIDENCE
from scalewatt.results.tables.table_schema import COMPARISONS

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
    """The ratio of two devices' means, with its interval and the test of equivalence."""

    ratio: float
    low: float | None
    """95 % interval; null without repeats of both."""
    high: float | None
    p: float | None
    """Of the two one-sided tests."""
    verdict: str
    """equivalent, different or unresolved."""


def same_training(row: Row) -> tuple[Any, ...]:
    """Return what rows of runs or configurations share where they are one training on any device.

    Settings without a column count as well: the configuration's id names what departs from the campaign's.
    """
    return (*(row[name] for name in _SAME), without_device(row["configuration"], row["device"]))


def comparisons_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per pair of devices with the same training, and quantity.

    Excluded runs do not count.
    """
    counted = runs[runs["excluded"].isna()]
    names = (counted[name] for name in ("configuration", "device"))
    nameless = [without_device(*pair) for pair in zip(*names, strict=True)]
    counted = counted.assign(nameless=column_of(nameless, pa.string(), counted.index))
    trainings = counted.groupby([*_SAME, "nameless"], sort=False, dropna=False)
    devices = [[own for _, own in training.groupby("device")] for _, training in trainings]
    everything = [own for by_device in devices for own in by_device]
    rows = [
        row
        for by_device in devices
        for baseline, own in combinations(by_device, 2)
        for row in _pair(own, baseline, everything)
    ]
    return frame_of(rows, COMPARISONS)


def _pair(own: pd.DataFrame, baseline: pd.DataFrame, everything: list[pd.DataFrame]) -> list[Row]:
    both = pd.concat([own, baseline])
    scopes = [(scope or "").split("+") for scope in values(both["energy_scope"])]
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope for scope in scopes)]
    origins = set(values(both["energy_origin"]))
    alike = [group for group in everything if set(values(group["energy_origin"])) == origins]
    first, usual = records(own[:1])[0], records(baseline[:1])[0]
    rows = []
    for quantity, value in _quantities(kinds if len(origins) == 1 else []).items():
        ones, others = _known(value(own)), _known(value(baseline))
        if not ones or not others:
            continue
        of_energy = quantity in _OF_ENERGY
        repeats = [_known(value(group)) for group in (alike if of_energy else everything)]
        spread, source = _spread(ones, others, repeats, PUBLISHED_SPREADS.get(quantity))
        found = equivalence(ones, others, MARGIN)
        rows.append(
            {
                **{name: first[name] for name in _SHOWN},
                "device": first["device"],
                "configuration": first["configuration"],
                "baseline_device": usual["device"],
                "baseline": usual["configuration"],
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
    """Return the repeats for a verdict; at least one more than those that gave none."""
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
    """Return how many repeats of each device give a verdict with POWER, were `ratio` the true one.

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
    """Return the mean of the logarithms, and the square of its standard error."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        return mean, None
    variance = math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    return mean, variance / len(logs)


def _spread(
    ones: list[float], others: list[float], everything: list[list[float]], published: float | None
) -> tuple[float | None, str | None]:
    """Return the relative standard deviation of one run, pooled, and whose; None without any.

    It is that of other trainings where these have no repeats.
    """
    for groups, source in (([ones, others], "these runs"), (everything, "the campaign's repeats")):
        repeated = [group for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in repeated)
        if freedom:
            squares = sum(
                (len(group) - 1) * len(group) * (_logarithms(group)[1] or 0.0) for group in repeated
            )
            return math.sqrt(squares / freedom), source
    return published, None if published is None else "published probe"


def _quantities(kinds: list[str]) -> dict[str, Callable[[pd.DataFrame], pd.Series]]:
    """Return what is compared, as functions of a group of runs; energies over `kinds`, if any."""

    def energy_kwh(runs: pd.DataFrame) -> pd.Series:
        return reduce(add, (runs[f"{kind}_energy_kwh"] for kind in kinds))

    def power_kw(runs: pd.DataFrame) -> pd.Series:
        return ratio(energy_kwh(runs), runs["gpu_hours"])

    found: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
        name: itemgetter(name) for name in ("runtime_h", "gpu_hours", "metric_last")
    }
    return found | ({"energy_kwh": energy_kwh, "p_gpuh_kw": power_kw} if kinds else {})


def _known(column: pd.Series) -> list[float]:
    """Return the values of runs, all positive; none where one is not."""
    return values(column) if (column > 0).fillna(False).all() else []
