"""The tables of figures and of Table 1, from configurations' means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.figure_schema import (
    OVERVIEW,
    PANEL_FIGURES,
    TABLE1,
    TABLE1_QUANTITIES,
)
from scalewatt.results.figures.learning_table import learning
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.figures.power_trace import power
from scalewatt.results.figures.variants_table import variants
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.published import is_overlaid, published_lines
from scalewatt.results.tables.scaling import lines_of, points_of
from scalewatt.results.tables.table_schema import SUMMARY


def overview(definition: dict[str, Any]) -> pd.DataFrame:
    """Return Figure 1: what happens to batch sizes, data and updates along each series."""
    rows = []
    for series in definition["series"]:
        for point in series["points"]:
            merged = {**point, **series, "figure": definition["figure"], "series": series["name"]}
            rows.append({name: merged[name] for name in OVERVIEW.names})
    return frame_of(rows, OVERVIEW)


def table1(definition: dict[str, Any], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1: one row per chosen configuration, means over its repeats.

    With the option `overlay: published`, after each of them the published row of the same training.
    """
    # Each row stands alone, so it is a series of a single point.
    chosen = [{"name": "", "label": "", "points": [point]} for point in definition["points"]]
    found = lines_of(chosen, configurations)
    if is_overlaid(definition):
        found = pd.concat([found, published_lines(points_of(chosen))], ignore_index=True)
        found = found.sort_values("place", kind="stable", ignore_index=True)
    ends = dict(zip(SUMMARY, ("", "_sd", "_low", "_high"), strict=True))
    names = {
        f"{name}_{part}": name + end for name in TABLE1_QUANTITIES for part, end in ends.items()
    }
    return found.rename(columns=names)[TABLE1.names]


def builder(figure: str, results: Path) -> Callable[[dict[str, Any], pd.DataFrame], pd.DataFrame]:
    """Return what builds the table of `figure`, from its definition and its configurations."""
    if figure == "figure1":
        return lambda definition, _configurations: overview(definition)
    if figure in PANEL_FIGURES:
        return lambda definition, found: panel_points(definition, found, results)
    from_files = {"figure5": power, "breakdown": breakdown, "learning": learning}
    if figure in from_files:
        return lambda definition, found: from_files[figure](definition, found, results)
    return {"table1": table1, "variants": variants}[figure]
