# Trainings: one job is one segment of a run, under perun.
#   in   spec.json (which alone says what the run is), the prepared dataset, initial weights
#   out  the run folder: perun/ (one HDF5 per segment, journals), history, events, provenance, log


rule spec:
    output:
        f"{RUN}/spec.json",
    priority: 100
    localrule: True
    params:
        text=lambda wildcards: spec_text(spec_of(wildcards)),
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "printf '%s\\n' {params.text:q} > {output:q}"


def initial_weights(wildcards):
    source = spec_of(wildcards)["initial_weights"]
    if source is None:
        return []
    return f"{RESULTS}/runs/{source['configuration']}/{source['repeat']}/weights.pt"


def device_of(wildcards):
    return CLUSTER.devices[spec_of(wildcards)["device"]]


# Geometry of a job; only a cluster whose devices have partitions is a Slurm cluster.
TRAIN_RESOURCES = {}
if all(device.partition for device in CLUSTER.devices.values()):
    TRAIN_RESOURCES = {
        "slurm_partition": lambda wildcards: device_of(wildcards).partition,
        "nodes": lambda wildcards: spec_of(wildcards)["nodes"],
        "tasks_per_node": lambda wildcards: spec_of(wildcards)["ranks_per_node"],
        "cpus_per_task": lambda wildcards: device_of(wildcards).cpus_per_rank,
        # All GPUs of a node, because nodes are exclusive.
        "gres": lambda wildcards: (
            f"{device_of(wildcards).gres}:{device_of(wildcards).gpus_per_node}"
        ),
        "runtime": lambda wildcards: device_of(wildcards).time_limit_min,
        "mem_mb": lambda wildcards: device_of(wildcards).memory_mb,
        # With this resource the rule itself calls the launcher; one rank needs none.
        "mpi": lambda wildcards: "srun" if spec_of(wildcards)["gpus"] > 1 else "",
    }


# Runs of commands have no weights and no dataset of ours. No model is named "-".
COMMANDS = command_models(
    CAMPAIGN, Path(RESULTS, "runs") if workflow.remote_exec else None
)
COMMANDS = f"(?:{'|'.join(sorted(COMMANDS)) or '-'})-"


rule train:
    input:
        spec=f"{RUN}/spec.json",
        dataset=lambda wildcards: f"{RESULTS}/datasets/{spec_of(wildcards)['dataset']['name']}.json",
        weights=initial_weights,
    output:
        history=f"{RUN}/history.parquet",
        events=f"{RUN}/events.parquet",
        weights=f"{RUN}/weights.pt",
        perun=directory(f"{RUN}/perun"),
        log=f"{RUN}/train.log",
        provenance=f"{RUN}/provenance.json",
    wildcard_constraints:
        configuration=rf"(?!{COMMANDS})[a-z0-9][A-Za-z0-9._-]*",
    resources:
        **TRAIN_RESOURCES,
    params:
        weights=lambda wildcards, input: (
            f"--initial-weights {input.weights}" if input.weights else ""
        ),
    message:
        "train {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "{SETUP} scalewatt train {input.spec:q} --cluster {CLUSTER_JSON:q}"
        " --work {WORK:q} {params.weights} --out $(dirname {output.provenance:q})"


# Always there: a job that waited in a cluster's queue names it, whatever the campaign has become.
use rule train as train_command with:
    input:
        spec=f"{RUN}/spec.json",
    output:
        history=f"{RUN}/history.parquet",
        events=f"{RUN}/events.parquet",
        perun=directory(f"{RUN}/perun"),
        log=f"{RUN}/train.log",
        provenance=f"{RUN}/provenance.json",
    wildcard_constraints:
        configuration=rf"(?={COMMANDS})[a-z0-9][A-Za-z0-9._-]*",
    params:
        weights="",
