"""Tables of figures of the paper's campaign, and of the demo's. No number here was ever measured."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from report_results import demo, made_runs, paper

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.figures.draw_figure import module_of
from scalewatt.figures.figure_data import drawable
from scalewatt.results.build import figure_table
from scalewatt.results.figures.figure_schema import BREAKDOWN, LEARNING, POINTS, POWER, SCHEMAS
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import frame_of, records, to_frame, to_table
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.run_row import RunFiles, read_runs
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import PARTS, RUNS

Row = dict[str, Any]
COPIED = (
    *("configuration", "model", "phase", "device", "device_name", "gpus", "local_batch_size"),
    *("global_batch_size", "dataset_samples", "n_repeats", "energy_origin", "energy_scope"),
)
"""What the rows of a figure's table have of their configuration."""
DEVICE_NAMES = {"a100": "NVIDIA A100", "h100": "NVIDIA H100", "local": "AMD EPYC 9B45"}


# --- tables ---------------------------------------------------------------------------------------


@cache
def _made(small: bool) -> tuple[Campaign, pd.DataFrame]:
    """The paper's campaign, or the demo's, and its runs, all of which are there."""
    campaign = demo() if small else paper()
    runs = made_runs(campaign, lambda run: run | {"device_name": DEVICE_NAMES[run["device"]]})
    return campaign, frame_of(runs, RUNS)


def definition(figure: str, small: bool = False, **options: Any) -> Row:
    """The definition of a figure of the campaign; of those with all its series in the table of figure 1."""
    campaign, _ = _made(small)
    runs = [list(run) for run in campaign.runs()]
    made = table_definition(campaign, figure, runs) | {"options": options}
    if figure == "figure1":
        made["series"] = table_definition(campaign, "breakdown", runs)["series"]
    return made


def any_table(figure: int | str, small: bool = False, **options: Any) -> pa.Table:
    """The table of a figure: of its number, or its name."""
    name = f"figure{figure}" if isinstance(figure, int) else figure
    if name in _BY_HAND:
        return _BY_HAND[name](**options)
    made = definition(name, small, **options)
    built = figure_table(made, _made(small)[1])
    return with_metadata(to_table(built, SCHEMAS[name]), made, small)


def with_metadata(table: pa.Table, made: Row, small: bool = False, **more: Any) -> pa.Table:
    """A table with the metadata that it is written with."""
    empty: Row = {"missing": [], "excluded": [], "options": {}}
    kept = {key: made.get(key, empty.get(key)) for key in ("figure", "campaign", *empty)}
    words = {"gpu_word": "processes" if small else "GPUs", "metric_name": "several", "notes": []}
    return table.replace_schema_metadata({b"scalewatt": json.dumps(kept | words | more).encode()})


def as_table(rows: list[Row], figure: str, **metadata: Any) -> pa.Table:
    """The table of a figure with these rows; what they lack is null."""
    table = pa.Table.from_pylist(rows, SCHEMAS[figure])
    return with_metadata(table, {"figure": figure, "campaign": "made"}, **metadata)


def _each(made: Row) -> list[Row]:
    """The configurations of a figure, each once."""
    configurations = configurations_of(_made(False)[1])
    return records(lines_of(made["series"], configurations).drop_duplicates("configuration"))


def _breakdown(**options: Any) -> pa.Table:
    """Kinds and stages of all configurations, with an idle baseline, and here and there discarded work."""
    made, rows = definition("breakdown", **options), []
    for group in _each(made):
        kinds = {"gpu": 0.74, "cpu": 0.2, "ram": 0.06}
        kinds = {k: v for k, v in kinds.items() if k in group["energy_scope"].split("+")}
        stages = {"startup": 0.02, "train": 0.8, "validate": 0.12, "checkpoint": 0.03}
        stages |= {"shutdown": 0.01, "unattributed": 0.02}
        for kind, of_kind in kinds.items():
            for stage, of_stage in stages.items():
                share = of_kind / sum(kinds.values()) * of_stage
                energy = share * group["energy_kwh_mean"]
                lost = 0.1 * energy if group["gpus"] == 8 and stage == "train" else 0.0
                row = {name: group[name] for name in ("series", "label", *COPIED)}
                row |= {"figure": "breakdown", "device_kind": kind, "stage": stage}
                row |= {"energy_kwh": energy, "energy_share": share}
                row |= {f"total_kwh_{end}": group[f"energy_kwh_{end}"] for end in PARTS[1:]}
                row |= {"idle_energy_kwh": 0.3 * energy, "discarded_energy_kwh": lost}
                rows.append(row)
    return with_metadata(pa.Table.from_pylist(rows, BREAKDOWN), made)


