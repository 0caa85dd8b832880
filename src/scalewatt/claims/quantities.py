"""Quantities of points as numbers with an interval: by their repeats, or by the scatter of other runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from scalewatt.claims.evidence import (
    Evidence,
    Line,
    Point,
    is_metric,
    is_of_energy,
    is_of_power,
    unlike_paper,
)
from scalewatt.claims.reference_tables import PER_SAMPLE, NotTestable
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.results.tables.estimates import relative_bounds
from scalewatt.results.tables.published_spread import WIDEST, Spread, published_spread
from scalewatt.statistics import Floats, Numbers, Source, estimate, joined

_LABELS = {
    "runtime_h": "run time",
    "gpu_hours": "GPU hours",
    "energy_kwh": "energy",
    "gpu_energy_kwh": "GPU energy",
    "cpu_energy_kwh": "CPU energy",
    "ram_energy_kwh": "RAM energy",
    "gpu_energy_share": "share of GPU energy",
    "cpu_energy_share": "share of CPU energy",
    "ram_energy_share": "share of RAM energy",
    "p_gpuh_kw": "energy per GPU hour",
    "mean_gpu_power_w": "mean GPU power",
    "mean_cpu_socket_power_w": "mean power of a CPU socket",
    "samples_per_gpuh": "samples per GPU hour",
    "passes_per_gpuh": "passes per GPU hour",
    "metric_last": "quality metric",
}
MODELS = {"fourcastnet": "FourCastNet", "resnet50": "ResNet50"}
"""Names of the models whose repeats are published."""
MODEL = "fourcastnet"
P = "p_gpuh_kw"
PROBE_EPOCHS = 20
SENSED = ("measured", "published")
"""Origins of energy that say something of RAM."""
MINIMUM_POINTS = 3

BY_CAMPAIGN = "by the campaign's repeats of this model"
UNKNOWN = "of unknown spread"
UNTOLD = "of unknown spread: its repeats share one seed"
UNBOUNDED = "estimated, with no interval stated"
ESTIMATE = "by the interval of its estimate"
NORMAL = 1.96
"""Standard errors to either side within which 95 % lie."""


# --- a quantity of a point ----------------------------------------------------------------------------


def quantity(point: Point, name: str) -> Numbers:
    """A point's quantity as one number; NotTestable names what is unknown of which configuration.

    Its spread is that of its repeats; of a single run that of the campaign's repeats; else the published
    one of the model; an error without these has none. An error as of guessing is refused, unless the
    paper's training comes to it. Repeats of one seed do not tell how errors scatter.
    """
    if name == PER_SAMPLE:
        return quantity(point, "energy_kwh").times(1000 / samples_of(point))
    summary = point.stat(name)
    mean = summary.mean
    if mean is None:
        raise NotTestable(f"The {label_of(name)} of {point.id} is not known.")
    if is_of_power(name):
        refuse_estimates([point])
    if is_metric(name):
        if point.chance is not None and mean >= point.chance and unlike_paper(point):
            raise NotTestable(
                f"The error of {point.id}, {mean:.4g} %, is that of guessing (from {point.chance:.4g} %): "
                "it is not trained."
            )
        if not point.varies_seeds:
            return unbounded(mean, UNTOLD if summary.n > 1 else UNKNOWN)
    published = published_source(point.model)
    pool = published.name if point.origin == "published" else f"{point.model} {point.phase}"
    if summary.n > 1 and summary.sd:
        square = summary.sd**2
        number = estimate(mean, Source(point.id, pool), square / summary.n, summary.n - 1, square)
    elif spread := point.spread(name):
        number = mean_of_runs(mean, spread, Source(pool, words=BY_CAMPAIGN), summary.n)
    elif spread := published_spread(point.model, name):
        number = mean_of_runs(mean, spread, published, summary.n)
    else:
        number = unbounded(mean, UNKNOWN)
    if not is_of_energy(name):
        return number
    return replace(_with_estimate(number, point, name), origins=frozenset([str(point.origin)]))


def mean_of_runs(value: float, spread: Spread, source: Source, n: int) -> Numbers:
    """The mean of `n` runs whose spread others tell."""
    square = (spread.relative * value) ** 2
    return estimate(value, source, square / n, spread.freedom, square)


def unbounded(value: float, words: str) -> Numbers:
    """A number that nothing bounds."""
    return estimate(value, Source(words, words=words), math.inf, 1)


def _with_estimate(number: Numbers, point: Point, name: str) -> Numbers:
    """Add what is estimated of an energy as a further variance, which no repeats lessen.

    Each point's error counts as independent, though a part of it is common to a machine.
    """
    value, ends = float(number.values[0]), relative_bounds(point.row, name)
    if ends is None:
        return unbounded(value, UNBOUNDED)
    factor = max(ends[1], 1 / ends[0]) if ends[0] > 0 else math.inf
    if factor <= 1:
        return number
    source = Source(f"the estimate of {point.id}", words=ESTIMATE)
    square = (math.log(factor) / NORMAL * value) ** 2
    more = estimate(value, source, square, math.inf, 0.0, square)
    return replace(number, parts={**number.parts, **more.parts})


def published_source(model: str) -> Source:
    """The source of the published spread that is taken for a model."""
    name = MODELS.get(model, MODELS[WIDEST])
    return Source(f"published {name}", words=f"by {name}'s published repeats")


def label_of(name: str) -> str:
    """What a quantity is called in a sentence; its column's name if it has no label."""
    return _LABELS.get(name, name)


