"""What a sample costs: its table from runs' files, and the figure of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from cost_rows import frame, row
from figure_tables import draw
from matplotlib.figure import Figure
from run_files import NAME, absent, epochs, make_run, make_spec, part

from scalewatt.results.figures.figure_schema import POINTS
from scalewatt.results.figures.panel_points import planned_lines, training_costs
from scalewatt.results.tables.frames import records, to_table
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.run_row import RunFiles, read_runs

Row = dict[str, Any]
TWO_EPOCHS = epochs([30.0, 20.0])
"""1436 samples in 8 s each; an update's phases sum up to 0.4 s."""


def energies(train_j: float | None = 4000, startup_j: float = 600, **more: Any) -> list[Row]:
    """Of one GPU and two sockets: 10 s start-up, 16 s training, 4 s beside it at 100 W."""
    return [
        part("gpu", "startup", 10, startup_j, **more),
        part("gpu", "train", 16, train_j, **more),
        part("gpu", "checkpoint", 4, 400, **more),
        part("cpu", "startup", 10, 500, devices=2),
        part("cpu", "train", 16, 1600, devices=2),
        absent("ram", "train", 16),
    ]


def run_of(
    results: Path, repeat: int = 1, energy: list[Row] | None = None, **more: Any
) -> RunFiles:
    spec = make_spec(repeat=repeat, gpus=1, ranks_per_node=1, epochs=2, sampling_period_s=0.1)
    given: Any = {"spec": spec, "history": TWO_EPOCHS, "device_name": "NVIDIA H100 80GB HBM3"}
    return make_run(results, energies() if energy is None else energy, **(given | more))


def built(results: Path, files: list[RunFiles]) -> list[Row]:
    points = [{"configuration": name} for name in dict.fromkeys(f.configuration for f in files)]
    series = [{"name": name, "label": name, "points": points} for name in ("first", "second")]
    wanted = [[each.configuration, each.repeat] for each in files]
    runs = read_runs(results, wanted, "made")
    lines = planned_lines(series, configurations_of(runs)).drop_duplicates("configuration")
    return records(training_costs(lines.reset_index(drop=True), runs))


def test_a_sample_costs_what_training_used_divided_by_its_samples(tmp_path: Path) -> None:
    (each,) = built(tmp_path, [run_of(tmp_path)])
    samples = 2 * 1436
    assert each["configuration"] == NAME and each["series"] == "first"
    assert each["train_energy_per_sample_j_mean"] == pytest.approx(4000 / samples)
    assert each["train_power_w_mean"] == pytest.approx(4000 / 16)
    assert each["throughput_samples_per_s_mean"] == pytest.approx(samples / 16)
    assert (each["energy_origin"], each["energy_scope"]) == ("measured", "gpu")
    assert each["train_energy_per_sample_j_low"] is None, "a single run has no interval"


def test_repeats_have_a_mean_and_an_interval(tmp_path: Path) -> None:
    files = [run_of(tmp_path, n, energies(train_j)) for n, train_j in ((1, 4000), (2, 4200))]
    (each,) = built(tmp_path, files)
    assert each["n_repeats"] == 2
    assert each["train_energy_per_sample_j_mean"] == pytest.approx(4100 / 2872)
    half = 12.706 * (200 / math.sqrt(2)) / math.sqrt(2) / 2872
    assert each["train_energy_per_sample_j_high"] == pytest.approx(4100 / 2872 + half, rel=1e-3)


def test_lost_work_of_a_killed_segment_is_no_cost_of_its_samples(tmp_path: Path) -> None:
    energy = energies()
    energy.insert(2, part("gpu", "train", 8, 2000, segment=1, discarded_j=500))
    (each,) = built(tmp_path, [run_of(tmp_path, energy=energy)])
    assert each["train_energy_per_sample_j_mean"] == pytest.approx((4000 + 1500) / 2872)
    assert each["train_power_w_mean"] == pytest.approx(250), "its power was what it was"


@pytest.mark.parametrize("what", ["unknown", "short"])
def test_an_energy_that_is_not_known_is_null_and_never_0(tmp_path: Path, what: str) -> None:
    energy = energies(None if what == "unknown" else 4000)
    if what == "short":
        energy[1] = part("gpu", "train", 16, 4000, flags=("stage_short",))
    (each,) = built(tmp_path, [run_of(tmp_path, energy=energy)])
    for name in ("train_energy_per_sample_j_mean", "train_power_w_mean"):
        assert each[name] is None
    assert each["throughput_samples_per_s_mean"] is not None


