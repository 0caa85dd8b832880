"""Numbers with an interval, by their own repeats or what other runs scatter: arithmetic and words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scalewatt.claims.evidence import evidence
from scalewatt.claims.evidence.claim_types import NotTestable
from scalewatt.claims.evidence.evidence import Point, is_metric, is_of_power, unlike_paper
from scalewatt.claims.numbers.variances import Variance, added, apart, freedom_of, times
from scalewatt.results.tables.estimates import relative_bounds
from scalewatt.results.tables.published_spread import (
    WIDEST,
    Spread,
    published_spread,
)
from scalewatt.results.tables.repeat_statistics import Summary
from scalewatt.results.tables.t_tests import quantile

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

BY_CAMPAIGN = "by the campaign's repeats of this model"
UNKNOWN = "of unknown spread"
UNTOLD = "of unknown spread: its repeats share one seed"
UNBOUNDED = "estimated, with no interval stated"
ESTIMATE = "by the interval of its estimate"
NORMAL = 1.96  # standard errors to either side within which 95 % lie
_WEAKEST = (UNBOUNDED, UNKNOWN, UNTOLD)
MODELS = {"fourcastnet": "FourCastNet", "resnet50": "ResNet50"}
"""Names of the models whose repeats are published."""


@dataclass(frozen=True)
class Number:
    """An estimate with its standard error, by the sources of spread that tell it.

    Numbers that share a source are independent of each other, but how much they scatter is told by the same
    runs, which count once: two single runs by the three repeats of a third have two degrees of freedom, not
    four. So have an energy and a time by these, whose scatter may be common to both.
    """

    value: float
    variances: Mapping[str, Variance] = field(default_factory=dict)
    assumed: str = ""
    """What the interval rests on where a value has no repeats of its own."""
    is_ratio: bool = False
    """True if the variances are those of its logarithm."""

    @property
    def error(self) -> float:
        """Return the standard error; of a ratio that of its logarithm."""
        return math.sqrt(math.fsum(one.square for one in self.variances.values()))

    @property
    def freedom(self) -> float:
        """Return the degrees of freedom of the error (Welch 1947, Satterthwaite 1946)."""
        return freedom_of(apart(self.variances))

    @property
    def low(self) -> float:
        """Return the lower end of the 95 % interval."""
        return self._end(-1)

    @property
    def high(self) -> float:
        """Return the upper end of the 95 % interval."""
        return self._end(1)

    def _end(self, side: int) -> float:
        if not self.error:
            return self.value
        half = side * quantile(self.freedom) * self.error
        if not self.is_ratio:
            return self.value + half
        return self.value * math.exp(half) if half < 700 else math.inf

    @property
    def half(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def spread(self) -> float:
        """Return the standard deviation were each number that it is made of a single run, in its unit."""
        parts = self.variances.values()
        single = math.fsum(one.single + one.fixed for one in parts)
        return math.sqrt(single) * (abs(self.value) if self.is_ratio else 1.0)

    def with_repeats(self, count: int) -> tuple[float, float]:
        """Return standard error and degrees of freedom were each number the mean of so many repeats."""
        parts = [
            part
            for one in self.variances.values()
            for part in (
                (one.fixed, one.freedom),
                (one.single / count, max(one.freedom, count - 1)),
            )
        ]
        return math.sqrt(math.fsum(square for square, _ in parts)), freedom_of(parts)

    def linear(self) -> Number:
        """Return the same number with the variances of itself, to first order."""
        if not self.is_ratio:
            return self
        return replace(self, variances=times(self.variances, self.value**2), is_ratio=False)

    def logarithm(self) -> Number:
        """Return the logarithm of a positive number."""
        return Number(math.log(self.value), self._relative(), self.assumed)

    def _relative(self) -> Mapping[str, Variance]:
        if self.is_ratio:
            return self.variances
        return times(self.variances, 1 / self.value**2)

    def __truediv__(self, other: Number | float) -> Number:
        """Return the ratio of independent numbers, with its interval by logarithms; NotTestable for 0.

        To first order where one of both is not positive.
        """
        divisor = other if isinstance(other, Number) else Number(float(other))
        if not divisor.value:
            raise NotTestable("A quantity that is divided by is 0.")
        value, rests = self.value / divisor.value, basis(self, divisor)
        if self.value > 0 and divisor.value > 0:
            return Number(value, added(self._relative(), divisor._relative()), rests, True)
        own = times(self.linear().variances, 1 / divisor.value**2)
        theirs = times(divisor.linear().variances, value**2 / divisor.value**2)
        return Number(value, added(own, theirs), rests)

    def __sub__(self, other: Number) -> Number:
        """Return the difference of independent numbers."""
        return weighted((1, -1), (self, other))

    def __mul__(self, factor: float) -> Number:
        """Return a multiple."""
        if self.is_ratio and factor > 0:
            return replace(self, value=self.value * factor)
        return weighted((factor,), (self,))

    def __neg__(self) -> Number:
        return self * -1


def own_repeats(source: str, value: float, sd: float, n: int, pool: str = "") -> Number:
    """Return the mean of `n` repeats of a standard deviation of their own, which `pool` may be in part of."""
    return Number(value, {source: Variance(sd**2 / n, n - 1, sd**2, pool=pool)})


def single_run(value: float, spread: Spread, source: str, words: str, n: int = 1) -> Number:
    """Return the mean of `n` runs whose spread others tell, with that spread's degrees of freedom."""
    square = (spread.relative * value) ** 2
    return Number(value, {source: Variance(square / n, spread.freedom, square)}, words)


