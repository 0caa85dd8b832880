"""Write the planner page: the points of a plan's series as one HTML file that a browser shows.

All forecasts are the plan's; the page's script chooses among them, and multiplies them by a PUE, a price
and a carbon intensity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.campaign.cluster import Cluster
from scalewatt.common.files import write_text
from scalewatt.report.html_tables import render
from scalewatt.results.tables.derived_quantities import facility_of
from scalewatt.results.tables.frames import records
from scalewatt.scaling.plan import ENDS, POINT, select_levels

_FOLDER = Path(__file__).parent


def write_plan_page(
    out: Path, plan: pd.DataFrame, cluster: Cluster, deadline_h: float | None = None
) -> None:
    """Write the page of a plan to `out`; `deadline_h`: the deadline that it begins with."""
    pue, carbon, price = astuple(facility_of(cluster))
    data = {
        "series": list(embed_series(plan)),
        "begin": {"pue": pue, "carbon": carbon, "price": price, "deadline": deadline_h},
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    content = render(
        _FOLDER,
        "page.html.j2",
        "planner.js",
        campaign=plan.attrs["campaign"],
        cluster=cluster,
        # No text in it ends the element, whatever the names of models hold.
        embedded=text.replace("<", "\\u003c"),
        notes=plan.attrs["notes"],
        version=__version__,
        more_style=(_FOLDER / "planner.css").read_text(encoding="utf-8"),
    )
    write_text(out, content)


def embed_series(plan: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Each series with its points: medians and ends of intervals of one run, null where not known."""
    for name, points in select_levels(plan, POINT).groupby("series", sort=False):
        first = points.iloc[0]
        title = f"{name} ({first['model']} {first['phase']} on {first['device']})"
        rows = [
            {
                **{key: row[key] for key in ("gpus", "nodes", "local_batch_size")},
                **{key: _ends(row, key) for key in ("runtime_h", "gpu_hours", "energy_kwh")},
                "is_choice": row["cheapest"] is not None,
                "remarks": [row[key] for key in ("reason", "warnings") if row[key]],
            }
            for row in records(points)
        ]
        yield {"title": title, "rows": rows}


def _ends(row: dict[str, Any], name: str) -> list[float] | None:
    return None if row[name] is None else [row[f"{name}{end}"] for end in ENDS]
