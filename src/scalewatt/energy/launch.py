"""Running a training: locks, starts the ranks, watches over them, publishes.

What the ranks watch themselves, and after how long, is in `watch`. Here the launcher is ended with
all it started when training has returned and the ranks do not end (10 s after they should have
ended themselves), and when a person asks twice.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from scalewatt.campaign.spec import read_spec
from scalewatt.energy.publish import already_published, publish
from scalewatt.energy.record import (
    EXIT_FAILURE,
    EXIT_INPUT,
    EXIT_STOPPED,
    description_path,
    outcome_path,
    segment_name,
)
from scalewatt.energy.slurm_energy import note_slurm_energies
from scalewatt.energy.watch import Limits, read_losses
from scalewatt.energy.workdir import MONITOR_LOST, WorkDir, open_workdir
from scalewatt.errors import InputError
from scalewatt.files import read_json, write_json

MONITOR_RESTARTS = 3
"""How often one call starts a training again because its energy was no longer recorded."""
CLOSING_MARGIN_S = 10.0
"""How much later than the ranks themselves the launching process ends what does not close."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Place:
    """Where and with what a training is started."""

    data_folder: Path
    work_root: Path
    launcher: str
    torch_device: str
    cpus_per_rank: int
    limits: Limits = field(default_factory=Limits)


def run_training(
    spec_path: Path,
    out: Path,
    place: Place,
    initial_weights: Path | None = None,
    max_updates: int | None = None,
) -> int:
    """Train one segment of the run in `spec_path`; when it is the last, publish to `out`.

    A segment whose energy is no longer recorded is followed by another at once. Returns 0 when the
    run is finished, EXIT_STOPPED when it waits at a checkpoint.
    """
    spec = read_spec(spec_path)
    _check_initial_weights(spec, spec_path, initial_weights)
    dataset_sha256 = _dataset_sha256(place.data_folder)
    launcher = shlex.split(place.launcher)[0]
    if shutil.which(launcher, path=_path()) is None:
        raise InputError(f"launcher: '{launcher}' is not found; allowed: a command of this machine")
    with open_workdir(place.work_root, spec, dataset_sha256) as work:
        if already_published(out, work):
            return 0
        if not work.finished:
            code = _train(work, place, initial_weights, max_updates)
            if not work.finished:
                return code
        _note_slurm_energies(work)
        publish(work, out)
    return 0


def _note_slurm_energies(work: WorkDir) -> None:
    """Ask Slurm about all segments once the run is finished: its accounting may lag."""
    numbers = [segment["segment"] for segment in work.segments()]
    note_slurm_energies(
        (
            description_path(work.path, number),
            work.perun / f"{segment_name(number)}.slurm-energy.json",
        )
        for number in numbers
    )


def _train(
    work: WorkDir, place: Place, initial_weights: Path | None, max_updates: int | None
) -> int:
    """Run a segment, and further ones as long as the energy of the one before was not recorded."""
    name = work.spec["configuration"]
    for start in range(MONITOR_RESTARTS + 1):
        code = _Segment(work, place, initial_weights, max_updates).run()
        last = work.segments()[-1]
        if last["outcome"] != MONITOR_LOST:
            return code
        if start < MONITOR_RESTARTS:
            print(
                f"{name}: the energy was no longer recorded ({last['detail']}); "
                f"goes on from its checkpoint ({start + 1} of {MONITOR_RESTARTS})",
                file=sys.stderr,
                flush=True,
            )
    print(
        f"scalewatt: error: {name}: the energy was not recorded in {MONITOR_RESTARTS + 1} starts "
        f"({last['detail']}); the training waits at its checkpoint, its log is "
        f"{work.path / 'train.log'}",
        file=sys.stderr,
    )
    return EXIT_FAILURE


def _dataset_sha256(folder: Path) -> str:
    """Hash of the prepared dataset's content, from its manifest."""
    marker = read_json(folder / "manifest.json")["marker"]
    if not marker:
        raise InputError(f"{folder}: the dataset is not prepared to its end; prepare it first")
    return marker["content_sha256"]


