"""What a run's provenance says of its software and of its nodes, as names and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
_SETTINGS = (
    *("cuda", "mpi", "optimizer", "schedule", "parallelism", "torch_device", "threads_per_rank"),
    *("cudnn_deterministic", "cudnn_benchmark", "cudnn_allow_tf32", "matmul_allow_tf32"),
    *("deterministic_algorithms", "float32_matmul_precision", "cublas_workspace_config"),
    "python_hash_seed",
)
_LIBRARIES = ("cudnn", "nccl")


def software_of(record: Row) -> Iterable[tuple[str, str, str]]:
    """Yield each package and setting of a run: whose, its name, its version or value."""
    whose = recorder_of(record)
    settings = {name: record.get(name) for name in _SETTINGS}
    libraries = {name: (record.get("software") or {}).get(name) for name in _LIBRARIES}
    switches = {True: "on", False: "off"}
    for name, value in ((record.get("packages") or {}) | settings | libraries).items():
        if value is not None:
            yield whose, name, switches[value] if isinstance(value, bool) else str(value)
    if record.get("commit"):
        yield "the run", "commit of the checkout that published it", str(record["commit"])


def recorder_of(record: Row) -> str:
    """Whose packages a run's provenance lists: those of the run, or of what recorded it."""
    return str(record.get("packages_of") or "the run")


def node_kind(node: Row) -> tuple[str, ...]:
    """What a node is: CPUs, GPUs, GPU driver, kernel."""
    gpus = [f"{n} × {name}" for name, n in (node.get("gpu_models") or {}).items()]
    single = [[node[key]] if node.get(key) else [] for key in ("gpu_driver", "kernel")]
    parts = [node.get("cpu_models") or [], gpus, *single]
    return tuple(", ".join(part) or "not known" for part in parts)
