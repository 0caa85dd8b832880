# What jobs ask Slurm for; nothing where no device of the cluster file has a partition.
from scalewatt.scheduling.job_request import account_of, slurm_resources

# Only a cluster whose devices have partitions (all or none) is a Slurm cluster.
ON_SLURM = any(device.partition for device in CLUSTER.devices.values())
# Of a job that is no training: the next goes on with what is there. Not within one job.
JOB_RETRIES = 2 if ON_SLURM and not workflow.remote_exec else 0
ACCOUNT = {"slurm_account": account_of(CLUSTER)} if ON_SLURM and CLUSTER.account else {}
# What `requested` asks for, in a job's message; nothing where nothing is asked.
ASKED = (
    " (nodes × ranks × CPUs: {resources.nodes} × {resources.tasks_per_node}"
    " × {resources.cpus_per_task}; {resources.slurm_partition}; {resources.runtime} min)"
    if ON_SLURM and not workflow.remote_exec
    else ""
)


def requested(request):
    """Resources of a rule's jobs: what `request(wildcards)` asks Slurm for; none elsewhere.

    Inside a job nothing is asked for: what is left makes the jobstep start no srun of its own.
    """
    if not ON_SLURM:
        return {}
    return {"mpi": ""} if workflow.remote_exec else slurm_resources(request)


def turn(wildcards, last=False):
    """Priority of a measured job: repeats one after another, so that day and node do not confound.

    What is `last` comes behind the others of its repeat.
    """
    return -2 * int(wildcards.repeat) - int(last)
