"""ResNet50's workload: the learning rate of every batch size, the losses and the errors."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaign_files import PAPER
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.data.imagenet import ImageFolderIndex
from scalewatt.models.resnet50 import ResNet50, top_hits

CPU = torch.device("cpu")
CAMPAIGN = load_campaign(PAPER)
PROTOCOLS = ("paper", "corrected")


def of_batch(size: int) -> Configuration:
    """One of the paper's configurations with this global batch size."""
    return next(
        c
        for c in CAMPAIGN.configurations.values()
        if c.model == "resnet50" and c.global_batch_size == size
    )


BATCHES = sorted({
    c.global_batch_size for c in CAMPAIGN.configurations.values() if c.model == "resnet50"
})  # fmt: skip


def workload(protocol: str = "corrected", size: int = 256, **changes: Any) -> ResNet50:
    spec = replace(run_spec(CAMPAIGN, of_batch(size).id, 1), **{"protocol": protocol, **changes})
    return ResNet50(spec, "nowhere", CPU)


@pytest.fixture(autouse=True)
def cudnn() -> Any:
    """A workload sets cuDNN's flags for its whole process."""
    kept = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = kept


# --- the learning rate --------------------------------------------------------------------------


def rates(trained: ResNet50, losses: list[float], steps: int) -> np.ndarray:
    """The rate of every update, (epochs, steps); the validation loss of epoch e is losses[e]."""
    optimizer = trained.optimizer(nn.Linear(1, 1))
    schedule = trained.schedule(optimizer)
    rates = np.empty((len(losses), steps))
    for epoch, loss in enumerate(losses):
        for step in range(steps):
            schedule.begin_step(epoch, step, steps)
            rates[epoch, step] = optimizer.param_groups[0]["lr"]
        schedule.end_epoch(epoch, {"plateau_loss": loss})
    return rates


def expected_rates(size: int, protocol: str, losses: list[float], steps: int) -> np.ndarray:
    """The paper's text: a line from 0.1 to 0.1·GBS/256 over 5 epochs, then halved on plateaus.

    A plateau: more than 5 epochs in a row without a loss 0.01 % below the best.
    """
    reference = 0.1 * size / 256
    progress = np.arange(5)[:, None] + np.zeros(steps)
    if protocol == "corrected":
        progress += np.arange(steps) / steps
    rates = np.empty((len(losses), steps))
    rates[:5] = 0.1 + progress / 5 * (reference - 0.1)
    halvings, best, bad = 0, float("inf"), 0
    for epoch, loss in enumerate(losses[5:], start=5):
        rates[epoch] = reference / 2**halvings
        better = loss < 0.9999 * best
        bad = 0 if better else bad + 1
        best = loss if better else best
        if bad == 6:
            halvings, bad = halvings + 1, 0
    return rates


def bumpy(epochs: int = 100) -> list[float]:
    """A loss that falls, stalls three times and falls again."""
    levels = np.repeat([6, 5, 4, 3, 2.5, 2.2], [10, 12, 9, 25, 4, epochs])[:epochs]
    return (levels - 0.0001 * np.arange(epochs) % 0.0005).tolist()


@pytest.mark.parametrize(("size", "protocol"), list(itertools.product(BATCHES, PROTOCOLS)))
def test_the_learning_rate_of_every_update_of_100_epochs(size: int, protocol: str) -> None:
    for losses, steps in ((bumpy(), 20), ([3.0] * 100, 1)):
        learned = rates(workload(protocol, size), losses, steps)
        np.testing.assert_allclose(
            learned, expected_rates(size, protocol, losses, steps), rtol=1e-12
        )
        assert len(np.unique(learned[5:])) >= 4, "the losses must make the rate drop several times"


def test_losses_of_the_warm_up_do_not_count_for_the_plateau() -> None:
    # the best loss of all comes in the warm-up, and would make every later one a bad one
    learned = rates(workload("corrected", 8192), [0.1] * 5 + np.linspace(7, 6, 30).tolist(), 1)
    assert set(learned[5:, 0]) == {3.2}


# --- losses and errors --------------------------------------------------------------------------


class Fixed(nn.Module):
    """Returns the logits it is given as images."""

    def forward(self, images: Tensor) -> Tensor:
        return images


def predictions(size: int, classes: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (size,), generator=generator)
    logits = torch.randn(size, classes, generator=generator)
    logits[torch.arange(size), labels] += 1.0
    return logits, labels


def cross_entropy(logits: Tensor, labels: Tensor) -> np.ndarray:
    """Of each sample, in float64."""
    x = logits.double().numpy()
    largest = x.max(axis=1)
    log_sum = largest + np.log(np.exp(x - largest[:, None]).sum(axis=1))
    return log_sum - x[np.arange(len(x)), labels.numpy()]


def errors(logits: Tensor, labels: Tensor, k: int) -> float:
    """Percent of samples whose label is not among the k largest logits."""
    order = np.argsort(-logits.numpy(), axis=1)[:, :k]
    return 100 * float(
        np.mean([label not in row for label, row in zip(labels.numpy(), order, strict=True)])
    )


def gathered(trained: ResNet50, ranks: list[list[tuple[Tensor, Tensor]]]) -> np.ndarray:
    """Sums over each rank's batches, as the loop gathers them."""
    rows = []
    for batches in ranks:
        total = torch.zeros(6, dtype=torch.float64)
        for batch in batches:
            total = total + trained.evaluate("validation", Fixed(), batch)
        rows.append(total.numpy())
    return np.stack(rows)


