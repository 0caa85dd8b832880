"""Numbers of the paper, which have an interval of their own, beside those found."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import Outcome
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.numbers.decisions import all_of, band
from scalewatt.claims.numbers.points import all_positive, value
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    published_source,
    quantity,
    single_run,
    stated,
    text,
)
from scalewatt.results.tables.published_spread import Spread, published_spread

PUBLISHED_RUNS = {"resnet50": 5, "fourcastnet": 1}
"""How many runs a number of the paper is of, but for the probe's PROBE_RUNS."""
PROBE_RUNS = 3


def compared(check: Check, evidence: Evidence, label: str, own: Number) -> Outcome:
    """Return whether a number is the claimed one within the tolerance, by their ratio or difference."""
    target = check.target
    runs = PROBE_RUNS if check.scope == "probe" else PUBLISHED_RUNS[check.model]
    # Published points are of the same runs as the number in the text: their spread counts once.
    spread = None if evidence.published else published_spread(check.model, check.quantity)
    paper = stated(target.value, spread, published_source(check.model), runs)
    if target.is_relative:
        ratio = own / paper
        low, high = 1 - target.room, 1 + target.room
        beside = f"over the paper's {text(paper, check.unit)}: {text(ratio)}"
        expected = f"{low:g} to {high:g}"
    else:
        ratio, (low, high) = own - paper, (-target.room, target.room)
        beside = f"less the paper's {text(paper, check.unit)}: {text(ratio, check.unit)}"
        expected = f"{low:g} to {high:g}"
    shows = f"{label} is {text(own, check.unit)}, {beside}, expected {expected}"
    return band(label, ratio, low, high, check.unit, shows, own.value)


def share_of_cpu(check: Check, evidence: Evidence, line: Line, points: Sequence[Point]) -> Outcome:
    """Check whether the share of CPU energy is the paper's; if RAM is unknown with 0 and `margin` of it."""
    (point,) = points
    if point.mean(check.quantity) is not None:
        own = value(point, check.quantity)
        return compared(check, evidence, check.label(n=point.gpus), own)
    gpu, cpu = all_positive([quantity(point, f"{kind}_energy_kwh") for kind in ("gpu", "cpu")])
    ratio = math.hypot(cpu.spread / cpu.value, gpu.spread / gpu.value)
    share = cpu.value / (cpu.value + gpu.value)
    spread = Spread((1 - share) * ratio, max(round(cpu.freedom), 1))
    parts = []
    for ram in (0.0, check.most):
        own = single_run(share * (1 - ram), spread, "share", cpu.assumed, point.n_repeats)
        what = f"{check.label(n=point.gpus)}, were that of RAM {ram:.0%},"
        parts.append(("", compared(check, evidence, what, own)))
    return all_of(parts)
