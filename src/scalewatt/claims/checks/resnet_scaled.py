"""Claims of section 3.2.3: ResNet50 on a dataset that grows with n (F02–F20)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log, log2

from scalewatt.claims.checks.general_energy import linear_in_gpu_hours
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome, Unresolved, check
from scalewatt.claims.evidence.evidence import Evidence, Line, Point, is_full_size
from scalewatt.claims.rules.series_queries import (
    each,
    known,
    numbers,
    paper_point,
    per_sample,
    points_at,
    samples_of,
    together,
    whole_nodes,
)
from scalewatt.claims.rules.tolerance import (
    all_of,
    band,
    constant,
    decided,
    monotone,
    positive,
    ranked,
    sign,
    slope,
    steady,
)
from scalewatt.claims.rules.tolerance_bands import band_of
from scalewatt.claims.rules.uncertain_number import Number, mean_of, minus, over, quantity, shown

RESNET = ("resnet50", "train", "a100")
PAPER_UPDATES = 20
"""Updates per GPU and epoch: 5004 samples in batches of 256, the last one partial."""
SAME_SAMPLES = 0.01
"""Relative difference up to which two datasets count as equally large."""


@check("F02")
def _updates_constant(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "runtime_h")
        updates = [_updates_per_epoch(evidence, point) for point in points]
        wanted = PAPER_UPDATES if all(map(is_full_size, points)) else updates[0]
        return decided(
            set(updates) == {wanted},
            max(updates, key=lambda one: abs(one - wanted)),
            f"updates per GPU and epoch are {', '.join(f'{u:g}' for u in updates)} at n = "
            f"{', '.join(str(p.gpus) for p in points)}; expected {wanted:g} everywhere.",
        )

    return each(evidence, *RESNET, ["sd_lbs"], of_line)


def _updates_per_epoch(evidence: Evidence, point: Point) -> float:
    """As the runs counted them; for published points, as their batches and samples give."""
    for run in evidence.runs:
        if run["configuration"] == point.id and run["updates"] and run["epochs"]:
            return float(run["updates"] / run["epochs"])
    return float(-(-(samples_of(point) // point.gpus) // point.lbs))


def _time_constant(evidence: Evidence, mode: str, most: float) -> Outcome:
    def of_line(line: Line) -> Outcome:
        return constant("run time", numbers(known(line, "runtime_h"), "runtime_h"), most)

    return each(evidence, *RESNET, [mode], of_line)


check("F03")(partial(_time_constant, mode="sd_lbs", most=1.15))
check("F13")(partial(_time_constant, mode="sd_gbs_l", most=1.10))


@check("F04")
def _error_stagnates(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "metric_last", least=6)
        first, last = _slope(points[:4]), _slope(points[-3:])
        half = Number(0.5 * first.value, 0.5 * first.half, 0.5 * first.spread, first.assumed)
        start = Number(-first.value, first.half, first.spread, first.assumed)
        return all_of(
            [
                (
                    "start",
                    positive("fall of top-1 error in the first three doublings", start, "pp"),
                ),
                (
                    "end",
                    positive(
                        f"slope in the last two doublings ({shown(last.value)} pp) less half the first",
                        minus(last, half),
                        "pp",
                    ),
                ),
            ]
        )

    return each(evidence, *RESNET, ["sd_lbs"], of_line)


def _slope(points: Sequence[Point]) -> Number:
    """Of top-1 error per doubling of the dataset, pp."""
    return slope([log2(samples_of(p)) for p in points], numbers(points, "metric_last"))


@check("F05")
def _proportional_to_samples(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        return steady("energy per sample (Wh)", [per_sample(p) for p in points], 0.03)

    return each(evidence, *RESNET, ["sd_lbs"], of_line)


@check("F06")
def _mean_per_sample(evidence: Evidence) -> Outcome:
    line = evidence.line(*RESNET, "sd_lbs", 256)
    points = [
        paper_point(evidence, *RESNET, "sd_lbs", p.gpus, 256)
        for p in known(line, "energy_kwh", at_least=4)
    ]
    mean = mean_of([per_sample(p) for p in points])
    what = f"mean energy per dataset sample of {len(points)} points"
    return band(what, mean, *band_of("F06"), "Wh")


@check("F07")
def _proportional_to_hours(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "p_gpuh_kw", at_least=whole_nodes(evidence, line))
        return all_of(
            [
                ("line", linear_in_gpu_hours(evidence)(line)),
                ("factor", steady("P_GPUh (kW)", numbers(points, "p_gpuh_kw"), 0.03)),
            ]
        )

    return each(evidence, *RESNET, ["sd_lbs"], of_line)


@check("F10")
def _more_data_better(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "metric_last")
        errors = numbers(points, "metric_last")
        samples = [float(samples_of(p)) for p in points]
        ranks = ranked("top-1 error with samples", samples, errors, False, 0.9)
        return all_of([("rank", ranks), ("steps", monotone("top-1 errors", errors, False))])

    return each(evidence, *RESNET, ["sd_gbs_s", "sd_gbs_l"], of_line)


@check("F11")
def _regimes_at_equal_data(evidence: Evidence) -> Outcome:
    return together(evidence, *RESNET, ["sd_gbs_s", "sd_gbs_l"], _at_equal_data)


def _at_equal_data(small: Line, large: Line) -> Outcome:
    pairs = [
        (one, other)
        for one in known(small, "metric_last", least=1)
        for other in known(large, "metric_last", least=1)
        if abs(samples_of(one) / samples_of(other) - 1) <= SAME_SAMPLES
    ]
    if len(pairs) < 2:
        raise Unresolved(
            f"{len(pairs)} dataset sizes that both regimes trained on; {2 - len(pairs)} more needed."
        )
    one, other = pairs[0]
    worse = over(quantity(other, "metric_last"), quantity(one, "metric_last"))
    slopes = [_slope([pair[side] for pair in pairs]) for side in (0, 1)]
    falls = [Number(-s.value, s.half, s.spread, s.assumed) for s in slopes]
    return all_of(
        [
            (
                f"at {samples_of(one)} samples",
                sign("top-1 error of the large regime over the small", worse, True),
            ),
            (
                f"over {len(pairs)} common sizes",
                positive(
                    f"fall per doubling in the large regime ({shown(falls[1].value)} pp) less that in "
                    f"the small ({shown(falls[0].value)})",
                    minus(falls[1], falls[0]),
                    "pp",
                ),
            ),
        ]
    )


@check("F12")
def _time_grows(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = points_at(line, [1, 2, 4, 16], "runtime_h")
        times = {point.gpus: quantity(point, "runtime_h") for point in points}
        return all_of(
            [
                ("start", band("time at n = 2 over n = 1", over(times[2], times[1]), 0.9, 1.1)),
                ("end", band("time at n = 16 over n = 4", over(times[16], times[4]), 1.15, None)),
            ]
        )

    return each(evidence, *RESNET, ["sd_gbs_s"], of_line)


def _per_sample_at(evidence: Evidence, id_: str, mode: str, gbs: int, gpus: int) -> Outcome:
    own = per_sample(paper_point(evidence, *RESNET, mode, gpus, gbs))
    return band(f"energy per dataset sample at n = {gpus}", own, *band_of(id_), "Wh")


for _id, _mode, _gbs, _gpus in (
    ("F14", "sd_gbs_s", 256, 4),
    ("F15", "sd_gbs_s", 256, 16),
    ("F16", "sd_gbs_l", 8192, 32),
    ("F17", "sd_gbs_l", 8192, 256),
):
    check(_id)(partial(_per_sample_at, id_=_id, mode=_mode, gbs=_gbs, gpus=_gpus))


@check("F18")
def _per_sample_rises(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        first, last = points[0], points[-1]
        what = f"energy per sample at n = {last.gpus} over n = {first.gpus}"
        return band(what, over(per_sample(last), per_sample(first)), 1.05, 1.25)

    return each(evidence, *RESNET, ["sd_gbs_s", "sd_gbs_l"], of_line)


@check("F20")
def _elasticity(evidence: Evidence) -> Outcome:
    def of_line(line: Line) -> Outcome:
        points = known(line, "energy_kwh", at_least=whole_nodes(evidence, line))
        x = [log(samples_of(p)) for p in points]
        if max(x) == min(x):
            raise NotTestable(f"{line.title}: all points have the same dataset.")
        return band("elasticity of energy in samples", slope(x, _logarithms(points)), 0.95, 1.10)

    return each(evidence, *RESNET, ["sd_lbs", "sd_gbs_s", "sd_gbs_l"], of_line)


def _logarithms(points: Sequence[Point]) -> list[Number]:
    energies = numbers(points, "energy_kwh")
    if not all(e.value for e in energies):
        raise NotTestable("An energy of 0 kWh has no logarithm.")
    return [Number(log(e.value), e.half / e.value, e.spread / e.value, e.assumed) for e in energies]
