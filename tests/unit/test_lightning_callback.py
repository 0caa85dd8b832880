"""scalewatt.lightning with the real library, in one process on a CPU: stages, results, stop and resume."""

from __future__ import annotations

import csv
import importlib
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from script_marks import forget, history, stages

from scalewatt import events

pytestmark = [
    # Lightning hints at faster settings of its Trainer, which differ by machine.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed"),
]
SAMPLES, BATCH = 40, 4
BATCHES = SAMPLES // BATCH


def module(package: str = "lightning.pytorch", **hooks: Any) -> Any:
    """A LightningModule of one layer that logs a loss and an error; `hooks` are further methods."""

    class Line(importlib.import_module(package).LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = self.layer(batch[0]).square().mean()
            self.log("train_loss", loss, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", self.layer(batch[0]).square().mean())
            self.log("error", self.layer(batch[0]).abs().mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]

    return type("Line", (Line,), hooks)()


def loader(samples: int) -> Any:
    data = torch.arange(samples * 3, dtype=torch.float32).reshape(samples, 3) / samples
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=BATCH)


def fit(
    folder: Path,
    net: Any = None,
    ckpt_path: str | None = None,
    package: str = "lightning.pytorch",
    **options: Any,
) -> Any:
    """Train three epochs with a Trainer as users have it; return it."""
    fitted = trainer(folder, package, **options)
    fitted.fit(net or module(package), loader(SAMPLES), loader(12), ckpt_path=ckpt_path)
    return fitted


def trainer(folder: Path, package: str = "lightning.pytorch", **options: Any) -> Any:
    from scalewatt.lightning import ScalewattCallback

    pl = importlib.import_module(package)
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=folder / "script",
        logger=pl.loggers.CSVLogger(folder / "script"),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ScalewattCallback("error")],
        **{"max_epochs": 3, **options},
    )


def checkpoint() -> Path | None:
    from scalewatt.lightning import last_checkpoint

    path = last_checkpoint()
    return None if path is None else Path(path)


def logged(folder: Path, name: str) -> list[float]:
    """A metric as Lightning's own logger wrote it, in order."""
    values: list[float] = []
    for path in sorted((folder / "script" / "lightning_logs").glob("version_*/metrics.csv")):
        with open(path, newline="") as file:
            values += [float(row[name]) for row in csv.DictReader(file) if row.get(name)]
    return values


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_it_is_a_callback_of_the_package_that_the_script_uses(inside: Path, package: str) -> None:
    fit(inside, package=package, max_epochs=1)
    assert len(history(inside)) == 1


# --- a training from start to end -----------------------------------------------------------------


def test_epochs_have_their_stages_and_the_sanity_check_is_a_part_of_the_start(inside: Path) -> None:
    fit(inside, num_sanity_val_steps=2, enable_checkpointing=False)
    expected = [(name, epoch) for epoch in range(3) for name in ("train", "validate")]
    assert stages(inside) == [*expected, ("shutdown", None)]


def test_the_metric_is_the_one_that_lightning_logged(inside: Path) -> None:
    fit(inside)
    rows = history(inside)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    for key, name in (
        ("metric", "error"),
        ("validation_loss", "val_loss"),
        ("train_loss", "train_loss"),
    ):
        assert [row[key] for row in rows] == logged(inside, name), key
        assert len(set(logged(inside, name))) == 3, key
    assert [row["learning_rate"] for row in rows] == [0.1, 0.05, 0.025]


def test_a_module_with_an_optimizer_of_its_own_trains_without_a_learning_rate(inside: Path) -> None:
    hooks = {"automatic_optimization": False, "configure_optimizers": lambda self: []}
    fit(inside, module(**hooks))
    assert [(row["samples"], row["learning_rate"]) for row in history(inside)] == [
        (SAMPLES, None)
    ] * 3


def test_outside_a_run_nothing_is_written_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (events.FOLDER_VARIABLE, events.STOP_VARIABLE, "SCALEWATT_WORK"):
        monkeypatch.delenv(name, raising=False)
    handlers = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    fit(tmp_path)
    assert checkpoint() is None
    assert {path.name for path in tmp_path.iterdir()} == {"script"}, "Lightning's own"
    assert handlers == [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]


# --- stop and resume ------------------------------------------------------------------------------


def asking(at_step: int, number: int) -> Any:
    """A hook that sends this process a signal at an update, as a launcher does."""

    def on_before_optimizer_step(self: Any, optimizer: Any) -> None:
        if self.trainer.global_step == at_step:
            os.kill(os.getpid(), number)

    return on_before_optimizer_step


