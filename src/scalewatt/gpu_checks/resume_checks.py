"""Checks of trainings in several segments: stopped or killed, and resumed."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import psutil

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.gpu_checks.check_types import Bench, Check, CheckFailed, Finding
from scalewatt.gpu_checks.run_energies import energies_of
from scalewatt.gpu_checks.small_trainings import (
    FOURCASTNET,
    RESNET50,
    SmallTraining,
    all_finite,
    differences,
    distance,
    small_spec,
)
from scalewatt.run_files.progress_files import read_progress, read_segments

DISTANCE = 0.1
"""How far weights may be apart, relative to their way since the stop, where kernels are chosen by speed."""
_EPOCHS = 3
_INTO_EPOCH_S = 0.4
_NAMED = 3
_FIXED, _BY_SPEED = "ResNet50", "ResNet50 corrected"


@dataclass(frozen=True)
class States:
    """The checkpoints of two trainings of one spec after as many updates."""

    whole: dict[str, Any]
    """Uninterrupted."""
    resumed: dict[str, Any]
    stopped: dict[str, Any]
    """The second one's at its stop."""
    again: dict[str, Any] | None = None
    """Of another uninterrupted training, where the two differ."""

    @property
    def differing(self) -> list[str]:
        """Return the names of what differs in them."""
        return differences(self.whole, self.resumed)

    @property
    def distance(self) -> float:
        """Return how far their weights are apart, relative to their way since the stop."""
        return self._of_way(self.resumed)

    @property
    def deterministic(self) -> bool:
        """Return True unless uninterrupted trainings are known to differ too."""
        return self.again is None or not differences(self.whole, self.again)

    @property
    def holds(self) -> bool:
        """Return True if they are equal, or nearly where uninterrupted ones differ too."""
        return not self.differing or (not self.deterministic and self.distance <= DISTANCE)

    def _of_way(self, other: dict[str, Any]) -> float:
        way = distance(self.whole["model"], self.stopped["model"])
        return distance(other["model"], self.whole["model"]) / way if way else float("inf")

    def said(self, name: str) -> str:
        """Return what differs, as text."""
        apart = self.differing
        if not apart:
            return f"{name}: equal"
        more = ", …" if len(apart) > _NAMED else ""
        alike = ""
        if self.again is not None and not self.deterministic:
            by = self._of_way(self.again)
            alike = f"; not deterministic: two uninterrupted ones are apart by {by:.1e}"
        return (
            f"{name}: {len(apart)} parts differ ({', '.join(apart[:_NAMED])}{more}), "
            f"weights by {self.distance:.1e} of their way{alike}"
        )


def stopped_and_resumed(bench: Bench, name: str, spec: RunSpec) -> States:
    """Train to the middle of the second epoch, once without and once with a stop in the first."""
    steps = spec.updates_per_epoch or 0
    first, total = steps // 2, steps + steps // 3
    whole = SmallTraining.of(bench, f"{name}-whole", spec)
    cut = SmallTraining.of(bench, f"{name}-cut", spec)

    def in_two() -> dict[str, Any]:
        cut.stopped(first)
        at_stop = cut.checkpoint()
        cut.stopped(total - first)
        return at_stop

    with ThreadPoolExecutor(2) as pool:
        jobs = pool.submit(whole.stopped, total), pool.submit(in_two)
        jobs[0].result()
        at_stop = jobs[1].result()
    states = States(whole.checkpoint(), cut.checkpoint(), at_stop)
    for state in (states.whole, states.resumed):
        found = state["epoch"] * steps + state["step"]
        if found != total:
            raise CheckFailed(f"a training stopped after {found} updates, not {total}")
        if not all_finite(state["model"]):
            raise CheckFailed("a training diverged: its weights are no finite numbers")
    if not states.differing:
        return states
    once_more = SmallTraining.of(bench, f"{name}-again", spec)
    once_more.stopped(total)
    return replace(states, again=once_more.checkpoint())


def amp_resume(bench: Bench) -> Finding:
    """Compare an interrupted and an uninterrupted training in fp16, gradients scaled."""
    spec = small_spec(bench.rehearse, FOURCASTNET, settings={"precision": "fp16"})
    states = stopped_and_resumed(bench, "fp16", spec)
    scaler = states.whole["scaler"]
    if not bench.rehearse and "scale" not in scaler:
        raise CheckFailed(f"the scaler of gradients was not at work: its state is {scaler}")
    scale = f", scale {scaler['scale']:g}" if "scale" in scaler else ""
    note = "a CPU computes fp16 as fp32, without a scaler" if bench.rehearse else None
    return Finding(states.said("scaler, losses, weights") + scale, states.holds, note)