def samples_of(point: Point) -> int:
    """Samples of a point's dataset; NotTestable if unknown."""
    if not point.samples:
        raise NotTestable(f"{point.id}: the size of its dataset is not known.")
    return int(point.samples)


# --- a quantity of several points ---------------------------------------------------------------------


def values(points: Sequence[Point], name: str) -> Numbers:
    """A quantity of each point; NotTestable names what is unknown, or that energies are unlike."""
    column = "energy_kwh" if name == PER_SAMPLE else name
    if missing := [str(point.gpus) for point in points if point.mean(column) is None]:
        raise NotTestable(f"The {label_of(column)} is not known at n = {', '.join(missing)}.")
    if is_of_energy(name):
        refuse_unlike(points)
    return quantities(points, name)


def quantities(points: Iterable[Point], name: str) -> Numbers:
    """A quantity of each point, whatever the origins and scopes of their energies."""
    return joined([quantity(point, name) for point in points])


def logarithms(points: Sequence[Point], name: str) -> Numbers:
    """Logarithms of a quantity of each point; NotTestable if one is not positive."""
    return positive(values(points, name)).logarithms()


def positive(numbers: Numbers) -> Numbers:
    """Check that numbers have logarithms; NotTestable if one has none."""
    if np.any(numbers.values <= 0):
        raise NotTestable("A quantity that is not above 0 has no logarithm.")
    return numbers


def log_contrast(two: Numbers) -> Numbers:
    """Logarithm of the ratio of the first of two numbers to the second."""
    return positive(two).logarithms().contrast([1, -1])


def log_ratio(top: Point, bottom: Point, name: str) -> Numbers:
    """Logarithm of the ratio of two points' quantities."""
    return log_contrast(quantities((top, bottom), name))


def mean_of(numbers: Numbers) -> Numbers:
    """Mean of independent numbers."""
    return numbers.contrast(np.full(len(numbers), 1 / len(numbers)))


def doublings(points: Sequence[Point]) -> Floats:
    """Values of log2 n of points."""
    return np.log2([float(point.gpus) for point in points])


def refuse_estimates(points: Iterable[Point]) -> None:
    """Refuse (NotTestable) a power, or a ratio of energy to time, that only rated powers make."""
    ids = list(dict.fromkeys(point.id for point in points if point.origin == "estimated"))
    if ids:
        more = f" (and of {len(ids) - 1} more)" if ids[1:] else ""
        raise NotTestable(
            f"The energy of {ids[0]}{more} is estimated from rated powers: the ratio to time would test "
            "the cluster file."
        )


