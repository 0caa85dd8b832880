"""ResNet50 trained by the loop with each loader: it learns, and goes on bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from campaign_files import demo
from PIL import Image
from torch import nn

from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import write_json
from scalewatt.common.termination import StopRequest
from scalewatt.data.imagenet import find_images
from scalewatt.models.resnet50 import ResNet50
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.lock import HeldError, Holder
from scalewatt.run_files.record import Job, read_position
from scalewatt.training.agreement import Agreement
from scalewatt.training.train import FINISHED, STOPPED, Trainer

CPU = torch.device("cpu")


class Alone:
    """MPI's communicator of a world of one."""

    def gather(self, value: Any, root: int) -> list[Any]:
        return [value]

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def bcast(self, value: Any, root: int = 0) -> Any:
        return value

    def Barrier(self) -> None:
        """Nobody to wait for."""


RANKS = Ranks(Alone(), 0, 1, 0, "here", 1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of photos that are easy to tell apart: bright and dark."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for split, images in (("train", 12), ("val", 5)):
        for label, level in enumerate((60, 190)):
            for number in range(images):
                path = root / split / f"n{label}" / f"{number}.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                noise = rng.normal(level, 25, (5, 6, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(noise).resize((48, 40)).save(path)
        find_images(root, split).save(root, split)
    return root


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of one, a small network in the place of ResNet50, and cuDNN's flags kept."""

    def small(self: ResNet50) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 8, 5, stride=4), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)),
        )

    monkeypatch.setattr(ResNet50, "model", small)
    kept = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = kept


def spec(loader: str, protocol: str) -> RunSpec:
    campaign = demo()
    configuration = next(c for c in campaign.configurations.values() if c.model == "resnet50")
    made = run_spec(campaign, configuration.id, 1)
    settings = made.settings | {"loader": loader, "image_size": 24, "loader_workers": 0}
    return replace(
        made,
        protocol=protocol,
        dataset=made.dataset | {"classes": 2},
        dataset_samples=24,
        validation_samples=10,
        dataset_fraction="1",
        gpus=1,
        local_batch_size=5,
        global_batch_size=5,
        epochs=3,
        settings=settings | {"base_learning_rate": 5.0, "warmup_epochs": 1},
    )


def train(
    spec: RunSpec,
    folder: Path | str,
    work: Path,
    at_most: int | None,
    events: EventLog | None = None,
    stop: StopRequest | None = None,
    token: str | None = None,
) -> dict | None:
    """One segment; the result if that was the last."""
    work.mkdir(exist_ok=True)
    job = Job(spec, str(folder), work, 0, max_updates=at_most, token=token)
    trainer = Trainer(job, RANKS, CPU, stop or StopRequest(), events or EventLog(None, 0))
    trainer.warm_up()
    trainer.resume()
    ended = trainer.run()
    assert ended in (FINISHED, STOPPED)
    if ended == STOPPED:
        return None
    return json.loads((work / "result.json").read_text())


LEARNT = ("train_loss", "validation_loss", "metric", "learning_rate", "samples", "updates")
Whole = Callable[[str, str], tuple[dict[str, Any], Path]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Uninterrupted trainings of this module, each done once: result and working directory."""
    return {("root", ""): tmp_path_factory.mktemp("whole")}


@pytest.fixture
def whole(folder: Path, trained: dict[tuple[str, str], Any]) -> Whole:
    """Train with a loader and a protocol to the end, or return what was trained before."""

    def training(loader: str, protocol: str) -> tuple[dict[str, Any], Path]:
        if (loader, protocol) not in trained:
            work = trained["root", ""] / f"{loader}-{protocol}"
            images = "nowhere" if loader == "synthetic" else folder
            trained[loader, protocol] = train(spec(loader, protocol), images, work, None), work
        return trained[loader, protocol]

    return training


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("protocol", ["paper", "corrected"])
def test_a_training_stopped_at_random_updates_equals_an_uninterrupted_one(
    folder: Path, tmp_path: Path, whole: Whole, protocol: str, seed: int
) -> None:
    updates, loader = np.random.default_rng(seed), "pil" if seed else "synthetic"
    result, work = whole(loader, protocol)
    while (cut := train(spec(loader, protocol), folder, tmp_path, updates.integers(1, 7))) is None:
        pass
    for row, other in zip(result["history"], cut["history"], strict=True):
        assert {k: row[k] for k in LEARNT} == {k: other[k] for k in LEARNT}
    weights, others = (torch.load(path / "weights.pt") for path in (work, tmp_path))
    assert all(torch.equal(weights[name], others[name]) for name in weights)


class Telling(EventLog):
    """Does something when a stage begins."""

    def __init__(self, stage: str, tell: Callable[[], None]) -> None:
        self.stage, self.tell = stage, tell
        super().__init__(None, 0)

    def enter(self, stage: str, epoch: int | None = None, at_s: float | None = None) -> None:
        if stage == self.stage:
            self.tell()


def position(work: Path) -> tuple[int, int]:
    checkpoint = read_position(work)
    assert checkpoint is not None
    return checkpoint["epoch"], checkpoint["step"]


@pytest.mark.parametrize("stage", ["evaluate_train", "validate"])
def test_a_stop_ends_an_evaluation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setattr(Agreement, "EVERY_S", 0)  # which lasts longer than a second, as it were
    stop = StopRequest()
    events = Telling(stage, stop.ask)
    assert train(spec("pil", "paper"), folder, tmp_path, 5, events, stop) is None
    assert position(tmp_path) == (0, 5)


def test_a_run_taken_over_by_another_process_gets_no_result(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "run"
    save = torch.save

    def save_and_be_succeeded(state: dict[str, Any], file: Any) -> None:
        save(state, file)
        holder = Holder("n9", 3, job="124", since_s=1.7e9, token="theirs")
        write_json(work / "holder.json", asdict(holder))

    monkeypatch.setattr(torch, "save", save_and_be_succeeded)
    with pytest.raises(HeldError, match="job 124"):
        train(spec("pil", "paper"), folder, work, None, token="ours")
    assert {path.name for path in work.iterdir()} == {"holder.json", "progress.json"}


@pytest.mark.parametrize("protocol", ["paper", "corrected"])
def test_images_are_learnt_from(whole: Whole, protocol: str) -> None:
    history = whole("pil", protocol)[0]["history"]
    assert history[-1]["metric"] == 0
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]
