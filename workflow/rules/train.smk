# Trainings: one job is one segment of a run, under perun.
#   in   spec.json (which alone says what the run is), the prepared dataset, initial weights
#   out  the run folder: perun/ (one HDF5 per segment, journals), history, events, provenance, log
# On Slurm a segment that stopped at a checkpoint, or crashed, is followed by another job: these are
# the profile's `retries`, which all other rules overrule (docs/slurm.md).
import atexit
import shlex

from scalewatt.campaign.external_command import command_models
from scalewatt.run_files.progress_files import done_updates
from scalewatt.run_files.run_inventory import published_run
from scalewatt.scheduling.preflight import check_before_submission
from scalewatt.scheduling.job_request import training_request
from scalewatt.tracking.budget import budgeted_submissions
from scalewatt.tracking.changed_files import changed_files
from scalewatt.tracking.remeasure import (
    Place,
    ToTrain,
    set_replaced_aside,
    trained_again,
)
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


PLACE = Place(CAMPAIGN, CLUSTER, Path(RESULTS), Path(WORK))

if not workflow.remote_exec:
    for sentence in checked(changed_files, CAMPAIGN, Path(RESULTS), Path(WORK)):
        print(f"scalewatt: {sentence}", file=sys.stderr, flush=True)


def trainings():
    """Return the runs that this call trains."""
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))
    prepared = {job.wildcards.dataset for job in jobs if job.rule.name == "dataset"}
    settings = workflow.dag_settings
    targets = settings.targets if settings.forcetargets else ()
    forced = {os.path.normpath(target) for target in (*settings.forcerun, *targets)}
    return [
        ToTrain(
            (job.wildcards.configuration, int(job.wildcards.repeat)),
            job.rule in workflow.dag.forcerules or not forced.isdisjoint(job.output),
            spec_of(job.wildcards).dataset["name"] in prepared,
        )
        for job in jobs
        if job.rule.name in ("train", "train_command")
    ]


def say_replaced(trained, replaced):
    """Say how many trainings replace finished runs, why, and where the earlier measurements are."""
    if replaced:
        print(
            f"scalewatt: trainings that replace finished runs: {len(replaced)} of {len(trained)}"
            f" ({', '.join(sorted({why for _, why in replaced}))}); what these have measured is kept"
            f" in {RESULTS}/superseded",
            file=sys.stderr,
            flush=True,
        )


# With -n Snakemake calls no hook.
@atexit.register
def say_what_would_be_replaced():
    """Say of a dry run which finished runs would be measured again."""
    if workflow.dryrun and workflow.dag is not None and not workflow.remote_exec:
        trained = trainings()
        say_replaced(trained, trained_again(PLACE, trained))


def check_before_jobs():
    """Refuse what could not be submitted, written or measured, before the first job starts.

    Then set aside what finished runs have measured that are measured again: Snakemake would delete it.
    """
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
    trained = trainings()
    replaced = trained_again(PLACE, trained)
    if not workflow.touch:
        checked(set_replaced_aside, PLACE, replaced)
        say_replaced(trained, replaced)


def own_spec(wildcards):
    """Return a run's spec.json. Its time alone, as of a copy, never re-trains a finished run of this spec."""
    path = Path(RUN.format(**wildcards), "spec.json")
    found = published_run(path.parent, wildcards.configuration, int(wildcards.repeat))
    is_same = found is not None and found.spec_sha256 == spec_of(wildcards).sha256
    return ancient(str(path)) if is_same else str(path)


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
        spec=own_spec,
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
        spec=own_spec,
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
