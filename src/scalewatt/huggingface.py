"""Callback by which Hugging Face's Trainer reports and stops at a checkpoint (docs/your-script.md).

Import it before torch and transformers: from then on, a request to stop the run no longer ends the
process, and the callback answers it with a checkpoint. Outside a run nothing is written or changed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from scalewatt.common.termination import ExitCode
from scalewatt.events import WORK_VARIABLE, is_in_run, note_request, report, stop_requested

stop_requested()  # before the imports that take seconds

import torch  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from scalewatt.epoch_report import EpochReport  # noqa: E402
from scalewatt.training.agreement import Agreement  # noqa: E402
from scalewatt.training.device import synchronize  # noqa: E402


def last_checkpoint() -> str | None:
    """Newest checkpoint of this run for `Trainer.train(resume_from_checkpoint=…)`; None without any.

    Looks in the folders below SCALEWATT_WORK, and skips what a killed process left unfinished: the
    Trainer writes trainer_state.json last.
    """
    steps: dict[int, str] = {}
    for path in Path(os.environ.get(WORK_VARIABLE, os.devnull)).rglob(
        "checkpoint-*/trainer_state.json"
    ):
        with suppress(ValueError, KeyError, OSError):
            steps[json.loads(path.read_text())["global_step"]] = str(path.parent)
    return steps[max(steps)] if steps else None


class ScalewattCallback(TrainerCallback):
    """Reports stages, results and throughput of a Trainer's run, and stops it at a checkpoint.

    `metric`, `validation_loss` and `train_metric` are names in what the Trainer evaluates (`eval_…`).
    """

    def __init__(
        self,
        metric: str | None = None,
        *,
        validation_loss: str = "eval_loss",
        train_metric: str | None = None,
    ) -> None:
        self._report = EpochReport(
            metric=metric, validation_loss=validation_loss, train_metric=train_metric
        )
        self._epoch, self._first_step, self._logged_step = -1, 0, 0
        self._is_resumed = False
        self._losses: list[tuple[int, float]] = []
        """Updates, and their mean loss, of each log of the epoch."""
        self._agreement: Agreement | None = None
        self._is_stopping = False
        self._missed: set[str] = set()

    # --- stages ---------------------------------------------------------------------------------------

    def _enter(self, name: str, args: Any, epoch: int | None = None) -> None:
        self._report.enter(name, epoch, partial(synchronize, args.device))

    def _enter_next(self, args: Any, control: Any) -> None:
        """Begin what the Trainer does after an update, an epoch or an evaluation, if not to train."""
        if control.should_evaluate:
            self._enter("validate", args, self._epoch)
        elif control.should_save:
            self._enter("checkpoint", args, self._epoch)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to train, perhaps amid an epoch."""
        before, part = divmod(state.epoch or 0, 1)
        self._epoch, self._is_resumed = int(before) - 1, bool(part)
        self._logged_step = state.global_step

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin an epoch, or resume one; how long it was trained before is not known then."""
        self._epoch += 1  # of a stream the Trainer's own number is a share of all updates
        self._losses, self._first_step = [], state.global_step
        self._report.row = {"epoch": None, "train_s": None if self._is_resumed else 0.0}
        self._is_resumed = False

    def on_step_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
    ) -> None:
        """Begin an update, after an evaluation or a checkpoint too; note the learning rate."""
        self._enter("train", args, self._epoch)
        if optimizer is not None:
            self._report.row["learning_rate"] = optimizer.param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask for a checkpoint if any rank was asked to stop; an epoch's last update is reported first."""
        is_last = state.epoch == self._epoch + 1 or state.global_step >= state.max_steps
        self._agreement = self._agreement or Agreement(args.device)
        is_asked = is_in_run() and any(self._agreement.reached(stop_requested()))
        if is_asked and not is_last:
            note_request()
            self._is_stopping = control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        self._enter_next(args, control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the process at its checkpoint, if the run was asked to stop."""
        if self._is_stopping:
            if torch.distributed.is_initialized():
                torch.distributed.barrier()
            raise SystemExit(int(ExitCode.STOPPED))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the training."""
        self._enter("shutdown", args)

    # --- results --------------------------------------------------------------------------------------

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Keep the loss since the last log, unless that was in an earlier epoch."""
        if logs and "loss" in logs:
            if self._logged_step >= self._first_step:
                self._losses.append((state.global_step - self._logged_step, logs["loss"]))
            self._logged_step = state.global_step
            self._report_again()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
    ) -> None:
        """Keep what was evaluated in the epoch, or at its end, after `on_epoch_end`."""
        for key, name in self._report.names.items():
            if name in metrics:
                self._report.row[key] = float(metrics[name])
            elif name not in self._missed:
                self._missed.add(name)
                print(f"scalewatt: {name} was not evaluated, but {', '.join(metrics)}", flush=True)
        self._report_again()
        if control.should_save:
            self._enter("checkpoint", args, self._epoch)

    def on_epoch_end(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Report the epoch: its samples over all ranks, all of which have batches of equal sizes."""
        self._enter_next(args, control)
        if self._report.stage[0] == "train":
            self._enter("train", args)  # its time is known from here on
        try:
            steps = len(train_dataloader)
        except TypeError:  # a stream
            steps = None
        if steps:
            batches = round((state.epoch - self._epoch) * steps)
            most = getattr(train_dataloader, "total_dataset_length", None) or float("inf")
            batch = args.train_batch_size * args.world_size
            self._report.row["samples"] = int(min(batches * batch, most))
            self._report.row["updates"] = -(-batches // args.gradient_accumulation_steps)
        self._report.row["epoch"] = self._epoch
        self._report_again()

    def _report_again(self) -> None:
        """Report an epoch that has ended; the last report counts."""
        if self._report.row["epoch"] is not None and is_in_run():
            updates = sum(count for count, _ in self._losses)
            total = sum(count * loss for count, loss in self._losses)
            loss = total / updates if updates else None
            report(**self._report.row, train_loss=loss)
