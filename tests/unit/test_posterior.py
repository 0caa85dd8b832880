"""Draws of the scaling model's costs: independent, of the very posterior, and the same on every machine."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from plan_files import published_points, scaling_model
from scipy import stats

from scalewatt.scaling.model import (
    PRIOR_POINTS,
    PRIOR_SPREAD,
    Array,
    Draws,
    Kind,
    Point,
    calibrate,
    draw,
    energy_columns,
    time_columns,
)

# --- the posterior --------------------------------------------------------------------------------
#
# With the spread integrated out, that of costs of any sign is a multivariate t distribution around the
# least squares. Those of its draws that have no negative cost are exact draws of ours, made otherwise.


def exact(columns: Array, values: Array, count: int, seed: int = 5) -> Array:
    """Costs (count, terms) by rejection."""
    relative = columns / values[:, None]
    scale = relative.max(axis=0)
    relative = relative / scale
    points, terms = relative.shape
    gram = relative.T @ relative
    middle = np.linalg.solve(gram, relative.sum(axis=0))
    squares = ((relative @ middle - 1) ** 2).sum() + PRIOR_POINTS * PRIOR_SPREAD**2
    freedom = points + PRIOR_POINTS - terms
    each = stats.multivariate_t(middle, squares / freedom * np.linalg.inv(gram), freedom, seed=seed)
    drawn = np.vstack([each.rvs(500_000) for _ in range(4)])
    kept = drawn[(drawn >= 0).all(axis=1)][:count]
    assert len(kept) == count
    return kept / scale


def agree(drawn_values: Array, reference: Array) -> None:
    """Quantiles of 500 draws (draws, points) are those of exact ones, up to what 500 draws leave open."""
    for drawn, expected in zip(drawn_values.T, reference.T, strict=True):
        assert stats.ks_2samp(drawn, expected).pvalue > 0.005
        low, median, high = np.quantile(expected, [0.05, 0.5, 0.95])
        ends = np.quantile(drawn, [0.05, 0.5, 0.95])
        assert abs(ends[1] - median) < 0.06 * (high - low)
        assert ends[2] - ends[0] == pytest.approx(high - low, rel=0.15)


def time_of(kind: Kind, points: list[Point]) -> tuple[Array, Array, Draws]:
    model = calibrate(kind, points)
    values = np.array([point.runtime_s for point in points])
    return time_columns([point.load for point in points], model.time_terms), values, model.time


def energy_of(kind: Kind, points: list[Point]) -> tuple[Array, Array, Draws]:
    times = np.array([point.runtime_s for point in points])
    columns = energy_columns([point.load for point in points], times)
    values = np.array([point.energy_j for point in points], float)
    return columns, values, draw(columns, values)


@pytest.mark.parametrize("quantity", [time_of, energy_of])
def test_draws_for_resnet50_are_of_the_exact_posterior(quantity: object) -> None:
    columns, values, draws = quantity(*published_points("resnet50", "a100"))  # type: ignore[operator]
    means, reference = draws.means(columns), exact(columns, values, 2000) @ columns.T
    agree(means, reference)
    medians = np.median(means, axis=0) / np.median(reference, axis=0)
    assert medians == pytest.approx(1, abs=0.0025)


def test_terms_that_points_do_not_separate_are_drawn_as_exactly() -> None:
    """Where GBS 256 is left out, the other points have nearly one number of updates: epochs are samples.

    A sum of both costs has as many ways to be divided as it is large, each as probable.
    """
    kind, points = published_points("resnet50", "a100")
    gone = [p for p in points if p.load.local_batch_size * p.load.gpus == 256]
    assert len(gone) == 6
    columns, values, draws = time_of(kind, [p for p in points if p not in gone])
    per_sample = columns[0, 1] / columns[0, 0]
    assert columns[:, 1] == pytest.approx(per_sample * columns[:, 0], rel=1e-3)
    merged = exact(columns[:, [0, 2, 3, 4]], values, 4000)
    random = np.random.default_rng(1)
    merged = merged[random.random(4000) < merged[:, 0] / merged[:, 0].max()]
    part = random.random(len(merged))
    divided = np.column_stack([merged[:, 0] * part, merged[:, 0] * (1 - part) / per_sample])
    agree(draws.terms, np.column_stack([divided, merged[:, 1:]]))


# --- the same everywhere --------------------------------------------------------------------------


def test_the_shipped_model_is_made_again_from_the_published_points() -> None:
    """So a plan follows from the points alone."""
    for kept in scaling_model().kinds:
        again = calibrate(*published_points(kept.kind.key, kept.kind.device))
        assert again.time_terms == kept.time_terms and again.points == kept.points
        assert again.time.spread == pytest.approx(kept.time.spread, rel=1e-4)
        assert again.time.terms == pytest.approx(kept.time.terms, rel=1e-4, abs=1e-9)
        assert again.energy is not None and kept.energy is not None
        assert again.energy.terms == pytest.approx(kept.energy.terms, rel=1e-4, abs=1e-9)


DRAWN = """
import numpy as np
from scalewatt.scaling.model import draw
n = np.tile([1.0, 2.0, 4.0, 8.0], 3)
columns = np.column_stack([n, 1 / n, np.repeat([16.0, 32.0, 64.0], 4) / n, np.log2(2 * n), 4 * n])
values = columns @ [0.1, 30.0, 0.2, 1.0, 0.02] * (1 + 0.02 * np.sin(np.arange(12)))
draws = draw(columns, values)
print(*np.column_stack([draws.terms, draws.spread]).ravel().tolist())
"""


def test_other_processors_draw_the_same() -> None:
    """Each has its kernels of linear algebra, whose roundings differ."""
    draws_by_processor = []
    for kernels in ("Prescott", "Haswell"):
        environment = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", DRAWN], env=environment, capture_output=True, check=True
        )
        draws_by_processor.append(np.array(done.stdout.split(), float))
    assert len(draws_by_processor[0]) == 500 * 6
    assert draws_by_processor[0] == pytest.approx(draws_by_processor[1], rel=1e-6, abs=1e-9)
