# What jobs ask Slurm for; nothing where no device of the cluster file has a partition.
from scalewatt.run_files.record import done_updates, no_further_try
from scalewatt.scheduling import job_request
from scalewatt.slurm.slurm_commands import RULES

# Only a cluster whose devices have partitions (all or none) is a Slurm cluster.
ON_SLURM = any(device.partition for device in CLUSTER.devices.values())
SUBMITS = ON_SLURM and not IN_JOB
ACCOUNT = (
    {"slurm_account": job_request.account_of(CLUSTER)}
    if ON_SLURM and CLUSTER.account
    else {}
)
# The next job goes on with what is there. Of a training each segment is a job, and a run that makes no progress
# ends before (end_of_retries). Inside of a job a retry would repeat it in the same allocation.
JOB_RETRIES = 2 if SUBMITS else 0
RUN_RETRIES = job_request.TRAINING_RETRIES + CLUSTER.crash_retries if SUBMITS else 0
# What a job asks for, in its message.
ASKED = (
    " (nodes × ranks × CPUs: {resources.nodes} × {resources.tasks_per_node}"
    " × {resources.cpus_per_task}; {resources.slurm_partition}; {resources.runtime} min)"
    if SUBMITS
    else ""
)


def end_of_retries(job):
    """Tell the executor why a job that has failed is not submitted again; None if it is."""
    if job.is_group() or job.rule.name not in RULES:
        return None
    work = Path(WORKS[job.wildcards.folder])
    try:
        return no_further_try(work, read_spec(job.input.spec), CLUSTER.crash_retries)
    except (OSError, InputError):  # a file system that fails just now
        return None


def training_job(wildcards):
    """Return what a run's next job asks for: the further its checkpoint, the less wall time.

    A job that would be refused by what the last has recorded only says so.
    """
    spec, work = spec_of(wildcards), Path(WORKS[wildcards.folder])
    known = CLUSTER.devices[spec.device], CLUSTER, done_updates(work, spec)
    request = job_request.training_request(spec, *known, RESULT_SET.upper_s(spec))
    is_refused = no_further_try(work, spec, CLUSTER.crash_retries)
    return job_request.refused_request(request) if is_refused else request


def probe_job(wildcards):
    """Return the request of a probe: a node with all its GPUs, as for a training that fills it."""
    device, minutes = CLUSTER.devices[wildcards.device], CAMPAIGN.idle_probe.job_minutes
    return job_request.probe_request(device, CLUSTER, minutes)


def slurm_resources_of(request):
    """Return the resources of a rule's jobs: what `request(wildcards)` asks Slurm for; none elsewhere.

    Inside a job nothing is asked for: what is left makes the jobstep start no srun of its own.
    """
    if not ON_SLURM:
        return {}
    return {"mpi": ""} if IN_JOB else job_request.slurm_resources(request)


def repeat_priority(wildcards):
    """Return the priority of a measured job: repeats one after another, so that day and node do not confound.

    A probe comes behind the trainings of its repeat.
    """
    return -2 * int(wildcards.repeat) - ("device" in wildcards.keys())
