# What every rule shares: the cluster (Snakemake's config), the campaign, and the paths.
#
# A job on a cluster parses this again when it starts, perhaps after the campaign was edited:
# what a run is, it looks up in the run's spec.json.
import json
import os
import re
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

from scalewatt.campaign.cluster import (
    basis,
    is_results_only,
    known_devices,
    parse_cluster,
    powers,
)
from scalewatt.campaign.external_command import check_commands, command_models
from scalewatt.campaign.table_requests import runs_definition, table_definition
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.campaign.imported_campaign import with_imported
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import read_spec, run_spec, spec_text
from scalewatt.common.errors import InputError
from scalewatt.common.imported_modules import modules_behind
from scalewatt.scheduling.job_request import (
    RESOURCES,
    account_of,
    as_resources,
    check_requests,
)
from scalewatt.campaign.exclusions import (
    excluded_runs,
    read_exclusions,
    remeasured_runs,
)
from scalewatt.run_files.run_inventory import set_aside_notes


def refuse(message):
    """End Snakemake before anything starts, with one message."""
    print(f"scalewatt: error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def checked(load, *arguments):
    """Call `load`; an input error ends Snakemake with its message alone."""
    try:
        return load(*arguments)
    except InputError as error:
        refuse(error)


if not config:
    refuse(
        "no cluster is configured: give a profile, e.g. snakemake --profile profiles/local"
    )

CLUSTER_FILE = " ".join(map(os.path.relpath, workflow.configfiles))
CLUSTER = checked(parse_cluster, config, CLUSTER_FILE or "cluster file of the profile")
CAMPAIGN = checked(load_campaign, CLUSTER.campaign, CLUSTER)
CLUSTER = with_imported(CAMPAIGN, CLUSTER)
DEVICES = checked(known_devices, CLUSTER)
RESULTS_ONLY = is_results_only(CAMPAIGN, CLUSTER)
if CAMPAIGN.registered:  # runs made elsewhere, on any device: nothing is trained
    DEVICES = registered_devices(CAMPAIGN, CLUSTER)


@cache
def forecaster():
    """What the cluster's scaling model says of runs; None where the cluster file names none."""
    if CLUSTER.scaling_model is None:
        return None
    # Only here: what reads models is imported where one is named.
    from scalewatt.scaling.planning.forecast import forecaster_of

    return checked(forecaster_of, CLUSTER.scaling_model)


def scaling_model():
    """The file of the cluster's scaling model, as an input, wherever it was found; none without one."""
    return str(forecaster().model.path) if forecaster() else []


def upper_s(spec):
    """Upper bound of a run's time in s by the scaling model; None where it does not know it."""
    return forecaster() and forecaster().upper_runtime_s(spec)


if not RESULTS_ONLY and not workflow.remote_exec:
    checked(check_devices, CAMPAIGN, CLUSTER)
    checked(check_requests, CAMPAIGN, CLUSTER, CLUSTER_FILE, upper_s)
    checked(check_commands, CAMPAIGN)
CLUSTER = facility_cluster(CAMPAIGN, CLUSTER)

RESULTS = f"results/{CAMPAIGN.name}"
# What is left out of the tables. A job on a cluster makes none: it does not read the list.
EXCLUSIONS = [] if workflow.remote_exec else checked(read_exclusions, CAMPAIGN)
EXCLUDED = excluded_runs(EXCLUSIONS, Path(RESULTS), finished=RESULTS_ONLY)
REMEASURED = remeasured_runs(EXCLUSIONS)
SET_ASIDE = set_aside_notes(Path(RESULTS))
RUN = f"{RESULTS}/runs/{{configuration}}/{{repeat}}"
CLUSTER_JSON = json.dumps(dict(config), sort_keys=True)
WORK = f"{CLUSTER.work_root}/{CAMPAIGN.name}"
SETUP = "".join(f"{command} && " for command in CLUSTER.setup)
# Only a cluster whose devices have partitions (all or none) is a Slurm cluster.
ON_SLURM = any(device.partition for device in CLUSTER.devices.values())
# Of a job that is no training: the next goes on with what is there. Not within one job.
JOB_RETRIES = 2 if ON_SLURM and not workflow.remote_exec else 0
ACCOUNT = {"slurm_account": account_of(CLUSTER)} if ON_SLURM and CLUSTER.account else {}


wildcard_constraints:
    configuration=r"[a-z0-9][A-Za-z0-9._-]*",
    repeat=r"[1-9][0-9]*",
    dataset=r"[A-Za-z0-9_-]+",
    number=r"[1-7]",


def canonical(value):
    """One text for one value, for params."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def spec_of(wildcards):
    """What the run of the wildcards is: in a cluster's job, what its spec.json says."""
    path = (
        RUN.format(configuration=wildcards.configuration, repeat=wildcards.repeat)
        + "/spec.json"
    )
    if workflow.remote_exec or wildcards.configuration not in CAMPAIGN.configurations:
        return read_spec(path)
    return run_spec(CAMPAIGN, wildcards.configuration, int(wildcards.repeat))


def requested(request):
    """Resources of a rule's jobs: what `request(wildcards)` asks Slurm for; none elsewhere.

    Each attempt asks anew. Inside a job nothing is asked for: what is left says that the jobstep is
    to start no srun of its own.
    """
    if not ON_SLURM:
        return {}
    if workflow.remote_exec:
        return {"mpi": ""}
    known = {}

    def resource(name):
        def value(wildcards, attempt):
            key = (*wildcards, attempt)
            if key not in known:
                known[key] = as_resources(request(wildcards))
            return known[key][name]

        return value

    return {name: resource(name) for name in RESOURCES}


# What `requested` asks for, in the words of a job's message; nothing where nothing is asked.
ASKED = (
    " (nodes × ranks × CPUs: {resources.nodes} × {resources.tasks_per_node}"
    " × {resources.cpus_per_task}; {resources.slurm_partition}; {resources.runtime} min)"
    if ON_SLURM and not workflow.remote_exec
    else ""
)


def turn(wildcards, last=False):
    """Priority of a measured job: repeats one after another, so that day and node do not confound.

    What is `last` comes behind the others of its repeat.
    """
    return -2 * int(wildcards.repeat) - int(last)


def is_finished(configuration, repeat):
    """Whether the run's results are there; the provenance is written last."""
    return Path(
        RUN.format(configuration=configuration, repeat=repeat), "provenance.json"
    ).exists()


def runs_of(configurations):
    """[configuration, repeat] of all runs; with results_only, of the finished ones."""
    runs = [
        [id_, r] for id_ in configurations for r in range(1, CAMPAIGN.repeats[id_] + 1)
    ]
    return [run for run in runs if is_finished(*run)] if RESULTS_ONLY else runs


def say_that_nothing_is_trained():
    """That it is so by itself, because the cluster has none of the devices: nobody asked for it."""
    asked = CLUSTER.results_only or CAMPAIGN.registered or CAMPAIGN.imported
    if RESULTS_ONLY and not asked and not workflow.remote_exec:
        finished = len(runs_of(CAMPAIGN.configurations))
        print(
            f"scalewatt: {CLUSTER_FILE}: has no device of {CAMPAIGN.path}"
            f" ({', '.join(sorted(CAMPAIGN.devices()))}), so nothing is trained;"
            f" finished runs: {finished} of {sum(CAMPAIGN.repeats.values())}",
            file=sys.stderr,
            flush=True,
        )


say_that_nothing_is_trained()


def repeats_together():
    """[rule's suffix, repeats, pattern of configurations]: those whose repeats one job makes.

    Only of simulations, where starting a program takes longer than what it does.
    """
    own = {}
    for id_ in CAMPAIGN.configurations if CLUSTER.simulates else []:
        repeats = tuple(repeat for _, repeat in runs_of([id_]))
        own.setdefault(repeats, []).append(id_)
    return [
        ("_".join(map(str, repeats)), repeats, "|".join(map(re.escape, ids)))
        for repeats, ids in own.items()
        if repeats
    ]


def of_repeats(repeats, *patterns):
    """Files of all repeats; `patterns` with {configuration}, which stays, and {repeat}."""
    return [
        pattern.replace("{repeat}", str(repeat))
        for repeat in repeats
        for pattern in patterns
    ]


def files_of(runs, *names):
    """Files of runs below the results folder; `names` as patterns of configuration and repeat.

    And the notes of earlier measurements that were set aside: Snakemake alone does not miss a run
    whose tables are there.
    """
    files = [
        f"{RESULTS}/" + name.format(configuration=configuration, repeat=repeat)
        for configuration, repeat in runs
        for name in names
    ]
    return files + [str(note) for run in runs for note in SET_ASIDE.get(tuple(run), [])]


def came_with(files):
    """Files that an imported campaign came with, all of `files` or none: it cannot make them."""
    return files if all(Path(path).exists() for path in files) else []


def code_of(*modules):
    """Modules of the package that a rule's numbers come from: a change of them makes it run again."""
    return [os.path.relpath(path) for path in modules_behind(*modules)]


ROW_FILES = (
    "runs/{configuration}/{repeat}/spec.json",
    "runs/{configuration}/{repeat}/history.parquet",
    "runs/{configuration}/{repeat}/provenance.json",
    "energy/{configuration}/{repeat}.parquet",
    "energy/{configuration}/{repeat}.flags.parquet",
)


def facility():
    """PUE, carbon and price of the cluster, where it names them."""
    from scalewatt.results.tables.derived_quantities import facility_of  # with pyarrow

    given = asdict(facility_of(CLUSTER))
    return {name: value for name, value in given.items() if value is not None}
