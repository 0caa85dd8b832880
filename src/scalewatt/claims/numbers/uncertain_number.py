"""Numbers with an interval: that of repeats, or of a single run a convention. Arithmetic and words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalewatt.claims.evidence.claim_types import NotTestable, Unresolved
from scalewatt.claims.evidence.evidence import Point, Spread, is_metric, is_of_power, unlike_paper
from scalewatt.results.tables.comparisons import MOST_REPEATS, PUBLISHED_SPREAD
from scalewatt.results.tables.repeat_statistics import CONFIDENCE, Summary

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

ASSUMED_HALF = 2 * PUBLISHED_SPREAD
BY_CAMPAIGN = "by the campaign's repeats"
BY_PUBLISHED = "by the published spread"
UNKNOWN = "of unknown spread, without repeats"


@dataclass(frozen=True)
class Number:
    """A value with half its interval."""

    value: float
    half: float
    """Half the 95 % interval; of a single run see `number`."""
    spread: float
    """Standard deviation of a single run, in the value's unit."""
    assumed: str = ""
    """What the interval rests on where a value has no repeats of its own."""

    @property
    def low(self) -> float:
        """Return the lower end of the interval; likewise `high`."""
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    def __truediv__(self, other: Number | float) -> Number:
        """Return the ratio of independent numbers; NotTestable for a divisor of 0."""
        divisor = other if isinstance(other, Number) else Number(float(other), 0.0, 0.0)
        if not divisor.value:
            raise NotTestable("A quantity that is divided by is 0.")
        value = self.value / divisor.value
        own = (self.half / self.value, self.spread / self.value) if self.value else (0.0, 0.0)
        theirs = (divisor.half / divisor.value, divisor.spread / divisor.value)
        half, spread = (abs(value) * math.hypot(*both) for both in zip(own, theirs, strict=True))
        return Number(value, half, spread, basis(self, divisor))

    def __sub__(self, other: Number) -> Number:
        """Return the difference of independent numbers."""
        return weighted((1, -1), (self, other))

    def __mul__(self, factor: float) -> Number:
        """Return a multiple."""
        return weighted((factor,), (self,))

    def __neg__(self) -> Number:
        return self * -1


def number(summary: Summary, spread: Spread | None = None, published: bool = True) -> Number:
    """Return a quantity's mean with its interval; NotTestable if the mean is unknown.

    That of its repeats; of a single run the t interval by `spread`, the campaign's repeats; without
    these ASSUMED_HALF of the value, or no bound where no spread of the quantity is `published`.
    """
    if summary.mean is None:
        raise NotTestable("A quantity is not known.")
    if summary.sd is not None and summary.high is not None:
        return Number(summary.mean, summary.high - summary.mean, summary.sd)
    size = abs(summary.mean)
    if spread is not None:
        from scipy.special import stdtrit

        sd = spread.relative * size
        quantile = float(stdtrit(spread.freedom, (1 + CONFIDENCE) / 2))
        return Number(summary.mean, quantile * sd, sd, BY_CAMPAIGN)
    if published:
        return Number(summary.mean, ASSUMED_HALF * size, PUBLISHED_SPREAD * size, BY_PUBLISHED)
    return Number(summary.mean, math.inf, math.inf, UNKNOWN)


