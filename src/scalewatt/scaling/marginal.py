"""What more GPUs buy and cost: each point of a series beside the next smaller n."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scalewatt.campaign.model import Series
from scalewatt.campaign.spec import run_spec
from scalewatt.energy.samples import J_PER_KWH
from scalewatt.errors import InputError
from scalewatt.scaling.plan import (
    POINT,
    PREDICTED,
    Planner,
    Row,
    empty_row,
    interval_columns,
    of_configuration,
    stated,
)
from scalewatt.scaling.predict import Predicted


def point_rows(planner: Planner) -> list[Row]:
    """One row for each point of each series: one run of it, and what it brings beside the smaller n.

    All of it is predicted, also where runs have finished: both ends of a difference are then alike.
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
        **empty_row(planner.campaign.name, POINT),
        "series": series.name,
        **of_configuration(configuration),
        "runs": planner.campaign.repeats[id_],
        "wall_time_min": planner.wall_time_min(id_),
    }
    spec = run_spec(planner.campaign, id_, 1)
    if predicted is None:
        try:
            planner.forecaster.runs(spec)
        except InputError as error:
            row |= {"reason": str(error)}
        return row
    scope = planner.forecaster.of_kind(spec).scope
    said = "; ".join(planner.forecaster.warnings(spec)) or None
    amounts = planner.amounts(id_, predicted)
    row |= {"basis": PREDICTED, "energy_scope": scope, "warnings": said}
    return row | stated(amounts, planner.facility)


def beside(gpus: int, large: Predicted, smaller_gpus: int, small: Predicted) -> Row:
    """Columns of one run on `gpus` beside the same work on `smaller_gpus`."""
    times_h = [one.runtime_s[:, 0] / 3600 for one in (small, large)]
    saved_h = times_h[0] - times_h[1]
    extra_h = gpus * times_h[1] - smaller_gpus * times_h[0]
    extra_kwh = None
    if small.total_j is not None and large.total_j is not None:
        extra_kwh = (large.total_j[:, 0] - small.total_j[:, 0]) / J_PER_KWH
    hours = float(np.median(saved_h))
    kwh = None if extra_kwh is None or hours <= 0 else float(np.median(extra_kwh)) / hours
    return {
        "smaller_gpus": smaller_gpus,
        **interval_columns("speedup", times_h[0] / times_h[1]),
        **interval_columns("extra_gpu_hours", extra_h),
        **interval_columns("extra_energy_kwh", extra_kwh),
        "extra_kwh_per_hour_saved": kwh,
    }
