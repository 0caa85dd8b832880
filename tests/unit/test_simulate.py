"""Simulated runs: the accounting finds the simulator's truth, and the published numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_runs import (
    J_PER_KWH,
    MODEL,
    Simulated,
    campaign,
    cluster,
    simulate,
    simulated,
    spec_of,
    with_device,
)

from scalewatt.common.errors import InputError
from scalewatt.common.files import csv_rows
from scalewatt.results.tables.published import REFERENCE
from scalewatt.scaling.model import kind_of_spec
from scalewatt.scaling.predict import ScalingModel, read_model, write_model
from scalewatt.scaling.simulation.simulate import (
    ASSUMED,
    PUBLISHED,
    check_simulations,
    draw_run,
    final_metric,
    learning_curve,
    sample_nodes,
)

FULL_1, FULL_4 = "resnet50-a100-n001-lbs0256-full", "resnet50-a100-n004-lbs0256-full"
SHORT = "resnet50-a100-n008-lbs0256-s0040036"
LONG = "fourcastnet.pretrain-a100-n004-lbs0004-full"
ON_H100 = "fourcastnet.pretrain-h100-n016-lbs0001-full"


# --- the truth ------------------------------------------------------------------------------------


def assert_true(run: Simulated, row: dict[str, Any]) -> None:
    assert row["runtime_s"] == pytest.approx(run.truth.runtime_s, rel=1e-7)
    for kind in ("gpu", "cpu", "ram"):
        true = run.true_j(kind) / J_PER_KWH
        assert (row[f"{kind}_energy_kwh"] or 0.0) == pytest.approx(true, rel=1e-6), kind
    assert row["coverage"] == 1.0
    assert (row["flags"], row["segments"]) == ("[]", 1)


def test_a_gpu_that_the_run_does_not_hold_is_recorded_idle_and_not_counted(
    tmp_path: Path,
) -> None:
    run = simulate(tmp_path, spec_of("resnet50-a100-n001-lbs0256-s0005004"))
    row = run.row()
    assert_true(run, row)
    assert row["unused_gpu_energy_kwh"] == pytest.approx(3 * 0.050 * row["runtime_h"], rel=1e-3)


def test_the_same_spec_gives_the_same_samples_and_another_repeat_others(tmp_path: Path) -> None:
    first, same, other = (
        simulate(tmp_path / str(number), spec_of(SHORT, repeat)).folder / "perun"
        for number, repeat in enumerate((1, 1, 2))
    )
    names = {path.name for path in first.iterdir()}
    assert names == {path.name for path in other.iterdir()}
    for name in names:
        assert (first / name).read_bytes() == (same / name).read_bytes()
    assert (first / "segment-000.sim-a100-0001.csv").read_bytes() != (
        other / "segment-000.sim-a100-0001.csv"
    ).read_bytes()


# --- published numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", [FULL_4, LONG])
def test_repeats_scatter_as_the_published_ones_do(configuration: str) -> None:
    spec = spec_of(configuration)
    model, device = read_model(MODEL).find(kind_of_spec(spec)), cluster().devices["a100"]
    draws = [draw_run(replace(spec, repeat=repeat), model, device) for repeat in range(2, 402)]
    times = np.array([draw.runtime_s for draw in draws])
    energies = np.array([sum(draw.joules.values()) for draw in draws])
    published = [
        (row["gpu_hours"], row["gpu_hours_popstd"], row["energy_kwh"], row["energy_popstd_kwh"])
        for row in csv_rows(REFERENCE).values()
        if row["model"] == spec.model and row["gpu_hours_popstd"]
    ]
    repeats = {"resnet50": 5, "fourcastnet": 3}[spec.model]
    of_sample = math.sqrt(repeats / (repeats - 1))
    first = draw_run(replace(spec, repeat=1), model, device)
    time, time_sd, energy, energy_sd = np.array(published, dtype=float).T
    for values, median, relative_sd in (
        (times, first.runtime_s, time_sd / time),
        (energies, sum(first.joules.values()), energy_sd / energy),
    ):
        expected = float(np.median(relative_sd)) * of_sample
        groups = values[: len(values) // (repeats - 1) * (repeats - 1)].reshape(-1, repeats - 1)
        samples = np.column_stack((np.full(len(groups), median), groups))
        sd = math.sqrt(samples.var(axis=1, ddof=1).mean())
        assert sd / median == pytest.approx(expected, rel=0.2)
        assert np.abs(values / median - 1).max() < 2.8 * expected


def test_learning_curves_end_at_the_published_errors() -> None:
    for gpus, error, source in (
        (1, 28.0, PUBLISHED),
        (8, 28.0, ASSUMED),
        (32, 28.0, ASSUMED),  # the paper says so in words alone
        (256, 42.0, PUBLISHED),
    ):
        spec = spec_of(f"resnet50-a100-n{gpus:03d}-lbs0256-full")
        assert final_metric(spec).source == source
        repeats = [replace(spec, repeat=repeat) for repeat in range(1, 6)]
        ends = [learning_curve(repeat, simulated(repeat).draw)[-1] for repeat in repeats]
        assert np.mean(ends) == pytest.approx(error, abs=0.5)
        assert np.std(ends) > 0


# --- provenance -----------------------------------------------------------------------------------


def test_provenance_names_the_model_and_what_is_assumed(tmp_path: Path) -> None:
    stated = simulate(tmp_path, spec_of(SHORT)).provenance["simulated"]
    assert len(stated["model_sha256"]) == 64
    assert not stated["model"].startswith("/")
    assert stated["kind"] == "resnet50 on a100"
    assert stated["assumed"] is None
    assert stated["calibrated"] is True
    assert (stated["sampling_period_s"], stated["spec_sampling_period_s"]) == (10, 1)
    assert stated["metric"] == {"name": "top1_error_percent", "source": ASSUMED}
    finetuned = spec_of("fourcastnet.finetune-a100-n064-lbs0001-full", epochs=3)
    stated = simulate(tmp_path, finetuned).provenance["simulated"]
    assert stated["calibrated"] is False
    assert "assumed to cost twice" in stated["assumed"]


def test_beyond_four_times_the_calibrated_n_and_on_wider_nodes_a_run_is_marked(
    tmp_path: Path,
) -> None:
    shipped = read_model(MODEL)
    (kind,) = (kind for kind in shipped.kinds if kind.kind.key == "resnet50")
    small = replace(kind, points=tuple(p for p in kind.points if p.load.gpus <= 4))
    path = tmp_path / "model.json"
    write_model(path, replace(shipped, kinds=(small,)), {})
    wide = with_device("a100", gpus_per_node=8)
    spec = spec_of("resnet50-a100-n032-lbs0256-full", epochs=1, nodes=4, ranks_per_node=8)
    run = simulate(tmp_path, spec, wide, model=path)
    warning = "n = 32 is more than 4 times the largest calibrated (4): extrapolated"
    assert run.provenance["simulated"]["warnings"] == [warning]
    assert len(run.provenance["hostnames"]) == 4
    row = run.row(wide)
    assert_true(run, row | {"flags": "[]"})
    assert {"code": "extrapolated", "detail": warning} in [
        {key: flag[key] for key in ("code", "detail")} for flag in json.loads(row["flags"])
    ]


# --- sensors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "ranges"),
    [
        (FULL_1, {"gpu": 400_000, "cpu": 262_143_328_850, "ram": 65_712_999_613}),
        (ON_H100, {"gpu": 700_000, "cpu": 65_532_610_987}),
    ],
)
def test_counters_wrap_where_those_of_their_processor_do(
    configuration: str, ranges: dict[str, int]
) -> None:
    node = next(sample_nodes(simulated(spec_of(configuration))))
    assert {facts["kind"]: facts["valid_max"] for facts in node.sensors.values()} == ranges
    for name, facts in node.sensors.items():
        if facts["kind"] != "gpu":
            assert node.raw[name].min() > 0 and node.raw[name].max() < facts["valid_max"]
            assert (np.diff(node.raw[name].astype(float)) < 0).any()


# --- refusals -------------------------------------------------------------------------------------


def test_a_campaign_of_which_a_part_cannot_be_simulated_is_refused() -> None:
    model = read_model(MODEL)
    known = tuple(kind for kind in model.kinds if kind.kind.key == "resnet50")
    with pytest.raises(
        InputError, match=r"is not calibrated for fourcastnet\.[a-z]+ on a100"
    ) as refused:
        check_simulations(campaign(), cluster(), ScalingModel(known, (), "model.json"))
    assert str(refused.value).count("scalewatt pilot") == 1
