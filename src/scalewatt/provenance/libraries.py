"""The software that a process computes with, and the flags that decide whether it does so alike."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

_FLAGS = (
    *("threads_per_rank", "interop_threads", "cudnn_deterministic", "cudnn_benchmark"),
    *("cudnn_allow_tf32", "matmul_allow_tf32", "deterministic_algorithms"),
    "float32_matmul_precision",
)


def software(torch: Any = None, mpi: Any = None) -> dict[str, str | None]:
    """Versions by name; null where the library is not in use, or does not tell.

    python, python_implementation; mpi_library, mpi_version, mpi_standard of `mpi` (mpi4py.MPI); cuda,
    cudnn and nccl of `torch`, which brings its own.
    """
    name, version = (None, None) if mpi is None else mpi.get_vendor()
    return {
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "mpi_library": name,
        "mpi_version": _dotted(version),
        "mpi_standard": None if mpi is None else _dotted(mpi.Get_version()),
        "cuda": None if torch is None else torch.version.cuda,
        "cudnn": None if torch is None else cudnn_version(torch.backends.cudnn.version()),
        "nccl": None if torch is None else _nccl(torch),
    }


def cudnn_version(number: int | None) -> str | None:
    """cuDNN's number as text: 90501 is 9.5.1, and before version 9, 8907 is 8.9.7."""
    if number is None:
        return None
    thousands = 10_000 if number >= 90_000 else 1_000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


def _nccl(torch: Any) -> str | None:
    try:
        return _dotted(torch.cuda.nccl.version())
    except Exception:  # torch without CUDA
        return None


def _dotted(version: tuple[int, ...] | None) -> str | None:
    return None if version is None else ".".join(map(str, version))


def flags(environment: Mapping[str, str], seed: int | None, torch: Any = None) -> dict[str, Any]:
    """Seed, threads and flags of determinism as they are now; null where `torch` is not in use.

    `cublas_workspace_config` and `python_hash_seed` are the variables' values, null where not set.
    """
    of_torch = (
        dict.fromkeys(_FLAGS)
        if torch is None
        else {
            "threads_per_rank": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
            "matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }
    )
    return {
        **of_torch,
        "cublas_workspace_config": environment.get("CUBLAS_WORKSPACE_CONFIG"),
        "python_hash_seed": environment.get("PYTHONHASHSEED"),
        "seed": seed,
    }
