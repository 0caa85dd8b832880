"""Trials of trainings, in a process of their own: does a batch fit, and how long is an update?

    python -m scalewatt.gpu_study.trial_child ORDER

Writes a line of JSON for each trial as it ends. One process for all of them: starting CUDA takes longer
than a trial.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from scalewatt.campaign.run_spec import RunSpec, parse_spec
from scalewatt.common.termination import StopRequest
from scalewatt.common.untrusted_text import parse_json, plain_text
from scalewatt.gpu_study.trials import Trial
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import Job
from scalewatt.training.batch_limit import is_out_of_memory, largest_that_fits, trials
from scalewatt.training.process_group import choose_device, join_ranks, start_process_group
from scalewatt.training.samplers import batches_of
from scalewatt.training.step_timer import finish, peak_memory_bytes
from scalewatt.training.trainer import Trainer

_UNTIMED, _LEAST = 2, 3
"""Updates before the clock starts, and the least that are timed."""
_MARGIN = 0.97
"""Of the largest batch that a trial held: a run's memory is a little more fragmented."""
_FURTHER = 8
"""How many times the asked batch is tried at most, where the largest is looked for."""
_SMALLER = 4
"""How often a batch that was held, but whose whole updates were not, is made a tenth smaller."""
_GIB = 2**30


class Trials:
    """All trials of one process."""

    def __init__(self, torch_device: str, seconds: float, work: Path) -> None:
        self.ranks: Ranks = join_ranks("trials", 1, 1)
        self.device = choose_device(torch_device, self.ranks)
        start_process_group(self.ranks, self.device)
        self.seconds, self.work = seconds, work

    def trial(self, spec: RunSpec, data_folder: str, wants_largest: bool) -> Trial:
        """Try a training with its own batch, with the largest that fits, or with the one that does."""
        batch = spec.local_batch_size
        timed = self._timed_if_held(spec, data_folder)
        if timed is None or (wants_largest and self.device.type == "cuda"):
            below = batch * (_FURTHER if timed else 1)
            batch, timed = self._largest_timed(spec, data_folder, below)
        if timed is None:
            return Trial(spec.configuration, 0, None, None, 0.0)
        step_s, peak_bytes, start_s = timed
        return Trial(spec.configuration, batch, step_s, peak_bytes / _GIB, start_s)

    def _largest_timed(
        self, spec: RunSpec, data_folder: str, below: int
    ) -> tuple[int, tuple[float, int, float] | None]:
        """Return the largest batch below `below` whose updates fit, and `_timed_if_held` of it."""
        batch = self._largest(spec, data_folder, below)
        if batch is None:
            return 0, None
        for _ in range(_SMALLER):
            timed = self._timed_if_held(with_batch(spec, batch), data_folder)
            if timed is not None:
                return batch, timed
            batch = max(1, int(batch * 0.9))
        return 0, None

    def _timed_if_held(self, spec: RunSpec, data_folder: str) -> tuple[float, int, float] | None:
        """Return `_timed` and the seconds of the set-up; None where the batch does not fit."""
        began_s = time.monotonic()
        try:
            timed = self._timed(spec, data_folder)
            return *timed, max(0.0, time.monotonic() - began_s - self.seconds)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        finally:
            gc.collect()
        return None

    def _largest(self, spec: RunSpec, data_folder: str, below: int) -> int | None:
        trainer = self._trainer(with_batch(spec, 1), data_folder)
        found = largest_that_fits(trials(trainer), below)
        if found is None:
            return None
        kept = int(found * _MARGIN)
        return max(1, kept - kept % 8 if kept >= 64 else kept)

    def _timed(self, spec: RunSpec, data_folder: str) -> tuple[float, int]:
        """Return seconds of an update and the peak of memory in bytes."""
        trainer = self._trainer(spec, data_folder)
        trainer.warm_up()
        steps, began_s = 0, 0.0
        for batch in batches_of(trainer.loader):
            trainer.update(batch, trainer.batches.steps)
            steps += 1
            if steps == _UNTIMED:
                finish(self.device)
                began_s = time.monotonic()
            # Not every update: a GPU that is waited for has nothing to do meanwhile.
            if steps >= _UNTIMED + _LEAST and time.monotonic() - began_s >= self.seconds:
                break
        finish(self.device)
        timed = steps - _UNTIMED
        if timed < 1:
            raise RuntimeError(f"{spec.configuration}: {steps} updates are too few to time one")
        return (time.monotonic() - began_s) / timed, peak_memory_bytes(self.device)

    def _trainer(self, spec: RunSpec, data_folder: str) -> Trainer:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        job = Job(spec, spec.sha256, data_folder, self.work, 0)
        return Trainer(job, self.ranks, self.device, StopRequest(), EventLog(None, 0))


def with_batch(spec: RunSpec, batch: int) -> RunSpec:
    """Return the spec with another local batch, for one GPU."""
    return replace(spec, local_batch_size=batch, global_batch_size=batch)


def main(order_path: str) -> None:
    """Do the trials of an order: torch_device, seconds, out, and trials (spec, data_folder, largest)."""
    order: dict[str, Any] = parse_json(plain_text(order_path))
    trials = Trials(order["torch_device"], order["seconds"], Path(order_path).parent)
    with open(order["out"], "a", encoding="utf-8") as out:
        for one in order["trials"]:
            spec = parse_spec(one["spec"], order_path)
            done = trials.trial(spec, one["data_folder"], one["largest"])
            out.write(json.dumps(asdict(done)) + "\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