def _path() -> str:
    """PATH with this Python's commands first: mpiexec of the environment's MPI is among them."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _check_initial_weights(spec: dict[str, Any], spec_path: Path, weights: Path | None) -> None:
    """The weights must be those of the very run that the spec names."""
    source = spec["initial_weights"]
    if bool(source) != bool(weights):
        raise InputError(
            f"{spec_path}: --initial-weights is {'needed' if source else 'not used by this run'}"
        )
    if weights is not None:
        found = read_json(weights.parent / "provenance.json")["spec_sha256"]
        if found != source["spec_sha256"]:
            raise InputError(
                f"{weights}: are of another run than {spec_path} starts from "
                f"({source['configuration']} repeat {source['repeat']}); train that one again"
            )


class _Segment:
    """One start of the ranks."""

    def __init__(
        self, work: WorkDir, place: Place, initial_weights: Path | None, max_updates: int | None
    ) -> None:
        self.work, self.place = work, place
        self.number = work.begin_segment()
        self.stop_file = work.path / "stop"
        self.stop_file.unlink(missing_ok=True)
        self.order = work.path / "order.json"
        write_json(
            self.order,
            {
                "work": str(work.path.resolve()),
                "segment": self.number,
                "data_folder": str(place.data_folder.resolve()),
                "torch_device": place.torch_device,
                "initial_weights": str(initial_weights.resolve()) if initial_weights else None,
                "max_updates": max_updates,
                "stop_file": str(self.stop_file.resolve()),
                "limits": asdict(place.limits),
            },
        )
        self.times_asked_to_stop = 0

    def run(self) -> int:
        """Start the ranks, wait for them, note the outcome."""
        with open(self.work.path / "train.log", "ab") as log:
            process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # a terminal's Ctrl-C reaches this process only
                pass_fds=(self.work.lock,),  # held until the last of them has ended
                preexec_fn=_die_with_parent,
            )
            previous = {
                number: signal.signal(number, self._on_signal)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
            try:
                code = self._watch(process)
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)
        return self._conclude(code)

    def _command(self) -> list[str]:
        spec = self.work.spec
        launcher = self.place.launcher.format(
            gpus=spec["gpus"],
            nodes=spec["nodes"],
            ranks_per_node=spec["ranks_per_node"],
            cpus_per_rank=self.place.cpus_per_rank,
        )
        # The signals are ignored until the rank has installed its own handlers.
        shell = ["sh", "-c", 'trap "" USR1 TERM; exec "$@"', "sh"]
        rank = [sys.executable, "-m", "scalewatt.energy.record", str(self.order.resolve())]
        return [*shlex.split(launcher), *shell, *rank]

    def _environment(self) -> dict[str, str]:
        threads = str(self.place.cpus_per_rank)
        return {
            **os.environ,
            "PATH": _path(),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "PYTHONUNBUFFERED": "1",
            "SLURM_KILL_BAD_EXIT": "1",  # srun ends all ranks when one has died, as mpiexec does
        }

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.times_asked_to_stop += 1
        self.stop_file.touch()
        print(
            f"{self.work.spec['configuration']}: stops at its next step; ask again to end it at once",
            file=sys.stderr,
            flush=True,
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the ranks; end them when asked twice, or if perun does not close."""
        returned: float | None = None
        outcome = outcome_path(self.work.path, self.number)
        while process.poll() is None:
            now = time.monotonic()
            if returned is None and outcome.exists():
                returned = now
            closing_s = self.place.limits.closing_s + CLOSING_MARGIN_S
            hangs = returned is not None and now - returned > closing_s
            if hangs or self.times_asked_to_stop > 1:
                _end_group(process)
                break
            time.sleep(0.1)
        return process.wait()

    def _conclude(self, code: int) -> int:
        outcome = outcome_path(self.work.path, self.number)
        if outcome.exists():
            return self._end_as(outcome.read_text(encoding="utf-8"), code)
        self.work.end_segment("failed")
        log = self.work.path / "train.log"
        print(_last_lines(log), file=sys.stderr)
        print(
            f"scalewatt: error: {self.work.spec['configuration']}: training failed (exit code {code}); "
            f"its log is {log}",
            file=sys.stderr,
        )
        return EXIT_INPUT if code == EXIT_INPUT else EXIT_FAILURE

    def _end_as(self, outcome: str, code: int) -> int:
        """Note an outcome that the ranks gave; a stop for want of a sampler has its own name."""
        name = self.work.spec["configuration"]
        losses = read_losses(self.work.path, segment_name(self.number))
        details = [f"{loss['host']}: {loss['reason']}" for loss in losses]
        if outcome == "stopped" and losses and not self.times_asked_to_stop:
            outcome = MONITOR_LOST
        if code not in (0, EXIT_STOPPED):
            details.append(f"perun did not close (exit code {code}); its journal is kept")
            print(f"{name}: {details[-1]}", file=sys.stderr)
        self.work.end_segment(outcome, "; ".join(details) or None)
        if outcome == "stopped":
            print(f"{name}: stopped at a checkpoint; start it again to go on", file=sys.stderr)
        return 0 if outcome == "finished" else EXIT_STOPPED


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the launcher politely, then by force, with all it started on this machine."""
    for number, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _die_with_parent() -> None:
    """In the launcher: get TERM when this process dies, so that no rank trains on unwatched."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _last_lines(log: Path, count: int = 25) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
