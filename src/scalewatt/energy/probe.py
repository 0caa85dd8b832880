"""An idle probe: what a node draws while its GPUs are held and nothing else is done.

`run_probe` starts one rank per GPU of a node (one rank on a CPU) through the cluster's launcher.
Each rank (`python -m scalewatt.energy.probe ORDER`) opens its GPU, settles and waits, under the
same perun, journal and watch over the sampler as a training. A probe whose sampler is lost fails.
Nothing hangs: ranks that have not come to the end of the window START_LIMIT_S after the time that
it needs, or not left CLOSE_LIMIT_S after it, are ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalewatt.campaign.model import Device
from scalewatt.energy.launch import (
    CLOSING_MARGIN_S,
    _die_with_parent,
    _end_group,
    _last_lines,
    _path,
)
from scalewatt.energy.record import (
    EXIT_FAILURE,
    EXIT_INPUT,
    fail,
    leave,
    segment_name,
    sensor_index,
)
from scalewatt.energy.watch import Limits, Watch, abort, end_within, watch_rank
from scalewatt.errors import InputError
from scalewatt.files import read_json, write_json

if TYPE_CHECKING:
    from scalewatt.training.world import Ranks

SETTLE_S = 5.0
"""Left out of the window: clocks and fans calm down after the GPUs were opened."""
START_LIMIT_S = 600.0
"""How long the ranks may take until the window begins, imports from a slow disk included."""
CLOSE_LIMIT_S = 120.0
"""How long perun may take to write its file after the window."""
MIN_SECONDS = 10.0

RESULT = "probe.json"
"""Written last: a folder with it holds a finished probe."""
PERUN = "perun"
_UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class Probe:
    """One probe of one device; times in s."""

    device: str
    repeat: int
    seconds: float
    sampling_period_s: float
    settle_s: float = SETTLE_S

    def __post_init__(self) -> None:
        if not MIN_SECONDS <= self.seconds < float("inf"):
            raise InputError(f"--seconds: {self.seconds:g}; allowed: {MIN_SECONDS:g} or more")
        if not 0.1 <= self.sampling_period_s <= self.seconds / 5:
            raise InputError(
                f"--sampling-period: {self.sampling_period_s:g}; allowed: 0.1 to "
                f"{self.seconds / 5:g}, a fifth of --seconds"
            )
        if self.repeat < 1:
            raise InputError(f"--repeat: {self.repeat}; allowed: 1 or more")

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"idle probe of {self.device} repeat {self.repeat}"


def run_probe(probe: Probe, launcher: str, device: Device, out: Path) -> int:
    """Run one probe and leave `perun/`, `probe.json` and `probe.log` in `out`; an exit code.

    InputError where the launcher is not there. A probe of `out` that already runs is waited for.
    """
    program = shlex.split(launcher)[0]
    if shutil.which(program, path=_path()) is None:
        raise InputError(f"launcher: '{program}' is not found; allowed: a command of this machine")
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out, probe) as lock:
        work = out / _UNFINISHED
        for old in (work, out / PERUN):
            shutil.rmtree(old, ignore_errors=True)
        (out / RESULT).unlink(missing_ok=True)
        (work / PERUN).mkdir(parents=True)
        code = _Attempt(probe, launcher, device, work, out / "probe.log", lock).run()
        if code == 0:
            (work / PERUN).rename(out / PERUN)
            write_json(out / RESULT, read_json(work / RESULT))
        shutil.rmtree(work)
    return code


@contextmanager
def _locked(out: Path, probe: Probe) -> Iterator[int]:
    """Hold the folder's lock; wait for another probe, perhaps one whose Snakemake was killed."""
    with open(out / ".lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"{probe.name}: runs already; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


class _Attempt:
    """One start of a probe's ranks."""

    def __init__(
        self, probe: Probe, launcher: str, device: Device, work: Path, log: Path, lock: int
    ) -> None:
        self.probe, self.work, self.log, self.lock = probe, work, log, lock
        on_gpu, ranks = _geometry(device)
        self.order = work / "order.json"
        write_json(
            self.order,
            {
                "name": probe.name,
                "device": probe.device,
                "repeat": probe.repeat,
                "seconds": probe.seconds,
                "settle_s": probe.settle_s,
                "sampling_period_s": probe.sampling_period_s,
                "torch_device": "cuda" if on_gpu else "cpu",
                "ranks": ranks,
                "work": str(work.resolve()),
            },
        )
        placed = launcher.format(
            gpus=ranks, nodes=1, ranks_per_node=ranks, cpus_per_rank=device.cpus_per_rank
        )
        rank = [sys.executable, "-m", "scalewatt.energy.probe", str(self.order.resolve())]
        self.command = [*shlex.split(placed), *rank]

    def run(self) -> int:
        """Start the ranks, wait for them, and say what went wrong if something did."""
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PATH": _path(),
                    "PYTHONUNBUFFERED": "1",
                    "SLURM_KILL_BAD_EXIT": "1",
                },
                start_new_session=True,  # a terminal's Ctrl-C reaches this process only
                pass_fds=(self.lock,),  # held until the last of them has ended
                preexec_fn=_die_with_parent,
            )
            try:
                code = self._watch(process)
            finally:
                if process.poll() is None:
                    _end_group(process)
        if (self.work / RESULT).exists() and any((self.work / PERUN).iterdir()):
            return 0
        print(_last_lines(self.log), file=sys.stderr)
        print(
            f"scalewatt: error: {self.probe.name}: failed (exit code {code}); its log is {self.log}",
            file=sys.stderr,
        )
        return EXIT_INPUT if code == EXIT_INPUT else EXIT_FAILURE

    def _watch(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the ranks, no longer than they may take."""
        deadline = time.monotonic() + START_LIMIT_S + self.probe.settle_s + self.probe.seconds
        closing = False
        while process.poll() is None:
            if not closing and (self.work / RESULT).exists():
                closing, deadline = True, time.monotonic() + CLOSE_LIMIT_S + CLOSING_MARGIN_S
            if time.monotonic() > deadline:
                what = "perun did not close" if closing else "the ranks did not come to their end"
                print(f"{self.probe.name}: {what}; they are ended", file=sys.stderr, flush=True)
                _end_group(process)
                break
            time.sleep(0.25)
        return process.wait()


def _geometry(device: Device) -> tuple[bool, int]:
    """Whether there are GPUs to hold, and how many ranks hold them; `auto` looks at the machine."""
    if device.torch_device != "auto":
        return device.torch_device == "cuda", device.probe_ranks
    import torch

    found = torch.cuda.device_count()
    return found > 0, min(device.gpus_per_node, found) or 1


# --- in a rank -------------------------------------------------------------------------------


def hold(order: dict[str, Any], ranks: Ranks) -> None:
    """Open this rank's GPU and wait; rank 0 then writes the window and what was held."""
    held, device_name = _open_gpu(ranks) if order["torch_device"] == "cuda" else (None, None)
    places = ranks.comm.gather((ranks.host, held), root=0)
    start_s = ranks.comm.bcast(time.time() + order["settle_s"], root=0)
    # All sleep: a rank that waits in a barrier keeps a core busy.
    time.sleep(order["settle_s"] + order["seconds"])
    if places is not None:
        window = start_s, start_s + order["seconds"]
        write_json(Path(order["work"]) / RESULT, _result(order, places, device_name, window))


def _open_gpu(ranks: Ranks) -> tuple[int, str]:
    """Make a CUDA context with a few bytes in it; NVML's index and the name of the GPU."""
    import torch

    from scalewatt.training.world import choose_device

    device = choose_device("cuda", ranks)
    _HELD.append(torch.zeros(16, device=device))
    torch.cuda.synchronize(device)
    return sensor_index(device), torch.cuda.get_device_name(device)


_HELD: list[Any] = []


def _result(
    order: dict[str, Any],
    places: list[tuple[str, int | None]],
    device_name: str | None,
    window: tuple[float, float],
) -> dict[str, Any]:
    from scalewatt.energy.provenance import cpu_name, package_versions

    gpus: dict[str, list[int]] = {}
    for host, index in sorted(places, key=str):
        if index is not None:
            gpus[host] = sorted({*gpus.get(host, []), index})
    kept = ("device", "repeat", "seconds", "settle_s", "sampling_period_s", "torch_device")
    return {
        **{key: order[key] for key in kept},
        "hostnames": sorted({host for host, _ in places}),
        "device_name": device_name or cpu_name(),
        "gpus": gpus or None,
        "window": {"start_s": window[0], "end_s": window[1]},
        "packages": package_versions(),
    }


def guarded_hold(watch: Watch, order: dict[str, Any], ranks: Ranks) -> bool:
    """`hold`, ending all ranks on an error: perun would catch it and wait for ever."""
    try:
        watch.training_began()
        hold(order, ranks)
        end_within(CLOSE_LIMIT_S)
        watch.training_ended()
    except BaseException as error:
        fail(error)
    return True


def _sampler_lost(reason: str) -> None:
    print(f"scalewatt: error: the power was no longer recorded: {reason}", file=sys.stderr)
    abort(EXIT_FAILURE)


def main(argv: list[str]) -> NoReturn:
    """Run one rank of the probe that the order file describes."""
    from scalewatt.energy.monitor import monitored
    from scalewatt.training.world import join_ranks

    try:
        order = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
        run = order["name"]
        ranks = join_ranks({"configuration": run, "gpus": order["ranks"], "nodes": 1})
        folder, stem = Path(order["work"]) / PERUN, segment_name(0)
        period_s = order["sampling_period_s"]
        watch = watch_rank(ranks, folder, stem, period_s, Limits(), _sampler_lost)
        done = monitored(guarded_hold, (watch, order, ranks), folder, stem, period_s, run)
        leave(watch, ranks, 0 if done else EXIT_FAILURE)  # once rank 0 has written perun's file
    except BaseException as error:
        fail(error)


if __name__ == "__main__":
    main(sys.argv[1:])
