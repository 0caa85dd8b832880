"""Which kernels a step's time goes to: a table, a trace, and the shares of kinds of work."""

from __future__ import annotations

import gzip
import json
import re
import time
from typing import Any

from torch.profiler import ProfilerActivity, profile

from gpu_speed.measuring import Training
from gpu_speed.setting import Bench
from scalewatt.common.files import atomic_path, write_text
from scalewatt.training.step_timer import finish

TRACE_BYTES = 16 * 2**20
"""A larger trace is not kept."""
_ROWS = 40
KINDS = (
    ("optimizer", r"adam|sgd|multi_tensor|foreach|amp_|unscale"),
    ("communication", r"nccl|allreduce|broadcast_coalesced|c10d"),
    ("copies", r"nchwtonhwc|nhwctonchw|memcpy|memset|transpose|copy|catarray|aten::(cat|contiguous)\b"),
    ("convolution", r"conv|fprop|dgrad|wgrad|winograd"),
    ("fourier transform", r"fft|r2c|c2r|prerealpost|realpost"),
    ("matrix products", r"gemm|gemv|cutlass|cublas|nvjet|splitk|aten::(add|badd)?b?mm\b|matmul|einsum"),
    ("normalisation", r"batch_?norm|layer_?norm|bn_|welford|gammabeta"),
    ("compiled, fused", r"triton"),
    ("reductions", r"reduce|softmax|nll|norm|aten::(sum|mean)\b"),
    ("elementwise", r"elementwise|vectorized|unrolled|pool|relu|gelu|aten::"),
)  # fmt: skip
"""Kinds by what a kernel's (on a CPU an operator's) name has in it, in lower case; the first that fits."""
OTHER = "other"
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}


def kind_of(name: str) -> str:
    """Return the kind of work of a kernel or operator."""
    lower = name.lower()
    return next((kind for kind, words in KINDS if re.search(words, lower)), OTHER)


def profiled(bench: Bench, name: str, training: Training) -> None:
    """Profile a few steps; write `<name>.kernels.txt` and `<name>.trace.json.gz`, and note the shares."""
    try:
        found = _profiled(bench, name, training)
    except Exception as error:  # what was measured is worth more than a profile
        found = {"error": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
    bench.found.setdefault("profiles", {})[name] = found
    bench.say(f"profile of {name}: {found.get('error') or found['trace'] or 'without a trace'}")


def _profiled(bench: Bench, name: str, training: Training) -> dict[str, Any]:
    steps = bench.sizes.profiled_steps
    activities = [ProfilerActivity.CPU]
    if not bench.rehearses:
        activities.append(ProfilerActivity.CUDA)
    training.prepare()
    training.settle()
    finish(bench.device)
    with profile(activities=activities) as run:
        began = time.perf_counter()
        training.steps(steps)
        finish(bench.device)
        seconds = time.perf_counter() - began
    with atomic_path(bench.folder / f"{name}.trace.json.gz") as temporary:
        plain = temporary.with_name(f"{name}.trace.json")
        run.export_chrome_trace(str(plain))
        content = plain.read_bytes()
        plain.unlink()
        temporary.write_bytes(gzip.compress(content, 3))
    trace = bench.folder / f"{name}.trace.json.gz"
    kept = trace.stat().st_size < TRACE_BYTES
    if not kept:
        trace.unlink()
    key = "self_cpu_time_total" if bench.rehearses else "self_device_time_total"
    averages = run.key_averages()
    table = averages.table(sort_by=key, row_limit=_ROWS, max_name_column_width=90)
    write_text(bench.folder / f"{name}.kernels.txt", table)
    times = _operator_times(averages) if bench.rehearses else kernel_times(json.loads(content))
    return {
        "steps": steps,
        "seconds_with_the_profiler": seconds,
        "of": "operators' own time on the CPU" if bench.rehearses else "kernels' time on the GPU",
        **shares(times),
        "table": f"{name}.kernels.txt",
        "trace": trace.name if kept else None,
    }


def kernel_times(trace: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Return seconds and launches by name of what a GPU did according to a Chrome trace."""
    found: dict[str, tuple[float, int]] = {}
    for event in trace["traceEvents"]:
        if event.get("cat") in _KERNELS and "dur" in event:
            seconds, count = found.get(event["name"], (0.0, 0))
            found[event["name"]] = seconds + event["dur"] / 1e6, count + 1
    return found


def _operator_times(averages: Any) -> dict[str, tuple[float, int]]:
    return {one.key: (one.self_cpu_time_total / 1e6, one.count) for one in averages}


def shares(times: dict[str, tuple[float, int]]) -> dict[str, Any]:
    """Return the total of times by name, in s, and the share and launches of every kind."""
    total = sum(seconds for seconds, _ in times.values())
    kinds: dict[str, list[float]] = {}
    for name, (seconds, count) in times.items():
        own = kinds.setdefault(kind_of(name), [0.0, 0])
        own[0] += seconds
        own[1] += count
    ordered = sorted(kinds.items(), key=lambda item: -item[1][0])
    return {
        "seconds": total,
        "shares": {kind: seconds / total for kind, (seconds, _) in ordered} if total else None,
        "launches": {kind: int(count) for kind, (_, count) in ordered},
    }
