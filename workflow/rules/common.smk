# What every rule shares: the cluster (Snakemake's config), the campaign, and the paths.
#
# A job on a cluster parses this again when it starts, perhaps after the campaign was edited:
# it reads the run's definition from its spec.json.
import json
import os
import sys
from functools import cache, partial
from pathlib import Path

from scalewatt.campaign.cluster import (
    carbon_file,
    check_options,
    is_results_only,
    known_devices,
    parse_cluster,
)
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.campaign.external_command import check_commands
from scalewatt.campaign.imported_campaign import with_imported
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.imported_modules import modules_behind
from scalewatt.common.python_variables import shell_setup
from scalewatt.common.schema_validation import PACKAGE, shipped
from scalewatt.common.yaml_files import read_yaml
from scalewatt.run_files.run_inventory import missed_by_notes
from scalewatt.scheduling.job_request import check_requests
from scalewatt.targets.obstacles import all_obstacle, notices
from scalewatt.targets.result_set import ResultSet


def refuse(message):
    """End Snakemake before anything starts, with one message."""
    print(f"scalewatt: error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def checked(function, *arguments):
    """Call a function; an input error ends Snakemake with its message alone."""
    try:
        return function(*arguments)
    except InputError as error:
        refuse(error)


for folder in (Path(workflow.basedir), Path.cwd()):
    # Snakemake formats the paths of files beside the Snakefile.
    if set("{}") & set(str(folder)):
        refuse(f"{folder}: has a brace in its path; allowed: folders without {{ and }}")
if not config:
    refuse(
        "no cluster is configured: give a profile, e.g. snakemake --profile profiles/local"
    )

# --- the campaign and the cluster -----------------------------------------------------------------

CLUSTER_FILE = " ".join(map(os.path.relpath, workflow.configfiles))
if not workflow.remote_exec:
    # Snakemake reads 1:30:00 as 5400, and of a key given twice the last.
    for path in workflow.configfiles:
        checked(read_yaml, os.path.relpath(path))
    checked(check_options, workflow.config_settings.config)
CLUSTER = checked(parse_cluster, config, CLUSTER_FILE or "cluster file of the profile")
CAMPAIGN = checked(load_campaign, CLUSTER.campaign, CLUSTER)
CLUSTER = with_imported(CAMPAIGN, CLUSTER)
DEVICES = checked(known_devices, CLUSTER)
RESULTS_ONLY = is_results_only(CAMPAIGN, CLUSTER)
if CAMPAIGN.registered:  # runs made elsewhere, on any device: nothing is trained
    DEVICES = registered_devices(CAMPAIGN, CLUSTER)


@cache
def forecaster():
    """Return the forecaster of the cluster's scaling model; None if the cluster file names none."""
    if CLUSTER.scaling_model is None:
        return None
    # Only here: what reads models is imported where one is named.
    from scalewatt.scaling.planning.forecast import forecaster_of

    return checked(forecaster_of, CLUSTER.scaling_model)


def scaling_model(wildcards):
    """Return the file of the cluster's scaling model, as an input, wherever it was found."""
    return str(forecaster().model.path) if forecaster() else []


def upper_s(spec):
    """Return an upper bound of a run's time in s by the scaling model; None if unknown."""
    return forecaster() and forecaster().upper_runtime_s(spec)


if not RESULTS_ONLY and not workflow.remote_exec:
    checked(check_devices, CAMPAIGN, CLUSTER)
    checked(check_requests, CAMPAIGN, CLUSTER, CLUSTER_FILE, upper_s)
    checked(check_commands, CAMPAIGN)
CLUSTER = facility_cluster(CAMPAIGN, CLUSTER)

# --- results and work -----------------------------------------------------------------------------

RESULTS = f"results/{CAMPAIGN.name}"
RUN = f"{RESULTS}/runs/{{configuration}}/{{repeat}}"
WORK = f"{CLUSTER.work_root}/{CAMPAIGN.name}"
CLUSTER_JSON = json.dumps(dict(config), sort_keys=True)
SETUP = shell_setup(CLUSTER.setup)

# What is left out of the tables. A job on a cluster makes none: it does not read the list.
EXCLUSIONS = [] if workflow.remote_exec else checked(read_exclusions, CAMPAIGN)
EXCLUSIONS = [one for one in EXCLUSIONS if CAMPAIGN.has_run(*one.run)]
RESULT_SET = ResultSet(
    CAMPAIGN,
    CLUSTER,
    DEVICES,
    RESULTS_ONLY,
    excluded_runs(EXCLUSIONS, Path(RESULTS), finished=RESULTS_ONLY),
    missed_by_notes(Path(RESULTS)),
)
ALL_RUNS = RESULT_SET.runs()

# An imported campaign came with what the file says of its runs.
CARBON_FILE = None
if RESULT_SET.has_carbon and not CAMPAIGN.imported:
    CARBON_FILE = carbon_file(CLUSTER)
    if not workflow.remote_exec:
        # Only here: what reads it is imported where there is one.
        from scalewatt.results.carbon.intensity_files import read_intensity

        checked(read_intensity, CARBON_FILE)

if not workflow.remote_exec:
    for notice in notices(RESULT_SET, CLUSTER_FILE):
        print(f"scalewatt: {notice}", file=sys.stderr, flush=True)


# A checkout's own code, by a relative path; else that of the installed package.
CODE = Path("src/scalewatt") if Path("src/scalewatt").is_dir() else PACKAGE

ANY = r"[a-z0-9][A-Za-z0-9._-]*"
NONE = "(?!)"


wildcard_constraints:
    configuration=ANY,
    repeat=r"[1-9][0-9]*",
    dataset=r"[^/.][^/]*",


def canonical(value):
    """Return the same text for equal values, for params."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def spec_of(wildcards):
    """Return the spec of the wildcards' run; in a cluster's job, from its spec.json."""
    if workflow.remote_exec or wildcards.configuration not in CAMPAIGN.configurations:
        return recorded_spec(wildcards)
    return run_spec(CAMPAIGN, wildcards.configuration, int(wildcards.repeat))


def recorded_spec(wildcards):
    """Read the spec of the wildcards' run from its spec.json."""
    run = {"configuration": wildcards.configuration, "repeat": wildcards.repeat}
    return read_spec(RUN.format(**run) + "/spec.json")


def code_of(*modules, beside=()):
    """Return the newest of the files that a rule's numbers come from: a change of one re-runs it.

    These are modules with all that they import, and files `beside` them. To Snakemake, each file of
    each job costs time; an older one says nothing that the newest does not.
    """
    files = [*modules_behind(*modules, package=CODE), *beside]
    return [str(max(files, key=lambda file: (file.stat().st_mtime_ns, file)))]


def available(obstacle, files):
    """Return an input function: the files, or none if there is an obstacle (scalewatt.targets)."""
    return lambda wildcards: [] if obstacle() else files


def required(obstacle, files):
    """Return a target's input function: the files; an obstacle ends Snakemake with its message."""
    return lambda wildcards: refuse(obstacle()) if obstacle() else files
