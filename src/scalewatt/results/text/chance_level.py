"""What a classifier that has learnt nothing reaches."""

from __future__ import annotations

import math

from scalewatt.campaign.run_spec import RunSpec

GUESSED = "top1_error_percent"
"""The metric that guessing has a level of."""


def guessed_error(spec: RunSpec) -> tuple[float, float] | None:
    """Return a guess's error over the validation set of a run, in percent, and what it seldom falls below.

    That is two standard deviations less. None where classes or validation samples are not known.
    """
    classes, samples = spec.dataset.get("classes"), spec.validation_samples
    if not classes or not samples:
        return None
    hits = 1 / classes
    error = 100 * (1 - hits)
    return error, error - 200 * math.sqrt(hits * (1 - hits) / samples)
