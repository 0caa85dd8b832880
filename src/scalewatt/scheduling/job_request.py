"""What a job asks the scheduler for, from a run's spec and the cluster file."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError

STARTUP_MIN = 15
"""Until the first update: imports on all nodes, rendezvous, staging."""
ROUNDING_MIN = 10
TRAINING_RETRIES = 50
"""How often a run's job is submitted again at most, if `reason_to_end` does not end it before."""
NICE_PER_REPEAT = 100
"""Each repeat waits behind the one before it, in Slurm's queue too."""

UpperS = Callable[[RunSpec], float | None]
"""Upper bound of a run's time in s by the scaling model; None if unknown."""
Request = dict[str, Any]
"""A job's resources by the names (RESOURCES) of Snakemake's Slurm executor; None: unset."""
RESOURCES = (
    *("slurm_partition", "slurm_account", "nodes", "tasks_per_node", "tasks", "gres"),
    *("cpus_per_task", "mem_mb", "runtime", "held_gpus", "slurm_extra", "mpi"),
)


def training_request(
    spec: RunSpec,
    device: Device,
    cluster: Cluster,
    done_updates: int = 0,
    upper_s: float | None = None,
) -> Request:
    """What the next segment of a run asks for; `upper_s` as in `wall_time_min`."""
    minutes = wall_time_min(spec, device, done_updates, cluster.stop_warning_s, upper_s)
    options = [
        # Without "B:", so that it reaches the ranks and not only the batch shell.
        f"--signal=USR1@{cluster.stop_warning_s}",
        *([f"--nice={NICE_PER_REPEAT * (spec.repeat - 1)}"] if spec.repeat > 1 else []),
        # A lost node's job is submitted again: Slurm itself would start it a second time.
        "--requeue" if cluster.requeue else "--no-requeue",
        "--open-mode=append",
    ]
    return _request(device, cluster, spec.nodes, spec.ranks_per_node, minutes, options)


def refused_request(request: Request) -> Request:
    """What a job asks for that only says why its run is not tried again: one node for a minute."""
    tasks = request["tasks"] and request["tasks_per_node"]
    return {**request, "nodes": 1, "tasks": tasks, "runtime": 1, "held_gpus": 0}


def probe_request(device: Device, cluster: Cluster, minutes: int) -> Request:
    """What an idle probe asks for: one node with all its GPUs, as a training that fills it."""
    if device.time_limit_min is not None and minutes > device.time_limit_min:
        raise InputError(
            f"the idle probe of {device.name}: takes {minutes} min with its start and end, but "
            f"devices.{device.name}.time_limit_min is {device.time_limit_min}; allowed: a shorter "
            "idle_probe.seconds"
        )
    return _request(device, cluster, 1, device.probe_ranks, minutes)


def _request(
    device: Device,
    cluster: Cluster,
    nodes: int,
    ranks_per_node: int,
    minutes: int,
    options: Iterable[str] = (),
) -> Request:
    assert device.partition is not None  # of all devices of a cluster where jobs are submitted
    excluded = [f"--exclude={','.join(cluster.exclude_nodes)}"] if cluster.exclude_nodes else []
    # All GPUs of a node, because nodes are exclusive.
    gres = f"{device.gres}:{device.gpus_per_node}" if device.gres else None
    extra = [f"--ntasks-per-node={ranks_per_node}", "--exclusive", *excluded, *options]
    return {
        "slurm_partition": device.partition,
        "slurm_account": account_of(cluster),
        "nodes": nodes,
        "tasks_per_node": ranks_per_node,
        # Without GPUs the executor asks for one task if it is not told how many.
        "tasks": None if gres is not None and "gpu" in gres else nodes * ranks_per_node,
        "cpus_per_task": device.cpus_per_rank,
        "gres": gres,
        "mem_mb": device.memory_mb,
        "runtime": minutes,
        # That nobody else can use meanwhile: nodes are exclusive.
        "held_gpus": nodes * device.gpus_per_node,
        "slurm_extra": shlex.join(extra),
        # The job's shell starts the ranks itself, and the executor does not refuse one rank per node.
        "mpi": "",
    }


def account_of(cluster: Cluster) -> str | None:
    """Account to charge; environment variables that are not set stay as they are written."""
    return None if cluster.account is None else os.path.expandvars(cluster.account)


