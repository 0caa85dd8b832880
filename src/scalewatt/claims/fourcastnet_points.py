"""Which of the results FourCastNet's claims are about: the paper's dataset, probes left out."""

from __future__ import annotations

from dataclasses import replace

from scalewatt.claims.evidence import Evidence, Line, Point, is_full_size
from scalewatt.claims.model import NotTestable, Outcome
from scalewatt.claims.power_rules import all_of
from scalewatt.claims.rules import band, quantity

MODEL = "fourcastnet"
UNITS = {"energy_kwh": "kWh", "runtime_h": "h", "gpu_hours": "GPUh"}
NAMES = {"energy_kwh": "Energy", "runtime_h": "Run time", "gpu_hours": "Number of GPU hours"}
SINGLE_RUN = 0.10
"""Relative tolerance of a published number of single runs."""


def trained(evidence: Evidence, device: str, phase: str | None = "pretrain") -> list[Point]:
    """Points on a device with the paper's dataset, without probes."""
    return [
        point
        for point in evidence.points
        if point.model == MODEL
        and point.device == device
        and phase in (None, point.phase)
        and "probe" not in point.modes
        and is_full_size(point)
    ]


def point_at(evidence: Evidence, device: str, gpus: int, lbs: int, gbs: int) -> Point:
    """The pre-training with these numbers; NotTestable where it has no finished run."""
    for point in trained(evidence, device):
        if (point.gpus, point.lbs, point.gbs) == (gpus, lbs, gbs):
            return point
    raise NotTestable(
        f"No finished run of FourCastNet's pre-training on {device} with the full ERA5 at {gpus} GPUs, "
        f"LBS {lbs}, GBS {gbs}."
    )


def near(point: Point, wanted: dict[str, float], tolerance: float = SINGLE_RUN) -> Outcome:
    """Whether all quantities of a point are within a relative tolerance of the wanted values."""
    return all_of(
        [
            (
                name,
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


def full_size(line: Line) -> Line:
    """The line with its points on the paper's dataset; NotTestable where there are none."""
    points = tuple(point for point in line.points if is_full_size(point))
    if not points:
        raise NotTestable(f"{line.title}: no finished run with the full ERA5.")
    return replace(line, points=points)
