"""FourCastNet's workload: weights by latitude, loss, RMSE, learning rate and initial conditions."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from run_files import make_spec
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from scalewatt.data.era5 import CHANNELS, year_times
from scalewatt.models.afno import FastSpectralLayer, SpectralLayer
from scalewatt.models.fourcastnet import FourCastNetWorkload
from scalewatt.training.batches import Batches

CPU = torch.device("cpu")
ROWS, COLUMNS, STEPS = 4, 8, 14
LATITUDE = np.linspace(90, -90, ROWS + 1)  # as stored: the southernmost row is dropped
Z500 = 14  # "z500" in the paper's list of channels, counted from 0

RNG = np.random.default_rng(0)
MEAN = RNG.normal(size=20)
SD = RNG.uniform(0.5, 2.0, size=20)
SD[Z500] = 3300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three prepared years of noise."""
    path = tmp_path_factory.mktemp("era5")
    for year in (1979, 1980, 1981):
        with h5py.File(path / f"{year}.h5", "w") as file:
            shape = (STEPS, 20, ROWS + 1, COLUMNS)
            noise = RNG.normal(size=shape) * SD[:, None, None] + MEAN[:, None, None]
            file["fields"] = noise.astype(np.float32)
            file["time"] = year_times(year)[:STEPS].astype("datetime64[s]").astype(np.int64)
            file["latitude"], file["longitude"] = LATITUDE, np.arange(COLUMNS) * 360 / COLUMNS
    statistics = {"channels": list(CHANNELS), "mean": MEAN.tolist(), "sd": SD.tolist()}
    (path / "statistics.json").write_text(json.dumps(statistics | {"years": [1979]}))
    with h5py.File(path / "climatology.h5", "w") as file:
        file["z500"] = np.full((ROWS + 1, COLUMNS), MEAN[Z500], np.float32)
    return path


def workload(
    folder: Path,
    phase: str = "pretrain",
    dataset: dict[str, Any] | None = None,
    **settings: Any,
) -> FourCastNetWorkload:
    spec = make_spec(
        model="fourcastnet",
        phase=phase,
        epochs=80,
        local_batch_size=2,
        dataset_samples=12,
        validation_samples=12,
        dataset={
            "grid": [ROWS, COLUMNS],
            "train_years": [1979, 1979],
            "validation_years": [1980, 1980],
            "test_years": [1981, 1981],
            "samples_per_year": 12,
        }
        | (dataset or {}),
        settings={
            "patch_size": 2, "embed_dim": 8, "depth": 1, "num_blocks": 2, "mlp_ratio": 4,
            "sparsity_threshold": 0.01, "learning_rate": 5e-4, "weight_decay": 0.0,
            "initial_conditions": 36, "initial_condition_spacing": 5, "precision": "fp16",
            "loader": "hdf5", "loader_workers": 0,
        } | settings,
    )  # fmt: skip
    return FourCastNetWorkload(spec, str(folder), CPU)


class Fixed(nn.Module):
    """Forecasts what it was given, in normalised units, whatever the state."""

    def __init__(self, forecast: Tensor) -> None:
        super().__init__()
        self.forecast = nn.Parameter(forecast)

    def forward(self, x: Tensor) -> Tensor:
        return self.forecast


def fields(*shape: int, seed: int = 1) -> np.ndarray:
    """Physical fields, float32."""
    noise = np.random.default_rng(seed).normal(size=(*shape, 20, ROWS, COLUMNS))
    return (noise * SD[:, None, None] + MEAN[:, None, None]).astype(np.float32)


def normalised(field: np.ndarray) -> np.ndarray:
    return (field.astype(np.float64) - MEAN[:, None, None]) / SD[:, None, None]


def batch(x: np.ndarray, target: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x), torch.from_numpy(target)


def model_of(forecast: np.ndarray) -> Fixed:
    return Fixed(torch.from_numpy(normalised(forecast).astype(np.float32)))


# --- the metric ---------------------------------------------------------------------------------


def test_weights_go_with_the_cosine_of_the_latitudes_used(folder: Path) -> None:
    weights = workload(folder).weights.tolist()
    cosines = [math.cos(math.radians(latitude)) for latitude in LATITUDE[:-1]]
    expected = [len(cosines) * cosine / sum(cosines) for cosine in cosines]
    assert weights == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert sum(weights) / len(weights) == pytest.approx(1)
    assert weights[0] == pytest.approx(0, abs=1e-6)  # the north pole is used,
    assert weights[-1] > 0.5  # the south pole is not


# --- the evaluation as a whole ------------------------------------------------------------------

