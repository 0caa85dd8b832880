"""Rules that compare trainings on two devices, and with and without loading."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence, Point, unlike_paper
from scalewatt.claims.numbers.decisions import (
    MINIMUM_POINTS,
    all_of,
    attempt,
    band,
    bounds_text,
    combine,
    enough,
    sign,
)
from scalewatt.claims.numbers.points import (
    MODEL,
    energies_alike,
    in_paper,
    like,
    pretrainings,
    values,
)
from scalewatt.claims.numbers.trends import straight
from scalewatt.claims.numbers.uncertain_number import (
    ends_text,
    mean_of,
    quantity,
    refuse_estimates,
    shown,
    text,
)
from scalewatt.claims.rules.regime_rules import energy_slope, known_energies
from scalewatt.results.tables.comparisons import same_training
from scalewatt.results.text.number_format import count

P = "p_gpuh_kw"


def _steeper_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energy is linear in GPU hours at constant GBS, and steeper on H100.

    Where no series of a device has three points, all its trainings with a GBS that is constant in a series
    of either device are one: so those of Table 1 count on both. The slopes are of the energy of the
    device kinds that both measured, where these are known apart.
    """
    lines = evidence.series(MODEL, "pretrain", None, "fd_gbs", least=1)
    sizes = {line.constant for line in lines if line.device in ("h100", "a100")}
    groups = {device: _groups(evidence, device, sizes) for device in ("h100", "a100")}
    parts = [
        (
            "",
            straight(
                f"{name}, energy (kWh) against GPU hours",
                values(points, "gpu_hours"),
                values(points, "energy_kwh"),
                check.most,
                [point.gpus for point in points],
            ),
        )
        for of_device in groups.values()
        for name, points in of_device.items()
    ]
    every = {p.id: p for own in groups.values() for points in own.values() for p in points}
    refuse_estimates(list(every.values()))
    energies, scope = energies_alike(list(every.values()))
    of_id = dict(zip(every, energies, strict=True))
    slopes = {
        device: mean_of([energy_slope(name, points, of_id) for name, points in of_device.items()])
        for device, of_device in groups.items()
    }
    ratio = slopes["h100"] / slopes["a100"]
    steeper = sign(f"Slope of h100 over a100{scope}", ratio, check.rises)
    return all_of([("", steeper), *parts])


def _groups(
    evidence: Evidence, device: str, sizes: Container[int | None]
) -> dict[str, Sequence[Point]]:
    """Return points with energy of each series at constant GBS that has three, else all with these GBS."""
    found = evidence.series(MODEL, "pretrain", device, "fd_gbs", least=1)
    if not found:
        raise NotTestable(f"No finished pre-training at constant GBS on {device}.")
    own = [line for line in found if not all(map(unlike_paper, line.points))] or found
    lines = {line.title: known_energies(in_paper(line).points) for line in own}
    groups = {title: points for title, points in lines.items() if len(points) >= MINIMUM_POINTS}
    if not groups:
        alike = [p for p in _as_paper(evidence, device) if p.gbs in sizes]
        together = sorted(known_energies(alike), key=lambda p: p.gpus)
        listed = ", ".join(f"{p.gpus}/{p.gbs}" for p in together)
        groups = {f"{device}, GPUs/GBS {listed}" if listed else device: together}
    for name, points in groups.items():
        enough(points, f"{name}, energy against GPU hours")
        like(points)
    return groups


def _each_pair(evidence: Evidence, compare: Callable[[Point, Point], Outcome]) -> Outcome:
    """Combine a comparison of every pre-training that has results on both devices."""
    pairs = [
        (h100, a100)
        for h100 in _as_paper(evidence, "h100")
        for a100 in _as_paper(evidence, "a100")
        if same_training(dict(h100.row)) == same_training(dict(a100.row))
    ]
    if not pairs:
        raise NotTestable(
            "No pre-training as in the paper has finished with the same GPUs, LBS, GBS and settings on both "
            "a100 and h100."
        )
    return combine(
        attempt(f"{count(h100.gpus, 'GPU')}, LBS {h100.lbs}, GBS {h100.gbs}", compare, h100, a100)
        for h100, a100 in sorted(pairs, key=lambda pair: pair[0].gpus)
    )


