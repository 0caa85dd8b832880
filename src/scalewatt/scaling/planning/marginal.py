"""What more GPUs buy and cost: each point of a series against the next smaller n, or two chosen n."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.campaign_types import Series
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import INTERVAL, Predicted
from scalewatt.scaling.planning.plan import (
    POINT,
    PREDICTED,
    Planner,
    Row,
    interval_columns,
    joined,
    of_configuration,
    stated,
)

MARGINALS = ("speedup", "extra_gpu_hours", "extra_energy_kwh", "extra_kwh_per_hour_saved")
"""What more GPUs buy and cost, each with the ends of its nominal 90 % interval."""
ENDS = ("", "_low", "_high")
"""Endings of a quantity's columns: its median, and the ends of its interval."""

STEPS = pa.schema(
    [
        ("series", pa.string()),
        *((name, pa.int32()) for name in ("smaller_gpus", "gpus")),
        *(
            (f"{name}{end}", pa.float64())
            for name in ("smaller_runtime_h", "runtime_h", *MARGINALS)
            for end in ENDS
        ),
        *((name, pa.string()) for name in ("reason", "warnings")),
    ]
)
"""Going from one chosen n to another, by series: the columns of `Plan.steps`."""


def point_rows(planner: Planner) -> list[Row]:
    """Return one row for each point of each series: one run, and its gain over the smaller n.

    All of it is predicted, also where runs have finished: so both ends of a difference are comparable.
    """
    return [
        row for series in planner.campaign.series.values() for row in _of_series(planner, series)
    ]


def _of_series(planner: Planner, series: Series) -> Iterator[Row]:
    smaller: tuple[int, Predicted] | None = None
    samples: set[int | None] = set()
    for gpus, id_ in sorted(series.points.items()):
        configuration = planner.campaign.configurations[id_]
        samples.add(configuration.dataset_samples)
        predicted = planner.point(id_)
        row = _row(planner, series, id_, predicted)
        same_work = len(samples) == 1
        if predicted is not None:
            if smaller is not None and same_work:
                row |= beside(gpus, predicted, *smaller)
            smaller = gpus, predicted
        yield row


def _row(planner: Planner, series: Series, id_: str, predicted: Predicted | None) -> Row:
    configuration = planner.campaign.configurations[id_]
    row: dict[str, Any] = {
        "campaign": planner.campaign.name,
        "level": POINT,
        "series": series.name,
        **of_configuration(configuration),
        "runs": planner.campaign.repeats[id_],
        "wall_time_min": planner.jobs_of(id_)[0],
    }
    spec = run_spec(planner.campaign, id_, 1)
    stuck = list(filter(None, [planner.jobs_of(id_)[1]]))
    if predicted is None:
        try:
            planner.forecaster.runs(spec)
        except InputError as error:
            row |= {"reason": str(error), "warnings": joined(stuck)}
        return row
    if predicted.energy_j:
        scope = planner.forecaster.of_kind(spec).scope
        row |= {"energy_origin": PREDICTED, "energy_scope": scope}
    warnings = joined([*planner.forecaster.warnings(spec), *stuck])
    return (
        row | {"basis": PREDICTED, "warnings": warnings} | stated(planner.amounts(id_, predicted))
    )


def beside(gpus: int, large: Predicted, smaller_gpus: int, small: Predicted) -> Row:
    """Return the columns that compare one run on `gpus` with the same work on `smaller_gpus`."""
    times_h = [one.runtime_s[:, 0] / 3600 for one in (small, large)]
    saved_h = times_h[0] - times_h[1]
    extra_h = gpus * times_h[1] - smaller_gpus * times_h[0]
    extra_kwh = None
    if small.total_j is not None and large.total_j is not None:
        extra_kwh = (large.total_j[:, 0] - small.total_j[:, 0]) / J_PER_KWH
    return {
        "smaller_gpus": smaller_gpus,
        **interval_columns("speedup", times_h[0] / times_h[1]),
        **interval_columns("extra_gpu_hours", extra_h),
        **interval_columns("extra_energy_kwh", extra_kwh),
        **_per_hour_saved(extra_kwh, saved_h),
    }


def _per_hour_saved(extra_kwh: Array | None, saved_h: Array) -> Row:
    """Return the energy for each hour saved.

    A sample that saves no time has no such energy: an end that lies among such samples is null.
    """
    name = "extra_kwh_per_hour_saved"
    columns = (f"{name}_low", name, f"{name}_high")
    if extra_kwh is None:
        return dict.fromkeys(columns)
    saves = saved_h > 0
    draws = np.where(saves, extra_kwh / np.where(saves, saved_h, 1.0), np.inf)
    # Of what was drawn, not between: nothing lies between a number and infinity.
    found = np.quantile(draws, (INTERVAL[0], 0.5, INTERVAL[1]), method="inverted_cdf")
    return {
        column: float(value) if np.isfinite(value) else None
        for column, value in zip(columns, found, strict=True)
    }


# --- two chosen n ---------------------------------------------------------------------------------


def steps(planner: Planner, smaller: int, larger: int) -> list[Row]:
    """Return what going from `smaller` to `larger` GPUs buys and costs: a row for each series with both.

    InputError if no series has both, or the second is not the larger.
    """
    if not 0 < smaller < larger:
        raise InputError(f"--from {smaller} --to {larger}: expected a larger n after a smaller one")
    campaign = planner.campaign
    both = [one for one in campaign.series.values() if {smaller, larger} <= set(one.points)]
    if not both:
        there = sorted({gpus for one in campaign.series.values() for gpus in one.points})
        raise InputError(
            f"--from {smaller} --to {larger}: no series of {campaign.path} has both; its series have "
            f"n = {', '.join(map(str, there))}"
        )
    return [_step(planner, series, smaller, larger) for series in both]


def _step(planner: Planner, series: Series, smaller: int, larger: int) -> Row:
    ids = series.points[smaller], series.points[larger]
    small, large = (planner.point(id_) for id_ in ids)
    row: Row = {"series": series.name, "smaller_gpus": smaller, "gpus": larger}
    samples = {planner.campaign.configurations[id_].dataset_samples for id_ in ids}
    if len(samples) > 1:
        return row | {"reason": "its dataset grows with n: its points are not the same training"}
    if small is None or large is None:
        unknown = [n for n, one in ((smaller, small), (larger, large)) if one is None]
        return row | {"reason": f"n = {', '.join(map(str, unknown))} cannot be predicted"}
    parts = [
        one
        for id_ in ids
        for one in planner.forecaster.warnings(run_spec(planner.campaign, id_, 1))
    ]
    return {
        **row,
        **interval_columns("smaller_runtime_h", small.runtime_s[:, 0] / 3600),
        **interval_columns("runtime_h", large.runtime_s[:, 0] / 3600),
        **beside(larger, large, smaller, small),
        "warnings": joined(parts),
    }
