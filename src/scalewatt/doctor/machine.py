"""What surrounds the sensors: MPI, folders, and Slurm where the devices have partitions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalewatt.common.files import try_writing
from scalewatt.common.python_variables import shell_setup
from scalewatt.doctor.check import SET_UP, Check, CommandFailed, Site, call, fail, ok, warn
from scalewatt.execution.launcher_process import forking
from scalewatt.scheduling.job_request import account_of, probe_request
from scalewatt.scheduling.preflight import account_problems, misfits

_NO_ROOM = "More processors requested|Requested node configuration|step creation|Unable to"
"""srun's words where a job has no room for two ranks."""


def mpi(site: Site) -> Check:
    """Start two ranks by the cluster file's launcher; by mpiexec where that is srun outside a job."""
    launcher = site.cluster.launcher.format(gpus=2, nodes=1, ranks_per_node=2, cpus_per_rank=1)
    substituted = not site.in_job and Path(shlex.split(launcher)[0]).name == "srun"
    if substituted:
        launcher = "mpiexec -n 2"
    begin = shlex.split(launcher)
    if site.cluster.setup and not substituted:
        begin = ["bash", "-c", f'{shell_setup(site.cluster.setup)} exec "$@"', "bash", *begin]
    text = f"mpi4py {version('mpi4py')}, `{launcher}`"
    try:
        world = call(meet_ranks, begin=begin, **forking(1))
    except CommandFailed as error:
        if re.search(_NO_ROOM, str(error)):
            return warn(f"{text}: {error}", "again in a job with --ntasks=2 that does nothing else")
        fix = "launcher of the cluster file: a command of this machine"
        return fail(f"{text} starts no run: {error}", *SET_UP, fix)
    text += f" makes a world of {world['size']} ({world['library']})"
    if world["size"] != 2:
        return fail(
            f"{text}: ranks that do not find each other are refused",
            "launcher of the cluster file: srun --mpi=pmi2 …, or .venv/bin/mpiexec: the wheel's MPI "
            "speaks PMI-2",
        )
    return ok(f"{text}; srun can only be tried inside a job" if substituted else text)


def meet_ranks() -> dict[str, Any] | None:
    """The size of the world and the MPI library, on rank 0."""
    from mpi4py import MPI

    hosts = MPI.COMM_WORLD.gather(socket.gethostname(), root=0)
    library = " ".join(MPI.Get_library_version().splitlines()[0].split())
    return None if hosts is None else {"size": len(hosts), "library": library}


def folder(site: Site, name: str) -> Check | None:
    """Check that runs can write to a folder."""
    cluster = site.cluster
    path = {"work": cluster.work_root, "scratch": os.path.expandvars(cluster.scratch or "")}.get(
        name, name
    )
    if not path:
        return None
    if "$" in path:  # scratch
        bad = fail if site.in_job else warn
        return bad(f"{path}: is not set here", "scratch of the cluster file; the doctor in a job")
    tried = call(probe_folder, path)
    if tried["error"]:
        text = f"{path}: cannot be written to ({tried['error']}): no run can leave its results"
        return fail(text, f"ls -ld {tried['tried']}; quota", "another folder, in the cluster file")
    text = f"{path}: {tried['free_gib']:.0f} GiB free"
    text += "" if tried["exists"] else ", created when needed"
    if tried["free_gib"] < cluster.min_free_gib and name != "data":
        least = f"nothing is started with less than {cluster.min_free_gib:g} (min_free_gib)"
        return fail(f"{text}; {least}", f"du -sh {tried['tried']}/* | sort -h")
    return ok(text)


def probe_folder(folder: str) -> dict[str, Any]:
    """Write a file and delete it: {"exists", "tried", "error", "free_gib"}.

    Where the folder does not exist, the nearest one above it is tried, and nothing is created.
    """
    path = Path(folder).absolute()
    answer: dict[str, Any] = {"exists": None, "tried": str(path), "error": None}
    try:
        tried = next(above for above in (path, *path.parents) if above.exists())
        free_gib = shutil.disk_usage(tried).free / (1 << 30)
        answer |= {"exists": tried == path, "tried": str(tried), "free_gib": free_gib}
        try_writing(tried)
    except OSError as error:  # no permission, no space, a folder above that may not be searched
        answer["error"] = error.strerror or str(error)
    return answer


def slurm(site: Site) -> Check | None:
    """Check that Slurm takes jobs of each device, charged to an account that is set."""
    if not site.submits:
        return None
    if problems := account_problems(site.cluster.account):
        return fail("; ".join(problems))
    jobs = {
        device.name: asdict(probe_request(device, site.cluster, device.time_limit_min or 0))
        for device in site.cluster.devices.values()
    }
    refused, unclear = misfits(jobs.items())
    unanswered = next((text for text in unclear if text.startswith("not checked")), None)
    if unanswered:
        fix = "the login node of the cluster, or `module load slurm` (ask its support)"
        return fail(f"no job can be submitted from here: {unanswered}", fix)
    if refused:
        return fail(
            "; ".join(f"{', '.join(names)}: {problem}" for problem, names in refused.items()),
            "account, and devices.<name>: partition, gres, cpus_per_rank as `sinfo` shows them",
        )
    names = ", ".join(dict.fromkeys(job["slurm_partition"] for job in jobs.values()))
    text = f"takes jobs of each device: {names}, account {account_of(site.cluster) or 'by default'}"
    if site.in_job:
        return ok(text)
    return ok(f"{text}; sensors are this node's, runs go to others: run the doctor in a job, too")