def test_on_a_cpu_the_cpus_energy_counts(tmp_path: Path) -> None:
    group = [
        part("cpu", stage, s, j, devices=2, origin="estimated")
        | {"energy_low_j": j / 5, "energy_high_j": j * 5}
        for stage, s, j in (("startup", 10, 500.0), ("train", 16, 1600.0))
    ]  # fmt: skip
    (each,) = built(
        tmp_path, [run_of(tmp_path, energy=group, torch_device="cpu", device_name="CPU")]
    )
    assert (each["energy_origin"], each["energy_scope"]) == ("estimated", "cpu")
    assert each["train_energy_per_sample_j_mean"] == pytest.approx(1600 / 2872)
    assert each["train_power_w_mean"] == pytest.approx(1600 / 16 / 2), "of one socket"


def test_repeats_on_different_kinds_of_devices_have_no_mean(tmp_path: Path) -> None:
    files = [run_of(tmp_path, 1), run_of(tmp_path, 2, torch_device="cpu")]
    (each,) = built(tmp_path, files)
    assert each["torch_device"] == "several"
    for name in ("train_energy_per_sample_j_mean", "train_power_w_mean", "gpu_energy_kwh_mean"):
        assert each[name] is None


# --- one beside the others ------------------------------------------------------------------------


def test_the_front_has_what_no_faster_point_undercuts_within_its_model_and_phase() -> None:
    rows = [
        row({"precision": "a"}, 1, 100, 100),  # 1 J
        row({"precision": "b"}, 1, 200, 300),  # 1.5 J
        row({"precision": "c"}, 1, 150, 300),  # 2 J: slower than b and dearer
        row({"precision": "d", "phase": "finetune"}, 1, 10, 100),
        row({"precision": "e", "train_energy_per_sample_j_mean": None}, 1, 400, 100),
        row({"precision": "f", "energy_origin": "estimated"}, 1, 500, 100),
    ]
    by_series = {
        each["series"]: each["pareto_optimal"]
        for each in records(frame(rows))
        if each["panel"] == "A"
    }
    assert list(by_series.values()) == [True, True, False, True, None, None]


@pytest.mark.parametrize("changes", [{"device": "a100"}, {"gpus": 4}])
def test_points_of_another_device_or_n_have_a_line_and_legend_entry_of_their_own(
    changes: Row,
) -> None:
    rows = [row(group, batch, 10.0 * batch, 300) for group in ({}, changes) for batch in (32, 64)]
    labels = [each["label"] for each in records(frame(rows)) if each["panel"] == "A"]
    assert labels[0] == labels[1] != labels[2] == labels[3]


def test_lines_alike_in_all_settings_are_told_apart_by_their_ids() -> None:
    rows = [row({}, 32, 320.0, 300), row({}, 32, 320.0, 290)]
    rows[1]["configuration"] += "-optimizeradam"
    labels = [each["label"] for each in records(frame(rows)) if each["panel"] == "A"]
    assert labels == ["h100", "optimizeradam"]


# --- the figure -----------------------------------------------------------------------------------


def drawn(rows: list[Row], **options: Any) -> Figure:
    made = frame(rows, **options)
    return draw("cost_per_sample", to_table(made, POINTS).replace_schema_metadata(None))


def panels(figure: Figure) -> list[Any]:
    return [axes for axes in figure.axes if axes.axison]


def test_lines_over_batch_sizes_break_where_a_planned_one_is_missing() -> None:
    batches = (32, 64, 128, 256, 512)
    missing = {"n_repeats": None, "energy_origin": None, "train_energy_per_sample_j_mean": None}
    missing |= {"train_power_w_mean": None, "throughput_samples_per_s_mean": None}
    rows = [row(missing if b == 128 else {}, b, 1000 + b, 500) for b in batches]
    over = [axes for axes in panels(drawn(rows)) if axes.get_xlabel() == "Local batch size"]
    assert len(over) == 2
    for axes in over:
        (line,) = [each for each in axes.lines if str(each.get_gid()).startswith("points-")]
        assert list(line.get_xdata()) == list(batches)
        assert [math.isnan(y) for y in line.get_ydata()] == [batch == 128 for batch in batches]
