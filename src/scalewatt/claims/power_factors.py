"""Claims on energy per GPU hour P and what it is made of: intervals, parts, the share of memory."""

from __future__ import annotations

from functools import partial

from scalewatt.claims.evidence import PAPER_DEVICES, Evidence, Point, Row, is_full_size
from scalewatt.claims.lines import like
from scalewatt.claims.model import NotTestable, Outcome, check
from scalewatt.claims.power_rules import BOUNDS, all_within
from scalewatt.claims.rules import (
    Number,
    combine,
    decided,
    mean_of,
    minus,
    positive,
    quantity,
    shown,
)

SOCKETS = 2
"""CPU sockets of a node of the paper's devices."""
POINTS = {
    "K01": ("fourcastnet", "a100", 0.18, 0.24, 1),
    "K02": ("fourcastnet", "h100", 0.26, 0.28, 1),
    "K03": ("resnet50", "a100", 0.26, 0.32, 4),
}
"""Model, device, interval of P of all points in kW, smallest n."""
MEANS = {
    "L01": ("resnet50", "a100", 0.27, 0.31, 4),
    "L02": ("fourcastnet", "a100", 0.18, 0.23, 1),
    "L03": ("fourcastnet", "h100", 0.26, 0.28, 1),
}
"""The same of the means of series."""
MEMORY_SHARE = 0.045
"""0.04 as claimed, with its tolerance (claim K06)."""
IDENTITY = 0.01


def _of_points(id_: str, evidence: Evidence) -> Outcome:
    model, device, low, high, least = POINTS[id_]
    points = [point for point in evidence.points if _counts(point, model, device)]
    counted = [point for point in points if point.gpus >= least]
    if not counted:
        raise NotTestable(_nothing(model, device, least))
    numbers = [(f"P of {point.id}", quantity(point, "p_gpuh_kw")) for point in counted]
    found = all_within("P of points", numbers, low * (1 - BOUNDS), high * (1 + BOUNDS), "kW")
    below = [p for p in points if p.gpus < least]
    named = ", ".join(f"n = {p.gpus}: {shown(p.mean('p_gpuh_kw') or 0.0)}" for p in below)
    rest = f" Left out, below n = {least}, in kW: {named}." if below else ""
    return Outcome(found.verdict, found.value, found.detail + rest)


def _of_means(id_: str, evidence: Evidence) -> Outcome:
    model, device, low, high, least = MEANS[id_]
    numbers = []
    for line in evidence.find(model, None, device):
        points = [p for p in line.points if _counts(p, model, device) and p.gpus >= least]
        if points:
            means = [quantity(point, "p_gpuh_kw") for point in points]
            numbers.append((f"Mean P of {line.title}", mean_of(means)))
    if not numbers:
        raise NotTestable(_nothing(model, device, least))
    return all_within(
        "Mean P of series", numbers, low * (1 - BOUNDS), high * (1 + BOUNDS), "kWh/GPUh"
    )


for _id in POINTS:
    check(_id)(partial(_of_points, _id))
for _id in MEANS:
    check(_id)(partial(_of_means, _id))


def _counts(point: Point, model: str, device: str) -> bool:
    return (
        point.model == model
        and point.device == device
        and is_full_size(point)
        and point.mean("p_gpuh_kw") is not None
    )


def _nothing(model: str, device: str, least: int) -> str:
    at = f" at {least} GPUs or more" if least > 1 else ""
    return (
        f"No finished run of {model} on {device}{at} with the paper's dataset and a known energy."
    )


@check("K06")
def little_memory(evidence: Evidence) -> Outcome:
    """The memory's share of the energy is below 4 % (and 0.5 points of tolerance) from 4 GPUs on."""
    counted = [
        point
        for point in evidence.points
        if point.gpus >= 4 and point.mean("ram_energy_share") is not None
    ]
    if not counted:
        raise NotTestable(
            "No finished run at 4 GPUs or more has energy of memory (it needs the sensor of an Intel CPU)."
        )
    shares = [(f"share of {point.id}", quantity(point, "ram_energy_share")) for point in counted]
    return all_within("Share of memory, points", shares, 0.0, MEMORY_SHARE)


@check("K05")
def gpu_varies_more(evidence: Evidence) -> Outcome:
    """The range of mean GPU power is above that of mean CPU socket power, by model and device."""
    names = ("mean_gpu_power_w", "mean_cpu_socket_power_w")
    groups: dict[str, list[Point]] = {}
    for point in evidence.points:
        if all(point.mean(name) is not None for name in names):
            groups.setdefault(f"{point.model} {point.device}", []).append(point)
    ready = {name: points for name, points in groups.items() if len(points) >= 2}
    if not ready:
        raise NotTestable(
            "No two configurations of a model and device have power of both GPU and CPU."
        )
    parts = []
    for group, points in ready.items():
        like(points)
        gpu, cpu = (_range([quantity(point, name) for point in points]) for name in names)
        what = f"Range of GPU power ({shown(gpu.value)} W) less that of CPU socket power"
        parts.append((group, positive(what, minus(gpu, cpu), "W")))
    return combine(parts)


def _range(numbers: list[Number]) -> Number:
    ordered = sorted(numbers, key=lambda one: one.value)
    return minus(ordered[-1], ordered[0])


@check("K04")
def sum_of_powers(evidence: Evidence) -> Outcome:
    """Energy per GPU hour is the sum of the mean powers, each by its devices per GPU, within 1 %."""
    worst, where, counted = 0.0, "", 0
    for run in evidence.runs:
        total = _sum_of_powers(run)
        if total is not None:
            off = total / (1000 * run["p_gpuh_kw"]) - 1
            counted += 1
            if abs(off) >= abs(worst):
                worst, where = off, f"{run['configuration']}/{run['repeat']}"
    if not counted:
        raise NotTestable("No run has energy per GPU hour and mean powers of all its device kinds.")
    return decided(
        abs(worst) <= IDENTITY,
        worst,
        f"The mean powers of a GPU and its part of CPU and memory add up to P within {worst:+.2%} at "
        f"most ({where}; {counted} runs), expected 1 %.",
    )


def _sum_of_powers(run: Row) -> float | None:
    """W per GPU, from the mean power of each device kind in scope; null where one is unknown."""
    if not run["p_gpuh_kw"] or not run["energy_scope"]:
        return None
    kinds = run["energy_scope"].split("+")
    nodes_per_gpu = run["nodes"] / run["gpus"]
    total = 0.0
    for kind, name, per_gpu in (
        ("gpu", "mean_gpu_power_w", 1.0),
        ("cpu", "mean_cpu_socket_power_w", nodes_per_gpu),
        ("ram", "mean_ram_power_w", nodes_per_gpu),
    ):
        if kind in kinds:
            sockets = sockets_per_node(run) if kind == "cpu" else 1
            if run[name] is None or sockets is None:
                return None
            total += run[name] * per_gpu * sockets
    return total


def sockets_per_node(run: Row) -> int | None:
    """CPU sockets counted on each node: known of the paper's devices, else from energy and power.

    Null where the run has no CPU energy.
    """
    if run["device"] in PAPER_DEVICES:
        return SOCKETS
    return counted_sockets(run)


def counted_sockets(run: Row) -> int | None:
    """CPU sockets in a run's CPU energy, per node: that over mean power of a socket and run time."""
    energy, power, hours = (
        run["cpu_energy_kwh"],
        run["mean_cpu_socket_power_w"],
        run["runtime_h"],
    )
    if not energy or not power or not hours or not run["nodes"]:
        return None
    return max(1, round(1000 * energy / (power * hours * run["nodes"])))
