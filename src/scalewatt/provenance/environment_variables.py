"""Environment variables that may change what a training computes, how fast, and at what power."""

from __future__ import annotations

from collections.abc import Mapping

from scalewatt.common.redaction import Redaction
from scalewatt.common.secret_names import is_secret

PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "MALLOC_"),
    *("TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_"),
    *("CUDNN_", "CUBLAS_", "CUBLASLT_", "NCCL_", "GLOO_", "FI_", "UCX_"),
    *("MPICH_", "I_MPI_"),
    *(f"OMPI_MCA_{part}" for part in ("btl", "pml", "mtl", "coll", "osc")),
)
"""Beginnings of the names that are written."""
NAMES = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS"),
        *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        *("NVIDIA_TF32_OVERRIDE", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("PYTHONHASHSEED", "PYTHONOPTIMIZE", "LD_PRELOAD", "LD_LIBRARY_PATH"),
        *("HDF5_USE_FILE_LOCKING", "NUMEXPR_NUM_THREADS"),
        *("SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST", "SLURM_MEM_BIND"),
        *("SLURM_GPU_BIND", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_CPU_FREQ_REQ"),
        *("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
        *("SLURM_DISTRIBUTION", "SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_MPI_TYPE"),
    }
)
"""Names that are written."""


def is_written(name: str) -> bool:
    """Return True if a variable is one that a run's provenance has: listed, and of no secret's name."""
    return (name in NAMES or name.startswith(PREFIXES)) and not is_secret(name)


def variables(environment: Mapping[str, str], redaction: Redaction) -> dict[str, str]:
    """Return the variables that are set and matter, by name, without anything personal in their values."""
    return {
        name: redaction.text(environment[name]) for name in sorted(environment) if is_written(name)
    }
