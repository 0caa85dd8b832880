"""The table `comparisons`: the same training on two devices, and whether they are equivalent.

Two devices are equivalent where the 95 % interval of their ratio lies within the margin: two one-sided t
tests of the mean logarithms at 2.5 % each (Schuirmann 1987; variances may differ, Welch), as claims are
decided. Energies are compared over the device kinds that both have. How many repeats would tell is
counted from the spread of one run: that of these runs, else of other trainings of the same model and
phase, else the published one.
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

from scalewatt import statistics
from scalewatt.campaign.expansion import without_device
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.frames import column_of, frame_of, records, values
from scalewatt.results.tables.published_spread import Spread, published_spread
from scalewatt.results.tables.table_schema import COMPARISONS
from scalewatt.statistics import joined, log_mean_of

Row = dict[str, Any]
Kind = tuple[str, str | None]
MARGIN = 0.05
"""Two devices are equivalent where their ratio is within 1/(1 + MARGIN) … 1 + MARGIN."""
_SAME = (
    *("campaign", "model", "phase", "gpus", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs", "protocol", "precision", "loader", "channels_last", "compile"),
    *LEVERS,
)
_SHOWN = _SAME[:8]
_OF_ENERGY = ("energy_kwh", "p_gpuh_kw")


@dataclass(frozen=True)
class Equivalence:
    """The ratio of two devices' means, with its interval and the test of equivalence."""

    ratio: float | None
    low: float | None
    """95 % interval; null without repeats of both."""
    high: float | None
    p: float | None
    """Of the two one-sided tests."""
    verdict: str
    """equivalent, different or unresolved; estimated where no ratio is stated of estimated energies."""


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
    by_kind: dict[Kind, list[pd.DataFrame]] = {}
    for own in (own for by_device in devices for own in by_device):
        by_kind.setdefault(_kind(own), []).append(own)
    rows = [
        row
        for by_device in devices
        for baseline, own in combinations(by_device, 2)
        for row in _pair(own, baseline, by_kind[_kind(own)])
    ]
    return frame_of(rows, COMPARISONS)


def _kind(runs: pd.DataFrame) -> Kind:
    """Return what runs share whose repeats may scatter alike: the model and its phase."""
    first = records(runs[:1])[0]
    return first["model"], first["phase"]


def _pair(own: pd.DataFrame, baseline: pd.DataFrame, alike: list[pd.DataFrame]) -> list[Row]:
    """Return a row per quantity; `alike`: the campaign's runs of the same kind, by configuration."""
    both = pd.concat([own, baseline])
    scopes = [(scope or "").split("+") for scope in values(both["energy_scope"])]
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope for scope in scopes)]
    origins = set(values(both["energy_origin"]))
    powered = [group for group in alike if set(values(group["energy_origin"])) == origins]
    first, usual = records(own[:1])[0], records(baseline[:1])[0]
    rows = []
    for quantity, value in _quantities(kinds if len(origins) == 1 else []).items():
        ones, others = _known(value(own)), _known(value(baseline))
        if not ones or not others:
            continue
        of_energy = quantity in _OF_ENERGY
        repeats = [_known(value(group)) for group in (powered if of_energy else alike)]
        spread, source = _spread(
            [ones, others], repeats, published_spread(first["model"], quantity)
        )
        found = equivalence(ones, others, MARGIN)
        estimated = of_energy and bool(origins & set(ORIGINS))
        if estimated:
            found = Equivalence(None, None, None, None, "estimated")
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
                "repeats_needed": None
                if estimated
                else _needed(found, spread, min(len(ones), len(others))),
                "spread": spread.relative if spread else None,
                "spread_freedom": spread.freedom if spread else None,
                "spread_source": source,
            }
        )
    return rows


def _needed(found: Equivalence, spread: Spread | None, present: int) -> int | None:
    """Return the repeats for a verdict; at least one more than those that gave none."""
    if spread is None or found.ratio is None:
        return None
    count = repeats_needed(spread.relative, MARGIN, found.ratio)
    return max(count, present + 1) if count and found.verdict == "unresolved" else count


def equivalence(ones: Sequence[float], others: Sequence[float], margin: float) -> Equivalence:
    """Compare the means of positive values by their logarithms; single values cannot be resolved."""
    top, bottom = log_mean_of(ones, "ones"), log_mean_of(others, "others")
    if top is None or bottom is None:
        ratio = math.exp(_mean_logarithm(ones) - _mean_logarithm(others))
        return Equivalence(ratio, None, None, None, "unresolved")
    difference = joined([top, bottom]).contrast([1, -1])
    log, error, freedom, half = (
        float(each[0])
        for each in (difference.values, difference.errors, difference.freedom, difference.halves)
    )
    p = statistics.below(abs(log), math.log1p(margin), error, freedom)
    low, high = math.exp(log - half), math.exp(log + half)
    return Equivalence(math.exp(log), low, high, p, _verdict(p, low, high))


def _verdict(p: float, low: float, high: float) -> str:
    if (
        p < statistics.LEVEL
    ):  # of each test: both hold where the whole interval is within the margin
        return "equivalent"
    return "different" if low > 1 or high < 1 else "unresolved"


def repeats_needed(spread: float, margin: float, ratio: float = 1.0) -> int | None:
    """Return how many repeats of each device give a verdict with a probability of 80 %.

    Were `ratio` the true one, and `spread` the true relative standard deviation of a single run. The
    verdict is `equivalent`, or `different` from 1: fewer repeats tell this than that a ratio is beyond the
    margin, which is what contradicts a claim of equivalence. None for more than MOST_REPEATS.
    """
    apart, room = math.log(ratio), math.log1p(margin)

    def chance(n: int) -> float:
        error = spread * math.sqrt(2 / n)
        freedom = 2 * n * (n - 1) / (n + 1)  # what Welch's test finds where spreads are equal
        return statistics.chance_equivalent_or_different(apart, room, error, freedom)

    return statistics.first_with_power(chance)


def _mean_logarithm(values: Sequence[float]) -> float:
    return math.fsum(math.log(value) for value in values) / len(values)


def _spread(
    own: list[list[float]], alike: list[list[float]], published: Spread | None
) -> tuple[Spread | None, str | None]:
    """Return the relative standard deviation of one run, pooled, and whose; None without any.

    It is that of other trainings of the same kind where these have no repeats. Repeats that are all
    equal do not tell what another run would give.
    """
    for groups, source in ((own, "these runs"), (alike, "the campaign's repeats")):
        several = [values for values in groups if len(values) > 1]
        freedom = sum(len(values) - 1 for values in several)
        squares = sum(
            (len(values) - 1) * np.var(np.log(values), ddof=1)
            for values in several
            if np.ptp(values)
        )
        if squares:
            return Spread(math.sqrt(squares / freedom), freedom), source
    return published, None if published is None else "published repeats"


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
