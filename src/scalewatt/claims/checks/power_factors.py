"""Claims on energy per GPU hour P and what it is made of: intervals, parts, the share of RAM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scalewatt.claims.evidence.claim_types import NotTestable, Outcome, check
from scalewatt.claims.evidence.evidence import PAPER_DEVICES, Evidence, Point, Row, unlike_paper
from scalewatt.claims.evidence.origin_tracking import look_at
from scalewatt.claims.rules.fourcastnet_points import PROBE_EPOCHS
from scalewatt.claims.rules.power_rules import BOUNDS, all_within
from scalewatt.claims.rules.series_queries import like, with_ram
from scalewatt.claims.rules.tolerance import attempt, combine, decided, positive
from scalewatt.claims.rules.uncertain_number import Number, mean_of, minus, quantity, shown
from scalewatt.results.tables.published import SOCKETS_PER_NODE as SOCKETS

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
K06_RAM_SHARE = 0.045
"""0.04 as claimed, with its tolerance (claim K06)."""
IDENTITY = 0.01


def _of_points(id_: str, evidence: Evidence) -> Outcome:
    model, device, low, high, least = POINTS[id_]
    points = _known(evidence.points, model, device)
    counted = [point for point in points if point.gpus >= least]
    if not counted:
        raise NotTestable(_nothing(evidence, model, device, least))
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
        points = [p for p in _known(line.points, model, device) if p.gpus >= least]
        if points:
            means = [quantity(point, "p_gpuh_kw") for point in points]
            numbers.append((f"Mean P of {line.title}", mean_of(means)))
    if not numbers:
        raise NotTestable(_nothing(evidence, model, device, least))
    return all_within(
        "Mean P of series", numbers, low * (1 - BOUNDS), high * (1 + BOUNDS), "kWh/GPUh"
    )


for _id in POINTS:
    check(_id)(partial(_of_points, _id))
for _id in MEANS:
    check(_id)(partial(_of_means, _id))


def _known(points: Sequence[Point], model: str, device: str) -> list[Point]:
    """Trainings as in the paper, the probe among them, with a known P."""
    return [
        point
        for point in points
        if (point.model, point.device) == (model, device)
        and not _unlike(point)
        and point.mean("p_gpuh_kw") is not None
    ]


def _unlike(point: Point) -> tuple[str, ...]:
    return unlike_paper(point, PROBE_EPOCHS if "probe" in point.modes else None)


def _nothing(evidence: Evidence, model: str, device: str, least: int) -> str:
    at = f" at {least} GPUs or more" if least > 1 else ""
    there = [p for p in evidence.points if (p.model, p.device) == (model, device) and _unlike(p)]
    other = f": {there[0].id} has {', '.join(_unlike(there[0]))}" if there else ""
    return f"No finished run of {model} on {device}{at} as in the paper with a known energy{other}."


@check("K06")
def little_ram(evidence: Evidence) -> Outcome:
    """RAM's share of the energy is below 4 % (and 0.5 points of tolerance) from 4 GPUs on."""
    counted = with_ram(evidence, 4)
    shares = [(f"share of {point.id}", quantity(point, "ram_energy_share")) for point in counted]
    return all_within("Share of RAM, points", shares, 0.0, K06_RAM_SHARE)


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

    def compare(points: Sequence[Point]) -> Outcome:
        like(points)
        gpu, cpu = (_range([quantity(point, name) for point in points]) for name in names)
        what = f"Range of GPU power ({shown(gpu.value)} W) less that of CPU socket power"
        return positive(what, minus(gpu, cpu), "W")

    return combine([attempt(group, compare, points) for group, points in ready.items()])


def _range(numbers: list[Number]) -> Number:
    ordered = sorted(numbers, key=lambda one: one.value)
    return minus(ordered[-1], ordered[0])


@check("K04")
def sum_of_powers(evidence: Evidence) -> Outcome:
    """Energy per GPU hour is the sum of the mean powers, each by its devices per GPU, within 1 %.

    How many sockets a node has is known of the paper's devices alone: elsewhere CPUs are left out of both.
    """
    worst, where, counted, without = 0.0, "", 0, 0
    for run in evidence.runs:
        kinds = (run["energy_scope"] or "").split("+")
        compared = [kind for kind in kinds if kind != "cpu" or run["device"] in PAPER_DEVICES]
        own, total = _power_w(run, compared, kinds), _sum_of_powers(run, compared)
        if own and total:
            look_at(run["energy_origin"])
            counted += 1
            without += compared != kinds
            if abs(total / own - 1) >= abs(worst):
                worst, where = total / own - 1, f"{run['configuration']}/{run['repeat']}"
    if not counted:
        raise NotTestable(
            "No run has energy per GPU hour and mean powers of all its device kinds (CPUs count on a100 "
            "and h100, whose sockets are known)."
        )
    left = f" CPUs are left out in {without}: sockets are not known." if without else ""
    return decided(
        abs(worst) <= IDENTITY,
        worst,
        f"The mean powers of a GPU and its part of CPU and RAM add up to P within {worst:+.2%} at "
        f"most ({where}; {counted} runs), expected 1 %.{left}",
    )


def _power_w(run: Row, compared: Sequence[str], kinds: Sequence[str]) -> float | None:
    """Energy of the compared device kinds per GPU hour in W; null where it is unknown."""
    if list(compared) == list(kinds):
        return None if run["p_gpuh_kw"] is None else 1000 * float(run["p_gpuh_kw"])
    parts = [run[f"{kind}_energy_kwh"] for kind in compared]
    known = bool(parts) and None not in parts and run["gpu_hours"]
    return 1000 * sum(parts) / run["gpu_hours"] if known else None


def _sum_of_powers(run: Row, compared: Sequence[str]) -> float | None:
    """W per GPU, from the mean power of each compared device kind; null where one is unknown."""
    if not run["nodes"]:
        return None
    nodes_per_gpu = run["nodes"] / run["gpus"]
    devices = {
        "gpu": ("mean_gpu_power_w", 1.0),
        "cpu": ("mean_cpu_socket_power_w", SOCKETS * nodes_per_gpu),
        "ram": ("mean_ram_power_w", nodes_per_gpu),
    }
    powers = [(run[name], per_gpu) for name, per_gpu in (devices[kind] for kind in compared)]
    return None if any(w is None for w, _ in powers) else sum(w * each for w, each in powers)


def counted_sockets(run: Row) -> int | None:
    """CPU sockets in a run's CPU energy, per node: that over mean power of a socket and run time."""
    energy, power, hours = (
        run["cpu_energy_kwh"],
        run["mean_cpu_socket_power_w"],
        run["runtime_h"],
    )
    if not energy or not power or not hours or not run["nodes"]:
        return None
    look_at(run["energy_origin"])
    return max(1, round(1000 * energy / (power * hours * run["nodes"])))
