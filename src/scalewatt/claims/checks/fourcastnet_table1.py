"""Claims of Table 1: its rows, those of the text beside it, and H100 against A100."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from scalewatt.claims.evidence.claim_types import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNRESOLVED,
    NotTestable,
    Outcome,
    check,
)
from scalewatt.claims.evidence.evidence import Evidence, Point, Row
from scalewatt.claims.evidence.origin_tracking import look_at
from scalewatt.claims.rules.fourcastnet_points import energies_alike, near, pretrained
from scalewatt.claims.rules.tolerance import attempt, band, combine
from scalewatt.claims.rules.uncertain_number import (
    Number,
    minus,
    needed,
    over,
    quantity,
    refuse_estimates,
    repeats_text,
    text,
)
from scalewatt.results.tables.comparisons import MARGIN, repeats_needed, same_training

_EXACT = Number(1.0, 0.0, 0.0)

ROWS: dict[str, tuple[str, int, int, int, float, float, float]] = {
    "T1": ("h100", 4, 4, 16, 115.63, 105.32, 421.26),
    "T2": ("a100", 4, 4, 16, 120.7, 139.92, 559.7),
    "T3": ("h100", 16, 1, 16, 145.31, 32.26, 516.18),
    "T4": ("a100", 16, 1, 16, 144.87, 43.28, 692.55),
    "T5": ("h100", 32, 1, 32, 174.25, 20.72, 663.13),
    "T6": ("a100", 32, 1, 32, 175.72, 28.42, 909.31),
    "H17": ("a100", 16, 4, 64, 136.0, 41.0, 651.0),
    "H18": ("a100", 64, 1, 64, 195.0, 16.0, 1034.0),
}
"""Device, GPUs, LBS, GBS, energy in kWh, run time in h, GPU hours."""

SAVED = (0.20, 0.32)
"""Part of the run time that H100 saves (claim T7)."""
HIGHER = (1.2, 1.45)
"""Energy per GPU hour of H100 over A100 (claim T9)."""


def _row(id_: str, evidence: Evidence) -> Outcome:
    device, gpus, lbs, gbs, energy, runtime, gpu_hours = ROWS[id_]
    wanted = {"energy_kwh": energy, "runtime_h": runtime, "gpu_hours": gpu_hours}
    return near(evidence, device, (gpus, lbs, gbs), wanted)


for _id in ROWS:
    check(_id)(partial(_row, _id))


@check("T7")
def run_time_saved(evidence: Evidence) -> Outcome:
    """Run time, and with it GPU hours, is 20 to 32 % lower on H100 in every pair."""
    return _each_pair(
        evidence,
        lambda h100, a100: band(
            "Run time and GPU hours saved on H100",
            minus(_EXACT, over(quantity(h100, "gpu_hours"), quantity(a100, "gpu_hours"))),
            *SAVED,
        ),
    )


@check("T8")
def same_energy(evidence: Evidence) -> Outcome:
    """Energies of a pair are equivalent within 5 %: by the table comparisons where there is one."""
    rows = [
        row
        for row in evidence.comparisons
        if row["model"] == "fourcastnet"
        and row["phase"] == "pretrain"
        and row["quantity"] == "energy_kwh"
        and {row["device"], row["baseline_device"]} == {"a100", "h100"}
    ]
    known = {p.id for device in ("a100", "h100") for p in pretrained(evidence, device)}
    rows = [row for row in rows if row["configuration"] in known and row["baseline"] in known]
    if rows:
        return combine([(f"{row['gpus']} GPUs", _compared(row)) for row in rows])
    return _each_pair(evidence, _alike)


def _compared(row: Row) -> Outcome:
    look_at(row["energy_origin"])
    ratio, low, high = row["ratio"], row["ratio_low"], row["ratio_high"]
    interval = "" if low is None else f" ({low:.3f} to {high:.3f})"
    said = (
        f"Energy of {row['device']} over {row['baseline_device']} is {ratio:.3f}{interval}, over "
        f"{row['energy_scope']}, which both have"
    )
    if row["verdict"] == "equivalent":
        return Outcome(REPRODUCED, ratio, f"{said}: equivalent within 5 %.")
    if low is not None and (low > 1 + MARGIN or high < 1 / (1 + MARGIN)):
        return Outcome(NOT_REPRODUCED, ratio, f"{said}: they differ by more than 5 %.")
    if row["verdict"] == "different":
        more = _by_how_much(Number(ratio, 0.0, math.sqrt(2) * (row["spread"] or 0.0) * ratio))
    else:
        more = repeats_text(row["repeats_needed"])
    return Outcome(UNRESOLVED, ratio, f"{said}; {more}.")


def _alike(h100: Point, a100: Point) -> Outcome:
    (own, other), scope = energies_alike([h100, a100])
    ratio = over(own, other)
    said = f"Energy of h100 over a100{scope} is {text(ratio)}"
    low, high = 1 / (1 + MARGIN), 1 + MARGIN
    if low < ratio.low and ratio.high < high:
        return Outcome(REPRODUCED, ratio.value, f"{said}: within 5 %.")
    if ratio.low > high or ratio.high < low:
        return Outcome(NOT_REPRODUCED, ratio.value, f"{said}: they differ by more than 5 %.")
    if ratio.low > 1 or ratio.high < 1:
        return Outcome(UNRESOLVED, ratio.value, f"{said}; {_by_how_much(ratio)}.")
    repeats = repeats_needed(ratio.spread / ratio.value / math.sqrt(2), MARGIN, ratio.value)
    if repeats is not None:
        repeats = max(repeats, min(h100.n_repeats, a100.n_repeats) + 1)
    return Outcome(UNRESOLVED, ratio.value, f"{said}; {repeats_text(repeats)}.")


def _by_how_much(ratio: Number) -> str:
    """How many repeats would tell a ratio that is not 1 from the margin: the table counts others."""
    distance = min(abs(ratio.value - end) for end in (1 / (1 + MARGIN), 1 + MARGIN))
    return f"they differ; whether by more than 5 %, {needed(ratio, distance)}"


@check("T9")
def higher_power(evidence: Evidence) -> Outcome:
    """Energy per GPU hour is 1.2 to 1.45 times as high on H100, over the devices that both measured."""

    def compare(h100: Point, a100: Point) -> Outcome:
        refuse_estimates([h100, a100])
        energies, scope = energies_alike([h100, a100])
        # The spread of the hours is in that of the energies.
        hours = [Number(quantity(p, "gpu_hours").value, 0.0, 0.0) for p in (h100, a100)]
        own, other = (over(*both) for both in zip(energies, hours, strict=True))
        return band(f"Energy per GPU hour of h100 over a100{scope}", over(own, other), *HIGHER)

    return _each_pair(evidence, compare)


def _each_pair(evidence: Evidence, compare: Callable[[Point, Point], Outcome]) -> Outcome:
    """Combine a comparison of every pre-training that has results on both devices."""
    pairs = [
        (h100, a100)
        for h100 in pretrained(evidence, "h100")
        for a100 in pretrained(evidence, "a100")
        if same_training(dict(h100.row)) == same_training(dict(a100.row))
    ]
    if not pairs:
        raise NotTestable(
            "No pre-training as in the paper has finished with the same GPUs, LBS, GBS and settings on both "
            "a100 and h100."
        )
    return combine(
        [
            attempt(f"{h100.gpus} GPUs, LBS {h100.lbs}, GBS {h100.gbs}", compare, h100, a100)
            for h100, a100 in sorted(pairs, key=lambda pair: pair[0].gpus)
        ]
    )
