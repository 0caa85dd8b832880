"""Learning curves of simulated runs: they end at published errors, and say what is assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated_runs import MODEL, cluster, simulate, spec_of

from scalewatt.common.tabular_files import csv_rows
from scalewatt.results.tables.published import REFERENCE
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.learning_curves import (
    IN_WORDS,
    INTERPOLATED,
    PUBLISHED,
    curve,
    final_metric,
    published_errors,
)
from scalewatt.scaling.simulation.run_sample import draw_run

FULL_1 = "resnet50-a100-n001-lbs0256-full"


def test_learning_curves_end_at_the_published_errors() -> None:
    assert published_errors() == {256: 28.0, 1024: 28.0, 65536: 42.0}
    model = read_model(MODEL)
    for gpus, error, source in (
        (1, 28.0, PUBLISHED),
        (8, 28.0, INTERPOLATED),
        (32, 28.0, IN_WORDS),
        (256, 42.0, PUBLISHED),
    ):
        spec = spec_of(f"resnet50-a100-n{gpus:03d}-lbs0256-full")
        assert final_metric(spec).source == source
        ends = [
            curve(one, draw_run(one, model.of(kind_of_spec(one)), cluster().devices["a100"]))[-1]
            for one in (replace(spec, repeat=r) for r in range(1, 6))
        ]
        assert np.mean(ends) == pytest.approx(error, abs=0.5)
        assert np.std(ends) > 0


def test_an_error_that_the_paper_only_gives_in_words_counts_as_assumed(
    tmp_path: Path,
) -> None:
    published = {
        int(row["global_batch_size"]) for row in csv_rows(REFERENCE).values() if row["metric_value"]
    }
    for name, source in (
        ("resnet50-a100-n032-lbs0256-full", IN_WORDS),
        ("resnet50-a100-n004-lbs0256-full", PUBLISHED),
    ):
        spec = spec_of(name, epochs=1)
        assert final_metric(spec).source == source
        assert (spec.global_batch_size in published) == (source == PUBLISHED)
        said = simulate(tmp_path, spec).provenance["simulated"]
        assert said["metric"]["source"] == source
    assert final_metric(spec_of("resnet50-a100-n256-lbs0032-full")).source == IN_WORDS


@pytest.mark.parametrize("goal", ["min", "max"])
def test_a_metric_gets_better_whichever_way_is_better(goal: str) -> None:
    spec = spec_of(FULL_1)
    draw = draw_run(spec, read_model(MODEL).of(kind_of_spec(spec)), cluster().devices["a100"])
    other = {"metric_name": "accuracy", "metric_goal": goal}
    values = curve(replace(spec, model="mine", settings=other), draw)
    assert (values[-1] > values[0]) == (goal == "max")
    assert values[-1] == pytest.approx(0.5, rel=0.05)
