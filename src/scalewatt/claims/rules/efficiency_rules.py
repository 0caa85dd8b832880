"""Rules on the efficiency of a series: GPU hours at its fewest GPUs over those at more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scalewatt.claims.evidence.check_table import SPLIT, Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.numbers.decisions import all_of, band, in_one, sign
from scalewatt.claims.numbers.points import efficiency
from scalewatt.claims.numbers.uncertain_number import quantity, text


def lowest_efficiency(
    check: Check, evidence: Evidence, line: Line, points: Sequence[Point]
) -> Outcome:
    """Check whether the efficiency is within the bounds at every point up to SPLIT GPUs.

    Told are the one that decides, and the lowest. The lowest alone would be tested as if it were no choice.
    """
    points = [point for point in points if point.gpus <= SPLIT]
    if len(points) < check.least:
        raise NotTestable(f"{len(points)} of {check.least} points up to {SPLIT} GPUs.")
    first, *others = points
    found = {point.gpus: efficiency(first, point) for point in others}
    lowest, *rest = sorted(found, key=lambda n: found[n].value)
    parts = [
        ("", band(check.label(first=first.gpus, n=n), found[n], *check.bounds))
        for n in (lowest, *rest)
    ]
    told = in_one(parts)
    least = f" The lowest of {len(parts)} is {text(found[lowest])} at n = {lowest}."
    return told if told.detail == parts[0][1].detail else replace(told, detail=told.detail + least)


def after_quadrupling(
    check: Check, evidence: Evidence, line: Line, points: Sequence[Point]
) -> Outcome:
    """Check the efficiency after quadrupling the fewest GPUs of the series."""
    first = line.planned[0]
    there = {point.gpus: point for point in points}
    if missing := [n for n in (first, 4 * first) if n not in there]:
        lacking = " and ".join(map(str, missing))
        raise NotTestable(
            f"The sentence is about going from {first} to {4 * first} GPUs; no run time is known with "
            f"{lacking}."
        )
    what = f"Efficiency from {first} to {4 * first} GPUs"
    return band(what, efficiency(there[first], there[4 * first]), *check.bounds)


def falls_beyond(check: Check, evidence: Evidence, line: Line, points: Sequence[Point]) -> Outcome:
    """Check whether the efficiency falls beyond SPLIT GPUs, and is within the bounds at the last point."""
    few = [point for point in points if point.gpus <= SPLIT]
    many = [point for point in points if point.gpus > SPLIT]
    if not many or len(few) < 2:
        raise NotTestable(
            f"{line.title}: two points up to {SPLIT} GPUs and one beyond are compared; there are n = "
            f"{', '.join(str(p.gpus) for p in points)}; {max(0, 2 - len(few)) + (not many)} more needed."
        )
    last = many[-1]
    falls = quantity(last, "gpu_hours") / quantity(few[-1], "gpu_hours")
    what = f"efficiency at n = {last.gpus}"
    beside = f"efficiency at n = {few[-1].gpus} over n = {last.gpus}"
    return all_of(
        [
            ("bound", band(what, efficiency(few[0], last), *check.bounds)),
            ("fall", sign(beside, falls, True)),
        ]
    )
