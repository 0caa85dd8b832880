"""The paper's campaign with made-up results, at its full size. No number here was ever measured."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pyarrow as pa
from campaign_files import PAPER

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.figures.figure_schema import BREAKDOWN, LEARNING, POINTS
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.tables.frames import frame_of, records, to_table
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, QUANTITIES, RUNS

Row = dict[str, Any]
HOREKA = PAPER.parents[1] / "config" / "horeka.yaml"
COPIED = (
    *("configuration", "model", "phase", "device", "device_name", "gpus", "local_batch_size"),
    *("global_batch_size", "dataset_samples", "n_repeats", "energy_origin", "energy_scope"),
)
"""What the rows of a figure's table have of their configuration."""
METRICS = {"resnet50": "top1_error_percent", "fourcastnet": "z500_rmse_m2_s2"}


@cache
def campaign() -> Campaign:
    """The paper's."""
    return load_campaign(str(PAPER), parse_cluster(read_yaml(HOREKA), str(HOREKA)))


def definition(figure: str, **options: Any) -> Row:
    """A figure's definition with all series of the paper, every run there."""
    paper = campaign()
    paper.figures[figure] = {"series": list(paper.series), **options}
    runs = [[id_, r] for id_ in paper.configurations for r in range(1, paper.repeats[id_] + 1)]
    return table_definition(paper, figure, runs)


def configurations() -> list[Row]:
    """A row for each configuration of the paper."""
    return [_configuration(id_) for id_ in campaign().configurations]


def _once(definition: Row) -> list[Row]:
    lines = lines_of(definition["series"], frame_of(configurations(), CONFIGURATIONS))
    return records(lines.drop_duplicates("configuration"))


def _configuration(id_: str) -> Row:
    paper = campaign()
    each = paper.configurations[id_]
    n, repeats = each.gpus, paper.repeats[id_]
    samples = each.dataset_samples or 0
    hours = 24.0 * samples / 1281167 * n**-0.93 * (1 + 3.0 / each.local_batch_size)
    hours *= 0.5 if each.device == "h100" else 1.0
    error = 24.0 + 600.0 / samples**0.3 + 0.04 * each.global_batch_size**0.6
    means = {"runtime_h": hours, "gpu_hours": hours * n, "energy_kwh": 0.42 * hours * n}
    means |= {"metric_last": error if each.model == "resnet50" else 40 * error}
    row: Row = dict.fromkeys(CONFIGURATIONS.names)
    row |= {"campaign": "made", "configuration": id_, "model": each.model, "phase": each.phase}
    row |= {"device": each.device, "device_name": f"NVIDIA {each.device.upper()}", "gpus": n}
    row |= {"local_batch_size": each.local_batch_size, "n_repeats": repeats}
    row |= {"global_batch_size": each.global_batch_size, "dataset_samples": each.dataset_samples}
    row |= {"energy_origin": "measured", "metric_name": METRICS[each.model], "metric_goal": "min"}
    row["energy_scope"] = "gpu+cpu" if each.device == "h100" else "gpu+cpu+ram"
    for name in QUANTITIES:
        mean = means.get(name)
        bar = None if repeats == 1 or mean is None else 0.03 * mean
        values = (mean, bar, bar and (mean or 0) - bar, bar and (mean or 0) + bar, bar)
        row |= {f"{name}_{part}": value for part, value in zip(PARTS, values, strict=True)}
    return row


def breakdown_table(**options: Any) -> pa.Table:
    """Kinds and stages of all configurations, with an idle baseline, and here and there discarded work."""
    made = definition("breakdown", **options)
    rows = []
    for group in _once(made):
        kinds = {"gpu": 0.74, "cpu": 0.2, "ram": 0.06}
        kinds = {k: v for k, v in kinds.items() if k in group["energy_scope"].split("+")}
        stages = {"startup": 0.02, "train": 0.8, "validate": 0.12, "checkpoint": 0.03}
        stages |= {"shutdown": 0.01, "unattributed": 0.02}
        for kind, of_kind in kinds.items():
            for stage, of_stage in stages.items():
                share = of_kind / sum(kinds.values()) * of_stage
                energy = share * group["energy_kwh_mean"]
                lost = 0.1 * energy if group["gpus"] == 8 and stage == "train" else 0.0
                row = {"figure": "breakdown", "series": group["series"], "label": group["label"]}
                row |= {name: group[name] for name in COPIED} | {
                    "device_kind": kind,
                    "stage": stage,
                }
                row |= {"energy_kwh": energy, "energy_share": share}
                row |= {f"total_kwh_{end}": group[f"energy_kwh_{end}"] for end in PARTS[1:]}
                row |= {"idle_energy_kwh": 0.3 * energy, "discarded_energy_kwh": lost}
                rows.append(row)
    return with_metadata(pa.Table.from_pylist(rows, BREAKDOWN), made)


def learning_table(epochs: int = 90, **options: Any) -> pa.Table:
    """Curves that fall, of all runs of the paper."""
    made = definition("learning", **options)
    rows = []
    for group in _once(made):
        for repeat in range(1, campaign().repeats[group["configuration"]] + 1):
            spread = 1 + 0.01 * (repeat - 3)
            for epoch in range(epochs):
                done = (epoch + 1) / epochs
                row = {"figure": "learning", "series": group["series"], "label": group["label"]}
                row |= {name: group[name] for name in (*COPIED, "metric_name", "metric_goal")}
                row |= {"repeat": repeat, "epoch": epoch}
                row["metric"] = group["metric_last_mean"] * (1 + 2.2 * math.exp(-4 * done)) * spread
                row["energy_kwh"] = group["energy_kwh_mean"] * done * spread
                row["time_h"] = group["runtime_h_mean"] * done
                rows.append(row)
    return with_metadata(pa.Table.from_pylist(rows, LEARNING), made)


def pareto_table(**options: Any) -> pa.Table:
    """The metric against energy and time of all configurations."""
    made = definition("pareto", **options)
    points = panel_points(made, frame_of(configurations(), CONFIGURATIONS), frame_of([], RUNS))
    return with_metadata(to_table(points, POINTS), made)


def with_metadata(table: pa.Table, made: Row, **more: Any) -> pa.Table:
    """A table with the metadata that it is written with."""
    empty: Row = {"missing": [], "excluded": [], "options": {}}
    kept = {key: made.get(key, empty.get(key)) for key in ("figure", "campaign", *empty)}
    stored = {**kept, "notes": [], "gpu_word": "GPUs", "metric_name": "several", **more}
    return table.replace_schema_metadata({b"scalewatt": json.dumps(stored).encode()})