def stopped_at(inside: Path, step: int, number: int = signal.SIGUSR1, **options: Any) -> Any:
    """Train until a request to stop at an update; return the checkpoint."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit, match="75"):
        patch.setattr("scalewatt.lightning.Agreement.EVERY_S", 0.0)  # at every update
        fit(inside, module(on_before_optimizer_step=asking(step, number)), **options)
    path = inside / "script" / "stopped.ckpt"
    assert checkpoint() == path
    return torch.load(path, weights_only=False)


def resume(monkeypatch: pytest.MonkeyPatch, inside: Path, **options: Any) -> Any:
    """Train on from the newest checkpoint as the next segment does."""
    forget(monkeypatch)
    monkeypatch.setenv(events.SEGMENT_VARIABLE, "1")
    return fit(inside, ckpt_path=str(checkpoint()), **options)


@pytest.mark.parametrize(("number", "accumulate"), [(signal.SIGUSR1, 1), (signal.SIGTERM, 3)])
def test_a_run_that_was_stopped_amid_an_epoch_ends_with_all_its_updates_and_samples(
    inside: Path, monkeypatch: pytest.MonkeyPatch, number: int, accumulate: int
) -> None:
    per_epoch = -(-BATCHES // accumulate)
    kept = stopped_at(inside, per_epoch + 1, number, accumulate_grad_batches=accumulate)
    assert (kept["epoch"], kept["global_step"]) == (1, per_epoch + 2)
    assert stages(inside)[-1] == ("checkpoint", 1)
    assert [row["epoch"] for row in history(inside)] == [0]
    trainer = resume(monkeypatch, inside, accumulate_grad_batches=accumulate)
    assert trainer.global_step == 3 * per_epoch
    rows = history(inside)
    assert [(row["epoch"], row["segment"]) for row in rows] == [(0, 0), (1, 1), (2, 1)]
    assert {(row["samples"], row["updates"]) for row in rows} == {(SAMPLES, per_epoch)}
    assert [row["metric"] for row in rows] == logged(inside, "error")
    assert min(row["train_s"] for row in rows) > 0


def test_a_run_goes_on_from_lightnings_own_checkpoint_after_a_crash(
    inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Any, optimizer: Any) -> None:
        if self.trainer.global_step == BATCHES + 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(inside, module(on_before_optimizer_step=crash))
    assert str(checkpoint()).endswith(f"epoch=0-step={BATCHES}.ckpt")
    first = history(inside)
    resume(monkeypatch, inside)
    rows = history(inside)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert {(row["samples"], row["updates"]) for row in rows} == {(SAMPLES, BATCHES)}
    assert rows[0]["metric"] == first[0]["metric"] is not None


def test_term_is_heard_by_scalewatt_alone(inside: Path) -> None:
    """The Trainer's own handler talks to other ranks, which may be elsewhere just then."""
    handlers = []

    def note(self: Any, *_: Any) -> None:
        handlers.append(signal.getsignal(signal.SIGTERM))

    net = module(on_train_batch_start=note, on_validation_batch_start=note)
    fit(inside, net, max_epochs=1, num_sanity_val_steps=1)
    assert set(handlers) == {events.note_request}


def test_a_run_that_term_ends_before_its_first_update_has_failed(inside: Path) -> None:
    """Without a sanity check, as in a resumed run, the Trainer hears TERM while it reads its data."""

    def terminate(self: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return loader(SAMPLES)

    net = module(train_dataloader=terminate)
    with pytest.raises(SystemExit) as end:
        trainer(inside, accumulate_grad_batches=2, num_sanity_val_steps=0).fit(net)
    assert end.value.code == 128 + signal.SIGTERM


def test_the_newest_whole_checkpoint_is_taken(inside: Path) -> None:
    assert checkpoint() is None
    folder = inside / "script" / "lightning_logs" / "version_0" / "checkpoints"
    folder.mkdir(parents=True)
    for name, age_s in (("old.ckpt", 20), ("new.ckpt", 10), ("torn.ckpt", 5)):
        torch.save({"a": torch.zeros(100)}, folder / name)
        os.utime(folder / name, (1e9 - age_s, 1e9 - age_s))
    (folder / "torn.ckpt").write_bytes((folder / "new.ckpt").read_bytes()[:300])
    os.utime(folder / "torn.ckpt", (1e9 - 5, 1e9 - 5))
    (folder / "parts.ckpt").mkdir()
    (folder / "parts.ckpt" / "__0_0.distcp").write_bytes(b"0")  # killed before its meta.pt
    assert checkpoint() == folder / "new.ckpt"
    (folder / "parts.ckpt" / "meta.pt").write_bytes(b"0")
    assert checkpoint() == folder / "parts.ckpt"
