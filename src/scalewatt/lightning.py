"""Callback by which Lightning's Trainer reports to scalewatt and stops at a checkpoint (docs/your-script.md).

Import it before torch and Lightning: from then on, a request to stop the run no longer ends the
process, and the callback answers it with a checkpoint. Outside a run nothing is written or changed.
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalewatt.common.termination import ExitCode
from scalewatt.events import WORK_VARIABLE, is_in_run, note_request, report, stop_requested

stop_requested()  # before the imports that take seconds

import torch  # noqa: E402

from scalewatt.epoch_report import EpochReport  # noqa: E402
from scalewatt.training.agreement import Agreement  # noqa: E402
from scalewatt.training.device import synchronize  # noqa: E402

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_INSTALLED = [name for name in PACKAGES if find_spec(name.partition(".")[0])] or PACKAGES[:1]
_CALLBACKS = [importlib.import_module(name).Callback for name in _INSTALLED]
CHECKPOINT = "stopped.ckpt"
"""In the folder that SCALEWATT_WORK names: where a run that was asked to stop goes on."""


def last_checkpoint() -> str | None:
    """Newest checkpoint (`*.ckpt`) of this run for `Trainer.fit(ckpt_path=…)`; None without any.

    Looks in SCALEWATT_WORK and the folders below it, and skips what a killed process left unfinished.
    """
    if WORK_VARIABLE not in os.environ:
        return None
    written_last = ("meta.pt", "latest")  # by FSDP and DeepSpeed, whose checkpoints are folders
    complete = [
        path
        for path in Path(os.environ[WORK_VARIABLE]).rglob("*.ckpt")
        if zipfile.is_zipfile(path) or any((path / name).is_file() for name in written_last)
    ]
    return str(max(complete, key=os.path.getmtime)) if complete else None


class ScalewattCallback(*_CALLBACKS):  # type: ignore[misc]  # a Trainer takes its package's alone
    """Reports stages, results and throughput of a Trainer's run, and stops it at a checkpoint.

    `metric`, `train_loss`, `validation_loss` and `train_metric` are names by which the module logs them
    (`self.log`); what is logged without `sync_dist=True` is rank 0's alone.
    """

    def __init__(
        self,
        metric: str | None = None,
        *,
        train_loss: str = "train_loss",
        validation_loss: str = "val_loss",
        train_metric: str | None = None,
    ) -> None:
        losses = {"train_loss": train_loss, "validation_loss": validation_loss}
        self._report = EpochReport(metric=metric, train_metric=train_metric, **losses)
        """Of the epoch so far; its samples are this rank's."""
        self._logged_before: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """The epoch so far, for a checkpoint: rank 0's, as only that is written."""
        self._report.add_train_time()
        return dict(self._report.row)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume an epoch from a checkpoint. Ranks have batches of equal sizes."""
        self._report.row = dict(state)

    # --- stages ---------------------------------------------------------------------------------------

    def _enter(self, name: str, trainer: Any) -> None:
        is_of_epoch = trainer.state.fn == "fit" and name != "shutdown"
        epoch = trainer.current_epoch if is_of_epoch else None
        self._report.enter(name, epoch, partial(synchronize, trainer.strategy.root_device))

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remember who handles TERM, before the Trainer does."""
        stop_requested()
        self._on_term = signal.getsignal(signal.SIGTERM)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Take TERM back: the Trainer's handler waits for ranks that may be elsewhere, and exits with 0."""
        if is_in_run():
            signal.signal(signal.SIGTERM, self._on_term)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to train, perhaps amid an epoch."""
        self.on_sanity_check_start(trainer, pl_module)  # there may have been none
        self._step = trainer.global_step
        self._agreement = Agreement(trainer.strategy.root_device)
        self.on_train_epoch_start(trainer, pl_module)  # the Trainer calls it in a new epoch alone

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an epoch, or resume the checkpoint's."""
        self._enter("train", trainer)
        if (epoch := trainer.current_epoch) != self._report.row["epoch"]:
            self._report.row = {"epoch": epoch, "samples": 0, "updates": 0, "train_s": 0.0}
        self._logged_before = dict(trainer.callback_metrics)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Continue to train after a validation or a checkpoint; note the first optimizer's learning rate."""
        self._enter("train", trainer)
        if trainer.optimizers:  # a module may have its own, which the Trainer does not know
            self._report.row["learning_rate"] = trainer.optimizers[0].param_groups[0].get("lr")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a validation; the sanity check belongs to `startup`."""
        if not trainer.sanity_checking:
            self._enter("validate", trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Begin to write a checkpoint; the next batch or epoch ends the stage."""
        self._enter("checkpoint", trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """End the training."""
        self._enter("shutdown", trainer)

    # --- results --------------------------------------------------------------------------------------

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, _: int
    ) -> None:
        """Count a batch; after an update, stop if any rank was asked to."""
        self._report.row["samples"] += _batch_size(batch)
        if trainer.global_step == self._step:  # gradients are being accumulated
            return
        # Once, however many optimizers stepped: global_step counts each.
        self._step = trainer.global_step
        self._report.row["updates"] += 1
        # After an epoch's last batch its results would be lost.
        is_last = trainer.is_last_batch or trainer.global_step >= trainer.max_steps >= 0
        if is_in_run() and not is_last and any(self._agreement.reached(stop_requested())):
            note_request()
            trainer.save_checkpoint(Path(os.environ[WORK_VARIABLE], CHECKPOINT))
            trainer.strategy.barrier("scalewatt stops")
            raise SystemExit(int(ExitCode.STOPPED))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep what was logged since the epoch began; an earlier epoch's values remain the same objects."""
        if not trainer.sanity_checking:
            known, before = trainer.callback_metrics, self._logged_before
            for key, name in self._report.names.items():
                if name in known and known[name] is not before.get(name):
                    self._report.row[key] = float(known[name])

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the epoch."""
        if is_in_run():
            synchronize(trainer.strategy.root_device)
            self._report.add_train_time()
            self.on_validation_end(trainer, pl_module)
            samples = _samples_of_all_ranks(trainer, self._report.row["samples"])
            report(**{**self._report.row, "samples": samples})

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let a process that TERM ended fail: Lightning would end it as if it had finished."""
        if is_in_run() and type(exception).__name__ == "SIGTERMException":
            exception.code = 128 + signal.SIGTERM  # type: ignore[attr-defined]


def _batch_size(batch: Any) -> float:
    """Samples of a batch as Lightning counts them; NaN where it cannot."""
    try:
        data = importlib.import_module(f"{_INSTALLED[0]}.utilities.data")
        return int(data.extract_batch_size(batch))
    except Exception:
        return math.nan


def _samples_of_all_ranks(trainer: Any, samples: float) -> int | None:
    """Samples of all copies of the model; None where a rank does not know its samples."""
    strategy = trainer.strategy
    value = torch.tensor(samples, dtype=torch.float64, device=strategy.root_device)
    mean = float(strategy.reduce(value, reduce_op="mean"))
    # Ranks that share one copy of the model have the same samples.
    copies = (getattr(strategy, "distributed_sampler_kwargs", None) or {}).get("num_replicas", 1)
    return None if math.isnan(mean) else round(mean * copies)
