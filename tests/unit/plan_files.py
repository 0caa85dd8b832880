"""The paper's plan by the model that ships, and campaigns of which it knows less."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from campaign_files import ROOT
from request_files import horeka, paper

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.results.tables.frames import records
from scalewatt.scaling.calibrate import read_points
from scalewatt.scaling.model import Kind, Point, by_kind
from scalewatt.scaling.plan import make_plan, select_levels
from scalewatt.scaling.predict import ScalingModel, read_model

MODEL = ROOT / "reference" / "scaling_model.json"
FACILITY = {
    "pue": {"value": 1.5, "source": "a test"},
    "carbon_intensity": {"value": 400, "source": "a test"},
    "price": {"value": 0.2, "source": "a test", "currency": "EUR"},
}


@cache
def scaling_model() -> ScalingModel:
    return read_model(MODEL)


def published_points(key: str, device: str) -> tuple[Kind, list[Point]]:
    """A kind of training with its published points."""
    kinds = by_kind(read_points(ROOT / "reference")[0])
    return next(pair for pair in kinds.items() if (pair[0].key, pair[0].device) == (key, device))


@cache
def paper_plan() -> pd.DataFrame:
    return make_plan(paper(), horeka(), scaling_model())


def rows_of(plan: pd.DataFrame, *levels: str) -> list[dict[str, Any]]:
    """Rows of some levels of a plan, of all without any; None for null."""
    return records(select_levels(plan, *levels) if levels else plan)


def without_energies() -> ScalingModel:
    """The same model, had nobody measured any energy."""
    model = scaling_model()
    return replace(model, kinds=tuple(replace(kind, energy=None) for kind in model.kinds))


def facility_cluster() -> Cluster:
    return horeka().model_copy(update=FACILITY)


def small(series: dict[str, dict[str, Any]], **more: Any) -> Campaign:
    """A campaign of ResNet50 on the paper's data."""
    content = {
        "name": "small",
        "protocol": "paper",
        "datasets": {
            "imagenet": {
                "format": "imagenet",
                "source": "data_root",
                "train_samples": 1281167,
                "validation_samples": 50000,
                "classes": 1000,
            }
        },
        "models": {"resnet50": {"dataset": "imagenet", "epochs": 100}},
        "series": {
            name: {"model": "resnet50", "device": "a100", **entry} for name, entry in series.items()
        },
        "figures": {"breakdown": {"series": list(series)}},
        **more,
    }
    return expand(content, Path("small.yaml"), known_devices(horeka()))


KNOWN = {"gpus": [4, 16, 64], "local_batch_size": 64, "repeats": 3}
UNKNOWN = {"gpus": [4], "local_batch_size": 64, "settings": {"precision": "bf16"}, "repeats": 2}