def _learning(epochs: int = 2, **options: Any) -> pa.Table:
    """Curves that fall, of all runs."""
    made, rows = definition("learning", **options), []
    for group in _each(made):
        for repeat in (n for id_, n in made["runs"] if id_ == group["configuration"]):
            spread = 1 + 0.01 * (repeat - 3)
            for epoch in range(epochs):
                done = (epoch + 1) / epochs
                copied = ("series", "label", *COPIED, "metric_name", "metric_goal")
                row = {name: group[name] for name in copied}
                row |= {"figure": "learning", "repeat": repeat, "epoch": epoch}
                row["metric"] = group["metric_last_mean"] * (1 + 2.2 * math.exp(-4 * done)) * spread
                row["energy_kwh"] = group["energy_kwh_mean"] * done * spread
                row["time_h"] = group["runtime_h_mean"] * done
                rows.append(row)
    return with_metadata(pa.Table.from_pylist(rows, LEARNING), made)


def power_table(panels: str = "ABCD", **options: Any) -> pa.Table:
    """The table of figure 5: 300 samples a panel, one of them lost."""
    rows = []
    for index, panel in enumerate(panels):
        level, device = 300.0 + 20 * index, ("a100", "h100")[index // 2]
        for second in range(300):
            wave = 25.0 * ((second * 7919) % 13) / 13 - (60.0 if second % 90 > 80 else 0.0)
            rows.append(
                {
                    "figure": "figure5",
                    "panel": panel,
                    "label": f"{4 * 4**index} GPUs",
                    "configuration": f"fourcastnet-{device}-n{2**index:03d}-lbs0004-full",
                    "device": device,
                    "device_name": DEVICE_NAMES[device],
                    "gpus": 2**index,
                    "local_batch_size": 4,
                    "global_batch_size": 4 * 2**index,
                    "time_s": float(second),
                    "power_w": None if second == 150 else level + wave,
                    "mean_power_w": level + 5,
                    "mean_power_all_w": level - 4,
                    "device_kind": "gpu",
                    "energy_origin": "measured",
                    "quantity": ("instantaneous", "moving_mean")[index // 2],
                }
            )
    made = {"figure": "figure5", "campaign": "made", "options": options}
    return with_metadata(pa.Table.from_pylist(rows, POWER), made)


_BY_HAND = {"figure5": power_table, "breakdown": _breakdown, "learning": _learning}
"""Tables that are not made of configurations alone."""


def rows_of_runs(figure: str, results: Path, files: list[RunFiles], **more: Any) -> list[Row]:
    """The rows of a figure of two series, both of these runs' configurations."""
    points = [{"configuration": name} for name in dict.fromkeys(f.configuration for f in files)]
    series = [{"name": name, "label": name, "points": points} for name in ("first", "second")]
    made = {
        "figure": figure,
        "series": series,
        "runs": [[f.configuration, f.repeat] for f in files],
    }
    idle = results / "tables" / "idle.parquet" if "idle" in more else None
    left_out = {(e["configuration"], e["repeat"]): e["reason"] for e in more.get("excluded", [])}
    runs = read_runs(results, made["runs"], "made", Facility(), idle, left_out)
    return records(figure_table(made | more, runs, idle))


# --- what is drawn of them --------------------------------------------------------------------------

_DRAWN: dict[tuple[str, bytes], Figure] = {}


def draw(name: str, table: pa.Table, again: bool = False) -> Figure:
    """The figure of a table; of a table that was drawn before the same one, but where `again` asks for
    a new one."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    key = name, hashlib.sha256(sink.getvalue()).digest()
    if again or key not in _DRAWN:
        _DRAWN[key] = _module(name).draw(_drawable(name, table))
    return _DRAWN[key]


def plotted(name: str, table: pa.Table) -> pa.Table:
    """The points of a figure that are drawn."""
    points = _module(name).plotted(_drawable(name, table))
    return to_table(points, POINTS if "pareto_optimal" in points else SCHEMAS[name])


def _drawable(name: str, table: pa.Table) -> Any:
    frame = drawable(to_frame(table))
    frame.attrs["figure"] = name
    return frame


def _module(name: str) -> Any:
    return import_module(f"scalewatt.{module_of(name)}")


def legend_of(figure: Figure) -> Row:
    """Entries of the legend by their words."""
    (legend,) = figure.legends
    return dict(zip((t.get_text() for t in legend.get_texts()), legend.legend_handles, strict=True))


def words(figure: Figure) -> str:
    """Everything that a figure and its caption say, line breaks as blanks."""
    from matplotlib.text import Text

    said = [text.get_text() for text in figure.findobj(Text)]
    return " ".join(" ".join([*said, *figure.sentences]).split())  # type: ignore[attr-defined]
