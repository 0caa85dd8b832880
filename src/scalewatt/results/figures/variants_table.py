"""The table `variants`: one training done in several ways, each with its ratios to its baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.figures.figure_schema import RATIOS, VARIANTS
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.scaling import comparable

_ENTRY = pa.schema(
    [(name, pa.string()) for name in ("series", "label", "configuration", "baseline")]
)


def variants(
    definition: dict[str, Any], configurations: pd.DataFrame, _results: Path
) -> pd.DataFrame:
    """Build one row per configuration that has runs, in the definition's order."""
    entries = frame_of(
        [{name: entry[name] for name in _ENTRY.names} for entry in definition["variants"]], _ENTRY
    )
    rows = entries.merge(configurations, on="configuration")
    by_id = configurations.set_index("configuration", drop=False)
    baselines = by_id.reindex(rows["baseline"]).set_axis(rows.index)
    for name, quantity in RATIOS.items():
        ratios = ratios_of(rows, baselines, quantity)
        ends = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
        rows = rows.assign(**{column: ratios[part] for column, part in ends.items()})
    return rows[VARIANTS.names]


def ratios_of(rows: pd.DataFrame, baselines: pd.DataFrame, name: str) -> pd.DataFrame:
    """Divide two means, with the 95 % interval of the ratio (`quotients`).

    The interval needs repeats of both, which are independent. Null if a mean is not known, or
    where two energies are not comparable: of unequal origin or scope, or estimated. A baseline divided by
    itself is 1, without interval.
    """
    ratios = quotients(rows, baselines, name)
    if name == "runtime_h":
        return ratios
    return ratios[comparable(rows, baselines)].reindex(rows.index)