def bitwise_resume(bench: Bench) -> Finding:
    """Compare interrupted and uninterrupted trainings of both networks."""
    specs = {_FIXED: small_spec(bench.rehearse, RESNET50, protocol="paper")}
    if not bench.rehearse:
        specs["FourCastNet"] = small_spec(False, FOURCASTNET)
        specs[_BY_SPEED] = small_spec(False, RESNET50)
    with ThreadPoolExecutor(len(specs)) as pool:
        jobs = {
            name: pool.submit(stopped_and_resumed, bench, name.replace(" ", "-"), spec)
            for name, spec in specs.items()
        }
        found = {name: job.result() for name, job in jobs.items()}
    holds = all(_holds(name, states) for name, states in found.items())
    left_out = "FourCastNet is rehearsed by amp_resume; kernels chosen by speed need a GPU"
    measured = "; ".join(states.said(name) for name, states in found.items())
    return Finding(measured, holds, left_out if bench.rehearse else None)


def _holds(name: str, states: States) -> bool:
    """Return True if trainings are as equal as their kernels allow; ResNet50's of the paper are fixed."""
    if name == _BY_SPEED:
        return not states.differing or states.distance <= DISTANCE
    return not states.differing if name == _FIXED else states.holds


def killed_rank(bench: Bench) -> Finding:
    """Kill a rank in mid-training, and let the next start finish."""
    samples = 240 if bench.rehearse else 960
    spec = small_spec(bench.rehearse, FOURCASTNET, dataset_samples=samples, epochs=_EPOCHS)
    training = SmallTraining.of(bench, "killed", spec)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(training.start)
        bench.wait_for(lambda: job.done() or _is_within_second_epoch(training), "a checkpoint")
        rank = None if job.done() else _rank_of(training)
        if rank is None:
            raise CheckFailed(f"the training was over before it could be killed: {job.result()}")
        began_s = time.monotonic()
        rank.send_signal(signal.SIGKILL)
        answer = job.result()
        took_s = time.monotonic() - began_s
    first = read_segments(training.work)[-1]
    if answer.code in (ExitCode.FINISHED, ExitCode.STOPPED) or first["outcome"] not in (
        "failed",
        "killed",
    ):
        raise CheckFailed(
            f"the launcher ended with exit code {answer.code}, the segment as {first['outcome']}"
        )
    training.finished()
    second = read_segments(training.work)[-1]
    energies = energies_of(training)
    lost_j = energies.totals.discarded_j("cpu" if bench.rehearse else "gpu")
    resumed = second["from_updates"] == first["to_updates"] and second["from_updates"] > 0
    known = lost_j is not None and lost_j > 0
    lost = "unknown" if lost_j is None else f"{lost_j:.1f} J"
    measured = (
        f"launcher ended {took_s:.1f} s after the kill, resumed at update {second['from_updates']}, "
        f"discarded energy {lost}"
    )
    note = "the energy is the CPUs', estimated" if bench.rehearse else None
    return Finding(measured, resumed and known, note)


def _is_within_second_epoch(training: SmallTraining) -> bool:
    """Return True once work of the second epoch is done that no checkpoint has yet."""
    if not list((training.folder / "work").glob("*/position.json")):
        return False
    progress = read_progress(training.work)
    if progress is None or progress.stage != "train" or progress.epoch < 1:
        return False
    saved_s = (training.work / "position.json").stat().st_mtime
    return time.time() - saved_s > _INTO_EPOCH_S


def _rank_of(training: SmallTraining) -> psutil.Process | None:
    """Return the process of a training's rank; its sampler has the same command, and it as its parent."""
    order = str((training.work / "order.json").resolve())
    for process in psutil.process_iter():
        try:
            words, parent = process.cmdline(), process.parent()
            is_sampler = parent is not None and parent.cmdline() == words
        except psutil.Error:
            continue
        if words[1:] == ["-m", "scalewatt.execution.rank", order] and not is_sampler:
            return process
    return None


CHECKS = (
    Check(
        "amp_resume",
        "A training in fp16 that was stopped and resumed has the scaler's state, losses and weights "
        "of one that was not.",
        f"every bit; if two uninterrupted ones differ: weights within {DISTANCE:g} of their way",
        amp_resume,
    ),
    Check(
        "bitwise_resume",
        "A training that was stopped and resumed equals one that was not; with kernels chosen by "
        "their speed, nearly.",
        "every bit; ResNet50 corrected, and FourCastNet if two uninterrupted ones differ: weights "
        f"within {DISTANCE:g} of their way",
        bitwise_resume,
        limit_s=180,
    ),
    Check(
        "killed_rank",
        "After a rank was killed the launcher ends, the next start goes on from the checkpoint, and "
        "the energy of the lost work is known.",
        "resumed at the checkpoint, discarded energy above 0 J",
        killed_rank,
        alone=True,
    ),
)
