"""What rules ask of points: known quantities of one kind of energy, whole nodes, the paper's trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from scalewatt.claims.evidence.claim_types import PER_SAMPLE, NotTestable
from scalewatt.claims.evidence.evidence import (
    Evidence,
    Line,
    Point,
    is_of_energy,
    is_of_power,
    unlike_paper,
)
from scalewatt.claims.numbers.decisions import enough
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    basis,
    quantity,
    refuse_estimates,
    word,
)
from scalewatt.claims.numbers.variances import Variance
from scalewatt.recordings.terms import DEVICE_KINDS

MODEL = "fourcastnet"
PROBE_EPOCHS = 20
SENSED = ("measured", "published")
"""Origins of energy that say something of RAM."""


def grouped(points: Iterable[Point], key: Callable[[Point], str]) -> dict[str, list[Point]]:
    """Return points by a key, in their order."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def known(line: Line, *names: str, at_least: int = 0, least: int = 3) -> Sequence[Point]:
    """Return at least `least` points of a line that know these quantities, with n ≥ `at_least`.

    NotTestable for none or too few, or where energies are of several origins or scopes.
    """
    points = line.having(*names, at_least=at_least)
    if any(map(is_of_power, names)):
        refuse_estimates(points)
    columns = ", ".join(word(name) for name in names)
    what = f"{line.title}: {columns}" + (f" at n ≥ {at_least}" if at_least else "")
    enough(points, what, least)
    if any(map(is_of_energy, names)):
        like(points)
    return points


def like(points: Sequence[Point]) -> None:
    """Refuse (NotTestable) to compare energies of several origins or scopes."""
    for what, found in (
        ("origins", {p.origin for p in points}),
        ("scopes", {p.scope for p in points}),
    ):
        if len(found) > 1:
            raise NotTestable(
                f"Energies of several {what} ({', '.join(sorted(map(str, found)))}) are not compared."
            )


def values(points: Sequence[Point], name: str) -> list[Number]:
    """Return a quantity of each point; NotTestable names what is unknown, and what P does instead.

    PER_SAMPLE: energy over all epochs per sample of the dataset, Wh.
    """
    column = "energy_kwh" if name == PER_SAMPLE else name
    if missing := [point.gpus for point in points if point.mean(column) is None]:
        at = ", ".join(str(n) for n in missing)
        raise NotTestable(f"{named(column)} is not known at n = {at}.")
    if is_of_energy(name):
        like(points)
    return [value(point, name) for point in points]


def value(point: Point, name: str) -> Number:
    """Return a quantity of a point; NotTestable if it is unknown."""
    if name != PER_SAMPLE:
        return quantity(point, name)
    return quantity(point, "energy_kwh") / samples_of(point) * 1000


def named(name: str) -> str:
    """Return what a quantity is called, a power with its unit."""
    return f"{word(name)} (W)" if name.endswith("_w") else word(name)


def whole_nodes(evidence: Evidence, line: Line) -> int:
    """Return from which n a line's runs hold all GPUs of their nodes: 4 in the paper."""
    return evidence.gpus_per_node(line.device)


def points_at(line: Line, counts: Sequence[int], name: str) -> list[Point]:
    """Return the points at these n; NotTestable if one has no result, or lacks it."""
    found = {point.gpus: point for point in line.points}
    if missing := [n for n in counts if n not in found]:
        raise NotTestable(
            f"{line.title}: no finished run with {' or '.join(map(str, missing))} GPUs; {len(missing)} "
            "more needed."
        )
    for n in counts:
        quantity(found[n], name)
    return [found[n] for n in counts]


def pretrainings(evidence: Evidence, device: str) -> list[Point]:
    """Return FourCastNet's pre-trainings on a device."""
    wanted = (MODEL, "pretrain", device)
    return [p for p in evidence.points if (p.model, p.phase, p.device) == wanted]


def paper_point(
    evidence: Evidence, series: tuple[str, str, str], mode: str, gpus: int, constant: int
) -> Point:
    """Return the paper's own point: its device and training; NotTestable says what is missing."""
    line = evidence.line(*series, mode, constant)
    point = line.at(gpus)
    if point is None:
        raise NotTestable(f"{line.title}: no finished run with {gpus} GPUs.")
    return as_in_paper(point)


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


