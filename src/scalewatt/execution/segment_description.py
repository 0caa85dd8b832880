"""What a segment runs on, for the run's provenance: nodes, software, torch's flags, environment variables."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.files import read_json, write_json
from scalewatt.common.redaction import Redaction, is_secret
from scalewatt.monitoring.perun_session import settings_in_effect
from scalewatt.provenance.node_description import cpu_name
from scalewatt.provenance.rank_placement import gathered_placement
from scalewatt.provenance.versions import package_versions
from scalewatt.run_files.record import description_path

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
BARRIERS = 50
"""Of all ranks, for their clocks: the ranks leave each at about the same moment."""


def describe_segment(job: Job, ranks: Ranks, gpu: Gpu | None, further: Mapping[str, Any]) -> None:
    """Write on rank 0 what this segment runs on; all ranks must call this.

    `gpu` is this rank's, None on a CPU; `further` entries are added, and replace those of the same name.
    """
    placement = gathered_placement(ranks, gpu)
    clock_offsets = measure_clock_offsets(ranks)
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
        "python": platform.python_version(),
        "packages": package_versions(),
        "perun": settings_in_effect(),
        "environment_variables": variables(os.environ, Redaction.of(os.environ)),
        **further,
    }
    write_json(description_path(job.work, job.segment), description)


def add_to_description(job: Job, entries: Mapping[str, Any]) -> None:
    """Add entries to what rank 0 has written."""
    path = description_path(job.work, job.segment)
    write_json(path, {**read_json(path), **entries}, job.require_lock)


def measure_clock_offsets(ranks: Ranks) -> list[dict[str, Any]]:
    """Measure the offsets of the nodes' clocks, on rank 0; nothing on the others. All ranks must call this.

    One entry for each node but rank 0's: `host`; `at_s`, when it was measured (Unix s, rank 0's clock);
    `offset_s`, by how much its clock is ahead; `uncertainty_s`, half the range of the measurements' middle
    half. Rank 0 notes the stages by the clock of its node, and each node's sampler stamps its samples by its
    own. NTP keeps clocks within milliseconds; where it has failed they differ by seconds.
    """
    left_s = []
    for _ in range(BARRIERS):
        ranks.comm.Barrier()
        left_s.append(time.time())
    rows = ranks.comm.gather((ranks.host, np.array(left_s)), root=0)
    if rows is None:
        return []
    offsets: dict[str, dict[str, Any]] = {}
    for host, theirs_s in rows:
        low, middle, high = np.quantile(theirs_s - rows[0][1], (0.25, 0.5, 0.75)).tolist()
        offset = {"at_s": left_s[-1], "offset_s": middle, "uncertainty_s": (high - low) / 2}
        offsets.setdefault(host, {"host": host, **offset})
    del offsets[ranks.host]
    return list(offsets.values())


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
    return None if cudnn is None else f"{cudnn // 10_000}.{cudnn % 10_000 // 100}.{cudnn % 100}"


def variables(environment: Mapping[str, str], redaction: Redaction) -> dict[str, str]:
    """Variables that are set and matter, by name, without secrets or anything personal in their values."""
    return {
        name: redaction.text(value)
        for name, value in sorted(environment.items())
        if any(fnmatchcase(name, pattern) for pattern in VARIABLES) and not is_secret(name)
    }
