"""scalewatt.huggingface with the real library, in one process on a CPU: stages, results, stop and resume."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from script_marks import forget, history, stages

from scalewatt import events
from scalewatt.recordings.stage_log import read_json_lines

pytestmark = [
    # accelerate and transformers speak of pinned memory and of devices that this machine lacks.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]
SAMPLES, BATCH, EPOCHS = 38, 4, 3
BATCHES = 10


class Points(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"points": torch.full((3,), i / SAMPLES), "labels": torch.tensor(i % 2)}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, points: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(points)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture(autouse=True)
def ask_at_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalewatt.training.agreement.Agreement.EVERY_S", 0.0)


def train(
    folder: Path, signal_at: int | None = None, metric: str = "eval_error", **options: Any
) -> Any:
    """Train three epochs with a Trainer as users have it, from its last checkpoint; return it."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from scalewatt.huggingface import ScalewattCallback, last_checkpoint

    class Signal(TrainerCallback):  # type: ignore[misc]
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step + 1 == signal_at:
                os.kill(os.getpid(), signal.SIGUSR1)

    usual: dict[str, Any] = {
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "logging_strategy": "epoch",
    }
    usual |= {"num_train_epochs": EPOCHS}
    trainer = Trainer(
        Net(),
        TrainingArguments(
            output_dir=str(folder / "script"),
            per_device_train_batch_size=BATCH,
            learning_rate=0.1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **{**usual, **options},
        ),
        train_dataset=Points(),
        eval_dataset=Points(),
        compute_metrics=lambda e: {"error": float((e.predictions.argmax(1) != e.label_ids).mean())},
        callbacks=[Signal(), ScalewattCallback(metric)],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint())
    return trainer


def logged(trainer: Any, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


def test_epochs_have_their_stages(inside: Path) -> None:
    train(inside, save_strategy="epoch")
    of_epoch = ["train", "validate", "checkpoint"]
    expected = [(name, epoch) for epoch in range(EPOCHS) for name in of_epoch]
    assert stages(inside) == [*expected, ("shutdown", None)]


def test_results_are_those_that_the_trainer_logged(inside: Path) -> None:
    trainer = train(inside)
    rows = history(inside)
    assert [row["epoch"] for row in rows] == list(range(EPOCHS))
    names = {"metric": "eval_error", "validation_loss": "eval_loss", "train_loss": "loss"}
    for key, name in names.items():
        assert [row[key] for row in rows] == pytest.approx(logged(trainer, name)), key
    assert rows[-1]["learning_rate"] == pytest.approx(logged(trainer, "learning_rate")[-1])


def test_a_metric_that_was_not_evaluated_is_said_once(
    inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(inside, metric="eval_accuracy")
    lines = [line for line in capsys.readouterr().out.splitlines() if "not evaluated" in line]
    assert len(lines) == 1 and lines[0].startswith("scalewatt: eval_accuracy was not evaluated")
    assert "eval_error" in lines[0] and history(inside)[0]["metric"] is None


@pytest.mark.parametrize("accumulate", [1, 3])
def test_samples_and_updates_are_those_of_the_epoch(inside: Path, accumulate: int) -> None:
    train(inside, gradient_accumulation_steps=accumulate)
    counts = {(row["samples"], row["updates"]) for row in history(inside)}
    assert counts == {(SAMPLES, -(-BATCHES // accumulate))}


def test_the_time_of_training_is_that_of_its_stage(inside: Path) -> None:
    train(inside)
    marks = read_json_lines(inside / events.EVENTS_FILE)
    train_s = [b["start_s"] - a["start_s"] for a, b in pairwise(marks) if a["stage"] == "train"]
    assert [row["train_s"] for row in history(inside)] == pytest.approx(train_s, rel=0.1, abs=0.01)


def test_a_loss_logged_by_updates_is_weighted_by_them(inside: Path) -> None:
    trainer = train(inside, logging_strategy="steps", logging_steps=4, num_train_epochs=1)
    (row,) = history(inside)
    assert row["train_loss"] == pytest.approx(sum(logged(trainer, "loss")) / 2)


def test_a_log_that_reaches_back_into_the_epoch_before_is_no_loss_of_this_one(inside: Path) -> None:
    train(inside, logging_strategy="steps", logging_steps=BATCHES + 1)
    assert {row["train_loss"] for row in history(inside)} == {None}


def test_passes_over_a_stream_are_epochs(inside: Path) -> None:
    from transformers import TrainerControl, TrainerState

    from scalewatt.huggingface import ScalewattCallback

    callback, control = ScalewattCallback(), TrainerControl()
    arguments, state = SimpleNamespace(device=torch.device("cpu")), TrainerState()
    callback.on_train_begin(arguments, state, control)
    for done in (0, 0.4, 0.8):  # of all updates, as the Trainer counts epochs of a stream
        state.epoch = done
        callback.on_epoch_begin(arguments, state, control)
        callback.on_step_begin(arguments, state, control)
        callback.on_epoch_end(arguments, state, control)
    rows = history(inside)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert all(row["train_s"] is not None for row in rows)


def test_a_stopped_run_ends_with_all_its_updates_samples_and_weights(
    inside: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(SystemExit, match="75"):
        train(inside, signal_at=BATCHES + 3)
    assert stages(inside)[-1] == ("checkpoint", 1)
    assert [row["epoch"] for row in history(inside)] == [0]
    forget(monkeypatch)
    monkeypatch.setenv(events.SEGMENT_VARIABLE, "1")
    resumed = train(inside)
    assert resumed.state.global_step == EPOCHS * BATCHES
    rows = history(inside)
    assert [(row["epoch"], row["segment"]) for row in rows] == [(0, 0), (1, 1), (2, 1)]
    assert {(row["samples"], row["updates"]) for row in rows} == {(SAMPLES, BATCHES)}
    assert [row["train_s"] is None for row in rows] == [False, True, False]
    monkeypatch.setenv(events.WORK_VARIABLE, os.devnull)
    whole = train(tmp_path_factory.mktemp("whole"))
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_after_the_last_update_of_an_epoch_it_is_reported_first(inside: Path) -> None:
    with pytest.raises(SystemExit, match="75"):
        train(inside, signal_at=BATCHES)
    assert history(inside)[0]["metric"] is not None


def test_the_newest_whole_checkpoint_is_taken(inside: Path) -> None:
    from scalewatt.huggingface import last_checkpoint

    assert last_checkpoint() is None
    for step, text in (
        (9, '{"global_step": 9}'),
        (10, '{"global_step": 10}'),
        (20, '{"glob'),
        (30, None),
    ):
        folder = inside / "script" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        if text:
            (folder / "trainer_state.json").write_text(text)
    assert last_checkpoint() == str(inside / "script" / "checkpoint-10")