# --- times ----------------------------------------------------------------------------------------


def wall_time_min(
    spec: RunSpec,
    device: Device,
    done_updates: int = 0,
    stop_warning_s: int = 600,
    upper_s: float | None = None,
) -> int:
    """Wall time in minutes that a run's next job asks for.

    STARTUP_MIN + the time that the remaining updates need at most + the warning before the end,
    rounded up to ROUNDING_MIN, and never above the device's limit. At least one epoch counts as
    remaining. An update needs at most its part of `upper_s`, an upper bound of the whole run's time
    by the scaling model; without that, or if the number of updates is unknown, the limit is asked for.
    InputError if less than an epoch fits into the limit.
    """
    limit, warning_min = device.time_limit_min, stop_warning_s / 60
    assert limit is not None  # as of all devices of a cluster where jobs are submitted
    where = f"devices.{device.name}.time_limit_min is {limit}"
    where = f"{spec.configuration}: this run cannot make progress: {where}"
    if warning_min >= limit:
        raise InputError(f"{where}; allowed: longer than stop_warning_s ({warning_min:g} min)")
    if upper_s is None or not spec.updates or spec.updates_per_epoch is None:
        return limit
    update_min = upper_s / spec.updates / 60
    epoch_min = spec.updates_per_epoch * update_min
    if (least_min := STARTUP_MIN + epoch_min + warning_min) > limit:
        raise InputError(
            f"{where}, but one epoch needs about {math.ceil(least_min)} min ({STARTUP_MIN} start-up, "
            f"{epoch_min:.0f} by the scaling model, {warning_min:g} stop_warning_s); allowed: a longer "
            "limit, or more GPUs or fewer samples for the run"
        )
    remaining = max(spec.updates - done_updates, spec.updates_per_epoch)
    needed_min = STARTUP_MIN + remaining * update_min + warning_min
    return min(limit, ROUNDING_MIN * math.ceil(needed_min / ROUNDING_MIN))


def usable_s(device: Device, stop_warning_s: int = 600) -> float:
    """How long a job trains at most: from STARTUP_MIN after its start to `stop_warning_s` before its end.

    InputError if nothing is left of the device's wall-time limit.
    """
    assert device.time_limit_min is not None
    usable = 60.0 * (device.time_limit_min - STARTUP_MIN) - stop_warning_s
    if usable <= 0:
        raise InputError(
            f"devices.{device.name}.time_limit_min is {device.time_limit_min}: start-up "
            f"({STARTUP_MIN} min) and stop_warning_s ({stop_warning_s / 60:g} min) leave no time to "
            "train; allowed: a longer limit or a shorter warning"
        )
    return usable


def check_requests(
    campaign: Campaign,
    cluster: Cluster,
    where: str = "cluster file",
    upper_s: UpperS = lambda _: None,
) -> None:
    """Raise InputError if a job of the campaign could not run on the cluster, before anything starts.

    Only devices with a partition are asked for jobs. `where` names the cluster file, `upper_s` is the
    upper bound of a spec's run time by the scaling model.
    """
    devices = {name: cluster.devices[name] for name in sorted(campaign.devices())}
    devices = {name: device for name, device in devices.items() if device.partition is not None}
    try:
        for id_, configuration in campaign.configurations.items():
            if device := devices.get(configuration.device):
                spec = run_spec(campaign, id_, 1)
                training_request(spec, device, cluster, upper_s=upper_s(spec))
        if (probe := campaign.idle_probe) is not None:
            for device in devices.values():
                probe_request(device, cluster, probe.job_minutes)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def slurm_resources(request: Callable[[Any], Request]) -> dict[str, Callable[..., Any]]:
    """A rule's resources by name: functions of `wildcards` and `attempt`.

    `request(wildcards)` says what a job asks for. It is asked once for each attempt of a job.
    """
    known: dict[tuple[Any, ...], Request] = {}

    def resource(name: str) -> Callable[..., Any]:
        def value(wildcards: Any, attempt: int) -> Any:
            key = (*wildcards, attempt)
            if key not in known:
                known[key] = request(wildcards)
            return known[key][name]

        return value

    return {name: resource(name) for name in RESOURCES}
