"""The stage `stage_data`: a run's images on its nodes' own disks."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from scalewatt.data.node_copy import copy_images
from scalewatt.data.prepared import is_staged
from scalewatt.models.interface import workload_class
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.record import Job
from scalewatt.training.distributed import wait_for_ranks


@contextmanager
def staged(job: Job, ranks: Ranks, device: torch.device, events: EventLog) -> Iterator[Job]:
    """Give the job with its images on this node's scratch, if the cluster names one.

    One rank of a node unpacks what the run reads and removes it at the end. The others sleep
    meanwhile, so that no rank closes while another still removes images, which takes minutes.
    """
    if job.scratch is None or not is_staged(job.spec, job.scratch):
        yield job
        return
    events.enter("stage_data")
    # Scratch may be shared by nodes, and by campaigns that have the same run.
    digest = hashlib.sha256(f"{ranks.host} {job.work.resolve()}".encode()).hexdigest()[:12]
    folder = None
    if ranks.local_rank == 0:
        subsets = workload_class(job.spec.model)(job.spec, job.data_folder, device).index_lists()
        name = f"{job.work.name}-{digest}"
        folder = str(copy_images(Path(job.data_folder), job.scratch, name, subsets))
    wait_for_ranks(ranks)
    folders = dict(ranks.comm.allgather((ranks.host, folder) if folder else (None, None)))
    events.enter("startup")
    try:
        yield replace(job, data_folder=folders[ranks.host])
    finally:
        events.enter("stage_data")  # its end belongs to it, too
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    wait_for_ranks(ranks)
