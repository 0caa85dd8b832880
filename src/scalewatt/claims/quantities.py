"""Quantities of points as numbers with an interval: by their repeats, or by the scatter of other runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.claims.evidence import QUANTITIES, Points, is_metric, is_of_energy, is_of_power
from scalewatt.claims.reference_tables import MADE_OF, PER_EPOCH, PER_SAMPLE, NotTestable
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.derived_quantities import ORIGINS, relative_bounds
from scalewatt.results.tables.published import SCOPES, WIDEST, Spread, published_spread
from scalewatt.statistics import Floats, Numbers, Source, estimate, exact, joined

MODELS = {"fourcastnet": "FourCastNet", "resnet50": "ResNet50"}
"""Names of the models whose repeats are published."""
P = "p_gpuh_kw"

BY_CAMPAIGN = "by the campaign's repeats of this model"
UNKNOWN = "of unknown spread"
UNTOLD = "of unknown spread: its repeats share one seed"
UNBOUNDED = "estimated, with no interval stated"
ESTIMATE = "by the interval of its estimate"
NORMAL = 1.96
"""Standard errors to either side within which 95 % lie."""


# --- a quantity of a point ----------------------------------------------------------------------------


def quantity(point: Any, name: str) -> Numbers:
    """A quantity of a point (a row of `quantities`) as one number; NotTestable if it is unknown.

    Its spread is that of its repeats; of a single run that of the campaign's repeats; else the published
    one of the model; an error without these has none. An error as of guessing is refused, unless the
    paper's training comes to it. Repeats of one seed do not tell how errors scatter.
    """
    mean, sd, n = point.mean, point.sd, point.n_repeats
    if math.isnan(mean):
        raise NotTestable(f"The {QUANTITIES[name]} of {point.configuration} is not known.")
    if is_metric(name):
        if mean >= point.chance and point.unlike:
            raise NotTestable(
                f"The error of {point.configuration}, {mean:.4g} %, is that of guessing (from "
                f"{point.chance:.4g} %): it is not trained."
            )
        if not point.varies_seeds:
            return unbounded(mean, UNTOLD if n > 1 else UNKNOWN)

    published = published_source(point.model)
    is_published = point.energy_origin == "published"
    pool = published.name if is_published else f"{point.model} {point.phase}"
    if n > 1 and sd > 0:
        return estimate(mean, Source(point.configuration, pool), sd**2 / n, n - 1, sd**2)
    if not math.isnan(point.pool):
        spread = Spread(point.pool, point.pool_df)
        return mean_of_runs(mean, spread, Source(pool, words=BY_CAMPAIGN), n)
    if of_model := published_spread(point.model, name):
        return mean_of_runs(mean, of_model, published, n)
    return unbounded(mean, UNKNOWN)


def mean_of_runs(value: float, spread: Spread, source: Source, n: int) -> Numbers:
    """The mean of `n` runs whose spread others tell."""
    square = (spread.relative * value) ** 2
    return estimate(value, source, square / n, spread.freedom, square)


def unbounded(value: float, words: str) -> Numbers:
    """A number that nothing bounds."""
    return estimate(value, Source(words, words=words), math.inf, 1)


def _with_estimate(number: Numbers, point: pd.Series, name: str) -> Numbers:
    """Add what is estimated of an energy as a further variance, which no repeats lessen.

    Each point's error counts as independent, though a part of it is common to a machine.
    """
    row = {str(key): None if pd.isna(cell) else cell for key, cell in point.items()}
    value, ends = float(number.values[0]), relative_bounds(row, name)
    if ends is None:
        return unbounded(value, UNBOUNDED)
    factor = max(ends[1], 1 / ends[0]) if ends[0] > 0 else math.inf
    if factor <= 1:
        return number
    source = Source(f"the estimate of {point['configuration']}", words=ESTIMATE)
    square = (math.log(factor) / NORMAL * value) ** 2
    more = estimate(value, source, square, math.inf, 0.0, square)
    return replace(number, parts={**number.parts, **more.parts})


def published_source(model: str) -> Source:
    """The source of the published spread that is taken for a model."""
    name = MODELS.get(model, MODELS[WIDEST])
    return Source(f"published {name}", words=f"by {name}'s published repeats")


# --- a quantity of several points ---------------------------------------------------------------------


def quantities(points: Points, name: str) -> Numbers:
    """A quantity of each point, whatever the origins and scopes of their energies."""
    if name == PER_SAMPLE:
        return quantities(points, MADE_OF[name]).times(1000 / samples_of(points))
    if name == PER_EPOCH:
        return quantities(points, MADE_OF[name]).times(1 / points["epochs"].to_numpy(float))
    if is_of_power(name):
        refuse_estimates(points)
    identity = ["configuration", "model", "phase", "n_repeats", "energy_origin"]
    identity += ["chance", "unlike", "varies_seeds"]
    parts = ["mean", "sd", "pool", "pool_df"]
    rows = points[identity + [f"{name}_{part}" for part in parts]].set_axis(
        identity + parts, axis=1
    )
    numbers = [quantity(point, name) for point in rows.itertuples()]
    if is_of_energy(name):
        for row, origin in enumerate(points["energy_origin"]):
            if origin in ORIGINS:
                numbers[row] = _with_estimate(numbers[row], points.iloc[row], name)
            numbers[row] = replace(numbers[row], origins=frozenset([str(origin)]))
    return joined(numbers)


def values(points: Points, name: str) -> Numbers:
    """A quantity of each point; NotTestable names what is unknown, or that energies are unlike."""
    column = MADE_OF.get(name, name)
    missing = points[f"{column}_mean"].isna()
    if missing.any():
        counts = ", ".join(map(str, points["gpus"][missing]))
        raise NotTestable(f"The {QUANTITIES[column]} is not known at n = {counts}.")
    if is_of_energy(name):
        refuse_unlike(points)
    return quantities(points, name)


def abscissa(points: Points, against: str) -> Numbers:
    """What a quantity is held against: a column, n, samples, or the logarithm of either."""
    name = against.removeprefix("log2 ")
    if name not in ("n", "samples"):
        return values(points, against)
    x = samples_of(points) if name == "samples" else points["gpus"].to_numpy(float)
    return exact(x if against == name else np.log2(x))


def samples_of(points: Points) -> Floats:
    """Samples of each point's dataset; NotTestable if they are unknown."""
    samples = points["dataset_samples"].to_numpy(float)
    for id_ in points["configuration"][~(samples > 0)]:
        raise NotTestable(f"{id_}: the size of its dataset is not known.")
    return samples


