"""The data-parallel training loop: exact metrics, stage events, resumable bit for bit.

Under `protocol: paper` an update, an evaluation and a pass over the data cost what they cost in the code of
the paper's authors; under `corrected` they are as PyTorch is fastest (docs/paper/protocols.md).
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, default_collate

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.common.processes import ignore_stop_signals
from scalewatt.common.termination import StopRequest
from scalewatt.models.interface import Batch, workload_class
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.record import FINISHED, STOPPED, Job, note_position, note_progress
from scalewatt.training import checkpoint
from scalewatt.training.agreement import Agreement
from scalewatt.training.batches import Batches, worker_count
from scalewatt.training.device import peak_memory_bytes, set_precision, synchronize
from scalewatt.training.history import finite
from scalewatt.training.phases import PhaseTimer, phase_statistics

PROGRESS_S = 5.0
"""Updates are noted in progress.json no more often than this; stages always."""
_STATEFUL = ("network", "optimizer", "schedule", "scaler")
"""Parts of a trainer whose `state_dict` is in a checkpoint."""


class Trainer:
    """The training of one rank."""

    def __init__(
        self, job: Job, ranks: Ranks, device: torch.device, stop: StopRequest, events: EventLog
    ) -> None:
        self.job, self.spec, self.ranks, self.device = job, job.spec, ranks, device
        self.stop, self.events = stop, events
        self.as_authors = self.spec.protocol == "paper"
        assert self.spec.seed is not None  # only registered runs have none
        self.seed = self.spec.seed
        torch.manual_seed(self.seed)
        self.workload = workload_class(self.spec.model)(self.spec, job.data_folder, device)
        self._make_network()
        torch.manual_seed(self.seed + ranks.rank)  # layers such as dropout differ between ranks
        self._make_loaders()

        self.epoch = self.step = self.updates_here = 0
        self.no_sums = self.sums = torch.zeros((), dtype=torch.float64, device=device)
        """What the epoch's updates added up, as `Workload.loss` gives it; before the first a zero."""
        self.history: list[dict[str, Any]] = []
        self.stage, self.entered_s = "startup", time.monotonic()
        self.seconds: dict[str, float] = defaultdict(float)
        """Time of the epoch by stage, in s."""
        self.phases, self.agreement = PhaseTimer(device), Agreement(device)
        self.saved_s = time.monotonic()
        self.is_first = ranks.rank == 0
        self.noted_s, self.noted_updates = 0.0, 0
        self.samples_per_s: float | None = None
        """Of all ranks, between the last two notes."""

    def _make_network(self) -> None:
        """Make network, optimiser and schedule."""
        settings, device = self.spec.settings, self.device
        self.precision_used, autocast = set_precision(settings["precision"], device)
        self.autocast = partial(torch.autocast, device.type, autocast, autocast is not None)
        self.scaler = torch.amp.GradScaler(device.type, enabled=autocast == torch.float16)
        self.network = self.workload.model()
        if self.job.initial_weights is not None and self.ranks.rank == 0:  # DDP gives them to all
            weights = torch.load(self.job.initial_weights, map_location="cpu", weights_only=True)
            self.network.load_state_dict(weights)
        is_last = settings.get("channels_last")
        self.layout = torch.channels_last if is_last else torch.preserve_format
        self.network.to(device=device, memory_format=self.layout)  # type: ignore[call-overload]
        # Rank 0's buffers are the model's. No training step reads them, so sending them to all ranks at
        # each, which is DDP's habit, costs time and changes no result. Bucket views save copies.
        self.parallel = DistributedDataParallel(
            self.network,
            device_ids=[device.index] if device.type == "cuda" else None,
            broadcast_buffers=self.as_authors,
            gradient_as_bucket_view=not self.as_authors,
        )
        self.trained: Any = self.parallel
        self.evaluated: Any = self.network
        if settings["compile"]:
            # A graph for each shape, whichever batch a segment begins with.
            self.trained = torch.compile(self.parallel, dynamic=False)
            self.evaluated = torch.compile(self.network, dynamic=False)
        self.optimizer = self.workload.optimizer(self.network)
        self.schedule = self.workload.schedule(self.optimizer)

    def _make_loaders(self) -> None:
        """Make the loaders of the training and of each evaluation."""
        spec, data = self.spec, self.workload.training_data()
        if (samples := len(data)) != spec.dataset_samples:  # type: ignore[arg-type]
            asked = f"{spec.configuration} asks for {spec.dataset_samples}"
            raise InputError(f"{self.job.data_folder}: has {samples} training samples, {asked}")
        part = self.ranks.rank, self.ranks.size, spec.local_batch_size
        self.batches = Batches(range(samples), *part, seed=self.seed)
        self.loader = self._loader(data, self.batches)
        self.evaluations = {}
        for name, evaluation in self.workload.evaluations().items():
            # The authors' second pass over the training set is shuffled as the first.
            seed = self.seed if self.as_authors and name == "train_again" else None
            batches = Batches(evaluation.positions, *part, seed=seed, whole=evaluation.whole)
            self.evaluations[name] = batches, self._loader(evaluation.dataset, batches)

    def _loader(self, data: Any, batches: Batches) -> DataLoader[Any]:
        """Loader of batches; the authors' workers start anew for each pass."""
        ranks_per_node = self.ranks.size // self.ranks.nodes
        workers = worker_count(self.spec.settings["loader_workers"], ranks_per_node)
        workers = getattr(data, "workers", workers)
        return DataLoader(
            data,
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=self.workload.pinned and self.device.type == "cuda",
            persistent_workers=workers > 0 and not self.as_authors,
            worker_init_fn=ignore_stop_signals,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def inputs(self, batch: Iterable[torch.Tensor]) -> Batch:
        """Batch on the device, images in the network's memory layout; authors wait for each copy."""

        def move(part: torch.Tensor) -> torch.Tensor:
            layout = self.layout if part.dim() == 4 else torch.preserve_format
            return part.to(self.device, non_blocking=not self.as_authors, memory_format=layout)

        return tuple(map(move, batch))

    def update(self, batch: Any) -> None:
        """Compute the gradients of a batch in one pass or several, and update the weights."""
        phase, passes = self.phases.phase, self.spec.gradient_accumulation_steps
        self.phases.begin_step(self.step, self.batches.steps)
        with phase("optimizer"):
            self.schedule.begin_step(self.epoch, self.step, self.batches.steps)
            self.optimizer.zero_grad(set_to_none=True)
        with phase("copy"):
            batch = self.inputs(batch)
        samples, size = len(batch[0]), self.spec.local_batch_size // passes
        for first in range(0, samples, size):
            part = tuple(tensor[first : first + size] for tensor in batch) if passes > 1 else batch
            is_last = first + size >= samples  # ranks exchange the gradients of all passes at once
            with nullcontext() if is_last else self.parallel.no_sync():
                with phase("forward"), self.autocast():
                    loss, sums = self.workload.loss(self.trained, part)
                with phase("backward"):
                    weight = len(part[0]) / samples
                    self.scaler.scale(loss if weight == 1 else loss * weight).backward()
            self.sums = self.sums + sums
        with phase("optimizer"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.step += 1
        self.updates_here += 1

    def warm_up(self) -> None:
        """Process zeros twice before the real work, and undo all that this changed.

        On a GPU the batch is whole: cuDNN chooses its kernels here, and what does not fit into memory
        fails before the training. DDP regroups its gradient buckets after the first backward pass, which
        changes the order of summation: without this, a resumed run would differ from an uninterrupted one.
        """
        states = checkpoint.random_state(self.device)
        kept = {name: value.clone() for name, value in self.network.state_dict().items()}
        size = self.spec.local_batch_size // self.spec.gradient_accumulation_steps
        # What is chosen or compiled for a shape, best at once for the one that counts.
        if not (self.spec.settings["compile"] or self.device.type == "cuda"):
            size = min(2, size)
        example = default_collate([self.loader.dataset[0, 0]])
        self.parallel.train()
        for _ in range(2):
            zeros = (torch.zeros((size, *part.shape[1:]), dtype=part.dtype) for part in example)
            with self.autocast():
                loss, _ = self.workload.loss(self.trained, self.inputs(zeros))
            loss.backward()
        self.optimizer.zero_grad(set_to_none=True)
        self.network.load_state_dict(kept)
        checkpoint.restore_random_state(states, self.device)
        synchronize(self.device)
        peak_memory_bytes(self.device)  # what follows counts

    def run(self) -> str:
        """Train to the end, or to where the ranks stop; FINISHED or STOPPED."""
        while self.epoch < self.spec.epochs:
            if not (self._train_epoch() and self._end_epoch()):
                self.checkpoint()
                return STOPPED
        self._write_result()
        return FINISHED

    def _train_epoch(self) -> bool:
        """Train the rest of the epoch; False if the ranks stop before its end."""
        self._enter("train")
        self.parallel.train()
        self.batches.epoch, self.batches.first_step = self.epoch, self.step
        for batch in self.phases.waiting(self.loader):
            self.update(batch)
            if time.monotonic() >= self.noted_s + PROGRESS_S:
                self._note_progress()
            is_stopping, is_due = self.agreement.reached(self.stop.asked(), self._is_due())
            if self.step == self.batches.steps:
                break
            if is_stopping or self._has_enough():
                return False
            if is_due:
                self.checkpoint()
                self._enter("train")
        return True

    def _end_epoch(self) -> bool:
        """Evaluate and record the epoch; False if the ranks stop within that, or right after it.

        What was evaluated until then is evaluated again after the checkpoint.
        """
        self._count("exchange")  # waiting for the slowest rank is no training
        sums = {"train": self._gather(self.sums)}
        for buffer in self.network.buffers():  # running statistics: rank 0's are the model's
            dist.broadcast(buffer, src=0)
        for name in self.evaluations:
            self._enter("evaluate_train" if name == "train_again" else "validate")
            total = self._evaluate(name)
            if total is None:
                return False
            sums[name] = self._gather(total)
        results = self.workload.results(sums)
        self.history.append(self._row(results, samples=round(sums["train"][:, 0].sum())))
        self.schedule.end_epoch(self.epoch, results)
        self.epoch, self.step, self.sums = self.epoch + 1, 0, self.no_sums
        self.seconds.clear()
        if self.is_first:
            names, row = ("train_loss", "validation_loss", "metric", "epoch_s"), self.history[-1]
            shown = [f"{n} {'-' if row[n] is None else format(row[n], '.4g')}" for n in names]
            at = f"{self.spec.configuration} epoch {self.epoch}/{self.spec.epochs}"
            print(f"{at}: {', '.join(shown)}", flush=True)
        if self.epoch < self.spec.epochs:
            if self._has_enough():
                return False
            if self.ranks.comm.bcast(self._is_due()):
                self.checkpoint()
        return True

    @torch.no_grad()
    def _evaluate(self, name: str) -> torch.Tensor | None:
        """Sums of this rank over an evaluation; None if the ranks stop within it."""
        batches, loader = self.evaluations[name]
        # Augmented evaluations (the paper's protocol) see other views than training did.
        batches.epoch = self.spec.epochs + self.epoch
        self.parallel.eval()
        # The authors evaluate through DDP, whose ranks must then have equally many batches.
        through_ddp = self.as_authors and not batches.whole
        network = self.trained if through_ddp else self.evaluated
        total = self.no_sums
        for _, batch in zip_longest(range(batches.steps), loader):
            if batch is not None:  # some ranks may have a batch less
                total = total + self.workload.evaluate(name, network, self.inputs(batch))
            if any(self.agreement.reached(self.stop.asked())):
                return None
        return total

    def _row(self, results: dict[str, float | None], samples: int) -> dict[str, Any]:
        """History of the epoch; memory is the largest of a rank."""
        self._count("exchange")
        seconds = {name: self.seconds[name] for name in ("train", "evaluate_train", "validate")}
        of_rank = self.phases.seconds(), peak_memory_bytes(self.device)
        phases, memory = zip(*self.ranks.comm.allgather(of_rank), strict=True)
        return {
            "epoch": self.epoch,
            "segment": self.job.segment,
            **{name: finite(value) for name, value in results.items()},
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "samples": samples,
            "updates": self.step,
            "epoch_s": sum(seconds.values()),
            **{f"{stage}_s": s for stage, s in seconds.items()},
            "throughput_samples_per_s": samples / seconds["train"],
            **phase_statistics(np.stack(phases)),
            "peak_memory_bytes": max(memory),
        }

    def _gather(self, sums: torch.Tensor) -> np.ndarray:
        """Sums of the ranks that had any, float64 (ranks, k), in the ranks' order."""
        rows = self.ranks.comm.allgather(sums.cpu().numpy().astype(np.float64))
        return np.stack([row for row in rows if row.ndim])

    def _count(self, stage: str) -> None:
        """Add the time since the last call to the stage that was counted, and count another."""
        synchronize(self.device)
        now_s = time.monotonic()
        self.seconds[self.stage] += now_s - self.entered_s
        self.stage, self.entered_s = stage, now_s

    def _enter(self, stage: str) -> None:
        """Begin another stage."""
        self._count(stage)
        self.events.enter(stage, self.epoch)
        self._note_progress()

    def _note_progress(self) -> None:
        """Note on rank 0 how far the training is, for `scalewatt status`."""
        if not self.is_first:
            return
        now_s, updates, spec = time.monotonic(), self._updates(), self.spec
        if self.noted_s and updates > self.noted_updates:
            samples = (updates - self.noted_updates) * spec.global_batch_size
            self.samples_per_s = samples / (now_s - self.noted_s)
        self.noted_s, self.noted_updates = now_s, updates
        steps, rate = self.batches.steps, {"samples_per_s": self.samples_per_s}
        with suppress(OSError):  # a full disk: the next checkpoint reports it
            note_progress(
                self.job.work,
                **{"segment": self.job.segment, "stage": self.stage, **rate},
                **{"epoch": self.epoch, "epochs": spec.epochs, "step": self.step, "steps": steps},
                **{"updates": updates, "updates_total": spec.epochs * steps},
            )

    def _note_checkpoint(self) -> None:
        """Note on rank 0 the position of the checkpoint."""
        job, updates = self.job, self._updates()
        note_position(job.work, updates, self.epoch, self.step, job.require_lock)

    def _updates(self) -> int:
        """Updates of the run so far."""
        return self.epoch * self.batches.steps + self.step

    def _has_enough(self) -> bool:
        """Whether the segment has done its updates, which all ranks count alike."""
        return self.job.max_updates is not None and self.updates_here >= self.job.max_updates

    def _is_due(self) -> bool:
        """Whether the last checkpoint is old enough for the next."""
        return time.monotonic() - self.saved_s >= self.job.checkpoint_every_s

    def checkpoint(self) -> None:
        """Write the checkpoint on rank 0; all ranks take part."""
        self._enter("checkpoint")
        random_states = checkpoint.random_state(self.device)
        of_rank = {"sums": self.sums.cpu(), "random_states": random_states}
        ranks = self.ranks.comm.gather(of_rank, root=0)
        if self.is_first:
            state = {
                "spec_sha256": self.spec.sha256,
                **{name: getattr(self, name).state_dict() for name in _STATEFUL},
                **{name: getattr(self, name) for name in ("epoch", "step", "history")},
                "train_s": self.seconds["train"],
                "ranks": ranks,
            }
            checkpoint.save(self.job.work / "checkpoint.pt", state, self.job.require_lock)
            self._note_checkpoint()
        self.saved_s = time.monotonic()

    def resume(self) -> None:
        """Resume from the run's checkpoint, if there is one; InputError if it is damaged or of another."""
        path, state = self.job.work / "checkpoint.pt", None
        if self.is_first:  # other nodes may see an older file for some time
            state = checkpoint.load_checkpoint(path, self.spec.sha256)
        state = self.ranks.comm.bcast(state)
        if state is None:
            return
        for name in _STATEFUL:
            getattr(self, name).load_state_dict(state[name])
        self.epoch, self.step = state["epoch"], state["step"]
        self.history, self.seconds["train"] = state["history"], state["train_s"]
        of_rank = state["ranks"][self.ranks.rank]
        self.sums = of_rank["sums"].to(self.device)
        checkpoint.restore_random_state(of_rank["random_states"], self.device)
        if self.is_first:  # a killed rank may not have written it
            self._note_checkpoint()

    def provenance(self) -> dict[str, Any]:
        """Provenance of the computation, and of subsets of the data."""
        return {
            "precision_used": self.precision_used,
            "parallelism": type(self.parallel).__name__,
            "optimizer": type(self.optimizer).__name__,
            "schedule": type(self.schedule).__name__,
            **{
                f"{split}_indices_sha256": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
                for split, rows in self.workload.index_lists().items()
            },
        }

    def _write_result(self) -> None:
        """Write on rank 0 the weights and the history."""
        self._enter("checkpoint")
        if not self.is_first:
            return
        work, require_lock = self.job.work, self.job.require_lock
        checkpoint.save(work / "weights.pt", self.network.state_dict(), require_lock)
        result = {
            "spec_sha256": self.spec.sha256,
            "metric_name": self.workload.metric_name,
            "metric_goal": self.workload.metric_goal,
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
            "history": self.history,
        }
        write_json(work / "result.json", result, require_lock)
        self._note_checkpoint()

    def close(self) -> None:
        """Wait for all ranks, and leave the process group."""
        self.events.enter("shutdown")
        synchronize(self.device)
        self.ranks.comm.Barrier()
        dist.destroy_process_group()
