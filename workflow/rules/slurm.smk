# What jobs ask Slurm for; nothing where no device of the cluster file has a partition.
from scalewatt.common.errors import InputError
from scalewatt.scheduling.job_request import (
    TRAINING_RETRIES,
    account_of,
    slurm_resources,
)
from scalewatt.run_files.record import no_further_try
from scalewatt.slurm.job_queue import RULES

# Only a cluster whose devices have partitions (all or none) is a Slurm cluster.
ON_SLURM = any(device.partition for device in CLUSTER.devices.values())
SUBMITS = ON_SLURM and not workflow.remote_exec
# The next job goes on with what is there. Of a training each segment is a job; inside of a job there are
# no retries, which would repeat it in the same allocation.
JOB_RETRIES = 2 if SUBMITS else 0
RUN_RETRIES = TRAINING_RETRIES if SUBMITS else 0
ACCOUNT = {"slurm_account": account_of(CLUSTER)} if ON_SLURM and CLUSTER.account else {}
# What a job asks for, in its message.
ASKED = (
    " (nodes × ranks × CPUs: {resources.nodes} × {resources.tasks_per_node}"
    " × {resources.cpus_per_task}; {resources.slurm_partition}; {resources.runtime} min)"
    if SUBMITS
    else ""
)

BUDGET = (
    f"--budget-of {shlex.quote(str(CAMPAIGN.path))}"
    if CAMPAIGN.energy_budget_kwh is not None
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


def slurm_resources_of(request):
    """Return the resources of a rule's jobs: what `request(wildcards)` asks Slurm for; none elsewhere.

    Inside a job nothing is asked for: what is left makes the jobstep start no srun of its own.
    """
    if not ON_SLURM:
        return {}
    return {"mpi": ""} if workflow.remote_exec else slurm_resources(request)


def repeat_priority(wildcards):
    """Return the priority of a measured job: repeats one after another, so that day and node do not confound.

    A probe comes behind the trainings of its repeat.
    """
    return -2 * int(wildcards.repeat)