def number(
    summary: Summary,
    name: str,
    model: str,
    source: str,
    spread: Spread | None = None,
    pool: str = "the campaign's repeats",
) -> Number:
    """Return a quantity's mean with its interval; NotTestable if the mean is unknown.

    That of its repeats, at `source`; else by `spread`, that of the repeats in `pool`; else by the published
    spread of the model; of an error without these there is none.
    """
    if summary.mean is None:
        raise NotTestable("A quantity is not known.")
    if summary.n > 1 and summary.sd:
        return own_repeats(source, summary.mean, summary.sd, summary.n, pool)
    if spread is not None:
        return single_run(summary.mean, spread, pool, BY_CAMPAIGN, summary.n)
    published = published_spread(model, name)
    if published is None:
        return unknown(summary.mean, UNKNOWN)
    words = f"by {_whose(model)}'s published repeats"
    return single_run(summary.mean, published, published_source(model), words, summary.n)


def published_source(model: str) -> str:
    """Return the source of the published spread that is taken for a model."""
    return f"published {_whose(model)}"


def _whose(model: str) -> str:
    return MODELS.get(model, MODELS[WIDEST])


def stated(value: float, spread: Spread | None, source: str, runs: int) -> Number:
    """Return a published number of so many runs, which no further run makes more certain.

    Exact where no spread of it is published.
    """
    if spread is None:
        return Number(value)
    square = (spread.relative * value) ** 2 / runs
    return Number(value, {source: Variance(square, spread.freedom, 0.0, square)})


def unknown(value: float, words: str) -> Number:
    """Return a number that nothing bounds."""
    return Number(value, {words: Variance(math.inf, 1, math.inf)}, words)


def quantity(point: Point, name: str) -> Number:
    """Return a point's quantity as a number; NotTestable names what is unknown of which configuration.

    An error as of guessing is refused, unless it is what the paper's training comes to. Repeats of one
    seed do not tell how errors scatter.
    """
    summary = point.stat(name)
    if summary.mean is None:
        raise NotTestable(f"The {word(name)} of {point.id} is not known.")
    if is_of_power(name):
        refuse_estimates([point])
    if is_metric(name):
        error, chance = summary.mean, point.chance
        if chance is not None and error >= chance and unlike_paper(point):
            raise NotTestable(
                f"The error of {point.id}, {shown(error)} %, is that of guessing (from "
                f"{shown(chance)} %): it is not trained."
            )
        if not point.varies_seeds:
            return unknown(error, UNTOLD if summary.n > 1 else UNKNOWN)
    published = point.origin == "published"
    pool = published_source(point.model) if published else f"{point.model} {point.phase}"
    own = number(summary, name, point.model, point.id, point.spread(name), pool)
    return with_estimate(own, point, name) if evidence.is_of_energy(name) else own


def with_estimate(own: Number, point: Point, name: str) -> Number:
    """Return an energy with what is estimated of it as a further variance, which no repeats lessen.

    Each point's error counts as its own: that a part of it is common to a machine is not made use of.
    """
    ends = relative_bounds(point.row, name)
    if ends is None:
        return unknown(own.value, UNBOUNDED)
    wide = max(ends[1], 1 / ends[0]) if ends[0] > 0 else math.inf
    if wide <= 1:
        return own
    square = (math.log(wide) / NORMAL * own.value) ** 2
    more = {f"the estimate of {point.id}": Variance(square, math.inf, 0.0, square)}
    rests = " and ".join(filter(None, (own.assumed, ESTIMATE)))
    return replace(own, variances={**own.variances, **more}, assumed=rests)


