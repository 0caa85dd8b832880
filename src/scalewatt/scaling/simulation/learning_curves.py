"""Learning curves of simulated runs, which end at a published error where there is one.

Published of ResNet50 are the top-1 errors 28 % at GBS 256 and 1024 and 42 % at GBS 65 536, all on the
full dataset (Huber et al. 2025, section 3.2.2), whose text says "about constant up to 32 GPUs": taken as
28 % at GBS 8192 as well, which is no published number. Between two of them a run's error is
interpolated along log2 GBS. All others are assumed: of fewer samples, and of FourCastNet, whose errors
are published only as a figure.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.tabular_files import csv_rows
from scalewatt.recordings.terms import Floats
from scalewatt.results.tables.published import FULL_SAMPLES, REFERENCE
from scalewatt.scaling.simulation.assumptions import of_training
from scalewatt.scaling.simulation.run import RunDraw

PUBLISHED, ASSUMED = "published", "assumed"
"""The source of an error."""
_TOP1, _Z500 = "top1_error_percent", "z500_rmse_m2_s2"
_CONSTANT_UP_TO = {8192: 28.0}
_PER_HALVING, _WORST = 8.0, 99.0
"""Percentage points that halving the samples costs ResNet50, assumed; and its largest error."""
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


class Final(NamedTuple):
    """The metric at the end of a configuration's trainings, without the scatter of repeats."""

    name: str
    value: float
    source: str
    """PUBLISHED or ASSUMED."""


def final_metric(spec: RunSpec) -> Final:
    """Metric at the end of a spec's runs."""
    samples, gbs = spec.dataset_samples, spec.global_batch_size
    if spec.model == "resnet50" and samples is not None:
        published, full = published_errors(), FULL_SAMPLES["resnet50"]
        errors = dict(sorted({**_CONSTANT_UP_TO, **published}.items()))
        value = float(np.interp(math.log2(gbs), np.log2([*errors]), [*errors.values()]))
        if samples != full or not min(errors) <= gbs <= max(errors):
            halvings = max(math.log2(full / samples), 0.0)
            return Final(_TOP1, min(value + _PER_HALVING * halvings, _WORST), ASSUMED)
        return Final(_TOP1, value, PUBLISHED if gbs in published else ASSUMED)
    if spec.model == "fourcastnet":
        slight = math.log2(max(min(gbs, _KNEE) / 4, 1))
        steep = math.log2(max(gbs / _KNEE, 1))
        value = _FORECAST[spec.phase] * (1 + _SLIGHT * slight + _STEEP * steep)
        return Final(_Z500, value, ASSUMED)
    return Final(spec.settings.get("metric_name") or "metric", _OTHER, ASSUMED)


def published_errors() -> dict[int, float]:
    """ResNet50's published top-1 errors in percent by GBS, on the full dataset."""
    return {
        int(row["global_batch_size"]): float(row["metric_value"])
        for row in csv_rows(REFERENCE).values()
        if row["metric_name"] == _TOP1 and int(row["dataset_samples"]) == FULL_SAMPLES["resnet50"]
    }


def curve(spec: RunSpec, draw: RunDraw) -> Floats:
    """Metric after each epoch, (epochs,); before the first it is worse, whichever direction is better."""
    end = final_metric(spec).value * (1 + of_training(spec).metric_sd * draw.metric_deviation)
    first = max(_FIRST.get(spec.model, 2 * end), end)
    if spec.settings.get("metric_goal") == "max":
        first = 0.0
    done = np.arange(1, spec.epochs + 1) / spec.epochs
    left = (np.exp(-_SPEED * done) - math.exp(-_SPEED)) / (1 - math.exp(-_SPEED))
    noise = draw.random(3).standard_normal(done.size) * _NOISE
    return np.asarray(end + (first - end) * left * (1 + noise))
