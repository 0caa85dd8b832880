# Trainings: one job is one segment of a run, under perun.
#   in   spec.json (which alone says what the run is), the prepared dataset, initial weights
#   out  the run folder: perun/ (one HDF5 per segment, journals), history, events, provenance, log
# On Slurm a segment that stopped at a checkpoint, or crashed, is followed by another job: these are
# the profile's `retries`, which all other rules overrule (docs/slurm.md).
import shlex

from scalewatt.campaign.external_command import command_models
from scalewatt.run_files.progress_files import done_updates
from scalewatt.scheduling.preflight import check_before_submission
from scalewatt.scheduling.job_request import training_request
from scalewatt.tracking.budget import budgeted_submissions
from scalewatt.scaling.planning.forecast import energy_by

# The executor asks it whether a run may be submitted, and is worth another job.
SUBMISSIONS = budgeted_submissions(
    CAMPAIGN.whole,
    CLUSTER.devices,
    Path(RESULTS),
    Path(WORK),
    CLUSTER.crash_retries,
    energy_by(CLUSTER.scaling_model),
)
# Without a scheduler each training asks for itself.
BUDGET = (
    f"--budget-of {shlex.quote(str(CAMPAIGN.path))}"
    if CAMPAIGN.energy_budget_kwh is not None and not ON_SLURM
    else ""
)


# What writes much. All else needs nothing but the results, wherever they were copied to.
DEMANDING = (
    *("dataset", "dataset_again", "era5_year", "probe"),
    *("train", "train_command", "run_again"),
)


def check_before_jobs():
    """Refuse what could not be submitted, written or measured, before the first job starts."""
    jobs = list(workflow.dag.needrun_jobs())
    scheduled = [
        (job.message or job.rule.name, job.resources)
        for job in jobs
        if not (workflow.local_exec or job.is_local)
    ]
    demanding = any(job.rule.name in DEMANDING for job in jobs)
    checked(
        check_before_submission,
        scheduled,
        CLUSTER,
        CLUSTER_FILE,
        [WORK, RESULTS, ".snakemake"] if demanding else [RESULTS],
        CLUSTER.min_free_gib if demanding else 0,
    )
    if CLUSTER.scratch:
        checked(check_packed_images)


def initial_weights(wildcards):
    """Return the weights that a run starts from.

    A change of their spec changes this run's spec. A newer time alone, as of weights re-trained after
    `scalewatt remeasure`, never re-trains a finished run.
    """
    source = spec_of(wildcards).initial_weights
    if source is None:
        return []
    return ancient(f"{RESULTS}/runs/{source.configuration}/{source.repeat}/weights.pt")


def training(wildcards):
    """Return the request of a run's next job: the further its checkpoint, the less wall time."""
    spec = spec_of(wildcards)
    done = done_updates(Path(WORK), spec)
    device = CLUSTER.devices[spec.device]
    return training_request(spec, device, CLUSTER, done, upper_s(spec))


TRAIN_RESOURCES = requested(training)


# Runs of commands have no weights and no dataset of ours. No model is named "-".
COMMANDS = command_models(
    CAMPAIGN, Path(RESULTS, "runs") if workflow.remote_exec else None
)
COMMANDS = f"(?:{'|'.join(sorted(COMMANDS)) or '-'})-"


rule train:
    input:
        spec=f"{RUN}/spec.json",
        dataset=lambda wildcards: f"{RESULTS}/datasets/{spec_of(wildcards).dataset['name']}.json",
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
    priority: turn
    conda:
        "../../envs/training.yaml"
    resources:
        **TRAIN_RESOURCES,
    params:
        weights=lambda wildcards, input: (
            f"--initial-weights {input.weights}" if input.weights else ""
        ),
    message:
        "train {wildcards.configuration} repeat {wildcards.repeat}" + ASKED
    shell:
        "{SETUP} scalewatt train {input.spec:q} --cluster {CLUSTER_JSON:q}"
        " --work {WORK:q} {BUDGET} {params.weights} --out $(dirname {output.provenance:q})"


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
