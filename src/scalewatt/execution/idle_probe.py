"""An idle probe: the power of a node while its GPUs are open and nothing is computed.

`run_probe` starts one rank per GPU of a node (one rank on a CPU) through the cluster's launcher.
Each rank (`python -m scalewatt.execution.idle_probe ORDER`) opens its GPU, settles and waits, with the
same perun, journal and watchdog of the sampler as a training. A probe whose sampler is lost, or whose
journal does not reach the end of its window, fails.
Nothing hangs: ranks that have not reached the end of the window START_LIMIT_S after the time that
it needs, or not exited CLOSE_LIMIT_S after it, are ended.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalewatt.campaign.campaign_types import Device
from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import read_json, write_json
from scalewatt.common.termination import abort, end_within, say
from scalewatt.execution.launcher_process import (
    CLOSING_MARGIN_S,
    Arrival,
    RanksProcess,
    forking,
    last_lines,
    require_launcher,
)
from scalewatt.execution.rank import fail, leave
from scalewatt.execution.watchdog import Limits, Watchdog, watch_rank
from scalewatt.provenance.versions import Gpu, cpu_name, gpu_identity, held_gpus, package_versions
from scalewatt.recordings.journal import journal_files, last_sample_s
from scalewatt.run_files.work_directory import segment_name

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

SETTLE_S = 5.0
"""Excluded from the window: clocks and fans settle after the GPUs were opened."""
START_LIMIT_S = 600.0
"""How long the ranks may take until the window begins, imports from a slow disk included."""
CLOSE_LIMIT_S = 120.0
"""How long perun may take to write its file after the window."""
MIN_SECONDS = 10.0
MAX_PERIOD_S = 10.0
CLOCK_DRIFT = 1e-3
"""Share of the window by which the clock may be slewed (twice what Linux does at most)."""

RESULT = "probe.json"
"""Written last: a folder with it has a finished probe."""
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
        longest_s = min(self.seconds / 5, MAX_PERIOD_S)
        if not 0.1 <= self.sampling_period_s <= longest_s:
            raise InputError(
                f"--sampling-period: {self.sampling_period_s:g}; allowed: 0.1 to {longest_s:g} "
                f"(a fifth of --seconds, at most {MAX_PERIOD_S:g})"
            )
        if self.repeat < 1:
            raise InputError(f"--repeat: {self.repeat}; allowed: 1 or more")

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"idle probe of {self.device} repeat {self.repeat}"


def run_probe(probe: Probe, launcher: str, device: Device, out: Path) -> int:
    """Run one probe and leave `perun/`, `probe.json` and `probe.log` in `out`; an exit code.

    InputError if the launcher is not there. A probe of `out` that already runs is waited for.
    """
    require_launcher(launcher)
    out.mkdir(parents=True, exist_ok=True)
    with waiting_lock(out / ".lock", f"{probe.name}: runs already; waiting for it") as lock:
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
                **asdict(probe),
                "name": probe.name,
                "torch_device": "cuda" if on_gpu else "cpu",
                "ranks": ranks,
                "work": str(work.resolve()),
            },
        )
        placed = launcher.format(
            gpus=ranks, nodes=1, ranks_per_node=ranks, cpus_per_rank=device.cpus_per_rank
        )
        rank = [sys.executable, "-m", "scalewatt.execution.idle_probe", str(self.order.resolve())]
        self.command = [*shlex.split(placed), *rank]
        self._result = Arrival(work / RESULT)
        self._deadline_s = time.monotonic() + START_LIMIT_S + probe.settle_s + probe.seconds

    def run(self) -> int:
        """Start the ranks, wait for them, and report what went wrong if something did."""
        with (
            open(self.log, "wb") as log,
            RanksProcess(self.command, log, self.lock, forking(1)) as ranks,
        ):
            code = ranks.wait(self._exceeded_limit)
        if is_recorded(self.work):
            return 0
        say(last_lines(self.log))
        say(
            f"scalewatt: error: {self.probe.name}: failed (exit code {code}); its log is {self.log}"
        )
        return ExitCode.REFUSED if code == ExitCode.REFUSED else ExitCode.FAILED

    def _exceeded_limit(self) -> bool:
        """Return True if the ranks have exceeded their time limit."""
        what, deadline_s = "the ranks did not finish", self._deadline_s
        if (written_s := self._result.seen_s()) is not None:
            what, deadline_s = "perun did not close", written_s + CLOSE_LIMIT_S + CLOSING_MARGIN_S
        if time.monotonic() <= deadline_s:
            return False
        say(f"{self.probe.name}: {what}; they are ended")
        return True


def is_recorded(work: Path) -> bool:
    """Return True if the ranks and a journal reached the end of the window."""
    if not (work / RESULT).exists():
        return False
    probe = read_json(work / RESULT)
    until = probe["window"]["end_s"] - CLOCK_DRIFT * probe["seconds"]
    last = [
        last_sample_s(path)
        for paths in journal_files(work / PERUN).values()
        for path in paths.values()
    ]
    if any(t is not None and t >= until for t in last):
        return True
    say(f"scalewatt: {work}: the recording ends before the window does")
    return False


def _geometry(device: Device) -> tuple[bool, int]:
    """Return whether GPUs are to be opened, and by how many ranks; `auto` looks at the machine."""
    if device.torch_device != "auto":
        return device.torch_device == "cuda", device.probe_ranks
    import torch

    found = torch.cuda.device_count()
    return found > 0, min(device.gpus_per_node, found) or 1


# --- in a rank -------------------------------------------------------------------------------


def hold_gpus(order: dict[str, Any], ranks: Ranks) -> dict[str, Any] | None:
    """Open this rank's GPU and wait; return the window and the devices on rank 0, None elsewhere."""
    held, device_name = _open_gpu(ranks) if order["torch_device"] == "cuda" else (None, None)
    places = ranks.comm.gather((ranks.host, held), root=0)
    start_s = ranks.comm.bcast(time.time() + order["settle_s"], root=0)
    # All sleep: a rank that waits in a barrier keeps a core busy.
    time.sleep(order["settle_s"] + order["seconds"])
    if places is None:
        return None
    return _result(order, places, device_name, (start_s, start_s + order["seconds"]))


