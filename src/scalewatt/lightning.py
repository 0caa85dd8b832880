"""What Lightning's Trainer tells scalewatt, by a callback of either package (docs/your-script.md).

Import it before torch and Lightning: in a run, a request to stop no longer ends the process from then
on, and the callback answers it with a checkpoint. Outside a run nothing is written or changed. Of
scalewatt it needs `scalewatt.events` alone.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scalewatt.common.exit_codes import ExitCode
from scalewatt.events import STOP_VARIABLE, report, stage, stop_requested

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
WORK_VARIABLE = "SCALEWATT_WORK"
CHECKPOINT = "stopped.ckpt"
"""In the folder that SCALEWATT_WORK names: where a run that was asked to stop goes on."""
LOOK_S = 1.0
"""Ranks ask each other about so often whether to stop; and at least every MOST_UPDATES updates."""
MOST_UPDATES = 100

_INSTALLED = [name for name in PACKAGES if find_spec(name.partition(".")[0])]
if not _INSTALLED:
    raise ModuleNotFoundError(
        f"scalewatt.lightning needs Lightning, but {sys.executable} has neither the package "
        "`lightning` nor `pytorch_lightning`; install one of them where the script runs: "
        "pip install lightning",
        name="lightning",
    )
stop_requested()


def last_checkpoint() -> str | None:
    """Return the newest checkpoint (`*.ckpt`) of this run, for `Trainer.fit(ckpt_path=…)`; or None.

    Looks in SCALEWATT_WORK and the folders below it. A file that a killed process left unfinished is
    skipped.
    """
    folder = os.environ.get(WORK_VARIABLE)
    found = Path(folder).rglob("*.ckpt") if folder else []
    whole = [path for path in found if path.is_dir() or zipfile.is_zipfile(path)]
    return str(max(whole, key=lambda path: path.stat().st_mtime)) if whole else None


class ScalewattCallback:
    """Reports stages, results and throughput of a Trainer's run, and stops it at a checkpoint.

    `metric`, `train_loss`, `validation_loss` and `train_metric` are names by which the module logs them
    (`self.log`); what is logged without `sync_dist=True` is rank 0's alone. `batch_size` returns the
    samples of a batch on this rank; by default it is the length of its first tensor.
    """

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Make it a Callback of each Lightning that is loaded, or else of one that is installed."""
        return object.__new__(_with_bases(cls))

    def __init__(
        self,
        metric: str | None = None,
        *,
        train_loss: str = "train_loss",
        validation_loss: str = "val_loss",
        train_metric: str | None = None,
        batch_size: Callable[[Any], int] | None = None,
    ) -> None:
        names = {
            "metric": metric,
            "train_loss": train_loss,
            "validation_loss": validation_loss,
            "train_metric": train_metric,
        }
        self._names = {key: name for key, name in names.items() if name is not None}
        self._batch_size = batch_size or _first_length
        self._stage: tuple[str | None, int | None] = (None, None)
        self._since_s = 0.0
        self._epoch: int | None = None
        self._samples: int | None = 0
        """Of this rank in this epoch; None where a batch does not say."""
        self._train_s = 0.0
        """Time of training in this epoch, up to the beginning of the present stage."""
        self._updates = 0
        """Updates before this epoch."""
        self._values: dict[str, float] = {}
        """What was logged in this epoch."""
        self._before: dict[str, Any] = {}
        """What the Trainer knew when it began, such as results of an earlier validation."""
        self._learning_rate: float | None = None
        self._row: dict[str, Any] | None = None
        self._step = 0
        self._looks_after = self._updates_between = 1
        self._looked_s = 0.0
        self._on_term: Any = None

    def __reduce__(self) -> Any:
        """Return how it is copied or sent to another process: its class is made where it arrives."""
        return _restored, (type(self).__mro__[1], self.__dict__)

    # --- what a checkpoint keeps --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what is known of the epoch so far: rank 0's, as only that is written."""
        return {
            "epoch": self._epoch,
            "samples": self._samples,
            "train_s": self._trained_s(),
            "updates": self._updates,
            "values": self._values,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, perhaps amid an epoch. Ranks have batches of equal sizes."""
        self._epoch, self._samples = state["epoch"], state["samples"]
        self._train_s, self._updates = state["train_s"], state["updates"]
        self._values = dict(state["values"])

    # --- stages ---------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remember who handles TERM, before the Trainer does."""
        if _in_a_run():
            stop_requested()
            self._on_term = signal.getsignal(signal.SIGTERM)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Leave the check to the stage `startup`."""
        self._keep_term()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to train, perhaps amid an epoch."""
        self._keep_term()
        self._step = trainer.global_step
        self._looks_after = self._updates_between = 1
        self._looked_s = time.monotonic()
        self._begin(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an epoch."""
        self._begin(trainer)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Go on training after a validation or a checkpoint."""
        self._enter("train", trainer.current_epoch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a validation; the one before training is a part of the start."""
        if not trainer.sanity_checking:
            self._keep_term()
            _finish(trainer)
            self._enter("validate", _epoch_of(trainer))

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Count a test as validation."""
        self._keep_term()
        self._enter("validate", None)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Count predictions as validation."""
        self._keep_term()
        self._enter("validate", None)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Begin to write a checkpoint; the next batch or epoch ends it."""
        self._enter("checkpoint", _epoch_of(trainer))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """End the training; what the script does then is no part of it."""
        self._enter("shutdown", None)

    # --- results --------------------------------------------------------------------------------------

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the learning rate of an update, that of the first optimizer, before a schedule changes it."""
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch; after an update, stop if any rank was asked to."""
        size = self._batch_size(batch)
        counted = self._samples
        self._samples = None if size is None or counted is None else counted + size
        if trainer.global_step == self._step:  # gradients are being accumulated
            return
        # Once, however many optimizers stepped: global_step counts each.
        self._step, self._updates = trainer.global_step, self._updates + 1
        # Amid an epoch only: after its last batch the results of the epoch would be lost.
        last = trainer.is_last_batch or trainer.global_step >= trainer.max_steps >= 0
        if _in_a_run() and not last and self._is_to_stop(trainer):
            self._stop(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep what was logged, for a checkpoint that is written before the epoch ends."""
        if not trainer.sanity_checking:
            self._values.update(self._logged(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the epoch."""
        if not _in_a_run():
            return
        _finish(trainer)
        train_s = self._trained_s()
        self._values.update(self._logged(trainer))
        self._row = {
            "epoch": trainer.current_epoch,
            "samples": _of_all_ranks(trainer, self._samples),
            "updates": self._updates,
            "train_s": train_s,
            "learning_rate": self._learning_rate,
            **self._values,
        }
        report(**self._row)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report what the module logged at the very end, and say if there was never a metric."""
        self._report_late(trainer)
        name = self._names.get("metric")
        if name and name not in trainer.callback_metrics and trainer.is_global_zero:
            known = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            warnings.warn(
                f"ScalewattCallback: metric '{name}' was never logged; logged: {known}",
                stacklevel=2,
            )
        self._epoch = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let a process that TERM ended fail: Lightning would end it as if it had finished."""
        if _in_a_run() and type(exception).__name__ == "SIGTERMException":
            exception.code = 128 + signal.SIGTERM  # type: ignore[attr-defined]

    # --- the parts ------------------------------------------------------------------------------------

    def _begin(self, trainer: Any) -> None:
        """Begin an epoch, or go on in one that a checkpoint was written in."""
        self._report_late(trainer)
        epoch = trainer.current_epoch
        self._enter("train", epoch)
        if epoch != self._epoch:
            self._epoch, self._samples, self._train_s = epoch, 0, 0.0
            self._updates, self._values = 0, {}
        self._before = dict(trainer.callback_metrics)

    def _enter(self, name: str, epoch: int | None) -> None:
        if (name, epoch) != self._stage:
            self._train_s = self._trained_s()
            self._stage, self._since_s = (name, epoch), time.monotonic()
            stage(name, epoch)

    def _trained_s(self) -> float:
        training = self._stage[0] == "train"
        return self._train_s + (time.monotonic() - self._since_s if training else 0.0)

    def _logged(self, trainer: Any) -> dict[str, float]:
        """Return what was logged since the epoch began; results of an earlier one stay the same objects."""
        known = trainer.callback_metrics
        return {
            key: float(known[name])
            for key, name in self._names.items()
            if name in known and known[name] is not self._before.get(name)
        }

    def _report_late(self, trainer: Any) -> None:
        """Report again what the module logged in its `on_train_epoch_end`, which comes after ours."""
        if self._row is not None:
            row = {**self._row, **self._logged(trainer)}
            if row != self._row:
                report(**row)
            self._row = None

    def _keep_term(self) -> None:
        """Take TERM back from the Trainer, whose handler waits for ranks that may be elsewhere."""
        if self._on_term is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_term)

    def _is_to_stop(self, trainer: Any) -> bool:
        """Return True if any rank was asked to stop. All ranks ask at the same updates."""
        self._looks_after -= 1
        if self._looks_after > 0:
            return False
        import torch

        now = time.monotonic()
        update_s = (now - self._looked_s) / self._updates_between
        updates = min(MOST_UPDATES, LOOK_S / max(update_s, 1e-6))
        told = torch.tensor(
            [float(stop_requested()), -updates],
            dtype=torch.float32,
            device=trainer.strategy.root_device,
        )
        asked, fewest = trainer.strategy.reduce(told, reduce_op="max").tolist()
        self._looks_after = self._updates_between = max(1, int(-fewest))
        self._looked_s = now
        return bool(asked)

    def _stop(self, trainer: Any) -> None:
        """Write a checkpoint and end the process; the next start of the run goes on from there."""
        path = Path(os.environ[WORK_VARIABLE], CHECKPOINT)
        partial = path.with_name(f"{CHECKPOINT}.part")
        trainer.save_checkpoint(partial)
        if trainer.is_global_zero:
            if path.is_dir():  # as some strategies write it
                shutil.rmtree(path)
            os.replace(partial, path)
        trainer.strategy.barrier("scalewatt stops")
        raise SystemExit(int(ExitCode.STOPPED))


def _in_a_run() -> bool:
    return STOP_VARIABLE in os.environ


def _loaded() -> list[str]:
    return [name for name in PACKAGES if name in sys.modules] or _INSTALLED[:1]


def _with_bases(own: type) -> type:
    """Return a class derived from `own` and the callbacks of each Lightning that is loaded."""
    bases: list[type] = [importlib.import_module(name).Callback for name in _loaded()]
    names: dict[str, Any] = {
        name: getattr(own, name) for name in ("__module__", "__qualname__", "__doc__")
    }
    return type(own.__name__, (own, *bases), names)


def _restored(own: Any, state: dict[str, Any]) -> Any:
    made = own.__new__(own)
    made.__dict__.update(state)
    return made


def _epoch_of(trainer: Any) -> int | None:
    """Return the epoch that is trained; None where nothing is."""
    return trainer.current_epoch if trainer.state.fn == "fit" else None


def _first_length(batch: Any) -> int | None:
    """Return the samples of a batch as Lightning takes them; None where it cannot tell."""
    try:
        return importlib.import_module(f"{_loaded()[0]}.utilities.data").extract_batch_size(batch)
    except Exception:  # each package has its own; what it cannot tell is unknown
        return None


def _finish(trainer: Any) -> None:
    """Wait until a GPU has done what it was given, so that its time counts where it belongs."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _of_all_ranks(trainer: Any, samples: int | None) -> int | None:
    """Return the samples of all copies of the model; None where a rank does not know its own."""
    import torch

    strategy = trainer.strategy
    told = torch.tensor(
        [samples or 0, int(samples is None)], dtype=torch.int64, device=strategy.root_device
    )
    total, unknown = strategy.reduce(told, reduce_op="sum").tolist()
    if unknown:
        return None
    # Ranks that share one copy of the model have the same samples.
    sharing = getattr(strategy, "distributed_sampler_kwargs", None) or {}
    copies = sharing.get("num_replicas", trainer.world_size)
    return int(total * copies // trainer.world_size)