# Three ranks with unequal batches, as at the end of a dataset that does not divide.
RANKS = [
    [predictions(8, seed=1), predictions(8, seed=2), predictions(3, seed=3)],
    [predictions(8, seed=4), predictions(8, seed=5), predictions(3, seed=6)],
    [predictions(8, seed=7), predictions(8, seed=8), predictions(2, seed=9)],
]
ALL = [batch for batches in RANKS for batch in batches]
LOGITS, LABELS = (torch.cat(parts) for parts in zip(*ALL, strict=True))


def results(protocol: str, **more: np.ndarray) -> dict[str, float | None]:
    trained = workload(protocol)
    sums = gathered(trained, RANKS)
    return trained.results({"train": sums, "validation": sums, "train_again": sums} | more)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_and_losses_are_those_of_all_samples_once(protocol: str) -> None:
    values = results(protocol)
    assert values["metric"] == pytest.approx(errors(LOGITS, LABELS, 1))
    assert values["top5_error_percent"] == pytest.approx(errors(LOGITS, LABELS, 5))
    assert 0 < values["top5_error_percent"] < values["metric"] < 100
    expected = cross_entropy(LOGITS, LABELS).mean()
    assert values["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_plateau_sees_the_mean_over_samples_or_the_papers_over_ranks_and_batches() -> None:
    over_samples = cross_entropy(LOGITS, LABELS).mean()
    over_ranks = np.mean([np.mean([cross_entropy(*b).mean() for b in rank]) for rank in RANKS])
    assert over_ranks != pytest.approx(over_samples, rel=1e-3)
    assert results("corrected")["plateau_loss"] == pytest.approx(over_samples, rel=1e-5)
    assert results("paper")["plateau_loss"] == pytest.approx(over_ranks, rel=1e-5)


def test_the_papers_training_metrics_are_those_of_its_second_pass() -> None:
    trained = workload("paper")
    first = gathered(trained, [[predictions(10, seed=30)]])
    second = [predictions(10, seed=31)]
    values = results("paper", train=first, train_again=gathered(trained, [second]))
    assert values["train_metric"] == pytest.approx(errors(*second[0], 1))
    assert values["train_loss"] == pytest.approx(cross_entropy(*second[0]).mean(), rel=1e-5)


# --- network, data and protocol -----------------------------------------------------------------


def test_the_network_is_torchvisions_with_the_datasets_classes() -> None:
    with torch.device("meta"):
        network = workload().model()
        assert sum(p.numel() for p in network.parameters()) == 25_557_032
        ten = workload(dataset={"classes": 10}).model()
    assert ten.fc.out_features == 10  # type: ignore[union-attr]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Indices of 40 training and 13 validation images that are never opened."""
    for split, count in (("train", 40), ("val", 13)):
        paths = [f"{split}/c{i % 4}/{i}.jpg" for i in range(count)]
        labels = np.arange(count, dtype=np.int32) % 4
        ImageFolderIndex(tmp_path, paths, labels, np.full(count, 9)).save(tmp_path, split)
    return tmp_path


def on(folder: Path, protocol: str) -> ResNet50:
    counts = {"dataset_samples": 40, "validation_samples": 13, "dataset_fraction": "1"}
    spec = replace(run_spec(CAMPAIGN, of_batch(256).id, 1), protocol=protocol, **counts)
    return ResNet50(spec, str(folder), CPU)


@pytest.mark.parametrize(
    ("protocol", "counts"),
    [("corrected", {"validation": 13}), ("paper", {"validation": 13, "train_again": 40})],
)
def test_the_papers_protocol_augments_validation_and_evaluates_the_training_set_again(
    folder: Path, protocol: str, counts: dict[str, int]
) -> None:
    evaluations = on(folder, protocol).evaluations()
    assert {name: len(e.positions) for name, e in evaluations.items()} == counts
    for evaluation in evaluations.values():
        assert evaluation.whole == (protocol == "corrected")
        assert evaluation.dataset.augment == (protocol == "paper")  # type: ignore[attr-defined]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_hits_are_the_same_counted_at_once_and_one_by_one(
    samples: int, classes: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    logits = torch.from_numpy(generator.permuted(np.tile(np.arange(classes), (samples, 1)), axis=1))
    labels = torch.from_numpy(generator.integers(classes, size=samples))
    top = logits.topk(min(5, classes), dim=1).indices
    expected = sum(int(logits[i, labels[i]] >= classes - 5) for i in range(samples))
    for one_by_one in (False, True):
        assert top_hits(top, labels, one_by_one).item() == expected


# --- loaders ------------------------------------------------------------------------------------


def with_settings(**settings: Any) -> dict[str, Any]:
    return of_batch(256).settings | settings


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_synthetic_images_need_no_data_and_give_neither_loss_nor_error(protocol: str) -> None:
    settings = with_settings(loader="synthetic", image_size=8)
    trained = workload(protocol, dataset_fraction="1/2", settings=settings)
    assert len(trained.training_data()) == 1_281_167
    values = trained.evaluations()
    assert len(values["validation"].positions) == 50_000
    assert trained.index_lists() == {}
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 7))
    labels = torch.tensor([1, 5, 2])
    loss, sums = trained.loss(network, (labels,))
    loss.backward()
    assert loss.item() > 0 and sums[0] == 3
    rows = trained.evaluate("validation", network, (labels,))[None].numpy()
    results = trained.results({"train": rows, "validation": rows, "train_again": rows})
    real = workload(protocol).results({"train": rows, "validation": rows, "train_again": rows})
    assert results == dict.fromkeys(real)
