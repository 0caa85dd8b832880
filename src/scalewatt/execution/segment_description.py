"""The description of what a segment runs on, for the run's provenance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from scalewatt.common.files import write_json
from scalewatt.common.redaction import Redaction
from scalewatt.monitoring.perun_session import settings_in_effect
from scalewatt.provenance.libraries import flags, software, variables
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

    `gpu` is this rank's, None on a CPU; `torch` the module, None where the training uses another
    one; `further` entries are added, and replace those of the same name.
    """
    placement = gathered_placement(ranks, gpu)
    if placement is None:
        return
    from mpi4py import MPI

    write_json(
        description_path(job.work, job.segment),
        {
            **placement,
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
