"""Result logs of MLPerf Training: what a run was, when it lasted, and its stages.

Events: `init_start`, `run_start` and `run_stop`, `eval_start` and `eval_stop`, `eval_accuracy` with the
metric; facts such as `global_batch_size` once a rank. Format: github.com/mlcommons/logging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.recordings.formats.mlperf_log import MlperfLog, read_mlperf_log
from scalewatt.recordings.series import finite_number

_LOCAL_BATCH = ("local_batch_size", "d_batch_size")
_LARGEST = 10**12
"""What a log counts is taken to be damaged beyond it."""
_LARGEST_SEED = 2**63

Stage = dict[str, Any]


@dataclass(frozen=True)
class MlperfResult:
    """One run, as its log tells it; None where it does not."""

    benchmark: str
    start_s: float
    stop_s: float
    succeeded: bool
    global_batch_size: int | None
    local_batch_size: int | None
    """Of one replica and forward pass, where the log states it."""
    accumulation_steps: int
    train_samples: int | None
    """As logged: a few benchmarks log something else under this key."""
    seed: int | None
    metric: float | None
    """Of the last evaluation."""
    trained: float | None
    """Samples or epochs until then, whichever the benchmark counts in."""
    stages: tuple[Stage, ...]
    """Rows (segment, stage, epoch, start_s, end_s); `startup` ends where the run starts."""


def read_mlperf_result(path: Path) -> MlperfResult:
    """Read a result log. Raises InputError if it does not say which run it is, or when it lasted."""
    log = read_mlperf_log(path)
    benchmark, start = log.first("submission_benchmark"), log.first("run_start")
    stops = log.of("run_stop")
    if benchmark is None or not isinstance(benchmark.value, str):
        raise InputError(f"{path}: states no submission_benchmark")
    if start is None or not stops or not start.time_s < stops[0].time_s:
        raise InputError(f"{path}: states no run_start with a run_stop after it")
    accuracy = log.of("eval_accuracy")
    last = accuracy[-1] if accuracy else None
    stop = stops[0]
    return MlperfResult(
        benchmark=benchmark.value,
        start_s=start.time_s,
        stop_s=stop.time_s,
        succeeded=stop.metadata.get("status") == "success",
        global_batch_size=_count(log, "global_batch_size"),
        local_batch_size=next((n for n in (_count(log, key) for key in _LOCAL_BATCH) if n), None),
        accumulation_steps=_count(log, "gradient_accumulation_steps") or 1,
        train_samples=_count(log, "train_samples"),
        seed=_count(log, "seed", _LARGEST_SEED),
        metric=finite_number(last.value) if last else None,
        trained=_trained(last.metadata) if last else None,
        stages=tuple(_stages(log, start.time_s, stop.time_s)),
    )


def _count(log: MlperfLog, key: str, largest: int = _LARGEST) -> int | None:
    line = log.first(key)
    value = finite_number(line.value) if line else None
    whole = value is not None and 0 <= value < largest and value == int(value)
    return int(line.value) if line and whole else None


def _trained(metadata: dict[str, Any]) -> float | None:
    for key in ("samples_count", "epoch_num"):
        value = finite_number(metadata.get(key))
        if value is not None and 0 <= value < _LARGEST:
            return value
    return None


def _stages(log: MlperfLog, start_s: float, stop_s: float) -> Iterator[Stage]:
    """Yield startup, and the run as training with its evaluations between, each pair an epoch."""
    begun = [line.time_s for line in log.of("init_start") if line.time_s < start_s]
    if begun:
        yield _stage("startup", None, min(begun), start_s)
    at_s, epoch = start_s, 0
    for begin, end in _evaluations(log, start_s, stop_s):
        if begin > at_s:
            yield _stage("train", epoch, at_s, begin)
        yield _stage("validate", epoch, begin, end)
        at_s, epoch = end, epoch + 1
    if stop_s > at_s:
        yield _stage("train", epoch, at_s, stop_s)


def _stage(stage: str, epoch: int | None, start_s: float, end_s: float) -> Stage:
    return {"segment": 0, "stage": stage, "epoch": epoch, "start_s": start_s, "end_s": end_s}


def _evaluations(log: MlperfLog, start_s: float, stop_s: float) -> Iterator[tuple[float, float]]:
    """Yield begin and end of the evaluations within the run; those that overlap are one."""
    marks = [line for line in log.lines if line.key in ("eval_start", "eval_stop")]
    depth, begin = 0, start_s
    for mark in sorted(marks, key=lambda line: (line.time_s, line.key == "eval_stop")):
        if mark.key == "eval_start":
            begin = mark.time_s if depth == 0 else begin
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                inside = max(begin, start_s), min(mark.time_s, stop_s)
                if inside[1] > inside[0]:
                    yield inside
    if depth and begin < stop_s:
        yield max(begin, start_s), stop_s