def doublings(points: Sequence[Point]) -> list[float]:
    """Return log2 n of points."""
    return [math.log2(point.gpus) for point in points]


def efficiency(first: Point, point: Point) -> Number:
    """Return GPU hours at n₀ over those at n; exactly 1 for n₀ itself."""
    if first is point:
        return Number(1.0)
    return quantity(first, "gpu_hours") / quantity(point, "gpu_hours")


def samples_of(point: Point) -> int:
    """Return the samples of its dataset; NotTestable if they are unknown."""
    if not point.samples:
        raise NotTestable(f"{point.id}: the size of its dataset is not known.")
    return point.samples


def all_positive(numbers: Sequence[Number]) -> Sequence[Number]:
    """Return numbers that have logarithms; NotTestable if one has none."""
    if any(one.value <= 0 for one in numbers):
        raise NotTestable("A quantity of 0 has no logarithm.")
    return numbers


def with_ram(evidence: Evidence, least: int = 1) -> list[Point]:
    """Return points from `least` GPUs on with a measured or published share of RAM, on A100 if any.

    An estimate from rated powers says nothing of a share. NotTestable if there are none.
    """
    there = [
        point
        for point in evidence.points
        if point.gpus >= least and point.mean("ram_energy_share") is not None
    ]
    sensed = [point for point in there if point.origin in SENSED]
    if not sensed:
        origins = ", ".join(sorted({str(point.origin) for point in there}))
        rest = f"; it is {origins} where there is one" if there else ""
        at = f" at {least} GPUs or more" if least > 1 else ""
        raise NotTestable(
            f"No finished run{at} has measured energy of RAM (it needs the sensor of an Intel CPU){rest}."
        )
    return [point for point in sensed if point.device == "a100"] or sensed


def energies_alike(points: Sequence[Point]) -> tuple[list[Number], str]:
    """Return energies of points in kWh over the device kinds that all have, and a remark on their scope.

    NotTestable for several origins, an unknown energy, or an unknown part of totals of unequal scope.
    """
    origins = {point.origin for point in points}
    if len(origins) > 1:
        listed = ", ".join(sorted(map(str, origins)))
        raise NotTestable(f"Energies of several origins ({listed}) are not compared.")
    totals = [quantity(point, "energy_kwh") for point in points]
    scopes = {point.scope or "unknown" for point in points}
    if len(scopes) == 1:
        return totals, ""
    common = [k for k in DEVICE_KINDS if all(k in scope.split("+") for scope in scopes)]
    try:
        parts = [_over_kinds(point, common) for point in points]
    except NotTestable as missing:
        raise NotTestable(
            f"The energies are of unequal scope ({'; '.join(sorted(scopes))}), and what all of them have is "
            "not known apart; memory is 4 to 6 % of the energy on A100 (B03), which such a comparison "
            "would take for a difference of the devices."
        ) from missing
    return parts, f" (over {'+'.join(common)}, which all have)"


def _over_kinds(point: Point, kinds: Sequence[str]) -> Number:
    """Return a point's energy over some device kinds: intervals add up, as they are of the same runs."""
    if point.scope == "+".join(kinds):
        return quantity(point, "energy_kwh")
    if not kinds:
        raise NotTestable("No device kind has energy everywhere.")
    parts = [quantity(point, f"{kind}_energy_kwh") for kind in kinds]
    return in_step(parts)


def in_step(parts: Sequence[Number]) -> Number:
    """Return the sum of numbers of the same runs, whose errors add up."""
    error, spread = (math.fsum(getattr(one, name) for one in parts) for name in ("error", "spread"))
    freedom = min(one.freedom for one in parts)
    sources = dict.fromkeys(source for one in parts for source in one.variances)
    pools = {own.pool for one in parts for own in one.variances.values()}
    pool = pools.pop() if len(pools) == 1 else ""
    variance = Variance(error**2, freedom, spread**2, pool=pool)
    return Number(
        math.fsum(one.value for one in parts), {" and ".join(sources): variance}, basis(*parts)
    )
