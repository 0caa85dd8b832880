"""The table `scaling`: how time and energy of each series change with n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.tables.derived_quantities import is_estimated
from scalewatt.results.tables.frames import equal, frame_of
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.table_schema import CONFIGURATIONS, SCALING

Row = dict[str, Any]

TRAINING = (
    *("model", "phase", "device", "gpus", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)
"""What two points have in common where they are the same training."""
_POINTS = pa.schema(
    [
        ("place", pa.int32()),
        *((name, pa.string()) for name in ("series", "label", "configuration")),
        *(CONFIGURATIONS.field(name) for name in TRAINING),
    ]
)
ENDS = {"": "mean", "_sd": "sd", "_low": "low", "_high": "high"}
"""Parts of a quantity by the end of their columns' names, in tables that have no `_mean`."""


def points_of(series: Iterable[Row]) -> pd.DataFrame:
    """List the points of a definition's series: place, name and label of the series, id, and training."""
    rows = [
        {**dict.fromkeys(TRAINING), **line, **point}
        | {"place": index, "series": line["name"], "label": line["label"]}
        for index, line in enumerate(series)
        for point in line["points"]
    ]
    return frame_of(rows, _POINTS)


def lines_of(series: Iterable[Row], configurations: pd.DataFrame) -> pd.DataFrame:
    """List the configurations along each series that have runs, with `place`, `series` and `label`."""
    names = points_of(series)[["place", "series", "label", "configuration"]]
    return names.merge(configurations, on="configuration")


def speedups(lines: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute S(n) = n₀·T(n₀)/T(n) with sd and interval; n₀ is the smallest n of the series with runs.

    Null if datasets or epochs differ. sd and interval (`quotients`) need repeats at both ends. Returns the
    row of n₀ of each row, too: the first of its series.
    """
    row = pd.Series(range(len(lines)), lines.index)
    smallest = lines.iloc[row.groupby(lines["place"]).transform("min")].set_axis(lines.index)
    gain = quotients(smallest, lines, "runtime_h", factor=smallest["gpus"])
    same = equal(lines["dataset_samples"], smallest["dataset_samples"])
    return gain[same & equal(lines["epochs"], smallest["epochs"])].reindex(lines.index), smallest


def scaling_of(series: Iterable[Row], configurations: pd.DataFrame) -> pd.DataFrame:
    """Make one row per series and point that has runs, compared with the series' smallest such n.

    efficiency is speedup/n; the ratios are those of GPU hours and of energy to n₀'s, null if epochs differ.
    Their sd and 95 % interval (`quotients`) need repeats of both.
    """
    lines = lines_of(series, configurations)
    gain, smallest = speedups(lines)
    alike = equal(lines["epochs"], smallest["epochs"])
    ratios = {
        "speedup": gain,
        "efficiency": gain.mul(1 / lines["gpus"], axis=0),
        "gpu_hours_ratio": quotients(lines, smallest, "gpu_hours").where(alike),
        "energy_ratio": energy_quotients(lines, smallest, "energy_kwh").where(alike),
    }
    columns = {
        f"{name}{end}": ratio[part] for name, ratio in ratios.items() for end, part in ENDS.items()
    }
    columns |= {f"smallest_{name}": smallest[name] for name in ("gpus", "n_repeats")}
    return lines.assign(**columns)[SCALING.names]


def energy_quotients(top: pd.DataFrame, bottom: pd.DataFrame, name: str) -> pd.DataFrame:
    """Divide a quantity of energy; null unless both are of one origin and scope, and not estimated."""
    origin, scope = (equal(top[key], bottom[key]) for key in ("energy_origin", "energy_scope"))
    ratios = quotients(top, bottom, name)
    return ratios[origin & scope & ~is_estimated(top)].reindex(top.index)