def positive(numbers: Numbers) -> Numbers:
    """Check that numbers have logarithms; NotTestable if one has none."""
    if np.any(numbers.values <= 0):
        raise NotTestable("A quantity that is not above 0 has no logarithm.")
    return numbers


def log_contrast(two: Numbers) -> Numbers:
    """Logarithm of the ratio of the first of two numbers to the second."""
    return positive(two).logarithms().contrast([1, -1])


def mean_of(numbers: Numbers) -> Numbers:
    """Mean of independent numbers."""
    return numbers.contrast(np.full(len(numbers), 1 / len(numbers)))


def in_common(points: Points) -> tuple[Floats, str]:
    """Factors that take energies to the device kinds that all of them measured, and a remark on these.

    An energy over several kinds has the relative spread of the total: both are of the same runs. NotTestable
    for several origins, and if energies of unequal scope are not known by kind.
    """
    refuse_unlike(points, "origin")
    scopes = [str(scope) for scope in points["energy_scope"]]
    if len(set(scopes)) == 1:
        return np.ones(len(points)), ""
    kinds = [kind for kind in DEVICE_KINDS if all(kind in s.split("+") for s in scopes)]
    shares = _shares_of(points, kinds)
    if not kinds or not np.isfinite(shares).all():
        raise NotTestable(
            f"The energies are of unequal scope ({'; '.join(sorted(set(scopes)))}), and what all of them "
            "have is not known apart; memory is 4 to 6 % of the energy on A100 (B03), which such a "
            "comparison would take for a difference of the devices."
        )
    return shares.to_numpy(), f" (over {'+'.join(kinds)}, which all have)"


def _shares_of(points: Points, kinds: Sequence[str]) -> pd.Series:
    """The part of each point's energy that is of these device kinds; 1 if its energy is of them alone."""
    parts = points[[f"{kind}_energy_kwh_mean" for kind in kinds]].sum(axis=1, skipna=False)
    return (parts / points["energy_kwh_mean"]).mask(points["energy_scope"] == "+".join(kinds), 1.0)


def in_papers_scope(points: Points) -> tuple[Points, str]:
    """Points of a device with energies of the device kinds that the paper's have there, and a remark.

    NotTestable if a point's energy of these kinds is not known.
    """
    wanted = SCOPES.get(points["device"].iloc[0])
    other = points["energy_scope"] != wanted
    if wanted is None or not other.any():
        return points, ""
    kinds = wanted.split("+")
    has_kinds = points["energy_scope"].map(lambda scope: {*kinds} <= {*str(scope).split("+")})
    factors = _shares_of(points, kinds).where(has_kinds)
    for id_, scope in points.loc[factors.isna(), "energy_scope"].items():
        raise NotTestable(f"The energy of {id_} is of {scope}, the paper's of {wanted}.")
    columns = {f"{name}_{part}" for name in ("energy_kwh", P) for part in ("mean", "sd")}
    scaled = {column: points[column] * factors for column in columns}
    return points.assign(**scaled, energy_scope=wanted), f" (over {wanted}, as the paper's)"


# --- points that cannot be compared, or are too few ------------------------------------------------------


def refuse_estimates(points: Points) -> None:
    """Refuse (NotTestable) a power, or a ratio of energy to time, that only rated powers make."""
    ids = list(points["configuration"][points["energy_origin"] == "estimated"])
    if ids:
        more = f" (and of {len(ids) - 1} more)" if ids[1:] else ""
        raise NotTestable(
            f"The energy of {ids[0]}{more} is estimated from rated powers: the ratio to time would test "
            "the cluster file."
        )


def refuse_unlike(points: Points, *facts: str) -> None:
    """Raise NotTestable if energies differ in one of these facts, by default origin and scope."""
    for fact in facts or ("origin", "scope"):
        kinds = sorted(set(map(str, points[f"energy_{fact}"])))
        if len(kinds) > 1:
            raise NotTestable(f"Energies of several {fact}s ({', '.join(kinds)}) are not compared.")


def known(points: Points, title: str, *names: str, min_points: int = 3) -> Points:
    """Points that know these quantities; NotTestable for fewer than `min_points`, or unlike energies."""
    points = points.dropna(subset=[f"{name}_mean" for name in names])
    if any(map(is_of_power, names)):
        refuse_estimates(points)
    if len(points) < min_points:
        counts = f" (n = {', '.join(map(str, points['gpus']))})" if len(points) else ""
        raise NotTestable(
            f"{title}: {', '.join(QUANTITIES[name] for name in names)} known at {len(points)} of the "
            f"{min_points} points that are needed{counts}; {min_points - len(points)} more needed."
        )
    if any(map(is_of_energy, names)):
        refuse_unlike(points)
    return points


def require_paper(points: Points) -> Points:
    """Check that points were trained as in the paper; NotTestable names what differs."""
    for id_, differences in points["unlike"].items():
        if differences:
            raise NotTestable(f"{id_} was not trained as in the paper: {differences}.")
    return points
