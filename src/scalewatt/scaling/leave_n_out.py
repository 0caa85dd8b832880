"""Predict each number of GPUs of a campaign from its others, by a scaling model that has not seen it.

Every point at one n is left out, the model is calibrated on the rest with newly selected terms, and its
prediction is told beside what was found, with simple rules of energy at a known time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewatt.recordings.series import J_PER_KWH
from scalewatt.scaling.model.calibrate import calibrate_kind
from scalewatt.scaling.model.calibration_points import by_kind, points_of
from scalewatt.scaling.model.cross_validate import HeldOut, held_out
from scalewatt.scaling.model.kind_model import Point
from scalewatt.scaling.model.scores import ENERGY, ENERGY_AT_TIME, TIME

LEFT_OUT = "n left out"
LEAST = 2
"""Points that the rest must have."""
QUANTITIES = {
    TIME: ("run time", 3600.0, "h"),
    ENERGY: ("energy", J_PER_KWH, "kWh"),
    ENERGY_AT_TIME: ("energy at its known time", J_PER_KWH, "kWh"),
}


@dataclass(frozen=True)
class LeftOut:
    """What leaving each n out found of one kind of training; `lack` says why nothing could be."""

    kind: str
    scope: str
    found: tuple[HeldOut, ...]
    lack: str = ""


def leave_n_out(sources: Sequence[Path]) -> list[LeftOut]:
    """Return predictions of each n by the others, by kind of training; InputError as of `points_of`."""
    kinds = by_kind(point for source in sources for point in points_of(source))
    return [_of_kind(points) for points in kinds.values()]


def _of_kind(points: Sequence[Point]) -> LeftOut:
    kind, scope = points[0].kind, next((p.scope for p in points if p.scope), None) or "none"
    found: list[HeldOut] = []
    counts = sorted({point.load.gpus for point in points})
    for n in counts:
        rest = [point for point in points if point.load.gpus != n]
        if len(rest) >= LEAST:
            model = calibrate_kind(kind, rest, few=True)
            for point in points:
                if point.load.gpus == n:
                    found += held_out(LEFT_OUT, f"n = {n}", model, point)
    lack = (
        "" if found else f"n = {', '.join(map(str, counts))}: {LEAST} points of other n are needed"
    )
    return LeftOut(kind.name, scope, tuple(found), lack)


def leave_n_out_text(found: Iterable[LeftOut]) -> str:
    """Return the predictions as text, with how often intervals hold what was found."""
    lines: list[str] = []
    every: list[HeldOut] = []
    for one in found:
        lines += [f"{one.kind} (energy of scope {one.scope})", *map(_line, one.found)]
        lines += [f"  nothing to leave out: {one.lack}"] if one.lack else []
        every += one.found
    lines += ["", *(_coverage(quantity, every) for quantity in QUANTITIES)] if every else []
    return "\n".join(lines)


def _line(one: HeldOut) -> str:
    name, unit, symbol = QUANTITIES[one.quantity]
    low, middle, high, found = (
        value / unit
        for value in (one.predicted.low, one.predicted.median, one.predicted.high, one.value)
    )
    holds = "holds" if one.predicted.holds(one.value) else "does NOT hold"
    rules = ", ".join(
        f"{rule} {value / one.value - 1:+.0%}" for rule, value in one.baselines.items()
    )
    beside = f"; simple rules: {rules}" if rules else ""
    return (
        f"  n = {one.gpus}, from the others: {name} {middle:.3g} {symbol} ({low:.3g} to {high:.3g}), found "
        f"{found:.3g}: {one.error:+.1%}, the interval {holds}{beside}"
    )


def _coverage(quantity: str, every: Sequence[HeldOut]) -> str:
    own = [one for one in every if one.quantity == quantity]
    if not own:
        return f"{QUANTITIES[quantity][0]}: not known"
    held = sum(one.predicted.holds(one.value) for one in own)
    errors = sorted(abs(one.error) for one in own)
    return (
        f"{QUANTITIES[quantity][0]}: {held} of {len(own)} nominal 90 % intervals hold; mean error "
        f"{sum(errors) / len(errors):.1%}, largest {errors[-1]:.1%}"
    )
