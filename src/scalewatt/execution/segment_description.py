"""What a segment runs on, for the run's provenance: nodes, software, torch's flags, environment variables."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json
from scalewatt.common.redaction import Redaction, is_secret
from scalewatt.common.termination import say
from scalewatt.execution.clock_offsets import measured_clock_offsets
from scalewatt.monitoring.perun_session import settings_in_effect
from scalewatt.provenance.rank_placement import gathered_placement
from scalewatt.provenance.versions import Gpu, cpu_name, package_versions
from scalewatt.run_files.work_directory import description_path
from scalewatt.slurm.step_energy import slurm_step

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks
    from scalewatt.run_files.work_directory import Job


def describe_segment(
    job: Job, ranks: Ranks, gpu: Gpu | None, torch: Any, further: dict[str, Any]
) -> None:
    """Write on rank 0 what this segment runs on; all ranks must call this.

    `gpu` is this rank's, None on a CPU; `torch` the module, None if the training uses another
    one; `further` entries are added, and replace those of the same name.
    """
    placement = gathered_placement(ranks, gpu)
    clock_offsets = measured_clock_offsets(ranks)
    if placement is None:
        return
    from mpi4py import MPI

    write_json(
        description_path(job.work, job.segment),
        {
            **placement,
            "clock_offsets": clock_offsets,
            "torch_device": "cpu" if gpu is None else "cuda",
            "device_name": cpu_name() if gpu is None else gpu.name,
            **flags(os.environ, job.spec.seed, torch),
            "packages": package_versions(),
            "software": software(torch, MPI),
            "perun": settings_in_effect(),
            "environment_variables": variables(os.environ, Redaction.of(os.environ)),
            "slurm": slurm_step(os.environ),
            **further,
        },
    )


def add_clock_offsets(job: Job, ranks: Ranks) -> None:
    """Add the offsets of the nodes' clocks as they are now to the description; all ranks must call this.

    A training that has ended well is not lost because its description cannot be written: this is said.
    """
    found = measured_clock_offsets(ranks)
    if not found:
        return
    path = description_path(job.work, job.segment)
    try:
        content = read_json(path)
        content["clock_offsets"] += found
        write_json(path, content, job.require_lock)
    except (OSError, InputError) as error:
        say(f"scalewatt: the clocks' offsets at the end are not noted: {error}")


_FLAGS = (
    *("threads_per_rank", "interop_threads", "cudnn_deterministic", "cudnn_benchmark"),
    *("cudnn_allow_tf32", "matmul_allow_tf32", "deterministic_algorithms"),
    "float32_matmul_precision",
)


def software(torch: Any = None, mpi: Any = None) -> dict[str, str | None]:
    """Return versions by name; null if the library is not in use, or does not tell.

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
    """Return cuDNN's number as text: 90501 is 9.5.1, and before version 9, 8907 is 8.9.7."""
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
    """Return seed, threads and flags of determinism as they are now; null if `torch` is not in use.

    `cublas_workspace_config` and `python_hash_seed` are the variables' values, null if not set.
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


VARIABLES = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "MALLOC_*", "NUMEXPR_*"),
    *("TORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "PYTORCH_*", "CUDA_*", "CUDNN_*", "CUBLAS*"),
    *("NCCL_*", "GLOO_*", "NVIDIA_TF32_*", "FI_*", "UCX_*", "MPICH_*", "I_MPI_*", "OMPI_MCA_btl*"),
    *("OMPI_MCA_pml*", "OMPI_MCA_mtl*", "OMPI_MCA_coll*", "*_VISIBLE_DEVICES", "HDF5_USE_*"),
    *("PYTHONHASHSEED", "PYTHONOPTIMIZE", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("SLURM_*_BIND*", "SLURM_GPUS_*", "SLURM_CPU*", "SLURM_NTASKS*", "SLURM_MPI_TYPE"),
    *("SLURM_DISTRIBUTION", "SLURM_HINT", "SLURM_THREADS_PER_CORE"),
)
"""Names of the variables that are written, as patterns of a shell."""


def is_written(name: str) -> bool:
    """Return True if a variable is one that a run's provenance has: listed, and of no secret's name."""
    return any(fnmatchcase(name, pattern) for pattern in VARIABLES) and not is_secret(name)


def variables(environment: Mapping[str, str], redaction: Redaction) -> dict[str, str]:
    """Return the variables that are set and matter, by name, without anything personal in their values."""
    return {
        name: redaction.text(environment[name]) for name in sorted(environment) if is_written(name)
    }
