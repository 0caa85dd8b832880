"""Quantities of points as numbers with an interval: by their repeats, or by what other runs scatter."""

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


# --- one quantity of one point ----------------------------------------------------------------------


def quantity(point: Point, name: str) -> Numbers:
    """Return a point's quantity as one number; NotTestable names what is unknown of which configuration.

    Its interval is that of its repeats; of a single run by the spread that the campaign's repeats have; else
    by the published spread of the model; of an error without these there is none. An error as of guessing
    is refused, unless it is what the paper's training comes to. Repeats of one seed do not tell how
    errors scatter.
    """
    if name == PER_SAMPLE:
        return quantity(point, "energy_kwh").times(1000 / samples_of(point))
    summary = point.stat(name)
    mean = summary.mean
    if mean is None:
        raise NotTestable(f"The {word(name)} of {point.id} is not known.")
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
    spread = point.spread(name)
    if summary.n > 1 and summary.sd:
        square = summary.sd**2
        number = estimate(mean, Source(point.id, pool), square / summary.n, summary.n - 1, square)
    elif spread is not None:
        number = of_runs(mean, spread, Source(pool, words=BY_CAMPAIGN), summary.n)
    elif (stated := published_spread(point.model, name)) is not None:
        number = of_runs(mean, stated, published, summary.n)
    else:
        number = unbounded(mean, UNKNOWN)
    if not is_of_energy(name):
        return number
    return replace(_with_estimate(number, point, name), origins=frozenset([str(point.origin)]))


def of_runs(value: float, spread: Spread, source: Source, n: int) -> Numbers:
    """Return the mean of `n` runs whose spread others tell, with that spread's degrees of freedom."""
    square = (spread.relative * value) ** 2
    return estimate(value, source, square / n, spread.freedom, square)


def unbounded(value: float, words: str) -> Numbers:
    """Return a number that nothing bounds."""
    return estimate(value, Source(words, words=words), math.inf, 1)


def _with_estimate(number: Numbers, point: Point, name: str) -> Numbers:
    """Return an energy with what is estimated of it as a further variance, which no repeats lessen.

    Each point's error counts as its own: that a part of it is common to a machine is not made use of.
    """
    value = float(number.values[0])
    ends = relative_bounds(point.row, name)
    if ends is None:
        return unbounded(value, UNBOUNDED)
    wide = max(ends[1], 1 / ends[0]) if ends[0] > 0 else math.inf
    if wide <= 1:
        return number
    source = Source(f"the estimate of {point.id}", words=ESTIMATE)
    square = (math.log(wide) / NORMAL * value) ** 2
    more = estimate(value, source, square, math.inf, 0.0, square)
    return replace(number, parts={**number.parts, **more.parts})


def published_source(model: str) -> Source:
    """Return the source of the published spread that is taken for a model."""
    whose = MODELS.get(model, MODELS[WIDEST])
    return Source(f"published {whose}", words=f"by {whose}'s published repeats")


def word(name: str) -> str:
    """Return what a quantity is called in a sentence; its column's name where it has no label."""
    return _LABELS.get(name, name)


def with_unit(name: str) -> str:
    """Return what a quantity is called, a power with its unit."""
    return f"{word(name)} (W)" if name.endswith("_w") else word(name)


def samples_of(point: Point) -> int:
    """Return the samples of its dataset; NotTestable if they are unknown."""
    if not point.samples:
        raise NotTestable(f"{point.id}: the size of its dataset is not known.")
    return int(point.samples)


# --- a quantity of several points ---------------------------------------------------------------------


def values(points: Sequence[Point], name: str) -> Numbers:
    """Return a quantity of each point; NotTestable names what is unknown."""
    column = "energy_kwh" if name == PER_SAMPLE else name
    if missing := [str(point.gpus) for point in points if point.mean(column) is None]:
        raise NotTestable(f"The {with_unit(column)} is not known at n = {', '.join(missing)}.")
    if is_of_energy(name):
        refuse_unlike(points)
    return quantities(points, name)


def quantities(points: Iterable[Point], name: str) -> Numbers:
    """Return a quantity of each point, whatever the origins and scopes of their energies."""
    return joined([quantity(point, name) for point in points])


def logarithms(points: Sequence[Point], name: str) -> Numbers:
    """Return logarithms of a quantity of each point; NotTestable if one is not positive."""
    return positive(values(points, name)).logarithms()


def positive(numbers: Numbers) -> Numbers:
    """Return numbers that have logarithms; NotTestable if one has none."""
    if np.any(numbers.values <= 0):
        raise NotTestable("A quantity that is not above 0 has no logarithm.")
    return numbers


def log_contrast(two: Numbers) -> Numbers:
    """Return the logarithm of the ratio of the first of two numbers to the second."""
    return positive(two).logarithms().contrast([1, -1])


def log_ratio(top: Point, bottom: Point, name: str) -> Numbers:
    """Return the logarithm of the ratio of two points' quantities."""
    return log_contrast(quantities((top, bottom), name))


def mean_of(numbers: Numbers) -> Numbers:
    """Return the mean of independent numbers."""
    return numbers.contrast(np.full(len(numbers), 1 / len(numbers)))


def doublings(points: Sequence[Point]) -> Floats:
    """Return log2 n of points."""
    return np.log2([float(point.gpus) for point in points])


def refuse_estimates(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) a power or a ratio of energies to time that rated powers alone make."""
    ids = list(dict.fromkeys(point.id for point in points if point.origin == "estimated"))
    if ids:
        more = f" (and of {len(ids) - 1} more)" if ids[1:] else ""
        raise NotTestable(
            f"The energy of {ids[0]}{more} is estimated from rated powers: the ratio to time would test "
            "the cluster file."
        )


def refuse_unlike(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) to compare energies of several origins or scopes."""
    for what, several in (
        ("origins", {str(point.origin) for point in points}),
        ("scopes", {str(point.scope) for point in points}),
    ):
        if len(several) > 1:
            raise NotTestable(
                f"Energies of several {what} ({', '.join(sorted(several))}) are not compared."
            )