LONG_ROWS, LONG_COLUMNS = 4, 2
LONG_LATITUDE = np.linspace(90, -90, LONG_ROWS + 1)
LONG_CLIMATOLOGY = MEAN[Z500] + 100 * np.arange((LONG_ROWS + 1) * LONG_COLUMNS)
LONG_CLIMATOLOGY = LONG_CLIMATOLOGY.reshape(LONG_ROWS + 1, LONG_COLUMNS).astype(np.float32)


class Damped(nn.Module):
    """Each step the state before, normalised, times 0.9."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([0.9**step * x for step in range(1, self.steps + 1)], dim=1)


def under(protocol: str, trained: FourCastNetWorkload) -> FourCastNetWorkload:
    return FourCastNetWorkload(replace(trained.spec, protocol=protocol), trained.folder, CPU)


def test_the_protocols_compute_the_same_losses_from_the_same_fields(folder: Path) -> None:
    losses, layers = [], []
    for protocol in ("paper", "corrected"):
        trained = under(protocol, workload(folder))
        torch.manual_seed(0)
        model = trained.model()
        data = trained.training_data()
        loss, sums = trained.loss(model, default_collate([data[0, 1], data[0, 5]]))
        losses.append([loss.item(), *sums.tolist()])
        layers.append({type(m) for m in model.modules() if isinstance(m, SpectralLayer)})
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert layers == [{SpectralLayer}, {FastSpectralLayer}]


@pytest.mark.parametrize(("gpus", "samples"), [(1, 40), (4, 160), (64, 1460)])
def test_the_papers_protocol_validates_on_twenty_batches_of_a_rank(
    long_folder: Path, gpus: int, samples: int
) -> None:
    trained = workload(
        long_folder, dataset={"grid": [LONG_ROWS, LONG_COLUMNS], "samples_per_year": 1460}
    )
    trained.spec = replace(trained.spec, gpus=gpus, global_batch_size=2 * gpus)
    for protocol, count in (("paper", samples), ("corrected", 1460)):
        evaluations = under(protocol, trained).evaluations()
        assert len(evaluations["validation"].positions) == count
        assert len(evaluations["forecasts"].positions) == 36


@pytest.fixture(scope="module")
def long_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Years as long as the paper's, on a tiny grid."""
    path = tmp_path_factory.mktemp("long")
    shutil.copy(folder / "statistics.json", path)
    for year in (1979, 1980, 1981):
        times = year_times(year).astype("datetime64[s]").astype(np.int64)
        with h5py.File(path / f"{year}.h5", "w") as file:
            noise = RNG.normal(size=(len(times), 20, LONG_ROWS + 1, LONG_COLUMNS))
            file["fields"] = (noise * SD[:, None, None] + MEAN[:, None, None]).astype(np.float32)
            file["time"], file["latitude"] = times, LONG_LATITUDE
    with h5py.File(path / "climatology.h5", "w") as file:
        file["z500"] = LONG_CLIMATOLOGY
    return path


def evaluated(trained: FourCastNetWorkload, name: str, ranks: int) -> np.ndarray:
    """Each rank's sums, shape (ranks, k), read by a loader as in training."""
    evaluation = trained.evaluations()[name]
    sums = []
    for rank in range(ranks):
        keys = Batches(evaluation.positions, rank, ranks, 5, whole=evaluation.whole)
        loader = DataLoader(evaluation.dataset, batch_sampler=keys)
        parts = [trained.evaluate(name, Damped(trained.lead_steps), part) for part in loader]
        sums.append(torch.stack(parts).sum(dim=0).numpy())
    return np.stack(sums)


