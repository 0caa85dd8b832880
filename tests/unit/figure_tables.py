"""Synthetic figure tables in the schema that figures read. No number here was ever measured."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.draw_figure import module_of
from scalewatt.figures.figure_data import drawable
from scalewatt.results.figures.figure_schema import OVERVIEW, POINTS, POWER, SCHEMAS
from scalewatt.results.tables.frames import to_frame, to_table

PAPER = [1, 2, 4, 8, 16, 32, 64, 128, 256]
CURVES = {
    2: [("A", "gpus", "speedup"), ("B", "gpus", "metric_last"), ("C", "gpus", "energy_kwh")],
    3: [
        ("A", "gpus", "runtime_h"),
        ("B", "gpus", "metric_last"),
        ("B2", "dataset_samples", "metric_last"),
        ("C", "gpus", "energy_kwh"),
        ("C2", "dataset_samples", "energy_kwh"),
    ],
    6: [
        ("A", "gpus", "p_gpuh_kw"),
        ("B", "gpus", "mean_gpu_power_w"),
        ("C", "gpus", "mean_cpu_socket_power_w"),
        ("D", "gpus", "samples_per_gpuh"),
        ("E", "gpus", "passes_per_gpuh"),
    ],
}
CURVES[4], CURVES[7] = CURVES[2], CURVES[6]
for _figure in (2, 3, 4):
    CURVES[_figure] = [*CURVES[_figure], ("D", "gpu_hours", "energy_kwh")]


def paper_series(figure: int) -> list[dict[str, Any]]:
    """The series of the paper's figure: name, label, phase, device, counts, fixed batch."""

    def one(name: str, label: str, counts: list[int], **more: Any) -> dict[str, Any]:
        base = {"series": name, "label": label, "gpus": counts, "model": "resnet50"}
        return base | {"phase": "train", "device": "a100", "scaled": False, "gbs": None} | more

    full = [
        one("resnet50-full-lbs256", "LBS 256", PAPER),
        one("resnet50-full-gbs256", "GBS 256", PAPER[:5], gbs=256),
        one("resnet50-full-gbs8192", "GBS 8192", PAPER[5:], gbs=8192),
    ]
    scaled = [
        s
        | {"scaled": True, "series": s["series"].replace("full", "scaled")}
        | {"label": f"{s['label']}, scaled"}
        for s in full
    ]
    net = {"model": "fourcastnet", "phase": "pretrain"}
    fourcastnet = [
        one("fourcastnet-lbs1", "LBS 1, pretrain, A100", PAPER[2:], **net),
        one(
            "fourcastnet-finetune-lbs1",
            "LBS 1, finetune, A100",
            PAPER[4:],
            **(net | {"phase": "finetune"}),
        ),
        one("fourcastnet-gbs64", "GBS 64, pretrain, A100", PAPER[4:7], gbs=64, **net),
        one("fourcastnet-gbs16-h100", "GBS 16, pretrain, H100", PAPER[2:5], gbs=16, **net)
        | {"device": "h100"},
        one("fourcastnet-gbs32-h100", "GBS 32, pretrain, H100", PAPER[2:6], gbs=32, **net)
        | {"device": "h100"},
    ]
    return {2: full, 3: scaled, 6: full + scaled}.get(figure, fourcastnet)


def demo_series(figure: int) -> list[dict[str, Any]]:
    """The same rules at the demo's size: 1, 2 and 4 processes."""
    small = []
    for series in paper_series(figure):
        gbs = None if series["gbs"] is None else 64
        small.append(series | {"gpus": [1, 2, 4], "device": "local", "gbs": gbs})
    return small


def _value(name: str, series: dict[str, Any], n: int, small: bool) -> float | None:
    """A made-up but smooth number for a column."""
    work = n if series["scaled"] else 1
    device = 0.55 if series["device"] == "h100" else 1.0
    hours = (
        (0.02 if small else 40.0) * device * work * (n**-0.94 if series["gbs"] is None else n**-0.8)
    )
    error = 8.0 + 30.0 / work + 0.03 * n
    if series["model"] == "fourcastnet":
        error = 6000.0 * n**0.05
    values: dict[str, float | None] = {
        "runtime_h": hours,
        "gpu_hours": hours * n,
        "speedup": float(n) ** (0.94 if series["gbs"] is None else 0.8),
        "metric_last": error,
        "energy_kwh": (0.1 if small else 0.42) * hours * n * (1 + 0.4 / n),
        "p_gpuh_kw": (0.1 if small else 0.42) * (1 + 0.4 / n),
        "mean_gpu_power_w": None if small else 330.0 - 4 * n**0.5,
        "mean_cpu_socket_power_w": 95.0 if small else 140.0 + 2.0 * min(n, 4),
        "samples_per_gpuh": 1.2e6 * n**-0.06,
        "passes_per_gpuh": 4000.0 * (1.0 if series["gbs"] is None else n),
    }
    return values[name]


