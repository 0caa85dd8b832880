"""One rank of a monitored training: perun around the training loop, with a crash-safe journal.

Started once per GPU by the cluster's launcher (`python -m scalewatt.energy.record ORDER`).
Exit codes: 0 finished, 75 stopped at a checkpoint, 64 wrong input, 70 failure.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalewatt.energy.watch import Limits, Watch, abort, end_within, lost_path, watch_rank
from scalewatt.files import write_json
from scalewatt.training.stop import StopRequest

if TYPE_CHECKING:
    from scalewatt.training.job import Job
    from scalewatt.training.world import Ranks

EXIT_STOPPED, EXIT_INPUT, EXIT_FAILURE = 75, 64, 70


def segment_name(segment: int) -> str:
    """Stem of a segment's files."""
    return f"segment-{segment:03d}"


def outcome_path(work: Path, segment: int) -> Path:
    """Where rank 0 says how the training of a segment ended, before perun closes."""
    return work / f"{segment_name(segment)}.outcome"


def description_path(work: Path, segment: int) -> Path:
    """Where rank 0 says what a segment runs on."""
    return work / f"{segment_name(segment)}.json"


def train(job: Job, ranks: Ranks, torch_device: str, stop: StopRequest, started_s: float) -> str:
    """What perun monitors: the segment from its imports to its last checkpoint."""
    import torch

    from scalewatt.files import write_text
    from scalewatt.training.events import EventLog
    from scalewatt.training.loop import Trainer
    from scalewatt.training.world import choose_device, start_process_group

    events = EventLog(
        job.work / "events.jsonl" if ranks.rank == 0 else None, job.segment, started_s
    )
    device = choose_device(torch_device, ranks)
    start_process_group(ranks, device)
    trainer = Trainer(job, ranks, device, stop, events)
    trainer.warm_up()
    trainer.resume()
    _describe(job, ranks, device, trainer.workload.provenance())
    outcome = trainer.run()
    events.enter("shutdown")
    if device.type == "cuda":
        torch.cuda.synchronize()
    trainer.close()
    events.end()
    if ranks.rank == 0:
        write_text(outcome_path(job.work, job.segment), outcome)
    ranks.comm.Barrier()  # from here on a rank may end the others
    return outcome


def guarded_train(watch: Watch, limits: Limits, *args: Any) -> str:
    """`train`, ending all ranks on an error: perun would catch it and wait for the others for ever.

    From the training's return on, this process ends within `limits.closing_s`. If a sampler was
    lost, it ends at once: perun would wait for what that one will never send.
    """
    try:
        watch.training_began()
        outcome = train(*args)
        end_within(limits.closing_s)
        ranks = args[1]
        if any(ranks.comm.allgather(watch.training_ended())):
            leave(watch, ranks, exit_code(outcome))
        return outcome
    except BaseException as error:
        fail(error)


def exit_code(outcome: str | None) -> int:
    """A rank's exit code; perun gives no outcome where it caught an error."""
    return {"finished": 0, "stopped": EXIT_STOPPED}.get(outcome or "", EXIT_FAILURE)


def leave(watch: Watch, ranks: Ranks, code: int) -> NoReturn:
    """End this rank with all the others, without waiting for any child process as Python would."""
    from mpi4py import MPI

    watch.stop()
    ranks.comm.Barrier()
    MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fail(error: BaseException) -> NoReturn:
    """Say what went wrong and end all ranks, which may wait in collectives."""
    from scalewatt.errors import InputError

    if isinstance(error, InputError):
        print(f"scalewatt: error: {error}", file=sys.stderr)
        abort(EXIT_INPUT)
    traceback.print_exception(error)
    abort(EXIT_FAILURE)


def _describe(job: Job, ranks: Ranks, device: Any, of_workload: dict[str, Any]) -> None:
    """Rank 0 writes what this segment runs on, for the run's provenance."""
    import torch

    from scalewatt.energy.provenance import cpu_name, package_versions
    from scalewatt.energy.slurm_energy import slurm_step

    on_gpu = device.type == "cuda"
    places = ranks.comm.gather((ranks.host, sensor_index(device) if on_gpu else None), root=0)
    if places is None:
        return
    hosts = sorted({host for host, _ in places})
    gpus = {h: sorted({i for host, i in places if host == h}) for h in hosts} if on_gpu else None
    write_json(
        description_path(job.work, job.segment),
        {
            "hostnames": hosts,
            "gpus": gpus,
            "torch_device": device.type,
            "device_name": torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
            "threads_per_rank": torch.get_num_threads(),
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
            "matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            "packages": package_versions(),
            "slurm": slurm_step(os.environ),
            **of_workload,
        },
    )


def sensor_index(device: Any) -> int:
    """NVML's index of a CUDA device, which perun's sensors carry; CUDA's own may be masked."""
    import torch

    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)))
    except Exception:  # no NVML, or a partitioned GPU: perun has no sensor of it either
        return int(device.index)


def note_loss(work: Path, segment: int, host: str, stop: StopRequest, reason: str) -> None:
    """Say that the sampler of `host` was lost, and ask the training to stop."""
    stop.ask()
    print(f"scalewatt: {host}: {reason}", file=sys.stderr, flush=True)
    loss = {"host": host, "reason": reason, "t": time.time()}
    try:
        write_json(lost_path(work, segment_name(segment), host), loss)
    except OSError as error:  # the disk may be full, and the watch must go on
        print(f"scalewatt: {host}: the loss is not noted ({error})", file=sys.stderr, flush=True)


def main(argv: list[str]) -> NoReturn:
    """Run one rank of the segment that the order file describes."""
    started_s = time.time()
    stop = StopRequest()
    stop.install()
    try:
        _run(json.loads(Path(argv[0]).read_text(encoding="utf-8")), stop, started_s)
    except BaseException as error:
        fail(error)


def _run(order: dict[str, Any], stop: StopRequest, started_s: float) -> NoReturn:
    from scalewatt.campaign.spec import read_spec, spec_sha256
    from scalewatt.energy.monitor import monitored
    from scalewatt.training.job import Job
    from scalewatt.training.world import join_ranks

    work = Path(order["work"])
    spec = read_spec(work / "spec.json")
    ranks = join_ranks(spec)
    stop.stop_file = Path(order["stop_file"]) if ranks.rank == 0 else None
    weights = order["initial_weights"]
    job = Job(
        spec=spec,
        spec_sha256=spec_sha256(spec),
        data_folder=order["data_folder"],
        work=work,
        segment=order["segment"],
        initial_weights=Path(weights) if weights else None,
        max_updates=order["max_updates"],
    )
    limits = Limits(**order["limits"])
    stem, period_s = segment_name(job.segment), spec["sampling_period_s"]
    on_loss = partial(note_loss, work, job.segment, ranks.host, stop)
    watch = watch_rank(ranks, work / "perun", stem, period_s, limits, on_loss)
    args = (watch, limits, job, ranks, order["torch_device"], stop, started_s)
    run = f"{spec['configuration']} repeat {spec['repeat']}"
    outcome = monitored(guarded_train, args, work / "perun", stem, period_s, run)
    leave(watch, ranks, exit_code(outcome))  # once rank 0 has written perun's file


if __name__ == "__main__":
    main(sys.argv[1:])