def refuse_estimates(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) a power or a ratio of energies to time that rated powers alone make."""
    ids = list(dict.fromkeys(point.id for point in points if point.origin == "estimated"))
    if ids:
        which = f"The energy of {ids[0]} is"
        if len(ids) > 1:
            which = f"The energies of {len(ids)} configurations ({ids[0]} …) are"
        raise NotTestable(
            f"{which} estimated from rated powers: the ratio to time would test the cluster file."
        )


def basis(*numbers: Number) -> str:
    """Return on what the interval of something made of these numbers rests; alone what tells no spread."""
    there = sorted({part for one in numbers for part in one.assumed.split(" and ")} - {""})
    weakest = [one for one in _WEAKEST if one in there]
    return weakest[0] if weakest else " and ".join(there)


def weighted(weights: Iterable[float], numbers: Sequence[Number]) -> Number:
    """Return the weighted sum of independent numbers."""
    parts = [(weight, one.linear()) for weight, one in zip(weights, numbers, strict=True)]
    return Number(
        math.fsum(weight * one.value for weight, one in parts),
        added(*(times(one.variances, weight**2) for weight, one in parts if weight)),
        basis(*numbers),
    )


def mean_of(numbers: Sequence[Number]) -> Number:
    """Return the mean of independent numbers."""
    return weighted([1 / len(numbers)] * len(numbers), numbers)


def text(own: Number, unit: str = "", bounds: Iterable[float] = ()) -> str:
    """Return a number with its 95 % interval, and on what that rests; rounding puts nothing on a bound."""
    value, low, high = (_beside(one, bounds) for one in (own.value, own.low, own.high))
    unit = f" {unit}" if unit else ""
    if not own.error:
        return f"{value}{unit}"
    rests = f" ({own.assumed})" if own.assumed else ""
    if math.isinf(own.error):
        return f"{value}{unit}{rests}"
    if not own.is_ratio:
        return f"{value} ± {shown(own.half)}{unit}{rests}"
    return f"{value}{unit} {ends_text(own, low, high)}"


def ends_text(own: Number, low: str, high: str) -> str:
    """Return both ends of a number's interval in brackets, and on what that rests."""
    rests = f"; {own.assumed}" if own.assumed else ""
    return f"({low} to {high}{rests})"


def _beside(value: float, bounds: Iterable[float]) -> str:
    """Return a value with four digits, or as many as keep it on its side of each bound."""
    others = [bound for bound in bounds if bound != value]

    def is_beside(words: str) -> bool:
        told = float(words)
        return all(told != one and (told > one) == (value > one) for one in others)

    return next(filter(is_beside, (shown(value, digits) for digits in range(4, 17))), repr(value))


def shown(value: float, digits: int = 4) -> str:
    """Return a value with so many significant digits, without an exponent up to ten digits."""
    if 1e4 <= abs(value) < 1e10:
        return f"{float(f'{value:.{digits}g}'):.{max(digits - len(f'{abs(value):.0f}'), 0)}f}"
    return f"{value:.{digits}g}"


def word(name: str) -> str:
    """Return what a quantity is called in a sentence; its column's name where it has no label."""
    return _LABELS.get(name, name)


# --- lines and rank correlation, of plain numbers -------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A line by least squares."""

    slope: float
    r2: float


def line_fit(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a line to at least two points that differ in x (NotTestable otherwise)."""
    n = len(x)
    if n < 2 or max(x) == min(x):
        raise NotTestable("A line needs two points that differ in x.")
    mx, my = math.fsum(x) / n, math.fsum(y) / n
    sxx = math.fsum((a - mx) ** 2 for a in x)
    syy = math.fsum((b - my) ** 2 for b in y)
    slope = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sxx
    rest = math.fsum((b - my - slope * (a - mx)) ** 2 for a, b in zip(x, y, strict=True))
    return Fit(slope, 1 - rest / syy if syy else 0.0)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties by mean ranks; 0 where one of both is constant."""
    a, b = ranks(x), ranks(y)
    fit = line_fit(a, b)
    return math.copysign(math.sqrt(max(fit.r2, 0.0)), fit.slope) if fit.slope else 0.0


def ranks(values: Iterable[float]) -> list[float]:
    """Return rank of each value from 1, ties by their mean."""
    values = list(values)
    return [
        sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2
        for one in values
    ]