def quantity(point: Point, name: str) -> Number:
    """Return a point's quantity as a number; NotTestable names what is unknown of which configuration.

    An error as of guessing is refused, unless it is what the paper's training comes to.
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
    return number(summary, point.spread(name), published=not is_metric(name))


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
    """Return on what the interval of something made of these numbers rests: the weakest there is."""
    there = {one.assumed for one in numbers}
    return next((one for one in (UNKNOWN, BY_PUBLISHED, BY_CAMPAIGN) if one in there), "")


def weighted(weights: Iterable[float], numbers: Sequence[Number]) -> Number:
    """Return the weighted sum of independent numbers."""
    parts = list(zip(weights, numbers, strict=True))
    return Number(
        math.fsum(weight * one.value for weight, one in parts),
        math.hypot(*(weight * one.half for weight, one in parts)),
        math.hypot(*(weight * one.spread for weight, one in parts)),
        basis(*numbers),
    )


def mean_of(numbers: Sequence[Number]) -> Number:
    """Return the mean of independent numbers."""
    return weighted([1 / len(numbers)] * len(numbers), numbers)


def repeats_to_tell(distance: float, spread: float) -> int | None:
    """Return from how many repeats half a 95 % interval is less than `distance`; null beyond 1000."""
    from scipy.special import stdtrit

    for n in range(2, MOST_REPEATS + 1):
        if float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * spread / math.sqrt(n) < distance:
            return n
    return None


def text(own: Number, unit: str = "") -> str:
    """Return a number with its interval, and on what it rests."""
    unit = f" {unit}" if unit else ""
    if not own.half:
        return f"{shown(own.value)}{unit}"
    rests = f" ({own.assumed})" if own.assumed else ""
    half = "" if math.isinf(own.half) else f" ± {shown(own.half)}"
    return f"{shown(own.value)}{half}{unit}{rests}"


def shown(value: float) -> str:
    """Return a value with four significant digits, without an exponent up to ten digits."""
    if 1e4 <= abs(value) < 1e10:
        return f"{float(f'{value:.4g}'):.0f}"
    return f"{value:.4g}"


def needed(own: Number, distance: float) -> str:
    """Return the repeats from which half the interval is less than this distance, as a phrase."""
    if not distance:
        return "it lies on the bound, where no number of repeats would tell"
    if math.isinf(own.spread):
        return "about 2 repeats, with seeds of their own, would tell the spread"
    return repeats_text(repeats_to_tell(distance, own.spread))


def repeats_text(repeats: int | None) -> str:
    """Return so many repeats as a phrase."""
    if repeats is None:
        return f"more than {MOST_REPEATS} repeats of each point would tell"
    return f"about {repeats} repeats of each point would tell"


def told(own: Number) -> str:
    """Return the repeats that would tell a number from 0."""
    return needed(own, abs(own.value))


def word(name: str) -> str:
    """Return what a quantity is called in a sentence; its column's name where it has no label."""
    return _LABELS.get(name, name)


# --- lines and rank correlation, of plain numbers -------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """A line y = slope·x + intercept by least squares."""

    slope: float
    intercept: float
    r2: float
    origin_slope: float
    """Of the line through the origin; likewise `origin_r2`, about the mean like `r2`."""
    origin_r2: float
    slope_half: float | None
    """Half the 95 % interval; null for two points. Likewise `intercept_half`."""
    intercept_half: float | None
    n: int


def line_fit(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a line to at least two points that differ in x (Unresolved otherwise)."""
    n = len(x)
    if n < 2 or max(x) == min(x):
        raise Unresolved("A line needs two points that differ in x.")
    mx, my = math.fsum(x) / n, math.fsum(y) / n
    sxx = math.fsum((a - mx) ** 2 for a in x)
    syy = math.fsum((b - my) ** 2 for b in y)
    slope = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sxx
    intercept = my - slope * mx
    rest = math.fsum((b - slope * a - intercept) ** 2 for a, b in zip(x, y, strict=True))
    through = math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.fsum(a * a for a in x)
    origin_rest = math.fsum((b - through * a) ** 2 for a, b in zip(x, y, strict=True))
    halves: tuple[float | None, float | None] = (None, None)
    if n > 2:
        from scipy.special import stdtrit

        t = float(stdtrit(n - 2, (1 + CONFIDENCE) / 2))
        error = math.sqrt(rest / (n - 2))
        halves = (t * error / math.sqrt(sxx), t * error * math.sqrt(1 / n + mx * mx / sxx))
    r2, origin_r2 = (1 - one / syy if syy else 0.0 for one in (rest, origin_rest))
    return Fit(slope, intercept, r2, through, origin_r2, *halves, n)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties by mean ranks; 0 where one of both is constant."""
    a, b = ranks(x), ranks(y)
    fit = line_fit(a, b)
    return math.copysign(math.sqrt(max(fit.r2, 0.0)), fit.slope) if fit.slope else 0.0


def variation(values: Sequence[float]) -> float:
    """Return coefficient of variation: sample standard deviation over mean; NotTestable for a mean of 0."""
    mean = math.fsum(values) / len(values)
    if not mean:
        raise NotTestable("A coefficient of variation needs a mean that is not 0.")
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) / abs(mean)


def ranks(values: Iterable[float]) -> list[float]:
    """Return rank of each value from 1, ties by their mean."""
    values = list(values)
    return [
        sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2
        for one in values
    ]
