"""The tables of figures, of Table 1 and of variants, from configurations' means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.figure_schema import (
    OVERVIEW,
    PANEL_FIGURES,
    RATIOS,
    TABLE1,
    TABLE1_QUANTITIES,
    VARIANTS,
)
from scalewatt.results.figures.learning_table import learning
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.figures.power_trace import power
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.published import is_overlaid, published_lines
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.scaling import ENDS, energy_quotients, lines_of, points_of


def overview(
    definition: dict[str, Any], _configurations: pd.DataFrame, _results: Path
) -> pd.DataFrame:
    """Table of Figure 1: what happens to batch sizes, data and updates along each series."""
    rows = [
        {**point, **series, "figure": definition["figure"], "series": series["name"]}
        for series in definition["series"]
        for point in series["points"]
    ]
    return frame_of(rows, OVERVIEW)


def table1(
    definition: dict[str, Any], configurations: pd.DataFrame, _results: Path
) -> pd.DataFrame:
    """Table 1: one row per chosen configuration, means over its repeats.

    With the option `overlay: published`, after each of them the published row of the same training.
    """
    # Each row stands alone, so it is a series of a single point.
    chosen = [{"name": "", "label": "", "points": [point]} for point in definition["points"]]
    rows = lines_of(chosen, configurations)
    if is_overlaid(definition):
        rows = pd.concat([rows, published_lines(points_of(chosen))], ignore_index=True)
        rows = rows.sort_values("place", kind="stable", ignore_index=True)
    names = {
        f"{name}_{part}": name + end for name in TABLE1_QUANTITIES for end, part in ENDS.items()
    }
    return rows.rename(columns=names)[TABLE1.names]


def variants(
    definition: dict[str, Any], configurations: pd.DataFrame, _results: Path
) -> pd.DataFrame:
    """One training done in several ways: a row per configuration that has runs, with ratios to its baseline.

    The interval of a ratio needs repeats of both, which are independent. Null if a mean is not known, or
    where two energies are not comparable. A baseline divided by itself is 1, without interval.
    """
    rows = pd.DataFrame(definition["variants"]).merge(configurations, on="configuration")
    by_id = configurations.set_index("configuration", drop=False)
    baselines = by_id.reindex(rows["baseline"]).set_axis(rows.index)
    for name, quantity in RATIOS.items():
        divide = quotients if quantity == "runtime_h" else energy_quotients
        ratios = divide(rows, baselines, quantity)
        ends = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
        rows = rows.assign(**{column: ratios[part] for column, part in ends.items()})
    return rows[VARIANTS.names]


BUILDERS = {
    **dict.fromkeys(PANEL_FIGURES, panel_points),
    **{"figure1": overview, "figure5": power, "breakdown": breakdown, "learning": learning},
    **{"table1": table1, "variants": variants},
}
"""What builds the table of each figure, from its definition, configurations and the results' folder."""
