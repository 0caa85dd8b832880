"""Simulated runs: the accounting finds the simulator's truth, and the published numbers."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_recordings import read_perun_file, sensors
from simulated_runs import J_PER_KWH, MODEL, Simulated, cluster, simulate, spec_of, with_device

from scalewatt.common.errors import InputError
from scalewatt.common.tabular_files import csv_rows
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import REFERENCE, published_configurations
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.model_file import read_model, write_model
from scalewatt.scaling.model.predict import TOTAL, estimate, predict
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.learning_curves import (
    ASSUMED,
)
from scalewatt.scaling.simulation.run_sample import draw_run
from scalewatt.scaling.simulation.simulated_run import simulation

FULL_1, FULL_4 = "resnet50-a100-n001-lbs0256-full", "resnet50-a100-n004-lbs0256-full"
SHORT = "resnet50-a100-n008-lbs0256-s0040036"
LONG = "fourcastnet.pretrain-a100-n004-lbs0004-full"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("short"), spec_of(SHORT))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("long"), spec_of(LONG))


def test_a_recording_is_the_same_in_every_time_zone(
    tmp_path: Path, short: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        again = simulate(tmp_path, spec_of(SHORT))
    finally:
        monkeypatch.undo()
        time.tzset()
    for one in sorted(short.folder.rglob("*.hdf5")):
        assert (again.folder / one.relative_to(short.folder)).read_bytes() == one.read_bytes()


def assert_true(one: Simulated, row: dict[str, object]) -> None:
    assert row["runtime_s"] == pytest.approx(one.truth["runtime_s"], rel=1e-7)
    for kind in ("gpu", "cpu", "ram"):
        found, true = row[f"{kind}_energy_kwh"], one.true_j(kind) / J_PER_KWH
        assert (found or 0.0) == pytest.approx(true, rel=1e-6), kind
    assert row["coverage"] == 1.0


def test_the_accounting_finds_the_true_time_and_energy(short: Simulated) -> None:
    row = short.row()
    assert_true(short, row)
    assert row["flags"] == "[]"
    assert row["segments"] == 1


def test_perun_itself_reads_the_recording(short: Simulated) -> None:
    hdf5 = pytest.importorskip("perun.io.hdf5")
    app = hdf5.importHDF5(short.folder / "perun" / "segment-000.hdf5")
    (round_,) = app.nodes["segment-000"].nodes.values()
    gpus = round_.nodes["sim-a100-0002"].nodes["gpu"].nodes
    raw = gpus["CUDA:3_POWER"].raw_data
    assert raw.timesteps[-1] == pytest.approx(short.truth["runtime_s"], rel=1e-6)
    assert 50 < raw.values.mean() * raw.v_md.mag.value < 400


def test_a_run_beyond_the_wall_limit_has_segments(long: Simulated) -> None:
    row = long.row()
    assert_true(long, row)
    assert row["segments"] == 3
    limit_s = 2880 * 60
    for segment in long.provenance["segments"]:
        assert segment["ended_s"] - segment["started_s"] < limit_s
    assert [one["outcome"] for one in long.provenance["segments"]] == [
        *("stopped", "stopped"),
        "finished",
    ]
    assert len(list((long.folder / "perun").glob("*.hdf5"))) == 3


def test_restarts_cost_time_and_energy_beyond_the_run_in_one_go(long: Simulated) -> None:
    truth = long.truth
    at_once = truth["in_one_go"]
    assert 20 < truth["runtime_s"] - at_once["runtime_s"] < 7200
    assert 0 < long.true_j("gpu") - at_once["joules"]["gpu"] < 0.02 * at_once["joules"]["gpu"]


def test_every_epoch_stands_in_the_history_once_and_its_stages_in_the_events(
    long: Simulated,
) -> None:
    history = pq.read_table(long.folder / "history.parquet").to_pylist()
    assert [row["epoch"] for row in history] == list(range(80))
    assert [row["segment"] for row in history] == sorted(row["segment"] for row in history)
    assert {row["segment"] for row in history} == {0, 1, 2}
    events = pq.read_table(long.folder / "events.parquet").to_pylist()
    trained = sum(e["end_s"] - e["start_s"] for e in events if e["stage"] == "train")
    assert sum(row["train_s"] for row in history) == pytest.approx(trained)
    for before, after in pairwise(events):
        if before["segment"] == after["segment"]:
            assert before["end_s"] == pytest.approx(after["start_s"])


def test_a_segment_cut_within_an_evaluation_makes_the_epochs_evaluations_again() -> None:
    on = with_device("a100", time_limit_min=55)  # its job trains for 45 minutes
    spec = spec_of(FULL_4, epochs=10)
    one = simulation(spec, on, read_model(MODEL).of(kind_of_spec(spec)))
    assert len(one.segments) > 2
    again = [
        (before, after)
        for before, after in pairwise(one.segments)
        if before.stages[-3].name in ("validate", "evaluate_train")
    ]
    assert again
    for before, after in again:
        assert [stage.name for stage in before.stages[-2:]] == ["checkpoint", "shutdown"]
        first = [stage.name for stage in after.stages[1:3]]
        assert first == ["validate", "evaluate_train"]
        assert after.stages[1].epoch == before.stages[-3].epoch


def test_a_gpu_that_the_run_does_not_hold_is_recorded_idle_and_not_counted(
    tmp_path: Path,
) -> None:
    one = simulate(tmp_path, spec_of("resnet50-a100-n001-lbs0256-s0005004"))
    row = one.row()
    assert_true(one, row)
    hours = row["runtime_h"]
    assert row["unused_gpu_energy_kwh"] == pytest.approx(3 * 0.050 * hours, rel=1e-3)


def test_counters_wrap_in_their_range() -> None:
    spec = spec_of(SHORT)
    one = simulation(spec, cluster(), read_model(MODEL).of(kind_of_spec(spec)))
    node = next(one.nodes.sampled(one.segments[0]))
    counters = [s for s in node.sensors if s.is_counter]
    assert len(counters) == 4
    for counter in counters:
        assert int(counter.raw.min()) > 0
        assert int(counter.raw.max()) < counter.valid_max
    falls = sum(int((np.diff(c.raw.astype(float)) < 0).sum()) for c in counters)
    assert falls > 0


def test_the_same_spec_gives_the_same_samples_and_another_repeat_others(tmp_path: Path) -> None:
    paths = []
    for number, repeat in enumerate((1, 1, 2)):
        one = simulate(tmp_path / str(number), spec_of(SHORT, repeat))
        paths.append(one.folder / "perun" / "segment-000.hdf5")
    first, same, other = (sensors(read_perun_file(path)) for path in paths)
    for a, b in zip(first, same, strict=True):
        assert np.array_equal(a.values, b.values)
    assert first[0].time_s[-1] != other[0].time_s[-1]


@pytest.mark.parametrize("configuration", [FULL_4, LONG])
def test_repeats_scatter_as_the_published_ones_do(configuration: str) -> None:
    spec = spec_of(configuration)
    own, device = read_model(MODEL).of(kind_of_spec(spec)), cluster().devices["a100"]
    draws = [draw_run(replace(spec, repeat=repeat), own, device) for repeat in range(2, 402)]
    times = np.array([draw.runtime_s for draw in draws])
    energies = np.array([sum(draw.joules.values()) for draw in draws])
    published = [
        (row["gpu_hours"], row["gpu_hours_popstd"], row["energy_kwh"], row["energy_popstd_kwh"])
        for row in csv_rows(REFERENCE).values()
        if row["model"] == spec.model and row["gpu_hours_popstd"]
    ]
    repeats = {"resnet50": 5, "fourcastnet": 3}[spec.model]
    of_sample = math.sqrt(repeats / (repeats - 1))
    first = draw_run(replace(spec, repeat=1), own, device)
    time, time_sd, energy, energy_sd = np.array(published, dtype=float).T
    for found, one, said in (
        (times, first.runtime_s, time_sd / time),
        (energies, sum(first.joules.values()), energy_sd / energy),
    ):
        median = float(np.median(said)) * of_sample
        groups = found[: len(found) // (repeats - 1) * (repeats - 1)].reshape(-1, repeats - 1)
        samples = np.column_stack((np.full(len(groups), one), groups))
        assert math.sqrt(samples.var(axis=1, ddof=1).mean()) / one == pytest.approx(median, rel=0.2)
        assert np.abs(found / one - 1).max() < 2.8 * median


def test_every_published_time_and_energy_is_reproduced_within_the_models_interval() -> None:
    model = read_model(MODEL)
    checked = 0
    for row in records(published_configurations()):
        if row["runtime_h_mean"] is None:
            continue
        spec = spec_of(row["configuration"])
        own = model.of(kind_of_spec(spec))
        predicted = predict(own, [load_of_spec(spec)])
        repeats = [
            draw_run(replace(spec, repeat=r), own, cluster().devices[spec.device])
            for r in range(1, row["n_repeats"] + 1)
        ]
        time = np.mean([one.runtime_s for one in repeats])
        energy = np.mean([sum(one.joules.values()) for one in repeats])
        for value, published, draws in (
            (time, row["runtime_h_mean"] * 3600, predicted.runtime_s),
            (energy, row["energy_kwh_mean"] * J_PER_KWH, predicted.total_j),
        ):
            assert draws is not None
            interval = estimate(draws[:, 0])
            assert interval.holds(float(value)), row["configuration"]
            assert interval.holds(published), row["configuration"]
            checked += 1
    assert checked == 2 * 26


@pytest.mark.parametrize(
    ("configuration", "segments"),
    [
        ("resnet50-a100-n256-lbs0256-full", 1),
        ("fourcastnet.pretrain-h100-n032-lbs0001-full", 1),
        (LONG, 3),
    ],
)
def test_published_numbers_come_out_of_recording_and_accounting_restarts_included(
    configuration: str, segments: int, tmp_path: Path
) -> None:
    spec = spec_of(configuration)
    row = simulate(tmp_path, spec).row()
    (published,) = (
        one for one in records(published_configurations()) if one["configuration"] == configuration
    )
    predicted = predict(read_model(MODEL).of(kind_of_spec(spec)), [load_of_spec(spec)])
    assert row["segments"] == segments
    assert predicted.total_j is not None
    for name, draws in (
        ("runtime_h", predicted.runtime_s / 3600),
        ("energy_kwh", predicted.total_j / J_PER_KWH),
    ):
        interval = estimate(draws[:, 0])
        assert interval.holds(row[name]), name
        assert interval.holds(published[f"{name}_mean"]), name


def test_provenance_names_the_model_and_what_is_assumed(short: Simulated) -> None:
    said = short.provenance["simulated"]
    assert len(said["model_sha256"]) == 64
    assert not said["model"].startswith("/")
    assert said["kind"] == "resnet50 on a100"
    assert said["assumed"] is None
    assert (said["sampling_period_s"], said["spec_sampling_period_s"]) == (10, 1)
    assert said["metric"]["source"] == ASSUMED


def test_provenance_says_whether_the_model_was_calibrated_on_this_training(
    short: Simulated, tmp_path: Path
) -> None:
    assert short.provenance["simulated"]["calibrated"] is True
    others = (
        spec_of(SHORT, epochs=3),
        spec_of("resnet50-a100-n008-lbs0256-full", epochs=3),
        spec_of("fourcastnet.finetune-a100-n064-lbs0001-full", epochs=3),
    )
    for number, spec in enumerate(others):
        one = simulate(tmp_path / str(number), spec)
        assert one.provenance["simulated"]["calibrated"] is False


def test_energies_that_the_model_has_by_device_kind_are_the_models(
    tmp_path: Path,
) -> None:
    spec, shipped = spec_of(SHORT), read_model(MODEL)
    own = shipped.of(kind_of_spec(spec))
    kinds = replace(own, energy=dict.fromkeys(("gpu", "cpu", "ram"), own.energy[TOTAL]))
    path = tmp_path / "model.json"
    write_model(path, replace(shipped, kinds=(kinds,)), {})
    one = simulate(tmp_path, spec, model=path)
    assert one.true_j("cpu") == pytest.approx(one.true_j("ram"))


def test_a_wall_limit_in_which_no_segment_gets_on_is_refused() -> None:
    spec = spec_of(FULL_1)
    model = read_model(MODEL).of(kind_of_spec(spec))
    with pytest.raises(InputError, match=r"cannot make progress in segments of 300 s"):
        simulation(spec, with_device("a100", time_limit_min=15), model)
