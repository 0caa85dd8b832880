"""What checks ask of lines: known points of one kind of energy, ratios along them, paper's points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log2

from scalewatt.claims.evidence.claim_types import NOT_TESTABLE, NotTestable, Outcome, Unresolved
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.evidence.origin_tracking import is_of_energy, is_of_power
from scalewatt.claims.rules.quantity_labels import word
from scalewatt.claims.rules.tolerance import all_of, attempt, combine, enough
from scalewatt.claims.rules.uncertain_number import Number, over, quantity, refuse_estimates

SENSED = ("measured", "published")
"""Origins of energy that say something of RAM."""


def known(line: Line, *names: str, at_least: int = 0, least: int = 3) -> Sequence[Point]:
    """At least `least` points of a line that know these quantities, with n ≥ `at_least`.

    NotTestable for none, or where energies are of several origins or scopes; Unresolved for too few.
    """
    points = line.having(*names, at_least=at_least)
    if any(map(is_of_power, names)):
        refuse_estimates(points)
    said = ", ".join(word(name) for name in names)
    what = f"{line.title}: {said}" + (f" at n ≥ {at_least}" if at_least else "")
    enough(points, what, least)
    if any(map(is_of_energy, names)):
        like(points)
    return points


def like(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) to compare energies of several origins or scopes."""
    for what, values in (
        ("origins", {p.origin for p in points}),
        ("scopes", {p.scope for p in points}),
    ):
        if len(values) > 1:
            raise NotTestable(
                f"Energies of several {what} ({', '.join(sorted(map(str, values)))}) are not compared."
            )


def each(
    evidence: Evidence,
    model: str,
    phase: str,
    device: str,
    modes: Sequence[str],
    of_line: Callable[[Line], Outcome],
) -> Outcome:
    """A portable check over the lines of these modes: all decide together, none may be lacking."""
    parts = []
    for mode in modes:
        try:
            lines = evidence.anywhere(model, phase, device, mode)
        except NotTestable as missing:
            parts.append((mode, Outcome(NOT_TESTABLE, None, str(missing))))
            continue
        found = combine([attempt(line.title, of_line, line) for line in lines])
        (only, *more) = lines
        if len(modes) == 1 and only.alike and not more:
            found = replace(found, detail=f"{only.title}: {found.detail}")
        parts.append(("" if more else only.title, found))
    return all_of(parts)


def together(
    evidence: Evidence,
    model: str,
    phase: str,
    device: str,
    modes: Sequence[str],
    of_lines: Callable[..., Outcome],
) -> Outcome:
    """A portable check on the lines of several modes of one device, given in their order.

    On its own device where that has them all, else on every other device that does.
    """

    def on(name: str) -> list[Line]:
        return [evidence.line(model, phase, name, mode) for mode in modes]

    def has(name: str) -> bool:
        return all(evidence.find(model, phase, name, mode) for mode in modes)

    others = sorted({line.device for line in evidence.find(model, phase)} - {device})
    devices = [device] if has(device) else [other for other in others if has(other)]
    return combine([attempt(one, of_lines, *on(one)) for one in devices or [device]])


def whole_nodes(evidence: Evidence, line: Line) -> int:
    """From which n a line's runs hold all GPUs of their nodes: 4 in the paper."""
    return evidence.gpus_per_node(line.device)


def points_at(line: Line, counts: Sequence[int], name: str) -> list[Point]:
    """The points at these n; Unresolved where one has no result, NotTestable where one lacks the quantity."""
    found = {point.gpus: point for point in line.points}
    if missing := [n for n in counts if n not in found]:
        raise Unresolved(
            f"{line.title}: no finished run with {' or '.join(map(str, missing))} GPUs; {len(missing)} "
            "more needed."
        )
    for n in counts:
        quantity(found[n], name)
    return [found[n] for n in counts]


def paper_point(
    evidence: Evidence,
    model: str,
    phase: str,
    device: str,
    mode: str,
    gpus: int,
    constant: int | None = None,
) -> Point:
    """The paper's very point: its device and training; NotTestable says what is missing."""
    line = evidence.line(model, phase, device, mode, constant)
    point = line.at(gpus)
    if point is None:
        raise NotTestable(f"{line.title}: no finished run with {gpus} GPUs.")
    return as_in_paper(point)


def as_in_paper(point: Point, epochs: int | None = None) -> Point:
    """The point, if it was trained as in the paper (`unlike_paper` has what counts); else NotTestable."""
    if other := unlike_paper(point, epochs):
        raise NotTestable(f"{point.id} was not trained as in the paper: {', '.join(other)}.")
    return point


def numbers(points: Sequence[Point], name: str) -> list[Number]:
    """A quantity of points."""
    return [quantity(point, name) for point in points]


def doublings(points: Sequence[Point]) -> list[float]:
    """log2 n of points."""
    return [log2(point.gpus) for point in points]


def efficiency(first: Point, point: Point) -> Number:
    """Of point n beside n0: GPU hours at n0 over those at n. Exactly 1 for n0 itself."""
    if first is point:
        return Number(1.0, 0.0, 0.0)
    return over(quantity(first, "gpu_hours"), quantity(point, "gpu_hours"))


def samples_of(point: Point) -> int:
    """Samples of its dataset; NotTestable where they are unknown."""
    if not point.samples:
        raise NotTestable(f"{point.id}: the size of its dataset is not known.")
    return point.samples


def per_sample(point: Point) -> Number:
    """Energy over all epochs per sample of the dataset, Wh."""
    return over(
        quantity(point, "energy_kwh"), Number(float(samples_of(point)), 0.0, 0.0), factor=1000
    )


def with_ram(evidence: Evidence, least: int = 1) -> list[Point]:
    """Points from `least` GPUs on with a measured (or published) share of RAM, on A100 if any.

    An estimate from rated powers says nothing of a share. NotTestable where there are none.
    """
    known = [
        point
        for point in evidence.points
        if point.gpus >= least and point.mean("ram_energy_share") is not None
    ]
    sensed = [point for point in known if point.origin in SENSED]
    if not sensed:
        origins = ", ".join(sorted({str(point.origin) for point in known}))
        rest = f"; it is {origins} where there is one" if known else ""
        at = f" at {least} GPUs or more" if least > 1 else ""
        raise NotTestable(
            f"No finished run{at} has measured energy of RAM (it needs the sensor of an Intel CPU){rest}."
        )
    return [point for point in sensed if point.device == "a100"] or sensed