def energies_alike(points: Sequence[Point]) -> tuple[Numbers, str]:
    """Return energies of points in kWh over the device kinds that all have, and a remark on their scope.

    NotTestable for several origins, an unknown energy, or an unknown part of totals of unequal scope.
    """
    origins = sorted({str(point.origin) for point in points})
    if len(origins) > 1:
        raise NotTestable(f"Energies of several origins ({', '.join(origins)}) are not compared.")
    totals = quantities(points, "energy_kwh")
    scopes = {point.scope or "unknown" for point in points}
    if len(scopes) == 1:
        return totals, ""
    common = [kind for kind in DEVICE_KINDS if all(kind in s.split("+") for s in scopes)]
    try:
        parts = joined([_over_kinds(point, common) for point in points])
    except NotTestable as missing:
        raise NotTestable(
            f"The energies are of unequal scope ({'; '.join(sorted(scopes))}), and what all of them have is "
            "not known apart; memory is 4 to 6 % of the energy on A100 (B03), which such a comparison "
            "would take for a difference of the devices."
        ) from missing
    return parts, f" (over {'+'.join(common)}, which all have)"


def _over_kinds(point: Point, kinds: Sequence[str]) -> Numbers:
    """Return a point's energy over some device kinds: errors add up, as they are of the same runs."""
    if point.scope == "+".join(kinds):
        return quantity(point, "energy_kwh")
    if not kinds:
        raise NotTestable("No device kind has energy everywhere.")
    parts = [quantity(point, f"{kind}_energy_kwh") for kind in kinds]
    sources = dict.fromkeys(source for part in parts for source in part.parts)
    pools = {source.pool for source in sources}
    unbounded = {part.words(0) for part in parts if np.isinf(part.errors[0])}
    words = min(unbounded, default="") or " and ".join(
        dict.fromkeys(source.words for source in sources if source.words)
    )
    source = Source(
        " and ".join(source.name for source in sources),
        pools.pop() if len(pools) == 1 else "",
        words,
    )
    summed = estimate(
        math.fsum(float(part.values[0]) for part in parts),
        source,
        math.fsum(float(part.errors[0]) for part in parts) ** 2,
        min(float(part.freedom[0]) for part in parts),
        math.fsum(float(part.spreads[0]) for part in parts) ** 2,
    )
    return replace(summed, origins=parts[0].origins)


# --- points that checks ask for -----------------------------------------------------------------------


def grouped(points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, list[Point]]:
    """Return points by a key, in their order."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def enough(points: Sequence[Point], what: str, min_points: int = MINIMUM_POINTS) -> Sequence[Point]:
    """Return the points, if a trend can be seen in them; NotTestable for too few."""
    if len(points) < min_points:
        counts = f" (n = {', '.join(str(point.gpus) for point in points)})" if points else ""
        raise NotTestable(
            f"{what}: known at {len(points)} of the {min_points} points that are needed{counts}; "
            f"{min_points - len(points)} more needed."
        )
    return points


def known(line: Line, *names: str, at_least: int = 0, min_points: int = 3) -> Sequence[Point]:
    """Return at least `min_points` points of a line that know these quantities, with n ≥ `at_least`.

    NotTestable for too few, or where energies are of several origins or scopes.
    """
    points = line.having(*names, at_least=at_least)
    if any(map(is_of_power, names)):
        refuse_estimates(points)
    what = f"{line.title}: {', '.join(map(word, names))}" + (
        f" at n ≥ {at_least}" if at_least else ""
    )
    enough(points, what, min_points)
    if any(map(is_of_energy, names)):
        refuse_unlike(points)
    return points


def pretrainings(evidence: Evidence, device: str) -> list[Point]:
    """Return FourCastNet's pre-trainings on a device."""
    wanted = (MODEL, "pretrain", device)
    return [p for p in evidence.points if (p.model, p.phase, p.device) == wanted]


def as_in_paper(point: Point, epochs: int | None = None) -> Point:
    """Return the point, if it was trained as in the paper (see `unlike_paper`); else NotTestable."""
    if other := unlike_paper(point, epochs):
        raise NotTestable(f"{point.id} was not trained as in the paper: {', '.join(other)}.")
    return point


def in_paper(line: Line) -> Line:
    """Return the line with its points that were trained as in the paper; NotTestable without any."""
    points = tuple(point for point in line.points if not unlike_paper(point))
    if not points:
        as_in_paper(line.points[0])
    return replace(line, points=points)


def with_ram(evidence: Evidence, min_gpus: int = 1) -> list[Point]:
    """Return points from `min_gpus` on with a measured or published share of RAM, on A100 if any.

    An estimate from rated powers says nothing of a share. NotTestable if there are none.
    """
    shares = [
        point
        for point in evidence.points
        if point.gpus >= min_gpus and point.mean("ram_energy_share") is not None
    ]
    sensed = [point for point in shares if point.origin in SENSED]
    if not sensed:
        origins = ", ".join(sorted({str(point.origin) for point in shares}))
        rest = f"; it is {origins} where there is one" if shares else ""
        at = f" from {min_gpus} GPUs on" if min_gpus > 1 else ""
        raise NotTestable(
            f"No finished run{at} has measured energy of RAM (it needs the sensor of an Intel CPU){rest}."
        )
    return [point for point in sensed if point.device == "a100"] or sensed
