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
from scalewatt.provenance.node_description import cpu_name
from scalewatt.provenance.rank_placement import gathered_placement
from scalewatt.provenance.versions import package_versions
from scalewatt.run_files.record import description_path
from scalewatt.slurm.step_energy import slurm_step

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Gpu, Ranks
    from scalewatt.run_files.record import Job

VARIABLES = (
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "MALLOC_*", "NUMEXPR_*"),
    *("TORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "PYTORCH_*", "CUDA_*", "CUDNN_*", "CUBLAS*"),
    *("NCCL_*", "GLOO_*", "NVIDIA_TF32_*", "FI_*", "UCX_*", "MPICH_*", "I_MPI_*", "OMPI_MCA_btl*"),
    *("OMPI_MCA_pml*", "OMPI_MCA_mtl*", "OMPI_MCA_coll*", "*_VISIBLE_DEVICES", "HDF5_USE_*"),
    *("PYTHONHASHSEED", "PYTHONOPTIMIZE", "LD_PRELOAD", "LD_LIBRARY_PATH"),
    *("SLURM_*_BIND*", "SLURM_GPUS_*", "SLURM_CPU*", "SLURM_NTASKS*", "SLURM_MPI_TYPE"),
    *("SLURM_DISTRIBUTION", "SLURM_HINT", "SLURM_THREADS_PER_CORE"),
)
"""Patterns of the names of environment variables that are written."""


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
    description = {
        **placement,
        "clock_offsets": clock_offsets,
        "torch_device": "cpu" if gpu is None else "cuda",
        "device_name": cpu_name() if gpu is None else gpu.name,
        "seed": job.spec.seed,
        "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "python_hash_seed": os.environ.get("PYTHONHASHSEED"),
        **(torch_settings(torch) if torch else {}),
        "python": platform.python_version(),
        "packages": package_versions(),
        "perun": settings_in_effect(),
        "environment_variables": variables(os.environ, Redaction.of(os.environ)),
        "slurm": slurm_step(os.environ),
        **further,
    }
    write_json(description_path(job.work, job.segment), description)


def add_clock_offsets(job: Job, ranks: Ranks) -> None:
    """Add the offsets of the nodes' clocks as they are now to the description; all ranks must call this.

    A training that has ended well is not lost because its description cannot be written.
    """
    offsets = measured_clock_offsets(ranks)
    if not offsets:
        return
    path = description_path(job.work, job.segment)
    try:
        content = read_json(path)
        content["clock_offsets"] += offsets
        write_json(path, content, job.require_lock)
    except (OSError, InputError) as error:
        say(f"scalewatt: the clocks' offsets at the end are not noted: {error}")


def torch_settings(torch: Any) -> dict[str, Any]:
    """Threads and flags of determinism as they are now, and `software`: the libraries that torch brings."""
    has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return {
        "threads_per_rank": torch.get_num_threads(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "software": {
            "cudnn": _dotted(torch.backends.cudnn.version()),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
        },
    }


def _dotted(cudnn: int | None) -> str | None:
    """Version of cuDNN from its number, of which 90501 is 9.5.1."""
    if cudnn is None:
        return None
    return f"{cudnn // 10_000}.{cudnn % 10_000 // 100}.{cudnn % 100}"


def variables(environment: Mapping[str, str], redaction: Redaction) -> dict[str, str]:
    """Variables that are set and matter, by name, without secrets or anything personal in their values."""
    return {
        name: redaction.text(value)
        for name, value in sorted(environment.items())
        if any(fnmatchcase(name, pattern) for pattern in VARIABLES) and not is_secret(name)
    }