def _point(
    figure: int, panel: tuple[str, str, str], series: dict[str, Any], n: int, small: bool
) -> dict[str, Any]:
    letter, x_name, y_name = panel
    fixed = 64 if small else 256
    lbs = fixed if series["gbs"] is None else max(1, series["gbs"] // n)
    samples = 1437 if small else 1281167
    samples = samples * n // max(series["gpus"]) if series["scaled"] else samples
    y = _value(y_name, series, n, small)
    single = series["model"] == "fourcastnet" or (small and n != 2)
    x = {"gpus": n, "dataset_samples": samples}.get(x_name) or _value(x_name, series, n, small)
    bar = None if single or y is None else 0.04 * y
    return {
        "figure": figure,
        "panel": letter,
        "series": series["series"],
        "label": series["label"],
        "configuration": f"{series['model']}-{series['device']}-n{n:03d}-lbs{lbs:04d}-full",
        "model": series["model"],
        "phase": series["phase"],
        "device": series["device"],
        "device_name": "AMD EPYC 9B45" if small else f"NVIDIA {series['device'].upper()}",
        "gpus": n,
        "local_batch_size": lbs,
        "global_batch_size": lbs * n,
        "dataset_samples": samples,
        "x_name": x_name,
        "x": float(x or 0),
        "y_name": y_name,
        "y": y,
        "y_low": None if bar is None or y is None else y - bar,
        "y_high": None if bar is None or y is None else y + bar,
        "n_repeats": 1 if single else 5,
        "energy_origin": "estimated" if small else "measured",
        "energy_scope": "cpu" if small else "gpu+cpu" + "+ram" * (series["device"] != "h100"),
    }


def as_table(rows: list[dict[str, Any]], schema: pa.Schema, **metadata: Any) -> pa.Table:
    """An Arrow table of a schema with the contract's metadata; what rows lack is null."""
    figure = f"figure{metadata['figure']}"
    rows = [row | {"figure": figure} for row in rows]
    schema = schema.with_metadata(
        {b"scalewatt": json.dumps(metadata | {"figure": figure}).encode()}
    )
    return pa.Table.from_pylist(rows, schema=schema)


def curve_table(
    figure: int, small: bool = False, missing: list[str] | None = None, **options: Any
) -> pa.Table:
    """The table of figure 2, 3, 4, 6 or 7, of the paper's size or of the demo's."""
    rows = [
        _point(figure, panel, series, n, small)
        for panel in CURVES[figure]
        for series in (demo_series(figure) if small else paper_series(figure))
        for n in series["gpus"]
    ]
    return as_table(
        rows,
        POINTS,
        figure=figure,
        campaign="synthetic",
        missing=missing or [],
        excluded=[],
        options=options,
        notes=[],
        gpu_word="processes" if small else "GPUs",
    )


def procedure_table(small: bool = False) -> pa.Table:
    """The table of figure 1."""

    rows = []
    for figure in (2, 3, 4):
        for series in demo_series(figure) if small else paper_series(figure):
            for n in series["gpus"]:
                point = _point(figure, ("A", "gpus", "speedup"), series, n, small)
                row = {name: point[name] for name in OVERVIEW.names if name in point}
                per_epoch = point["dataset_samples"] // point["global_batch_size"] + 1
                rows.append(
                    row
                    | {
                        "figure": 1,
                        "samples_per_gpu": point["dataset_samples"] // n,
                        "updates_per_epoch": per_epoch,
                        "updates": 100 * per_epoch,
                        "dataset_rule": "scaled" if series["scaled"] else "fixed",
                        "batch_rule": "constant LBS" if series["gbs"] is None else "constant GBS",
                    }
                )
    word = "processes" if small else "GPUs"
    return as_table(rows, OVERVIEW, figure=1, campaign="synthetic", gpu_word=word)


def power_table(small: bool = False, panels: str = "ABCD") -> pa.Table:
    """The table of figure 5: 300 samples a panel, one of them lost."""

    rows = []
    for index, panel in enumerate(panels):
        level = (90.0 if small else 300.0) + 20 * index
        for second in range(300):
            lost = second == 150
            wave = 25.0 * ((second * 7919) % 13) / 13 - (60.0 if second % 90 > 80 else 0.0)
            device = "local" if small else ("a100", "h100")[index // 2]
            rows.append(
                {
                    "figure": 5,
                    "panel": panel,
                    "label": f"{4 * 4**index} GPUs",
                    "configuration": f"fourcastnet-{device}-n{2**index:03d}-lbs0004-full",
                    "device": device,
                    "device_name": "AMD EPYC 9B45" if small else f"NVIDIA {device.upper()}",
                    "gpus": 2**index,
                    "local_batch_size": 4,
                    "global_batch_size": 4 * 2**index,
                    "time_s": float(second),
                    "power_w": None if lost else level + wave,
                    "mean_power_w": level + 5,
                    "mean_power_all_w": level - 4,
                    "device_kind": "cpu" if small else "gpu",
                    "energy_origin": "estimated" if small else "measured",
                    "quantity": None if small else ("instantaneous", "moving_mean")[index // 2],
                }
            )
    word = "processes" if small else "GPUs"
    return as_table(
        rows, POWER, figure=5, campaign="synthetic", missing=[], notes=[], gpu_word=word
    )


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


def any_table(figure: int, small: bool = False) -> pa.Table:
    """The synthetic table of any figure."""
    if figure == 1:
        return procedure_table(small)
    return power_table(small) if figure == 5 else curve_table(figure, small)


_MEANS = ["runtime_h", "gpu_hours", "energy_kwh", "p_gpuh_kw", "metric_last"]


def run_rows() -> list[dict[str, Any]]:
    """Rows of the runs table at the demo's size; the last run lost its energy."""
    rows = []
    for figure in (2, 4):
        model = demo_series(figure)[0]["model"]
        name, persistence = (
            ("z500_rmse_m2_s2", 9000.0) if figure == 4 else ("top1_error_percent", None)
        )
        for n in (1, 2, 4):
            for repeat in (1, 2) if n == 2 else (1,):
                point = _point(figure, ("A", "gpus", "speedup"), demo_series(figure)[0], n, True)
                lost = figure == 4 and n == 4
                rows.append(
                    {key: point[key] for key in ("configuration", "model", "phase", "device")}
                    | {key: point[key] for key in ("device_name", "gpus", "energy_scope")}
                    | {key: point[key] for key in ("local_batch_size", "global_batch_size")}
                    | {"dataset_samples": 1437, "updates": 48, "repeat": repeat, "nodes": 1}
                    | {"campaign": "synthetic", "protocol": "corrected", "precision": "fp32"}
                    | {"runtime_h": 0.02, "gpu_hours": 0.02 * n, "p_gpuh_kw": 0.1}
                    | {"energy_kwh": None if lost else 0.002 * n, "energy_origin": "estimated"}
                    | {"coverage": 0.4 if lost else 1.0, "segments": 1, "carbon_kg": 0.0007}
                    | {"cost": None, "facility_energy_kwh": None if lost else 0.003 * n}
                    | {"metric_name": name, "metric_last": 20.0 if figure == 2 else 3000.0 * n}
                    | {"metric_best": 19.0, "metric_persistence": persistence}
                    | {"spec_sha256": f"{model}{n}{repeat}".encode().hex().ljust(64, "0")}
                    | {
                        "flags": json.dumps(
                            [{"code": "gap", "device": "CPU", "detail": "31 s"}] if lost else []
                        )
                    }
                )
    return rows


def configuration_rows() -> list[dict[str, Any]]:
    """Rows of the configurations table that belong to `run_rows`."""
    rows = []
    for run in [row for row in run_rows() if row["repeat"] == 1]:
        repeats = 2 if run["gpus"] == 2 else 1
        row = {key: run[key] for key in ("configuration", "gpus", "local_batch_size")}
        row |= {"global_batch_size": run["global_batch_size"], "n_repeats": repeats}
        for name in _MEANS:
            mean = run[name]
            bar = None if repeats == 1 or mean is None else 0.1 * mean
            row |= {f"{name}_mean": mean, f"{name}_sd": bar}
            row[f"{name}_low"] = None if bar is None else mean - bar
            row[f"{name}_high"] = None if bar is None else mean + bar
        rows.append(row)
    return rows


def legend_of(figure: Figure) -> dict[str, Any]:
    """Entries of the legend by their words."""
    (legend,) = figure.legends
    return dict(zip((t.get_text() for t in legend.get_texts()), legend.legend_handles, strict=True))


def texts(figure: Figure) -> str:
    """All words in the panels and of the captions, in one line."""
    result = [text.get_text() for axes in figure.axes for text in axes.texts]
    return " ".join([*result, *figure.sentences]).replace("\n", " ")  # type: ignore[attr-defined]
