# What all rules share: the cluster (Snakemake's config), the campaign, and the paths.
#
# A job on a cluster parses this again when it starts, perhaps after the campaign was edited:
# it reads the run's definition from its spec.json.
import json
import os
import re
import shlex
import sys
import uuid
from functools import cache, partial
from pathlib import Path

from scalewatt.campaign.cluster import known_devices, parse_cluster
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.campaign.external_command import check_commands
from scalewatt.campaign.load import check_devices, is_results_only, load_campaign
from scalewatt.campaign.registered_campaign import facility_cluster, registered_devices
from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.python_variables import shell_setup
from scalewatt.common.project_files import PACKAGE, shipped
from scalewatt.common.yaml_files import read_yaml
from scalewatt.run_files.inventory import missed_by_notes
from scalewatt.run_files.record import STARTED_BY
from scalewatt.scheduling.job_request import check_requests
from scalewatt.targets import versions
from scalewatt.targets.obstacles import (
    all_obstacle,
    idle_obstacle,
    notices,
    plan_obstacle,
    prediction_obstacle,
)
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


# Pictures go to files: a display's backend, or an unknown one, is of no use.
os.environ.pop("MPLBACKEND", None)


if not workflow.configfiles:  # no profile, and no --configfile: this machine

    configfile: "config.yaml"


# --- scalewatt's commands -------------------------------------------------------------------------

# They run with the Python that runs Snakemake, activated or not; with --sdm conda, with the one of the
# rule's environment, which has the packages, and with the code from here.
WITH_CONDA = "conda" in map(str, workflow.deployment_settings.deployment_method)
PYTHON = "python" if WITH_CONDA else shlex.quote(sys.executable)
PATHS = f"export PYTHONPATH={shlex.quote(str(PACKAGE.parent))}; " if WITH_CONDA else ""
shell.prefix(
    f'set -euo pipefail; {PATHS}scalewatt() {{{{ {PYTHON} -P -m scalewatt.cli "$@"; }}}}; '
)

# Jobs inherit it: by it a run's record knows which tries are this Snakemake's.
if not workflow.remote_exec:
    os.environ[STARTED_BY] = uuid.uuid4().hex

# --- the campaign and the cluster -----------------------------------------------------------------

CLUSTER_FILE = " ".join(map(os.path.relpath, workflow.configfiles))
if not workflow.remote_exec:
    # Snakemake reads 1:30:00 as 5400, and of a key given twice the last.
    for path in workflow.configfiles:
        checked(read_yaml, os.path.relpath(path))
OPTIONS = " with --config" if workflow.config_settings.config else ""
CLUSTER = checked(parse_cluster, config, f"{CLUSTER_FILE or 'the profile'}{OPTIONS}")
CAMPAIGN = checked(load_campaign, CLUSTER.campaign, CLUSTER)
DEVICES = checked(known_devices, CLUSTER)
RESULTS_ONLY = is_results_only(CAMPAIGN, CLUSTER)
TRAINS = not RESULTS_ONLY and not CLUSTER.simulates
if CAMPAIGN.registered:  # runs made elsewhere, on any device: nothing is trained
    DEVICES = registered_devices(CAMPAIGN, CLUSTER)


@cache
def scaling_model():
    """Return the cluster's scaling model; None if the cluster file names none."""
    if CLUSTER.scaling_model is None:
        return None
    # Only here: what reads models is imported where one is named.
    from scalewatt.scaling.predict import read_model

    return checked(read_model, CLUSTER.scaling_model)


def scaling_model_file(wildcards):
    """Return the file of the cluster's scaling model, as an input, wherever it was found."""
    return scaling_model().path if scaling_model() else []


def upper_s(spec):
    """Return an upper bound of a run's time in s by the scaling model; None if unknown."""
    return scaling_model() and scaling_model().upper_runtime_s(spec)


if not RESULTS_ONLY and not workflow.remote_exec:
    checked(check_devices, CAMPAIGN, CLUSTER)
    checked(check_requests, CAMPAIGN, CLUSTER, CLUSTER_FILE, upper_s)
    checked(check_commands, CAMPAIGN)
CLUSTER = facility_cluster(CAMPAIGN, CLUSTER)

# --- results and work -----------------------------------------------------------------------------

RESULTS = f"results/{CAMPAIGN.name}"
# One run, repeated by the target `reproduce`, has the same files in a folder of its own.
AGAIN = f"{RESULTS}/reproduction"
RUN = "{folder}/runs/{configuration}/{repeat}"
LOGS = f"{RESULTS}/logs"
WORK = f"{CLUSTER.work_root}/{CAMPAIGN.name}"
# Next to the campaign's own, whose working directories have the same names.
WORKS = {RESULTS: WORK, AGAIN: f"{WORK}.reproduce"}
# Written before the first job; no input, so that a change of the machine makes no finished run again, and
# among the logs, so that no archive takes it: it has paths.
CLUSTER_JSON = f"{LOGS}/cluster.json"
MANIFEST = [f"{RESULTS}/SHA256SUMS", f"{RESULTS}/manifest.json"]
SETUP = shell_setup(CLUSTER.setup)

# What is left out of the tables. A job on a cluster makes none: it does not read the list.
EXCLUSIONS = [] if workflow.remote_exec else checked(read_exclusions, CAMPAIGN)
EXCLUSIONS = [row for row in EXCLUSIONS if CAMPAIGN.has_run(*row.run)]
RESULT_SET = ResultSet(
    CAMPAIGN,
    CLUSTER,
    DEVICES,
    RESULTS_ONLY,
    excluded_runs(EXCLUSIONS, Path(RESULTS), finished=RESULTS_ONLY),
    missed_by_notes(Path(RESULTS)),
)
ALL_RUNS = RESULT_SET.runs()

if not workflow.remote_exec:
    for notice in notices(RESULT_SET, CLUSTER_FILE):
        print(f"scalewatt: {notice}", file=sys.stderr, flush=True)


FOLDER = f"{re.escape(RESULTS)}|{re.escape(AGAIN)}"
# With results_only nothing is made of the campaign but tables and figures.
FOLDER_OF_RUNS = AGAIN if RESULTS_ONLY and not workflow.remote_exec else FOLDER


wildcard_constraints:
    folder=FOLDER,
    configuration=r"[a-z0-9][A-Za-z0-9._-]*",
    repeat=r"[1-9][0-9]*",
    dataset=r"[^/.][^/]*",


def spec_of(wildcards):
    """Return the spec of the wildcards' run.

    In a cluster's job, or if the finished run is repeated, it is read from the run's spec.json.
    """
    id_, repeat = wildcards.configuration, int(wildcards.repeat)
    is_campaigns = wildcards.folder == RESULTS and id_ in CAMPAIGN.configurations
    if is_campaigns and not workflow.remote_exec:
        return run_spec(CAMPAIGN, id_, repeat)
    path = RUN.format(folder=RESULTS, configuration=id_, repeat=repeat)
    return read_spec(f"{path}/spec.json")


def available(obstacle, files):
    """Return an input function: the files, or none if there is an obstacle (scalewatt.targets)."""
    return lambda wildcards: [] if obstacle() else files


def required(obstacle, files):
    """Return a target's input function: the files; an obstacle ends Snakemake with its message."""
    return lambda wildcards: refuse(obstacle()) if obstacle() else files
