"""Learning curves of simulated runs, which end at a published error where there is one.

Published of ResNet50 are the top-1 errors 28 % at GBS 256 and 1024 and 42 % at GBS 65 536, all on the
full dataset (Huber et al. 2025, section 3.2.2), whose text says "about constant up to 32 GPUs": taken as
28 % at GBS 8192 as well, which is no published number. Between two of them a run's error is
interpolated along log2 GBS. All others are assumed: of fewer samples, and of FourCastNet, whose errors
are published only as a figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.tabular_files import csv_rows
from scalewatt.recordings.terms import Floats
from scalewatt.results.tables.published import FULL_SAMPLES, REFERENCE
from scalewatt.scaling.simulation.run_sample import RunDraw, scatter_of

PUBLISHED, IN_WORDS, INTERPOLATED, ASSUMED = "published", "in words", "interpolated", "assumed"
"""The source of an error. All but PUBLISHED count as assumed."""
METRICS = {"resnet50": "top1_error_percent", "fourcastnet": "z500_rmse_m2_s2"}
WORST = {"top1_error_percent": 99.0}
"""The upper limit of a metric."""
_CONSTANT_UP_TO = 8192
_PER_HALVING = 8.0
"""Percentage points that halving the samples costs ResNet50, assumed."""
_FORECAST = {"pretrain": 150.0, "finetune": 240.0}
"""Z500 RMSE in m²/s² at GBS 4, after 6 and 12 hours, assumed."""
_SLIGHT, _STEEP, _KNEE = 0.02, 0.15, 64
"""Relative growth with each doubling of GBS, up to a GBS and beyond it, assumed."""
_OTHER = 0.5
_FIRST = {"resnet50": 98.0, "fourcastnet": 900.0}
"""Before the first epoch."""
_SPEED = 5.0
"""Number of e-foldings by which a curve falls over the training."""
_NOISE = 0.02
"""Noise of a curve before its end, relative to what is left to learn."""


@dataclass(frozen=True)
class Final:
    """The metric at the end of a configuration's trainings, without the scatter of repeats."""

    name: str
    value: float
    source: str
    """PUBLISHED, IN_WORDS, INTERPOLATED or ASSUMED."""
    between: tuple[int, ...] = ()
    """The GBS of the values that it is interpolated between."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the provenance."""
        return {"name": self.name, "source": self.source, "between": list(self.between)}


def final_metric(spec: RunSpec) -> Final:
    """Return the metric at the end of a spec's runs."""
    model, gbs = spec.model, spec.global_batch_size
    if model == "resnet50" and spec.dataset_samples is not None:
        return _resnet50(spec.dataset_samples, gbs)
    if model == "fourcastnet":
        slight = math.log2(max(min(gbs, _KNEE) / 4, 1))
        steep = math.log2(max(gbs / _KNEE, 1))
        value = _FORECAST[spec.phase] * (1 + _SLIGHT * slight + _STEEP * steep)
        return Final(METRICS[model], value, ASSUMED)
    name = spec.settings.get("metric_name") or "metric"
    return Final(name, _OTHER, ASSUMED)


def _resnet50(samples: int, gbs: int) -> Final:
    name = METRICS["resnet50"]
    published = published_errors()
    points = {_CONSTANT_UP_TO: _in_words(published), **published}
    known = sorted(points)
    clamped = min(max(gbs, known[0]), known[-1])
    value = float(np.interp(math.log2(clamped), np.log2(known), [points[g] for g in known]))
    if samples != FULL_SAMPLES["resnet50"] or clamped != gbs:
        halvings = math.log2(FULL_SAMPLES["resnet50"] / samples)
        value = min(value + _PER_HALVING * max(halvings, 0.0), WORST[name])
        return Final(name, value, ASSUMED)
    if gbs in points:
        return Final(name, value, PUBLISHED if gbs in published else IN_WORDS)
    right = int(np.searchsorted(known, gbs))
    return Final(name, value, INTERPOLATED, (known[right - 1], known[right]))


def published_errors() -> dict[int, float]:
    """Return ResNet50's published top-1 errors in percent by GBS, on the full dataset."""
    return {
        int(row["global_batch_size"]): float(row["metric_value"])
        for row in csv_rows(REFERENCE).values()
        if row["metric_name"] == METRICS["resnet50"]
        and int(row["dataset_samples"]) == FULL_SAMPLES["resnet50"]
    }


def _in_words(published: Mapping[int, float]) -> float:
    """Return the error that the paper's text calls about constant up to _CONSTANT_UP_TO."""
    return published[max(gbs for gbs in published if gbs <= _CONSTANT_UP_TO)]


def _first(spec: RunSpec, end: float) -> float:
    """Return the metric before the first epoch: worse than at the end, whichever direction is better."""
    if spec.settings.get("metric_goal") == "max":
        return 0.0
    return max(_FIRST.get(spec.model, 2 * end), end)


def curve(spec: RunSpec, draw: RunDraw) -> Floats:
    """Return the metric after each epoch, (epochs,)."""
    end = final_metric(spec)
    value = end.value * (1 + scatter_of(spec).metric * draw.metric_deviation)
    value = min(value, WORST.get(end.name, math.inf))
    first = _first(spec, value)
    done = np.arange(1, spec.epochs + 1) / spec.epochs
    left = (np.exp(-_SPEED * done) - math.exp(-_SPEED)) / (1 - math.exp(-_SPEED))
    noise = draw.random(3).standard_normal(done.size) * _NOISE
    return np.asarray(value + (first - value) * left * (1 + noise))
