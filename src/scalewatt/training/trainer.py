"""The data-parallel training loop: exact metrics, stage events, resumable bit for bit."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, write_json, write_table
from scalewatt.common.processes import ignore_stop_signals
from scalewatt.common.termination import StopRequest
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import FINISHED, STOPPED, Job
from scalewatt.training.checkpoint import (
    load_on_all,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
    save_to,
)
from scalewatt.training.history import SUBSETS, epoch_line, finite, subsets_table
from scalewatt.training.network import Network, Precision
from scalewatt.training.progress import ProgressNotes
from scalewatt.training.samplers import EvaluationBatches, TrainingBatches, batches_of
from scalewatt.training.step_timer import (
    PhaseTimer,
    finish,
    forget_peak_memory,
    mean_phases,
    peak_memory_bytes,
    timed,
)
from scalewatt.workloads import workload_class

_UPDATES_DONE, _REQUESTED = 1, 2
"""Reasons to stop: the segment has done its updates, or a stop was requested."""


class Trainer:
    """The training of one rank."""

    def __init__(
        self, job: Job, ranks: Ranks, device: torch.device, stop: StopRequest, events: EventLog
    ) -> None:
        self.job, self.spec, self.ranks, self.device = job, job.spec, ranks, device
        self.stop, self.events = stop, events
        spec = job.spec
        assert spec.seed is not None  # only registered runs have none
        self.seed = spec.seed
        torch.manual_seed(self.seed)
        self.workload = workload_class(spec.model)(spec, job.data_folder, device)
        self.precision = Precision.of(spec.settings["precision"], device)
        self.precision.set_flags()
        network = self.workload.model()
        if job.initial_weights is not None and ranks.rank == 0:  # DDP gives them to all
            load_weights(job.initial_weights, network)
        self.parameters = sum(p.numel() for p in network.parameters())
        as_authors = spec.protocol == "paper"
        self.network = Network.of(network, spec.settings, device, broadcast_buffers=as_authors)
        self.optimizer = self.workload.optimizer(network)
        self.schedule = self.workload.schedule(self.optimizer)
        self.scaler = self.precision.scaler(device)
        self._make_loaders()
        self.epoch = self.step = 0
        self.sums: torch.Tensor | None = None
        self.epoch_s = self.train_s = 0.0
        self.phases = PhaseTimer(device)
        self.history: list[dict[str, Any]] = []
        self.updates_here = 0
        self.notes = ProgressNotes(job, self.batches.steps) if ranks.rank == 0 else None
        self._flags: tuple[Any, torch.Tensor] | None = None
        self._control = dist.new_group(backend="gloo") if ranks.size > 1 else None

    def _make_loaders(self) -> None:
        spec, ranks = self.spec, self.ranks
        data = self.workload.training_data()
        if len(data) != spec.dataset_samples:  # type: ignore[arg-type]
            raise InputError(
                f"{self.job.data_folder}: has {len(data)} training samples,"  # type: ignore[arg-type]
                f" the spec of {spec.configuration} asks for {spec.dataset_samples}"
            )
        batch = spec.local_batch_size
        self.batches = TrainingBatches(len(data), ranks.rank, ranks.size, batch, self.seed)  # type: ignore[arg-type]
        self.loader = self._loader(data, self.batches)
        self.evaluations = {}
        for name, evaluation in self.workload.evaluations().items():
            batches = EvaluationBatches(
                evaluation.positions, ranks.rank, ranks.size, batch, evaluation.whole
            )
            self.evaluations[name] = (batches, self._loader(evaluation.dataset, batches))

    def _loader(self, data: Any, batches: Any, workers: int | None = None) -> DataLoader[Any]:
        if workers is None:
            workers = getattr(data, "workers", self.spec.settings["loader_workers"])
        return DataLoader(
            data,
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            persistent_workers=workers > 0,
            collate_fn=getattr(data, "collate", None),
            worker_init_fn=ignore_stop_signals,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def warm_up(self) -> None:
        """Process zeros twice before the real work, and undo all that this changed.

        The peak of a GPU's memory is that of the steps that follow. On a GPU the batch is whole: cuDNN
        chooses its kernels here, and what does not fit into memory fails before the training.

        DDP regroups its gradient buckets after the first backward pass, which changes the order
        of summation: without this, a resumed run would differ from an uninterrupted one.
        """
        own = random_state(self.device)
        kept = {k: v.clone() for k, v in self.network.weights.state_dict().items()}
        # What is chosen or compiled for a shape, best at once for the one that counts.
        batch = self.spec.local_batch_size
        whole = self.spec.settings["compile"] or self.device.type == "cuda"
        for _ in range(2):
            self.trial_pass(self.network.trained.train(), batch if whole else min(2, batch))
        self.optimizer.zero_grad(set_to_none=True)
        self.network.weights.load_state_dict(kept)
        restore_random_state(own, self.device)
        finish(self.device)
        forget_peak_memory(self.device)

    def trial_pass(self, network: Any, size: int) -> None:
        """Compute the gradients of a batch of `size` zeros."""
        example = next(iter(self._loader(self.loader.dataset, [[(0, 0)]], workers=0)))
        zeros = (torch.zeros((size, *part.shape[1:]), dtype=part.dtype) for part in example)
        with self.precision.computing(self.device):
            loss, _ = self.workload.loss(network, self.network.inputs(zeros))
        loss.backward()

    def resume(self) -> None:
        """Resume from the run's checkpoint, if there is one; InputError if it does not fit the run."""
        path = self.job.work / "checkpoint.pt"
        state = load_on_all(path, self.job.spec_sha256, self.ranks)
        if state is None:
            return
        try:
            self._restore(state)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{path}: does not fit the run ({error!r})") from error
        if self.notes:  # a killed rank may not have written it
            self.notes.at_checkpoint(self.epoch, self.step)

    def _restore(self, state: dict[str, Any]) -> None:
        self.network.weights.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.step = state["epoch"], state["step"]
        sums = state["sums"][self.ranks.rank] if state["sums"] else None
        self.sums = None if sums is None else torch.as_tensor(sums, device=self.device)
        self.epoch_s, self.train_s = state["epoch_s"], state["train_s"]
        self.phases.restore(state["phases"][self.ranks.rank].numpy())
        self.history = state["history"]
        restore_random_state(state["random_states"][self.ranks.rank], self.device)

    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the computation and of the model's data."""
        parallel = getattr(self.network.trained, "_orig_mod", self.network.trained)  # if compiled
        return {
            "precision_used": self.precision.used,
            "parallelism": type(parallel).__name__,
            "optimizer": type(self.optimizer).__name__,
            "schedule": type(self.schedule).__name__,
            **self.workload.provenance(),
        }

    def checkpoint(self) -> None:
        """Write the checkpoint; all ranks take part."""
        self._enter("checkpoint")
        sums = None if self.sums is None else self.sums.cpu().numpy()
        gathered = self.ranks.comm.gather((sums, self.phases.sums()), root=0) or []
        state = {
            "spec_sha256": self.job.spec_sha256,
            "model": self.network.weights.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "sums": None if self.sums is None else [own for own, _ in gathered],
            "phases": [phases for _, phases in gathered],
            "epoch_s": self.epoch_s,
            "train_s": self.train_s,
            "history": self.history,
        }
        path = self.job.work / "checkpoint.pt"
        save_checkpoint(path, state, self.ranks, self.device, self.job.require_lock)
        if self.notes:
            self.notes.at_checkpoint(self.epoch, self.step)

    def run(self) -> str:
        """Train to the end or until asked to stop; FINISHED or STOPPED."""
        while self.epoch < self.spec.epochs:
            began = time.monotonic()
            finished = self._train_epoch()
            finish(self.device)
            elapsed_s = time.monotonic() - began
            self.train_s += elapsed_s
            self.epoch_s += elapsed_s
            finished = finished and self._end_epoch()
            self.checkpoint()
            if not finished:
                return STOPPED
        self._write_result()
        return FINISHED

    def close(self) -> None:
        """Wait for pending communication between the ranks, and leave the process group."""
        if self._flags is not None:
            self._flags[0].wait()
        self.ranks.comm.Barrier()
        dist.destroy_process_group()

    def _enter(self, stage: str) -> None:
        self.events.enter(stage, self.epoch)
        if self.notes:
            self.notes.at_stage(stage, self.epoch, self.step)

    def _train_epoch(self) -> bool:
        """Train the rest of the current epoch; return False if the ranks agreed to stop before its end."""
        self._enter("train")
        self.network.trained.train()
        self.batches.epoch, self.batches.first_step = self.epoch, self.step
        steps = self.batches.steps
        self.phases.begin_epoch(steps)
        for batch in timed(batches_of(self.loader), self.phases):
            self.update(batch, steps)
            self.step += 1
            self.updates_here += 1
            if self.notes:
                self.notes.at_step(self.epoch, self.step)
            if self._agreed_to_stop() and self.step < steps:
                return False
        return True

    def update(self, batch: Any, steps: int) -> None:
        """Compute the gradients of a batch, and update the weights; an epoch has `steps` of them."""
        phase = self.phases.phase
        self.phases.begin_step(self.step)
        self.schedule.begin_step(self.epoch, self.step, steps)
        self.optimizer.zero_grad(set_to_none=True)
        with phase("copy"):
            batch = self.network.inputs(batch)
        with phase("forward"), self.precision.computing(self.device):
            loss, sums = self.workload.loss(self.network.trained, batch)
        with phase("backward"):
            self.scaler.scale(loss).backward()
        with phase("optimizer"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.sums = sums if self.sums is None else self.sums + sums

    def _agreed_to_stop(self, least: int = _UPDATES_DONE) -> bool:
        """Return True on all ranks if any rank had a reason of at least weight `least` one step ago.

        This step's reduction is started and not waited for.
        """
        enough = self.job.max_updates is not None and self.updates_here >= self.job.max_updates
        own = _REQUESTED if self.stop.asked() else _UPDATES_DONE if enough else 0
        if self._control is None:
            return own >= least
        agreed = 0
        if self._flags is not None:
            work, flag = self._flags
            work.wait()
            agreed = int(flag.item())
        flag = torch.tensor([own], dtype=torch.int32)
        work = dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._control, async_op=True)
        self._flags = (work, flag)
        return agreed >= least

    def _end_epoch(self) -> bool:
        """Evaluate and record the epoch; return False if the ranks agreed to stop before that was done.

        What was evaluated until then is re-evaluated after the checkpoint.
        """
        assert self.sums is not None
        sums = {"train": self._gather(self.sums)}
        stages = {"evaluate_train": 0.0, "validate": 0.0}
        complete = self._evaluate_all(sums, stages)
        self.epoch_s += sum(stages.values())
        if not complete:
            return False
        results = self.workload.results(sums)
        samples = round(sums["train"][:, 0].sum())
        self.history.append(
            {
                "epoch": self.epoch,
                "segment": self.job.segment,
                **{name: finite(value) for name, value in results.items()},
                "learning_rate": self.optimizer.param_groups[0]["lr"],
                "samples": samples,
                "updates": self.step,
                "epoch_s": self.epoch_s,
                "train_s": self.train_s,
                **{f"{stage}_s": seconds for stage, seconds in stages.items()},
                "throughput_samples_per_s": samples / self.train_s,
                **self._performance(),
            }
        )
        self.schedule.end_epoch(self.epoch, results)
        self.epoch, self.step, self.sums = self.epoch + 1, 0, None
        self.epoch_s = self.train_s = 0.0
        self.phases.restore(None)
        if self.ranks.rank == 0:
            print(epoch_line(self.spec, self.history[-1]), flush=True)
        return True

    def _evaluate_all(self, sums: dict[str, np.ndarray], stages: dict[str, float]) -> bool:
        """Add each evaluation's sums and the stages' seconds; return False if the ranks agreed to stop."""
        self._broadcast_buffers()
        for name in self.evaluations:
            began = time.monotonic()
            stage = "evaluate_train" if name == "train_again" else "validate"
            self._enter(stage)
            total = self._evaluate(name)
            if total is not None:
                sums[name] = self._gather(total)
            stages[stage] += time.monotonic() - began
            if total is None:
                return False
        return True

    def _performance(self) -> dict[str, float | int | None]:
        """Return the epoch's time per step by phase, mean over ranks, and the largest memory of a rank."""
        own = self.phases.sums(), peak_memory_bytes(self.device)
        phases, memory = zip(*self.ranks.comm.allgather(own), strict=True)
        return {**mean_phases(np.stack(phases)), "peak_memory_bytes": max(memory)}

    def _broadcast_buffers(self) -> None:
        """Broadcast rank 0's running statistics, which are the model's."""
        for buffer in self.network.weights.buffers():
            dist.broadcast(buffer, src=0)

    @torch.no_grad()
    def _evaluate(self, name: str) -> torch.Tensor | None:
        """Return this rank's sums over an evaluation; None if the ranks agreed to stop within it.

        Having done the segment's updates is no reason to stop here.
        """
        batches, loader = self.evaluations[name]
        # Augmented evaluations (the paper's protocol) see other views than training did.
        batches.epoch = self.spec.epochs + self.epoch
        self.network.evaluated.eval()
        total: torch.Tensor | None = None
        for batch in batches_of(loader):
            inputs = self.network.inputs(batch)
            sums = self.workload.evaluate(name, self.network.evaluated, inputs)
            total = sums if total is None else total + sums
            if self._agreed_to_stop(_REQUESTED):
                return None
        if any(self._agreed_to_stop(_REQUESTED) for _ in range(batches.most - len(batches))):
            return None
        return torch.zeros(0) if total is None else total

    def _gather(self, sums: torch.Tensor) -> np.ndarray:
        """Return the sums of the ranks that had any, shape (ranks, k), in the ranks' order."""
        rows = self.ranks.comm.allgather(sums.cpu().numpy().astype(np.float64))
        return np.stack([row for row in rows if row.size])

    def _write_result(self) -> None:
        if self.ranks.rank != 0:
            return
        still_ours = self.job.require_lock
        with atomic_path(self.job.work / "weights.pt", still_ours) as temporary:
            save_to(temporary, self.network.weights.state_dict())
        if lists := self.workload.index_lists():
            write_table(subsets_table(lists), self.job.work / SUBSETS, still_ours)
        write_json(
            self.job.work / "result.json",
            {
                "spec_sha256": self.job.spec_sha256,
                "metric_name": self.workload.metric_name,
                "metric_goal": getattr(self.workload, "metric_goal", "min"),
                "parameters": self.parameters,
                "history": self.history,
            },
            still_ours,
        )
