"""Rules beside those of `rules`: a check of every line, all points of a device, rates and efficiencies.

Lines with fewer points than a trend needs are named; they decide nothing where another has enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scalewatt.claims.evidence.claim_types import REPRODUCED, NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Line, Point
from scalewatt.claims.evidence.origin_tracking import is_of_energy, is_of_power
from scalewatt.claims.rules.quantity_labels import word
from scalewatt.claims.rules.series_queries import efficiency, like
from scalewatt.claims.rules.tolerance import MINIMUM_POINTS, attempt, band, combine, enough
from scalewatt.claims.rules.uncertain_number import Number, quantity, refuse_estimates, shown

OfLine = Callable[[Line, Sequence[Point]], Outcome]
BOUNDS = 0.05
"""Room at both bounds of an interval of P (claims K01 to K03, L01 to L03)."""
NAMED = 3
"""How many of the numbers outside of an interval are named one by one."""


def named(name: str) -> str:
    """A quantity in words, a power with its unit."""
    return f"{word(name)} (W)" if name.endswith("_w") else word(name)


def each_line(
    lines: Iterable[Line],
    names: Sequence[str],
    function: OfLine,
    least: int = MINIMUM_POINTS,
) -> Outcome:
    """Combine a check of every line that has enough points with these quantities.

    NotTestable where no point of any line has them, Unresolved where no line has enough points.
    """
    counted = sorted(((line, line.having(*names)) for line in lines), key=lambda one: -len(one[1]))
    if any(map(is_of_power, names)):
        refuse_estimates([point for _, points in counted for point in points])
    if not counted or len(counted[0][1]) < least:
        title = counted[0][0].title if counted else "No finished run"
        lacking = [named(name) for name in names]
        enough(counted[0][1] if counted else (), f"{title} ({', '.join(lacking)})", least)
    ready = [(line, points) for line, points in counted if len(points) >= least]
    if any(map(is_of_energy, names)):
        function = _of_one_kind(function)
    found = combine([attempt(line.title, function, line, points) for line, points in ready])
    few = [f"{line.title} ({len(points)})" for line, points in counted if len(points) < least]
    rest = f" Too few points: {', '.join(few)}; {least} are needed." if few else ""
    alone = f"{ready[0][0].title}: " if len(ready) == 1 else ""
    return Outcome(found.verdict, found.value, alone + found.detail + rest)


def _of_one_kind(function: OfLine) -> OfLine:
    """The check after a look at the origins and scopes of the energies."""

    def checked(line: Line, points: Sequence[Point]) -> Outcome:
        like(points)
        return function(line, points)

    return checked


def all_within(
    what: str, numbers: Sequence[tuple[str, Number]], low: float, high: float, unit: str = ""
) -> Outcome:
    """Whether all of several numbers lie in a band; those outside are named."""
    if not numbers:
        raise NotTestable(f"{what}: there is none.")
    ends = sorted(one.value for _, one in numbers)
    span = f"{what} of {len(numbers)}: {shown(ends[0])} to {shown(ends[-1])} {unit}".rstrip()
    outside = [
        attempt(name, band, name, one, low, high, unit)
        for name, one in numbers
        if not low <= one.value <= high
    ]
    if not outside:
        bounds = f"{shown(low)} to {shown(high)}"
        return Outcome(REPRODUCED, _ends(ends), f"{span}, expected {bounds}.")
    found = combine(outside)
    # Those that decide first; all would fill a page.
    ordered = sorted(outside, key=lambda one: one[1].verdict != found.verdict)
    detail = " ".join(one.detail for _, one in ordered[:NAMED])
    rest = f" {len(outside) - NAMED} more are outside." if len(outside) > NAMED else ""
    return Outcome(found.verdict, _ends(ends), f"{span}. {detail}{rest}")


def _ends(values: Sequence[float]) -> str:
    return f"{shown(values[0])}-{shown(values[-1])}"


def numbers_of(points: Sequence[Point], name: str) -> list[Number]:
    """The quantity of each point; NotTestable names what is unknown, and what P does instead."""
    missing = [point.gpus for point in points if point.mean(name) is None]
    if missing:
        at = ", ".join(str(n) for n in missing)
        raise NotTestable(f"{named(name)} is not known at n = {at}.{_instead(points)}")
    if is_of_energy(name):
        like(points)
    return [quantity(point, name) for point in points]


def _instead(points: Sequence[Point]) -> str:
    known = [p for p in points if p.mean("p_gpuh_kw") is not None]
    if not known:
        return ""
    values = ", ".join(shown(p.mean("p_gpuh_kw") or 0.0) for p in known)
    scopes = ", ".join(sorted({str(point.scope) for point in known}))
    return f" (Energy per GPU hour, over {scopes}, is {values} kW.)"


def efficiency_within(
    _: Line, points: Sequence[Point], low: float | None, high: float | None
) -> Outcome:
    """Whether the efficiency lies in a band after quadrupling the smallest n that has a point at 4·n.

    NotTestable without such a pair.
    """
    for first in points:
        fourth = next((p for p in points if p.gpus == 4 * first.gpus), None)
        if fourth is not None:
            what = f"Efficiency from {first.gpus} to {fourth.gpus} GPUs"
            return band(what, efficiency(first, fourth), low, high)
    raise NotTestable("No two points at n and 4·n have a known run time.")