def refuse_unlike(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) to compare energies of several origins or scopes."""
    refuse_several("origins", {str(point.origin) for point in points})
    refuse_several("scopes", {str(point.scope) for point in points})


def refuse_several(what: str, several: set[str]) -> None:
    """Refuse (NotTestable) to compare energies that are not all of one kind."""
    if len(several) > 1:
        named = ", ".join(sorted(several))
        raise NotTestable(f"Energies of several {what} ({named}) are not compared.")


def energies_alike(points: Sequence[Point]) -> tuple[Numbers, str]:
    """Energies of points in kWh over the device kinds that all have, and a remark on their scope.

    An energy over several kinds has the relative spread of the total: both are of the same runs. NotTestable
    for several origins, an unknown energy, or an unknown part of totals of unequal scope.
    """
    refuse_several("origins", {str(point.origin) for point in points})
    totals = quantities(points, "energy_kwh")
    scopes = {point.scope or "unknown" for point in points}
    if len(scopes) == 1:
        return totals, ""
    kinds = [kind for kind in DEVICE_KINDS if all(kind in s.split("+") for s in scopes)]
    if len(kinds) == 1:
        return quantities(points, f"{kinds[0]}_energy_kwh"), f" (over {kinds[0]}, which all have)"
    shares = [share_of_kinds(point, kinds) for point in points]
    if None in shares:
        raise NotTestable(
            f"The energies are of unequal scope ({'; '.join(sorted(scopes))}), and what all of them have is "
            "not known apart; memory is 4 to 6 % of the energy on A100 (B03), which such a comparison "
            "would take for a difference of the devices."
        )
    return totals.times(np.array(shares, float)), f" (over {'+'.join(kinds)}, which all have)"


def share_of_kinds(point: Point, kinds: Sequence[str]) -> float | None:
    """Share of device kinds in a point's energy; null if it is not known."""
    if point.scope == "+".join(kinds):
        return 1.0
    parts, total = [point.mean(f"{kind}_energy_kwh") for kind in kinds], point.mean("energy_kwh")
    known = [part for part in parts if part is not None]
    return math.fsum(known) / total if total and known and len(known) == len(parts) else None


# --- points that checks ask for -----------------------------------------------------------------------


def grouped(points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, list[Point]]:
    """Points by a key, in their order."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def enough(points: Sequence[Point], what: str, min_points: int = MINIMUM_POINTS) -> Sequence[Point]:
    """Check that a trend can be seen in points; NotTestable for too few."""
    if len(points) < min_points:
        counts = f" (n = {', '.join(str(point.gpus) for point in points)})" if points else ""
        raise NotTestable(
            f"{what}: known at {len(points)} of the {min_points} points that are needed{counts}; "
            f"{min_points - len(points)} more needed."
        )
    return points


def known(line: Line, *names: str, at_least: int = 0, min_points: int = 3) -> Sequence[Point]:
    """At least `min_points` points of a line that know these quantities, with n ≥ `at_least`.

    NotTestable for too few, or where energies are of several origins or scopes.
    """
    points = line.having(*names, at_least=at_least)
    if any(map(is_of_power, names)):
        refuse_estimates(points)
    above = f" at n ≥ {at_least}" if at_least else ""
    enough(points, f"{line.title}: {', '.join(map(label_of, names))}{above}", min_points)
    if any(map(is_of_energy, names)):
        refuse_unlike(points)
    return points


def pretrainings(evidence: Evidence, device: str) -> list[Point]:
    """FourCastNet's pre-trainings on a device."""
    wanted = (MODEL, "pretrain", device)
    return [p for p in evidence.points if (p.model, p.phase, p.device) == wanted]


def as_in_paper(point: Point, epochs: int | None = None) -> Point:
    """Check that a point was trained as in the paper (see `unlike_paper`); else NotTestable."""
    if other := unlike_paper(point, epochs):
        raise NotTestable(f"{point.id} was not trained as in the paper: {', '.join(other)}.")
    return point


def in_paper(line: Line) -> Sequence[Point]:
    """Points of a line that were trained as in the paper; NotTestable without any."""
    points = [point for point in line.points if not unlike_paper(point)]
    if not points:
        as_in_paper(line.points[0])
    return points
