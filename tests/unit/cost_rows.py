"""Points of figure cost_per_sample as a GPU might give them: for tests of the figure alone."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.figures.panel_points import (
    LINE_IDS,
    QUANTITIES,
    join_settings,
    rows_of_panels,
    with_speedups,
)
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS

DEPARTURES = ("precision", "channels_last", "compile", "loader")
"""Settings that are named in an id."""
_SCHEMA = pa.schema(
    [
        ("place", pa.int32()), ("series", pa.string()), ("label", pa.string()), ("published", pa.bool_()),
        *CONFIGURATIONS,
        *((f"{name}_{part}", pa.float64()) for name in QUANTITIES for part in PARTS),
    ]
)  # fmt: skip


def row(setting: dict[str, Any], batch: int, rate: float, power_w: float) -> dict[str, Any]:
    """A configuration: samples/s `rate` at `power_w`; `setting` overrides anything."""
    joules = power_w / rate
    departs = {k: v for k, v in setting.items() if k in DEPARTURES}
    extra = "".join(f"-{key}{value}".lower() for key, value in sorted(departs.items()))
    model = setting.get("model", "resnet50") + "." * ("phase" in setting) + setting.get("phase", "")
    device, n = setting.get("device", "h100"), setting.get("gpus", 1)
    name = f"{model}-{device}-n{n:03d}-lbs{batch:04d}-full{extra}"
    made: dict[str, Any] = dict.fromkeys(_SCHEMA.names)
    made |= {
        "place": 0, "series": name, "label": name, "configuration": name, "published": False,
        "model": "resnet50", "phase": "train", "device": "h100",
        "device_name": "NVIDIA H100 80GB HBM3", "torch_device": "cuda", "gpus": 1,
        "local_batch_size": batch, "dataset_samples": int(20 * rate), "epochs": 1,
        "protocol": "corrected", "loader": "synthetic", "precision": "bf16", "precision_used": "bf16",
        "channels_last": False, "compile": False, "n_repeats": 1, "energy_origin": "measured",
        "energy_scope": "gpu", "throughput_samples_per_s_mean": rate,
        "train_energy_per_sample_j_mean": joules, "train_power_w_mean": power_w,
    } | setting  # fmt: skip
    made["precision_used"] = setting.get("precision_used", made["precision"])
    return made


def frame(rows: list[dict[str, Any]], **options: Any) -> pd.DataFrame:
    """The table of points of these configurations, with its metadata."""
    lines = join_settings(with_speedups(frame_of(rows, _SCHEMA)), LINE_IDS["batches"])
    made = rows_of_panels("cost_per_sample", lines)
    made.attrs = {"figure": "cost_per_sample", "campaign": "one-gpu", "missing": [], "excluded": [],
                  "options": options, "notes": [], "gpu_word": "GPUs"}  # fmt: skip
    return made


def h100_rows() -> list[dict[str, Any]]:
    """Points of campaigns/one-gpu.yaml with invented numbers."""
    fast = {"precision": "bf16", "channels_last": True}
    paper = {"precision": "torch_default", "precision_used": "tf32_convolutions"}
    cast = {"model": "fourcastnet", "phase": "pretrain", "precision": "fp16"}
    repeated = {
        "n_repeats": 3,
        "train_energy_per_sample_j_low": 0.2,
        "train_energy_per_sample_j_high": 0.3,
    }
    return [
        row(fast | repeated, 32, 1500, 430), row(fast, 256, 2750, 630), row(paper, 256, 1300, 560),
        row({"precision": "fp32"}, 256, 420, 610), row(fast | {"compile": True}, 256, 3200, 640),
        row(fast | {"loader": "pil"}, 256, 1400, 390), row(cast, 1, 8.1, 480), row(cast, 4, 10.4, 590),
        row(cast | {"phase": "finetune"}, 4, 4.2, 590), row(cast | {"compile": True}, 4, 14.9, 610),
    ]  # fmt: skip
