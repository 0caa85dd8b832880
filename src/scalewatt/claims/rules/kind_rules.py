"""Rules on kinds of device over all trainings: the share of RAM's energy, and powers of GPUs and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Point
from scalewatt.claims.numbers.decisions import attempt, band, combine, enough, in_one, positive
from scalewatt.claims.numbers.points import grouped, like, values, with_ram
from scalewatt.claims.numbers.trends import ranked
from scalewatt.claims.numbers.uncertain_number import Number, quantity, shown
from scalewatt.claims.rules.power_rules import all_within


def _ram_shares_within(evidence: Evidence, check: Check) -> Outcome:
    """Check whether RAM's share of every training from `n` GPUs on is within the bounds."""
    points = with_ram(evidence, int(check.n))
    shares = [(f"share of {point.id}", quantity(point, check.quantity)) for point in points]
    return all_within(check.text, shares, check.low, check.high)


def _largest_ram_share(evidence: Evidence, check: Check) -> Outcome:
    """Check whether every share of RAM is at most the claim's, with its tolerance; one is told."""
    own = sorted(with_ram(evidence), key=lambda p: -(p.mean(check.quantity) or 0.0))
    shares = [quantity(point, check.quantity) for point in own]
    parts = [
        ("", band(f"the share of RAM of {point.id}", share, *check.bounds))
        for point, share in zip(own, shares, strict=True)
    ]
    return in_one(parts)


def _gpu_varies_more(evidence: Evidence, check: Check) -> Outcome:
    """Check whether mean GPU power has a larger range than mean CPU socket power, by model and device."""
    names = ("mean_gpu_power_w", "mean_cpu_socket_power_w")
    known = [p for p in evidence.points if all(p.mean(name) is not None for name in names)]
    groups = grouped(known, lambda point: f"{point.model} {point.device}")
    ready = {name: points for name, points in groups.items() if len(points) >= 2}
    if not ready:
        raise NotTestable(
            "No two configurations of a model and device have power of both GPU and CPU."
        )

    def compare(points: Sequence[Point]) -> Outcome:
        like(points)
        gpu, cpu = (_range([quantity(point, name) for point in points]) for name in names)
        what = f"Range of GPU power ({shown(gpu.value)} W) less that of CPU socket power"
        return positive(what, gpu - cpu, check.unit)

    return combine(attempt(group, compare, points) for group, points in ready.items())


def _range(numbers: Sequence[Number]) -> Number:
    ordered = sorted(numbers, key=lambda one: one.value)
    return ordered[-1] - ordered[0]


def _rank_of_all_points(evidence: Evidence, check: Check) -> Outcome:
    """Check whether a quantity goes with another over all points of a model, phase and device."""
    known = [point for point in evidence.points if point.mean(check.against) is not None]
    groups = grouped(known, lambda point: f"{point.model} {point.phase} {point.device}")
    if not groups:
        raise NotTestable("No finished run has samples per GPU hour.")

    def of_group(name: str, points: Sequence[Point]) -> Outcome:
        there = [point for point in points if point.mean(check.quantity) is not None]
        if not there:
            raise NotTestable("GPU power is not known.")
        enough(there, name, check.least)
        x = [point.mean(check.against) or 0.0 for point in there]
        own = values(there, check.quantity)
        return ranked(check.text, x, own, check.rises, check.low)

    return combine(attempt(name, of_group, name, points) for name, points in groups.items())


KIND_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "gpu_varies_more_than_cpu": _gpu_varies_more,
    "largest_ram_share": _largest_ram_share,
    "ram_shares_within": _ram_shares_within,
    "rank_of_all_points": _rank_of_all_points,
}
"""The rules by the name that the table calls them."""
