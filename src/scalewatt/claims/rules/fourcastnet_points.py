"""FourCastNet's results that are the paper's trainings, and energies of several over the same devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.rules.series_queries import as_in_paper
from scalewatt.claims.rules.tolerance import all_of, attempt, band, combine
from scalewatt.claims.rules.uncertain_number import Number, basis, quantity
from scalewatt.recordings.series import DEVICE_KINDS

MODEL = "fourcastnet"
UNITS = {"energy_kwh": "kWh", "runtime_h": "h", "gpu_hours": "GPUh"}
NAMES = {"energy_kwh": "Energy", "runtime_h": "Run time", "gpu_hours": "Number of GPU hours"}
PROBE_EPOCHS = 20
SINGLE_RUN = 0.10
"""Relative tolerance of a published number of single runs."""


def pretrained(evidence: Evidence, device: str) -> list[Point]:
    """Pre-trainings on a device that are the paper's in dataset, epochs, protocol and loading."""
    return [point for point in _pretraining(evidence, device) if not unlike_paper(point)]


def _pretraining(evidence: Evidence, device: str) -> list[Point]:
    return [
        point
        for point in evidence.points
        if (point.model, point.phase, point.device) == (MODEL, "pretrain", device)
    ]


def near(
    evidence: Evidence,
    device: str,
    sizes: tuple[int, int, int],
    wanted: dict[str, float],
    tolerance: float = SINGLE_RUN,
) -> Outcome:
    """Whether the pre-training with these GPUs, LBS and GBS has the wanted values, within a tolerance.

    Of several, with settings that the paper does not state, all decide together. NotTestable says
    what is missing.
    """
    found = [p for p in _pretraining(evidence, device) if (p.gpus, p.lbs, p.gbs) == sizes]
    own = [point for point in found if not unlike_paper(point)]
    if not own:
        gpus, lbs, gbs = sizes
        missing = (
            f"No finished run of FourCastNet's pre-training on {device} as in the paper with {gpus} GPUs, "
            f"LBS {lbs}, GBS {gbs}"
        )
        other = f": {found[0].id} has {', '.join(unlike_paper(found[0]))}" if found else ""
        raise NotTestable(f"{missing}{other}.")
    return combine([attempt(point.id, _near, point, wanted, tolerance) for point in own])


def _near(point: Point, wanted: dict[str, float], tolerance: float) -> Outcome:
    return all_of(
        [
            (
                "",
                band(
                    NAMES[name],
                    quantity(point, name),
                    value * (1 - tolerance),
                    value * (1 + tolerance),
                    UNITS[name],
                ),
            )
            for name, value in wanted.items()
        ]
    )


def in_paper(line: Line) -> Line:
    """The line with its points that were trained as in the paper; NotTestable where there are none."""
    points = tuple(point for point in line.points if not unlike_paper(point))
    if not points:
        as_in_paper(line.points[0])
    return replace(line, points=points)


def energies_alike(points: Sequence[Point]) -> tuple[list[Number], str]:
    """Energies of points in kWh over the device kinds that all have, and a remark on their scope.

    Where a part is not known the totals are returned, and the remark says that their scopes differ.
    NotTestable for several origins, or an unknown energy.
    """
    origins = {point.origin for point in points}
    if len(origins) > 1:
        named = ", ".join(sorted(map(str, origins)))
        raise NotTestable(f"Energies of several origins ({named}) are not compared.")
    totals = [quantity(point, "energy_kwh") for point in points]
    scopes = {point.scope or "unknown" for point in points}
    if len(scopes) == 1:
        return totals, ""
    common = [k for k in DEVICE_KINDS if all(k in scope.split("+") for scope in scopes)]
    try:
        parts = [_over_kinds(point, common) for point in points]
    except NotTestable:
        return totals, f" (of unequal scope, {'; '.join(sorted(scopes))}, as parts are not known)"
    return parts, f" (over {'+'.join(common)}, which all have)"


def _over_kinds(point: Point, kinds: Sequence[str]) -> Number:
    """A point's energy over some device kinds: their intervals add up, as they are of the same runs."""
    if point.scope == "+".join(kinds):
        return quantity(point, "energy_kwh")
    if not kinds:
        raise NotTestable("No device kind has energy everywhere.")
    parts = [quantity(point, f"{kind}_energy_kwh") for kind in kinds]
    return Number(
        sum(part.value for part in parts),
        sum(part.half for part in parts),
        sum(part.spread for part in parts),
        basis(*parts),
    )