def rmse_by_numpy(forecast: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Of (n, H, W) fields in m²/s², shape (n,)."""
    cosines = np.cos(np.deg2rad(LONG_LATITUDE[:-1]))
    weights = (len(cosines) * cosines / cosines.sum())[:, None]
    return np.sqrt((weights * (forecast - truth) ** 2).mean(axis=(1, 2)))


@pytest.mark.parametrize(("phase", "steps"), [("pretrain", 1), ("finetune", 2)])
def test_the_evaluation_is_that_of_36_forecasts_of_the_test_year(
    phase: str, steps: int, long_folder: Path
) -> None:
    spec = {"grid": [LONG_ROWS, LONG_COLUMNS], "samples_per_year": 1460}
    trained = workload(long_folder, phase, spec, initial_condition_spacing=36)
    with h5py.File(long_folder / "1981.h5") as file:
        z500 = file["fields"][:, Z500, :LONG_ROWS].astype(np.float64)
    starts = 36 * np.arange(36)
    truth, state = z500[starts + steps], z500[starts]
    expected = {
        "metric": rmse_by_numpy(0.9**steps * (state - MEAN[Z500]) + MEAN[Z500], truth),
        "metric_persistence": rmse_by_numpy(state, truth),
        "metric_climatology": rmse_by_numpy(LONG_CLIMATOLOGY[None, :-1], truth),
    }
    alone = evaluated(trained, "forecasts", 1)
    assert alone[0, 0] == 36
    for ranks in (1, 2, 3, 5):
        sums = evaluated(trained, "forecasts", ranks)
        np.testing.assert_allclose(sums.sum(axis=0), alone[0], rtol=1e-6)
        results = trained.results(
            {"train": np.ones((1, 2)), "validation": np.ones((1, 2)), "forecasts": sums}
        )
        for name, values in expected.items():
            assert results[name] == pytest.approx(values.mean(), rel=1e-5), name


# --- the loss -----------------------------------------------------------------------------------


def literal_loss(forecast: np.ndarray, target: np.ndarray) -> list[float]:
    """Of each sample: the relative L2 error over all channels and pixels, summed over the steps."""
    f, t = normalised(forecast), normalised(target)
    return [
        sum(
            math.sqrt(((f[k, s] - t[k, s]) ** 2).sum()) / math.sqrt((t[k, s] ** 2).sum())
            for s in range(f.shape[1])
        )
        for k in range(len(f))
    ]


@pytest.mark.parametrize(("phase", "steps"), [("pretrain", 1), ("finetune", 2)])
def test_the_loss_is_the_relative_l2_error_summed_over_the_steps(
    phase: str, steps: int, folder: Path
) -> None:
    trained = workload(folder, phase)
    target, forecast = fields(3, steps, seed=3), fields(3, steps, seed=4)
    expected = literal_loss(forecast, target)
    loss, sums = trained.loss(model_of(forecast), batch(fields(3), target))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    assert sums.tolist() == pytest.approx([3, sum(expected)], rel=1e-5)
    again = trained.evaluate("validation", model_of(forecast), batch(fields(3), target))
    assert again.tolist() == pytest.approx([3, sum(expected)], rel=1e-5)


def test_losses_of_unequal_batches_and_ranks_are_averaged_by_sample(folder: Path) -> None:
    trained = workload(folder)
    target, forecast = fields(5, 1, seed=6), fields(5, 1, seed=7)
    parts = [slice(0, 4), slice(4, 5)]
    sums = np.stack(
        [
            trained.evaluate("validation", model_of(forecast[p]), batch(fields(5)[p], target[p]))
            .detach()
            .numpy()
            for p in parts
        ]
    )
    results = trained.results({"train": 2 * sums, "validation": sums, "forecasts": np.ones((1, 4))})
    expected = np.mean(literal_loss(forecast, target))
    assert results["validation_loss"] == pytest.approx(expected, rel=1e-5)
    assert results["train_loss"] == pytest.approx(expected, rel=1e-5)
    assert results["train_metric"] is None


# --- synthetic fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "steps"), [("pretrain", 1), ("finetune", 2)])
def test_synthetic_training_reads_nothing_and_has_no_results(
    phase: str, steps: int, tmp_path: Path
) -> None:
    trained = workload(tmp_path / "nowhere", phase, loader="synthetic")
    data = trained.training_data()
    assert len(data) == 12 and data.workers == 0  # type: ignore[union-attr]
    model = trained.model()
    positions = [torch.tensor([4, 7, 9])]
    loss, sums = trained.loss(model, positions)  # type: ignore[arg-type]
    loss.backward()
    assert sums[0] == 3 and all(p.grad is not None for p in model.parameters())
    with torch.no_grad():
        all_sums = {name: evaluated(trained, name, 2) for name in ("validation", "forecasts")}
    assert all_sums["validation"][:, 0].sum() == 12 and all_sums["forecasts"][:, 0].sum() == 3
    results = trained.results({"train": sums.numpy()[None]} | all_sums)
    assert set(results.values()) == {None}


# --- optimiser and learning rate ----------------------------------------------------------------


def test_adams_rate_follows_a_cosine_to_zero_once_an_epoch(folder: Path) -> None:
    trained = workload(folder)
    optimizer = trained.optimizer(nn.Linear(1, 1))
    schedule = trained.schedule(optimizer)
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.param_groups[0]["weight_decay"] == 0
    for epoch in range(80):
        expected = 5e-4 * (1 + math.cos(math.pi * epoch / 80)) / 2
        for step in range(3):
            schedule.begin_step(epoch, step, 3)
            optimizer.step()
            assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-9)
        schedule.end_epoch(epoch, {})
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)