def _as_paper(evidence: Evidence, device: str) -> list[Point]:
    return [point for point in pretrainings(evidence, device) if not unlike_paper(point)]


def _saved_on_h100(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the part of the GPU hours that H100 saves is within the bounds in every pair.

    Decided is what is left, a ratio, on logarithms.
    """
    least, most = check.low, check.high

    def compare(h100: Point, a100: Point) -> Outcome:
        left = quantity(h100, check.quantity) / quantity(a100, check.quantity)
        saved, low, high = (1 - one for one in (left.value, left.high, left.low))
        between = f" {ends_text(left, shown(low), shown(high))}" if left.error else ""
        bounds = bounds_text(least, most, check.unit)
        shows = f"{check.text} is {shown(saved)}{between}, expected {bounds}"
        return band(check.text, left, 1 - most, 1 - least, shows=shows, value=saved)

    return _each_pair(evidence, compare)


def _higher_power(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the energy per GPU hour on H100 over A100 is within the bounds in every pair."""

    def compare(h100: Point, a100: Point) -> Outcome:
        refuse_estimates([h100, a100])
        energies, scope = energies_alike([h100, a100])
        # The spread is that of P, in which energy and time of a run go together.
        own, other = (
            quantity(point, P) * (energy / quantity(point, "energy_kwh")).value
            for energy, point in zip(energies, (h100, a100), strict=True)
        )
        return sign(f"{check.text}{scope}", own / other, check.rises)

    return _each_pair(evidence, compare)


def _equivalent(evidence: Evidence, check: Check) -> Outcome:
    """Check whether energies of each pair are equivalent: the interval of their ratio within `high`.

    That the numbers found differ by less, as the sentence says, is told beside.
    """

    def compare(h100: Point, a100: Point) -> Outcome:
        (own, other), scope = energies_alike([h100, a100])
        ratio = own / other
        low, high = 1 / (1 + check.high), 1 + check.high
        less = "less" if low < ratio.value < high else "more"
        shows = (
            f"Energy of h100 over a100{scope} is {text(ratio)}: the numbers themselves differ by {less} than "
            f"{check.high:.0%}; of equivalent devices the interval is within {low:.3f} to {high:.3f}"
        )
        return band(check.text, ratio, low, high, shows=shows)

    return _each_pair(evidence, compare)


# --- loading ------------------------------------------------------------------------------------


def _without_loading(evidence: Evidence, check: Check) -> Outcome:
    """Check whether without loading (`loader: synthetic`) GPUs draw more power and the run takes less energy.

    The claimed share of low-power time is in no table.
    """
    twins = [
        (real, twin)
        for twin in evidence.points
        if twin.row["loader"] == "synthetic"
        for real in evidence.points
        if real.row["loader"] not in (None, "synthetic") and _setting(real) == _setting(twin)
    ]
    if not twins:
        raise NotTestable(
            "No configuration has finished runs both with and without loading (loader synthetic): "
            "campaigns/variants.yaml asks for them."
        )
    return combine(attempt(real.id, _of_twins, real, twin) for real, twin in twins)


def _of_twins(real: Point, twin: Point) -> Outcome:
    share = real.mean("step_data_share")
    waits = (
        ""
        if share is None
        else f" With loading the device waits for data for {share:.0%} of a step."
    )
    power, energy = (
        quantity(twin, name) / quantity(real, name) for name in ("mean_gpu_power_w", "energy_kwh")
    )
    found = all_of(
        [
            ("", sign("GPU power without loading over that with", power, rises=True)),
            ("", sign("Energy without loading over that with", energy, rises=False)),
        ]
    )
    return replace(found, detail=found.detail + waits)


def _setting(point: Point) -> tuple[object, ...]:
    """Return what two trainings share that differ in loading alone."""
    row = {**point.row, "loader": None}
    row["configuration"] = re.sub(r"-loader(?!_)[\w.]+", "", str(row["configuration"]))
    return (*same_training(row), point.device, point.origin, point.scope)


DEVICE_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "energy_equivalent_on_h100": _equivalent,
    "power_higher_on_h100": _higher_power,
    "saved_on_h100": _saved_on_h100,
    "steeper_on_h100": _steeper_on_h100,
    "without_loading": _without_loading,
}
"""The rules by the name that the table calls them."""
