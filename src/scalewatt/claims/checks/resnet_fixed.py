"""Claims of section 3.2.2: ResNet50 on the full dataset (D03–D19, E03–E09)."""

from __future__ import annotations

from functools import partial

from scalewatt.claims.evidence.claim_types import NotTestable, Outcome, Unresolved, check
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.rules.quantity_labels import word
from scalewatt.claims.rules.series_queries import (
    as_in_paper,
    doublings,
    each,
    efficiency,
    known,
    numbers,
    paper_point,
    points_at,
    together,
    whole_nodes,
)
from scalewatt.claims.rules.tolerance import (
    all_of,
    band,
    enough,
    monotone,
    onset,
    positive,
    ranked,
    sign,
    slope,
    span,
)
from scalewatt.claims.rules.tolerance_bands import band_of
from scalewatt.claims.rules.uncertain_number import (
    mean_of,
    minus,
    over,
    quantity,
    refuse_estimates,
    shown,
)

RESNET = ("resnet50", "train", "a100")
NEAR_OPTIMAL_TO = 32
"""GPUs; likewise where the slow rise of energy ends."""
MODEST_GBS = 8192
"""Global batch size from which large-batch effects begin."""
ONSET_TO = 32768
ONSET_PP = 2.0
ERROR, ERROR_PP = 28.0, 1.5
"""Claim D17: top-1 error in percent, and how far it may be from there, or range."""
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
            raise Unresolved(
                f"{line.title}: two points up to {NEAR_OPTIMAL_TO} GPUs and one beyond are compared; there "
                f"are n = {', '.join(str(p.gpus) for p in points)}; "
                f"{max(0, 2 - len(few)) + (not many)} more needed."
            )
        last = many[-1]
        falls = over(quantity(last, "gpu_hours"), quantity(few[-1], "gpu_hours"))
        return all_of(
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
        return all_of([("rank", ranks), ("steps", monotone("energies (kWh)", energies, True))])

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


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
        (node,) = points_at(line, [whole], "energy_kwh")
        if points[0] is node or points[-1] is node:
            raise Unresolved(f"{line.title}: a point below and one above {whole} GPUs are needed.")
        least = min(points, key=lambda p: quantity(p, "energy_kwh").value)
        lowest = quantity(node, "energy_kwh")
        gaps = [minus(quantity(p, "energy_kwh"), lowest) for p in points if p is not node]
        nearest = min([gap for gap in gaps if gap.high < 0] or gaps, key=lambda gap: gap.low)
        said = f"the least energy is at {least.gpus} GPUs, expected at {whole}"
        found = positive("the nearest other energy less that there", nearest, "kWh")
        return Outcome(found.verdict, float(least.gpus), f"{said}; {found.detail}")

    return each(evidence, *RESNET, [mode], of_line)


check("D07")(partial(_least_at_a_node, mode="fd_lbs"))
check("E07")(partial(_least_at_a_node, mode="fd_gbs_s"))


def _paper_value(evidence: Evidence, id_: str, gpus: int, name: str, unit: str) -> Outcome:
    point = paper_point(evidence, *RESNET, "fd_lbs", gpus, 256)
    return band(f"{word(name)} at n = {gpus}", quantity(point, name), *band_of(id_), unit)


for _id, _gpus, _name, _unit in (
    ("D08", 1, "cpu_energy_kwh", "kWh"),
    ("D09", 4, "cpu_energy_kwh", "kWh"),
    ("D11", 1, "gpu_energy_kwh", "kWh"),
    ("D12", 256, "gpu_energy_kwh", "kWh"),
    ("D13", 1, "cpu_energy_share", ""),
    ("D14", 4, "cpu_energy_share", ""),
):
    check(_id)(partial(_paper_value, id_=_id, gpus=_gpus, name=_name, unit=_unit))


@check("D10")
def _cpu_energy_falls(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        whole = whole_nodes(evidence, line)
        if whole == 1:
            raise NotTestable(f"{line.device}: a node has one GPU.")
        refuse_estimates(line.having("cpu_energy_kwh"))
        one, node = points_at(line, [1, whole], "cpu_energy_kwh")
        ratio = over(quantity(one, "cpu_energy_kwh"), quantity(node, "cpu_energy_kwh"))
        low, high = (bound * whole for bound in CPU_FALL)
        return band(f"CPU energy at n = 1 over n = {whole}", ratio, low, high)

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D15")
def _cpu_share_constant(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "cpu_energy_share", at_least=whole_nodes(evidence, line))
        return span("share of CPU energy", numbers(points, "cpu_energy_share"), 0.04)

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


def _in_paper(line: Line) -> list[Point]:
    """The points of a line that know their top-1 error; NotTestable if one was trained in another way."""
    return [as_in_paper(p) for p in known(line, "metric_last", least=1)]


@check("D17")
def _error_constant(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = [p for p in _in_paper(line) if p.gbs <= MODEST_GBS]
        if len(points) < 3 or points[-1].gbs < MODEST_GBS:
            there = ", ".join(str(p.gbs) for p in points) or "none"
            raise Unresolved(
                f"{len(points)} points up to GBS {MODEST_GBS} (GBS {there}); 3 are needed, one at "
                f"GBS {MODEST_GBS}."
            )
        values = numbers(points, "metric_last")
        worst = max(values, key=lambda one: abs(one.value - ERROR))
        low, high = ERROR - ERROR_PP, ERROR + ERROR_PP
        return all_of(
            [
                ("value", band(f"top-1 error furthest from {ERROR:g} %", worst, low, high, "%")),
                ("range", span("top-1 error", values, ERROR_PP, "pp")),
            ]
        )

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D18")
def _error_at_65536(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = [p for p in _in_paper(line) if p.gbs == 65536]
        if not points:
            raise NotTestable("No finished run with GBS 65536 knows its top-1 error.")
        own = quantity(points[0], "metric_last")
        return band("top-1 error at GBS 65536", own, *band_of("D18"), "%")

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("D19")
def _onset(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = enough(_in_paper(line), f"{line.title}: top-1 error")
        sizes, errors = [p.gbs for p in points], numbers(points, "metric_last")
        return onset("top-1 error", sizes, errors, ONSET_PP, MODEST_GBS, ONSET_TO, "%")

    return each(evidence, *RESNET, ["fd_lbs"], of_line)


@check("E03")
def _error_kept(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        return span("top-1 error", numbers(known(line, "metric_last"), "metric_last"), 1.5, "pp")

    return each(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], of_line)


@check("E04")
def _large_worse(evidence: Evidence) -> Outcome:
    def of_lines(small: Line, large: Line) -> Outcome:
        means = [mean_of(numbers(known(ln, "metric_last"), "metric_last")) for ln in (large, small)]
        more = minus(*means)
        what = f"mean top-1 error of {large.title} less that of {small.title}"
        return all_of(
            [("sign", positive(what, more, "pp")), ("bound", band(what, more, None, 3, "pp"))]
        )

    return together(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], of_lines)


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
    def of_lines(small: Line, large: Line) -> Outcome:
        slowest = max(numbers(known(large, "runtime_h"), "runtime_h"), key=lambda one: one.value)
        fastest = min(numbers(known(small, "runtime_h"), "runtime_h"), key=lambda one: one.value)
        what = f"longest time of {large.title} over the shortest of {small.title}"
        return sign(what, over(slowest, fastest), rises=False)

    return together(evidence, *RESNET, ["fd_gbs_s", "fd_gbs_l"], of_lines)


@check("E09")
def _fewer_are_better(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        energies = numbers(points, "energy_kwh")
        return ranked("energy with n", [p.gpus for p in points], energies, True, 0.8)

    return each(evidence, *RESNET, ["fd_lbs", "fd_gbs_s", "fd_gbs_l"], of_line)
