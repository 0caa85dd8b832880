"""The points of each figure, from configurations' means. Contents: the paper's Figures 1 to 7."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.cost_table import cost_per_sample
from scalewatt.results.figures.figure_schema import (
    OVERVIEW,
    PANELS,
    POINTS,
    TABLE1,
    TABLE1_QUANTITIES,
    Panel,
)
from scalewatt.results.figures.learning_table import learning
from scalewatt.results.figures.operating_points_table import operating_points
from scalewatt.results.figures.pareto_table import pareto
from scalewatt.results.figures.power_trace import power
from scalewatt.results.figures.variants_table import variants
from scalewatt.results.tables.estimates import quantity_bounds
from scalewatt.results.tables.frames import FLOAT, column_of, frame_of, to_frame, to_table
from scalewatt.results.tables.published import is_overlaid, published_lines, timed_alike
from scalewatt.results.tables.read_table import PUBLISHED
from scalewatt.results.tables.scaling import lines_of, points_of, smallest_of, speedups
from scalewatt.results.tables.table_schema import PARTS, SUMMARY


def points(definition: dict[str, Any], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return one row per plotted point; configurations without finished runs have none.

    With the option `overlay: published`, after each series' own points those that the paper published
    of the same trainings, as far as it says both coordinates.
    """
    lines = lines_of(definition["series"], configurations)
    if is_overlaid(definition):
        published = published_lines(points_of(definition["series"]))
        lines = pd.concat([lines, published], ignore_index=True)
        lines = lines.sort_values("place", kind="stable", ignore_index=True)
    lines = lines.assign(published=(lines["energy_origin"] == PUBLISHED).fillna(False))
    panels = [_panel(panel, lines) for panel in PANELS[definition["figure"]]]
    found = pd.concat(panels, ignore_index=True).assign(figure=definition["figure"])
    return to_frame(to_table(found[POINTS.names], POINTS))


def _panel(panel: Panel, lines: pd.DataFrame) -> pd.DataFrame:
    """Return a panel's points."""
    if panel.y_name == "speedup":
        lines = _based(lines)
        # Published times are divided by the n₀ of our runs, which come first: equal times are equal points.
        y = speedups(lines, smallest_of(lines, ["place"]))
        y["population_sd"] = column_of([None] * len(y), pa.float64(), y.index)
    else:
        y = lines[[f"{panel.y_name}_{part}" for part in PARTS]].set_axis(list(PARTS), axis=1)
    x = lines[panel.x_name if panel.x_name in lines else f"{panel.x_name}_mean"].astype(FLOAT)
    axes: dict[str, Any] = {"x_name": panel.x_name, "x": x, "y_name": panel.y_name, "y": y["mean"]}
    axes |= {f"y_{part}": y[part] for part in PARTS if part != "mean"}
    open_ = quantity_bounds(lines, panel.y_name)
    axes |= {f"y_estimate_{end}": open_[end] for end in open_}
    drawn = lines.assign(panel=panel.letter, **axes)
    return drawn[~drawn["published"] | (drawn["x"].notna() & drawn["y"].notna())]


def _based(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines without published points that have no speed-up: those without a time, and without
    runs of ours the only one of a line."""
    timed = timed_alike(lines[lines["published"]])
    several = timed.groupby("place")["place"].transform("size") > 1
    ours = timed["place"].isin(lines["place"][~lines["published"]])
    return lines[~lines["published"] | lines.index.isin(timed.index[ours | several])]


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
    if figure in PANELS:
        return points
    if figure == "figure1":
        return lambda definition, _configurations: overview(definition)
    from_files = {
        "figure5": power,
        "breakdown": breakdown,
        "learning": learning,
        "cost_per_sample": cost_per_sample,
    }
    if figure in from_files:
        return lambda definition, found: from_files[figure](definition, found, results)
    return {
        "table1": table1,
        "variants": variants,
        "pareto": pareto,
        "operating_points": operating_points,
    }[figure]
