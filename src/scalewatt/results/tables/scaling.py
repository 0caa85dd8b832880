"""The table `scaling`: how time and energy of each series change with n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.tables.estimates import is_estimated
from scalewatt.results.tables.frames import equal, frame_of
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.table_schema import SCALING

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
        *((name, pa.string() if i < 3 else pa.int64()) for i, name in enumerate(TRAINING)),
    ]
)
ENDS = {"": "mean", "_sd": "sd", "_low": "low", "_high": "high"}
"""Parts of a quantity by the end of their columns' names, in tables that have no `_mean`."""


def points_of(series: Iterable[Row]) -> pd.DataFrame:
    """Return the points of a definition's series: place and words of the series, id, and training."""
    rows = [
        {
            "place": index,
            "series": line["name"],
            "label": line["label"],
            "configuration": point["configuration"],
            **{key: point.get(key, line.get(key)) for key in TRAINING},
        }
        for index, line in enumerate(series)
        for point in line["points"]
    ]
    return frame_of(rows, _POINTS)


def lines_of(series: Iterable[Row], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations along each series that have runs, with `place`, `series` and `label`."""
    words = points_of(series)[["place", "series", "label", "configuration"]]
    return words.merge(configurations, on="configuration")


def smallest_of(lines: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return for each row the first one of its line: that of the smallest n that has runs."""
    first = pd.Series(range(len(lines)), index=lines.index)
    first = first.groupby([lines[name] for name in by]).transform("min")
    return lines.iloc[first].set_axis(lines.index)


def speedups(lines: pd.DataFrame, smallest: pd.DataFrame) -> pd.DataFrame:
    """Return S(n) = n₀·T(n₀)/T(n) with sd and interval; n₀ is the smallest n of the line with runs.

    Null if datasets differ. sd and interval (`quotients`) need repeats at both ends.
    """
    gain = quotients(smallest, lines, "runtime_h", factor=smallest["gpus"])
    return gain[equal(lines["dataset_samples"], smallest["dataset_samples"])].reindex(lines.index)


def scaling_of(series: Iterable[Row], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return one row per series and point that has runs, compared with the series' smallest such n.

    efficiency is speedup/n; the ratios are those of GPU hours and of energy to n₀'s. Their sd and 95 %
    interval (`quotients`) need repeats of both.
    """
    lines = lines_of(series, configurations)
    smallest = smallest_of(lines, ["place"])
    gain = speedups(lines, smallest)
    energy = quotients(lines, smallest, "energy_kwh")
    ratios = {
        "speedup": gain,
        "efficiency": gain.mul(1 / lines["gpus"], axis=0),
        "gpu_hours_ratio": quotients(lines, smallest, "gpu_hours"),
        "energy_ratio": energy[comparable(lines, smallest)].reindex(lines.index),
    }
    columns = {
        f"{name}{end}": ratio[part] for name, ratio in ratios.items() for end, part in ENDS.items()
    }
    columns |= {f"smallest_{name}": smallest[name] for name in ("gpus", "n_repeats")}
    return lines.assign(**columns)[SCALING.names]


def comparable(a: pd.DataFrame, b: pd.DataFrame) -> pd.Series:
    """Return where the energies of two tables' rows are of the same origin and scope, and not estimated."""
    alike = [equal(a[name], b[name]) for name in ("energy_origin", "energy_scope")]
    return alike[0] & alike[1] & ~is_estimated(a)
