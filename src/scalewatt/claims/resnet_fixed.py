"""Claims of section 3.2.2: ResNet50 on the full dataset (D03–D19, E03–E09)."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from scalewatt.claims.evidence import Evidence, Line, Point
from scalewatt.claims.lines import (
    as_in_paper,
    doublings,
    each,
    efficiency,
    known,
    numbers,
    paper_point,
    point_at,
    whole_nodes,
)
from scalewatt.claims.model import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNRESOLVED,
    NotTestable,
    Outcome,
    Unresolved,
    check,
)
from scalewatt.claims.rules import (
    Number,
    band,
    combine,
    decided,
    mean_of,
    minus,
    over,
    positive,
    quantity,
    ranked,
    repeats_needed,
    shown,
    sign,
    slope,
)
from scalewatt.claims.words import word

RESNET = ("resnet50", "train", "a100")
NEAR_OPTIMAL_TO = 32
"""GPUs; likewise where the slow rise of energy ends."""
MODEST_GBS = 8192
"""Global batch size from which large-batch effects begin."""
ONSET_TO = 32768
ONSET_PP = 2.0
CPU_FALL = (2.3 / 4, 3.3 / 4)
"""Of the CPU energy from one GPU to a whole node, over the node's GPUs."""


@check("D03")
def _near_optimal(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = [p for p in known(line, "gpu_hours") if p.gpus <= NEAR_OPTIMAL_TO]
        if len(points) < 3:
            raise Unresolved(f"{len(points)} of 3 points up to {NEAR_OPTIMAL_TO} GPUs.")
        worst = min(points[1:], key=lambda p: efficiency(points[0], p).value)
        what = f"the lowest efficiency from {points[0].gpus} to {points[-1].gpus} GPUs (n = {worst.gpus})"
        return band(what, efficiency(points[0], worst), 0.9, None)

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D04")
def _below_optimal(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "gpu_hours")
        few, many = (
            [p for p in points if (p.gpus <= NEAR_OPTIMAL_TO) is side] for side in (True, False)
        )
        if not many or len(few) < 2:
            raise NotTestable(
                f"{line.title}: needs points below, at and beyond {NEAR_OPTIMAL_TO} GPUs; there are "
                f"n = {', '.join(str(p.gpus) for p in points)}."
            )
        last = many[-1]
        falls = over(quantity(last, "gpu_hours"), quantity(few[-1], "gpu_hours"))
        return combine(
            [
                (
                    "bound",
                    band(f"efficiency at n = {last.gpus}", efficiency(few[0], last), 0.6, 0.95),
                ),
                (
                    "fall",
                    sign(f"efficiency at n = {few[-1].gpus} over n = {last.gpus}", falls, True),
                ),
            ]
        )

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D05")
def _rises_beyond_a_node(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        energies = numbers(points, "energy_kwh")
        ranks = ranked("energy with n", [p.gpus for p in points], energies, True, 0.9)
        return combine([("rank", ranks), ("steps", _no_step_back(energies))])

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


def _no_step_back(energies: list[Number]) -> Outcome:
    steps = [minus(after, before) for before, after in pairwise(energies)]
    worst = min(steps, key=lambda step: step.value + step.spread)
    return decided(
        worst.value >= -worst.spread,
        worst.value,
        f"the step furthest back is {shown(worst.value)} kWh with a standard deviation of "
        f"{shown(worst.spread)}; expected at least −1 standard deviation.",
    )


@check("D06")
def _slow_then_rapid(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        few = [p for p in points if p.gpus <= NEAR_OPTIMAL_TO]
        many = [p for p in points if p.gpus >= NEAR_OPTIMAL_TO]
        if len(few) < 2 or len(many) < 2:
            raise Unresolved(
                f"{line.title}: slopes need two points each up to and from {NEAR_OPTIMAL_TO} GPUs; "
                f"{max(0, 2 - len(few))} and {max(0, 2 - len(many))} more needed."
            )
        slow, rapid = (slope(doublings(ps), numbers(ps, "energy_kwh")) for ps in (few, many))
        return positive(
            f"slope of energy from {NEAR_OPTIMAL_TO} GPUs ({shown(rapid.value)} kWh per doubling) "
            f"less that before ({shown(slow.value)})",
            minus(rapid, slow),
            "kWh per doubling",
        )

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


def _least_at_a_node(evidence: Evidence, mode: str) -> Outcome:
    def of_line(line: Line) -> Outcome:
        whole = whole_nodes(evidence, line)
        if whole == 1:
            raise NotTestable(
                f"{line.device}: a node has one GPU, so that none of its CPUs is in excess."
            )
        points = known(line, "energy_kwh")
        node = point_at(line, whole, "energy_kwh")
        if points[0] is node or points[-1] is node:
            raise Unresolved(f"{line.title}: a point below and one above {whole} GPUs are needed.")
        least = min(points, key=lambda p: quantity(p, "energy_kwh").value)
        said = (
            f"the least energy is at {least.gpus} GPUs ({shown(least.mean('energy_kwh') or 0)} kWh)"
        )
        if least is node:
            return Outcome(REPRODUCED, float(least.gpus), f"{said}, expected at {whole}.")
        gap = minus(quantity(node, "energy_kwh"), quantity(least, "energy_kwh"))
        detail = f"{said}, expected at {whole} ({shown(node.mean('energy_kwh') or 0)} kWh)"
        if gap.value > gap.half:
            return Outcome(NOT_REPRODUCED, float(least.gpus), f"{detail}.")
        repeats = repeats_needed(gap.value, gap.spread) if gap.value else None
        needed = f"about {repeats}" if repeats else "more than 1000"
        return Outcome(
            UNRESOLVED,
            float(least.gpus),
            f"{detail}; {needed} repeats of each would tell them apart.",
        )

    return each(evidence, *RESNET, [mode], of_line)


check("D07")(partial(_least_at_a_node, mode="fd_lbs"))
check("E07")(partial(_least_at_a_node, mode="fd_gbs_s"))


def _paper_value(
    evidence: Evidence, gpus: int, name: str, value: float, tolerance: float, unit: str
) -> Outcome:
    point = paper_point(evidence, *RESNET, "fd_lbs", gpus, 256)
    what = f"{word(name)} at n = {gpus}"
    return band(what, quantity(point, name), value - tolerance, value + tolerance, unit)


for _id, _gpus, _name, _value in (
    ("D08", 1, "cpu_energy_kwh", 18.9),
    ("D09", 4, "cpu_energy_kwh", 6.7),
    ("D11", 1, "gpu_energy_kwh", 17.6),
    ("D12", 256, "gpu_energy_kwh", 20.3),
):
    check(_id)(
        partial(
            _paper_value, gpus=_gpus, name=_name, value=_value, tolerance=0.05 * _value, unit="kWh"
        )
    )
for _id, _gpus, _value in (("D13", 1, 0.49), ("D14", 4, 0.27)):
    check(_id)(
        partial(
            _paper_value, gpus=_gpus, name="cpu_energy_share", value=_value, tolerance=0.03, unit=""
        )
    )


@check("D10")
def _cpu_energy_falls(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        whole = whole_nodes(evidence, line)
        if whole == 1:
            raise NotTestable(f"{line.device}: a node has one GPU.")
        one, node = (point_at(line, n, "cpu_energy_kwh") for n in (1, whole))
        ratio = over(quantity(one, "cpu_energy_kwh"), quantity(node, "cpu_energy_kwh"))
        low, high = (bound * whole for bound in CPU_FALL)
        return band(f"CPU energy at n = 1 over n = {whole}", ratio, low, high)

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D15")
def _cpu_share_constant(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "cpu_energy_share", at_least=whole_nodes(evidence, line))
        return _range("share of CPU energy", numbers(points, "cpu_energy_share"), 0.04)

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


def _range(what: str, values: list[Number], most: float, unit: str = "") -> Outcome:
    top, bottom = (pick(values, key=lambda one: one.value) for pick in (max, min))
    return band(f"largest less smallest {what}", minus(top, bottom), None, most, unit)


def _paper_metrics(evidence: Evidence) -> list[Point]:
    """Points of constant LBS on the paper's dataset that know their top-1 error, on any device."""
    line = evidence.anywhere(*RESNET, "fd_lbs")[0]
    return [as_in_paper(p) for p in known(line, "metric_last", least=1)]


@check("D17")
def _error_constant(evidence: Evidence) -> Outcome:
    points = [p for p in _paper_metrics(evidence) if p.gbs <= MODEST_GBS]
    if len(points) < 3 or points[-1].gbs < MODEST_GBS:
        raise Unresolved(
            f"{len(points)} points up to GBS {MODEST_GBS} (GBS "
            f"{', '.join(str(p.gbs) for p in points) or 'none'}); 3 are needed, one at GBS {MODEST_GBS}."
        )
    values = numbers(points, "metric_last")
    worst = max(values, key=lambda one: abs(one.value - 28))
    return combine(
        [
            ("value", band("top-1 error furthest from 28 %", worst, 26.5, 29.5, "%")),
            ("range", _range("top-1 error", values, 1.5, "pp")),
        ]
    )


@check("D18")
def _error_at_65536(evidence: Evidence) -> Outcome:
    points = [p for p in _paper_metrics(evidence) if p.gbs == 65536]
    if not points:
        raise NotTestable("No finished run with GBS 65536 knows its top-1 error.")
    return band("top-1 error at GBS 65536", quantity(points[0], "metric_last"), 39, 45, "%")


@check("D19")
def _onset(evidence: Evidence) -> Outcome:
    points = _paper_metrics(evidence)
    if len(points) < 2:
        raise Unresolved(f"{len(points)} of the 3 points that an onset needs.")
    base = quantity(points[0], "metric_last").value
    raised = [p for p in points if quantity(p, "metric_last").value > base + ONSET_PP]
    calm = [p.gbs for p in points if not raised or p.gbs < raised[0].gbs]
    low, high = max(calm), raised[0].gbs if raised else None
    where = f"between GBS {low} and {high}" if high else f"beyond GBS {low}, if at all"
    said = (
        f"top-1 error leaves {shown(base)} % (at GBS {points[0].gbs}) by more than {ONSET_PP:g} pp "
        f"{where}; expected first at a GBS over {MODEST_GBS}, up to {ONSET_TO}"
    )
    if high and low >= MODEST_GBS and high <= ONSET_TO:
        return Outcome(REPRODUCED, float(high), f"{said}.")
    if low >= ONSET_TO or (high is not None and high <= MODEST_GBS):
        return Outcome(NOT_REPRODUCED, None if high is None else float(high), f"{said}.")
    needed = [g for g in (MODEST_GBS, 2 * MODEST_GBS, ONSET_TO) if low < g < (high or g + 1)]
    return Outcome(
        UNRESOLVED,
        None if high is None else float(high),
        f"{said}; points at GBS {', '.join(map(str, needed))} are needed.",
    )


@check("E03")
def _error_kept(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        return _range("top-1 error", numbers(known(line, "metric_last"), "metric_last"), 1.5, "pp")

    return each(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], of_line)


@check("E04")
def _large_worse(evidence: Evidence) -> Outcome:
    small, large = (evidence.anywhere(*RESNET, f"fd_gbs_{size}")[0] for size in "sl")
    means = [mean_of(numbers(known(ln, "metric_last"), "metric_last")) for ln in (large, small)]
    more = minus(*means)
    what = f"mean top-1 error of {large.title} less that of {small.title}"
    return combine(
        [("sign", positive(what, more, "pp")), ("bound", band(what, more, None, 3, "pp"))]
    )


@check("E05")
def _near_optimal_in_regimes(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "gpu_hours")
        first, last = points[0], points[-1]
        what = f"efficiency at n = {last.gpus} over that at n = {first.gpus}"
        return band(what, efficiency(first, last), 0.75, None)

    return each(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], of_line)


@check("E06")
def _large_shorter(evidence: Evidence) -> Outcome:
    small, large = (evidence.anywhere(*RESNET, f"fd_gbs_{size}")[0] for size in "sl")
    slowest = max(numbers(known(large, "runtime_h"), "runtime_h"), key=lambda one: one.value)
    fastest = min(numbers(known(small, "runtime_h"), "runtime_h"), key=lambda one: one.value)
    what = f"longest time of {large.title} over the shortest of {small.title}"
    return sign(what, over(slowest, fastest), rises=False)


@check("E09")
def _fewer_are_better(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        energies = numbers(points, "energy_kwh")
        return ranked("energy with n", [p.gpus for p in points], energies, True, 0.8)

    return each(evidence, *RESNET, ["fd_lbs", "fd_gbs_s", "fd_gbs_l"], of_line)
