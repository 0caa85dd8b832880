"""Claims of Table 1: its rows, and H100 against A100."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scalewatt.claims.evidence import Evidence, Point, Row
from scalewatt.claims.fourcastnet_points import near, point_at, trained
from scalewatt.claims.model import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNRESOLVED,
    NotTestable,
    Outcome,
    check,
)
from scalewatt.claims.rules import Number, band, combine, minus, over, quantity, text
from scalewatt.results.comparisons import MARGIN, PUBLISHED_SPREAD, repeats_needed

_EXACT = Number(1.0, 0.0, 0.0)

ROWS: dict[str, tuple[str, int, int, int, float, float, float]] = {
    "T1": ("h100", 4, 4, 16, 115.63, 105.32, 421.26),
    "T2": ("a100", 4, 4, 16, 120.7, 139.92, 559.7),
    "T3": ("h100", 16, 1, 16, 145.31, 32.26, 516.18),
    "T4": ("a100", 16, 1, 16, 144.87, 43.28, 692.55),
    "T5": ("h100", 32, 1, 32, 174.25, 20.72, 663.13),
    "T6": ("a100", 32, 1, 32, 175.72, 28.42, 909.31),
}
"""Device, GPUs, LBS, GBS, energy in kWh, run time in h, GPU hours."""


def _row(id_: str, evidence: Evidence) -> Outcome:
    device, gpus, lbs, gbs, energy, runtime, gpu_hours = ROWS[id_]
    wanted = {"energy_kwh": energy, "runtime_h": runtime, "gpu_hours": gpu_hours}
    return near(point_at(evidence, device, gpus, lbs, gbs), wanted)


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
            0.20,
            0.32,
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
    known = {point.id for point in [*trained(evidence, "a100"), *trained(evidence, "h100")]}
    rows = [row for row in rows if row["configuration"] in known and row["baseline"] in known]
    if rows:
        return combine([(f"{row['gpus']} GPUs", _compared(row)) for row in rows])
    return _each_pair(evidence, _alike)


def _compared(row: Row) -> Outcome:
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
    return Outcome(UNRESOLVED, ratio, f"{said}; {_repeats(row['repeats_needed'])}.")


def _alike(h100: Point, a100: Point) -> Outcome:
    ratio = over(quantity(h100, "energy_kwh"), quantity(a100, "energy_kwh"))
    scopes = (
        ""
        if h100.scope == a100.scope
        else f", of unequal scope ({h100.scope}; {a100.scope}): parts are not known"
    )
    said = f"Energy of h100 over a100 is {text(ratio)}{scopes}"
    low, high = 1 / (1 + MARGIN), 1 + MARGIN
    if low < ratio.low and ratio.high < high:
        return Outcome(REPRODUCED, ratio.value, f"{said}: within 5 %.")
    if ratio.low > high or ratio.high < low:
        return Outcome(NOT_REPRODUCED, ratio.value, f"{said}: they differ by more than 5 %.")
    needed = repeats_needed(PUBLISHED_SPREAD, MARGIN)
    return Outcome(UNRESOLVED, ratio.value, f"{said}; {_repeats(needed)}.")


def _repeats(needed: int | None) -> str:
    count = "more than a thousand" if needed is None else str(needed)
    return f"an equivalence test within 5 % needs {count} repeats on each device"


@check("T9")
def higher_power(evidence: Evidence) -> Outcome:
    """Energy per GPU hour is 1.2 to 1.45 times as high on H100, whose memory is not even counted."""

    def compare(h100: Point, a100: Point) -> Outcome:
        ratio = over(quantity(h100, "p_gpuh_kw"), quantity(a100, "p_gpuh_kw"))
        return band("Energy per GPU hour of h100 over a100", ratio, 1.2, 1.45)

    return _each_pair(evidence, compare)


def _each_pair(evidence: Evidence, compare: Callable[[Point, Point], Outcome]) -> Outcome:
    """Combine a comparison of every pre-training that has results on both devices."""
    others = {_key(point): point for point in trained(evidence, "a100")}
    pairs = [
        (point, others[_key(point)]) for point in trained(evidence, "h100") if _key(point) in others
    ]
    if not pairs:
        raise NotTestable(
            "No pre-training with the full ERA5 has finished with the same GPUs, LBS, GBS and origin of "
            "energy on both a100 and h100."
        )
    return combine(
        [
            (f"{h100.gpus} GPUs, LBS {h100.lbs}, GBS {h100.gbs}", compare(h100, a100))
            for h100, a100 in sorted(pairs, key=lambda pair: pair[0].gpus)
        ]
    )


def _key(point: Point) -> tuple[object, ...]:
    kept = ("gpus", "local_batch_size", "global_batch_size", "epochs", "protocol", "precision")
    return (*(point.row[name] for name in (*kept, "loader", "energy_origin")),)
