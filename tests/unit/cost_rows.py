"""Rows of table cost_per_sample as a GPU might give them: for tests of the figure alone."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalewatt.results.figures.cost_table import with_front
from scalewatt.results.figures.figure_schema import COST_PER_SAMPLE, COST_PHASES
from scalewatt.results.tables.frames import frame_of

DEPARTURES = ("precision", "channels_last", "compile", "loader")
"""Settings that are named in an id."""
SHARES = {"data": 0.02, "copy": 0.03, "forward": 0.3, "backward": 0.55, "optimizer": 0.1}


def row(
    setting: dict[str, Any], batch: int, rate: float, power_w: float, startup_j: float = 2000.0
) -> dict[str, Any]:
    """A point: samples/s `rate` at `power_w`; `setting` overrides identification and anything else."""
    joules = power_w / rate
    departs = {k: v for k, v in setting.items() if k in DEPARTURES}
    extra = "".join(f"-{key}{value}".lower() for key, value in sorted(departs.items()))
    model = setting.get("model", "resnet50") + "." * ("phase" in setting) + setting.get("phase", "")
    device, n = setting.get("device", "h100"), setting.get("gpus", 1)
    name = f"{model}-{device}-n{n:03d}-lbs{batch:04d}-full{extra}"
    found: dict[str, Any] = dict.fromkeys(COST_PER_SAMPLE.names)
    found |= {
        "figure": "cost_per_sample", "series": name, "label": name, "configuration": name,
        "model": "resnet50", "phase": "train", "device": "h100",
        "device_name": "NVIDIA H100 80GB HBM3", "torch_device": "cuda", "gpus": 1,
        "local_batch_size": batch, "dataset_samples": int(20 * rate), "epochs": 1,
        "protocol": "corrected", "loader": "synthetic", "precision": "bf16", "precision_used": "bf16",
        "channels_last": False, "compile": False, "n_repeats": 1, "energy_origin": "measured",
        "energy_scope": "gpu", "total_origin": "mixed", "total_scope": "gpu+cpu",
        "throughput_samples_per_s_mean": rate, "energy_per_sample_j_mean": joules,
        "power_w_mean": power_w, "train_s": 20.0, "startup_s": 8.0,
        "startup_energy_j": startup_j,
        **{f"{phase}_per_sample_j": joules * share for phase, share in SHARES.items()},
        **{f"step_{phase}_s": batch / rate * SHARES[phase] for phase in COST_PHASES},
    } | setting  # fmt: skip
    found["precision_used"] = setting.get("precision_used", found["precision"])
    return found


def frame(rows: list[dict[str, Any]], **options: Any) -> pd.DataFrame:
    """The table of rows, with its metadata."""
    made = with_front(frame_of(rows, COST_PER_SAMPLE))
    made.attrs = {"figure": "cost_per_sample", "campaign": "one-gpu", "missing": [], "excluded": [],
                  "options": options, "notes": [], "gpu_word": "GPUs"}  # fmt: skip
    return made


def h100_rows() -> list[dict[str, Any]]:
    """The points of campaigns/one-gpu.yaml with invented numbers."""
    fast = {"precision": "bf16", "channels_last": True}
    paper = {"precision": "torch_default", "precision_used": "tf32_convolutions"}
    rows = [
        row(fast | {"n_repeats": 3, "energy_per_sample_j_low": power / rate * 0.98,
                    "energy_per_sample_j_high": power / rate * 1.02} if batch in (32, 896) else fast,
            batch, rate, power)
        for batch, rate, power in ((32, 1500, 430), (64, 2100, 520), (128, 2550, 590), (256, 2750, 630),
                                   (512, 2850, 650), (896, 2880, 660))
    ]  # fmt: skip
    rows += [row(paper, *one) for one in ((64, 1100, 480), (256, 1300, 560), (448, 1330, 570))]
    rows += [
        row({"precision": "fp32"}, 256, 420, 610), row({"precision": "tf32"}, 256, 1310, 565),
        row({"precision": "bf16"}, 256, 1500, 500), row({"precision": "fp16"}, 256, 1480, 505),
        row({"precision": "fp16", "channels_last": True}, 256, 2700, 640),
        row(fast | {"compile": True}, 256, 3200, 640, 16000.0),
        row(fast | {"loader": "pil"}, 256, 1400, 390), row(fast | {"loader": "torchvision"}, 256, 2100, 500),
        row(fast | {"loader": "torchvision"}, 256, 1900, 520),
    ]  # fmt: skip
    cast = {"model": "fourcastnet", "phase": "pretrain", "precision": "fp16"}
    tuned = {**cast, "phase": "finetune"}
    rows += [
        row(cast, *one)
        for one in ((1, 8.1, 480), (2, 9.6, 540), (4, 10.4, 590), (8, 10.8, 610), (12, 10.9, 615))
    ]
    rows += [row(tuned, *one) for one in ((1, 3.6, 500), (4, 4.2, 590))]
    rows += [
        row(cast | {"precision": "bf16"}, 4, 10.6, 592), row(cast | {"precision": "tf32"}, 4, 6.0, 560),
        row(cast | {"precision": "fp32"}, 4, 2.6, 640), row(cast | {"compile": True}, 4, 14.9, 610, 30000.0),
        row(cast | {"precision": "bf16", "compile": True}, 4, 15.2, 608, 30000.0),
    ]  # fmt: skip
    return rows