def _open_gpu(ranks: Ranks) -> tuple[Gpu, str]:
    """Create a CUDA context with a few bytes in it; return the GPU's identity and name."""
    import torch

    from scalewatt.training.process_group import choose_device

    device = choose_device("cuda", ranks)
    _HELD.append(torch.zeros(16, device=device))
    torch.cuda.synchronize(device)
    return gpu_identity(device), torch.cuda.get_device_name(device)


_HELD: list[Any] = []


def _result(
    order: dict[str, Any],
    places: list[tuple[str, Gpu | None]],
    device_name: str | None,
    window: tuple[float, float],
) -> dict[str, Any]:
    return {
        **{key: value for key, value in order.items() if key not in ("name", "ranks", "work")},
        "hostnames": sorted({host for host, _ in places}),
        "device_name": device_name or cpu_name(),
        **held_gpus(places),
        "window": {"start_s": window[0], "end_s": window[1]},
        "packages": package_versions(),
    }


def guarded_hold(watch: Watchdog, order: dict[str, Any], ranks: Ranks) -> bool:
    """Call `hold_gpus`, ending all ranks on an error: perun would catch it and wait for ever.

    Rank 0 writes the result once every rank has reported that its sampler is alive.
    """
    try:
        watch.training_began()
        result = hold_gpus(order, ranks)
        end_within(CLOSE_LIMIT_S)
        losses = [lost for lost in ranks.comm.allgather(watch.training_ended()) if lost]
        if losses:
            abort(ExitCode.FAILED, f"{_LOST}: {'; '.join(losses)}")
        if result is not None:
            write_json(Path(order["work"]) / RESULT, result)
    except BaseException as error:
        fail(error)
    return True


_LOST = "scalewatt: error: the power was no longer recorded"


def _sampler_lost(reason: str) -> None:
    abort(ExitCode.FAILED, f"{_LOST}: {reason}")


def main(argv: list[str]) -> NoReturn:
    """Run one rank of the probe that the order file describes."""
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.training.process_group import join_ranks

    try:
        order = read_json(argv[0])
        run = order["name"]
        ranks = join_ranks(run, order["ranks"], 1)
        work, stem, period_s = Path(order["work"]), segment_name(0), order["sampling_period_s"]
        watch = watch_rank(ranks, work, stem, period_s, Limits(), _sampler_lost)
        done = monitored(guarded_hold, (watch, order, ranks), work / PERUN, stem, period_s, run)
        leave(watch, ranks, 0 if done else ExitCode.FAILED)  # once rank 0 has written perun's file
    except BaseException as error:
        fail(error)


if __name__ == "__main__":
    main(sys.argv[1:])
