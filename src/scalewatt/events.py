"""Stages, results and stop requests of a training script of yours, while it runs.

For runs with `workload: command` (docs/your-script.md). Outside such a run nothing is written, and
nothing is asked. Imports nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.common.termination import StopRequest, say
from scalewatt.recordings.stage_log import STAGES, append_line

FOLDER_VARIABLE = "SCALEWATT_MARKS"
"""Folder of the script's marks; in the environment of rank 0 alone."""
STOP_VARIABLE = "SCALEWATT_STOP"
"""File that is there once the run is asked to stop."""
SEGMENT_VARIABLE = "SCALEWATT_SEGMENT"
WORK_VARIABLE = "SCALEWATT_WORK"
"""Folder that persists until the run has finished."""
PLACE_VARIABLE = "SCALEWATT_PLACE"
"""Variables that the run's launcher gave this rank, as JSON: another launcher below it changes them."""
_RANKS_OF_MPI = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables that the run's launcher does not hand on, so that another one has set them."""
_OTHER_WAYS = ("jax", "tensorflow", "horovod", "mpi4py", "paddle")
"""Modules by which ranks may train together without torch.distributed, though torch is loaded as well."""
EVENTS_FILE, HISTORY_FILE = "script-events.jsonl", "script-history.jsonl"

_stop = StopRequest()
_joined: bool | None = None
"""True if all ranks have been seen in one world; None if nothing tells."""


def stage(name: str, epoch: int | None = None) -> None:
    """Begin a stage, which lasts until the next one begins; `epoch` counts from 0.

    ValueError if `name` is none of scalewatt's stages; RuntimeError if this process is no rank of the
    run, but of another launcher's. A full disk is said on stderr, and ends no training.
    """
    if name not in STAGES:
        raise ValueError(f"'{name}' is no stage; allowed: {', '.join(STAGES)}")
    _check_ranks()
    mark = {"stage": name, "epoch": None if epoch is None else int(epoch), "start_s": time.time()}
    _append(EVENTS_FILE, mark)


def report(
    *,
    epoch: int,
    metric: float | None = None,
    samples: int | None = None,
    updates: int | None = None,
    train_loss: float | None = None,
    validation_loss: float | None = None,
    train_metric: float | None = None,
    learning_rate: float | None = None,
    train_s: float | None = None,
) -> None:
    """Report the results of an epoch (from 0); of several reports, the last one counts.

    `samples` and `updates` are those of this epoch over all ranks, `train_s` is the time that it
    trained. What is not a finite number is noted as that. RuntimeError as of `stage`.
    """
    _check_ranks()
    results = {
        "metric": metric,
        "train_loss": train_loss,
        "validation_loss": validation_loss,
        "train_metric": train_metric,
        "learning_rate": learning_rate,
        "train_s": train_s,
    }
    counts = {"samples": samples, "updates": updates}
    not_finite = sorted(k for k, v in results.items() if v is not None and not math.isfinite(v))
    row = {
        "epoch": _count("epoch", epoch),
        **{k: None if v is None or k in not_finite else float(v) for k, v in results.items()},
        **{name: None if n is None else _count(name, n) for name, n in counts.items()},
    }
    _append(HISTORY_FILE, {**row, "not_finite": not_finite, "joined": _joined})


def is_in_run() -> bool:
    """Tell whether this process is a rank of a run."""
    return STOP_VARIABLE in os.environ


def stop_requested() -> bool:
    """Tell whether this run is to stop: write a checkpoint to SCALEWATT_WORK and exit with 75.

    From the first call on, the signals USR1 and TERM no longer end this process (unless the script
    has handlers of its own, which stay). Ranks may learn of it at different steps.
    """
    if not is_in_run():
        return False
    if _stop.stop_file is None:
        _stop.stop_file = os.environ[STOP_VARIABLE]
        for number in (signal.SIGUSR1, signal.SIGTERM):
            with suppress(ValueError):  # not the main thread, whose first call sets none either
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, note_request)
    if is_asked := _stop.asked():
        note_request()  # from now on USR1 is ignored
    return is_asked


def note_request(*_: object) -> None:
    """Note that this run is to stop, and ignore further USR1.

    An interpreter that ends takes its handlers down, and a request that another rank passed on would then
    end a process that has stopped at its checkpoint.
    """
    _stop.ask()
    with suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGUSR1) is note_request:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _check_ranks() -> None:
    """Note whether the ranks have formed one world; RuntimeError if this process is in another."""
    global _joined
    given = json.loads(os.environ.get(PLACE_VARIABLE, "null"))
    if given is None:
        return
    rank, size = given["RANK"], given["WORLD_SIZE"]
    changed = [name for name, value in given.items() if os.environ.get(name) != value]
    changed += [name for name in _RANKS_OF_MPI if name in os.environ]
    if changed:
        raise RuntimeError(
            f"scalewatt: another launcher started this process: {', '.join(changed)} are not those of "
            f"rank {rank} of {size}; start the script without torchrun, accelerate launch, mpiexec or "
            "srun, because the ranks run already"
        )
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        seen = distributed.get_rank(), distributed.get_world_size()
        if seen != (int(rank), int(size)):
            raise RuntimeError(
                f"scalewatt: rank {rank} of {size} is rank {seen[0]} of {seen[1]} in torch.distributed; "
                "call init_process_group without rank and world_size, in the process that is started"
            )
        _joined = True
    elif distributed is not None and not any(name in sys.modules for name in _OTHER_WAYS):
        _joined = bool(_joined)


def _count(name: str, value: int) -> int:
    count = int(value)
    if count != value or count < 0:
        raise ValueError(f"{name}: {value!r} is no count; allowed: 0, 1, 2, …")
    return count


def _append(name: str, row: dict[str, Any]) -> None:
    """Append a line to a file of marks; outside of a run nothing is written."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        return
    row = {"segment": int(os.environ[SEGMENT_VARIABLE]), **row}
    path = Path(folder, name)
    try:
        append_line(path, row)
    except OSError as error:
        say(f"scalewatt: {path}: cannot be written ({error})")
