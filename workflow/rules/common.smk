# What all rules share: the cluster (Snakemake's config), the campaign, its results, and their paths.
#
# A job on a cluster parses this again when it starts, perhaps after the campaign was edited:
# it reads the run's definition from its spec.json.
import json
import os
import re
import shlex
import sys
import uuid
from functools import cache
from pathlib import Path

from scalewatt.campaign.cluster import parse_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PACKAGE, find_file
from scalewatt.common.python_variables import shell_setup
from scalewatt.common.yaml_files import read_yaml
from scalewatt.run_files.record import STARTED_BY
from scalewatt.targets import versions
from scalewatt.targets.obstacles import check_campaign, obstacle
from scalewatt.targets.result_set import ResultSet


def say(sentence):
    """Print a sentence of ours among Snakemake's."""
    print(f"scalewatt: {sentence}", file=sys.stderr, flush=True)


def refuse(message):
    """End Snakemake before anything starts, with one message."""
    say(f"error: {message}")
    raise SystemExit(1)


def checked(function, *arguments):
    """Call a function; an input error ends Snakemake with its message alone."""
    try:
        return function(*arguments)
    except InputError as error:
        refuse(error)


# Pictures go to files: a display's backend, or an unknown one, is of no use.
os.environ.pop("MPLBACKEND", None)
IN_JOB = workflow.remote_exec

if not workflow.configfiles:  # no profile, and no --configfile: this machine

    configfile: "config.yaml"


# scalewatt's commands run with the Python that runs Snakemake, activated or not; with --sdm conda, with the
# one of the rule's environment, which has the packages, and with the code from here.
WITH_CONDA = "conda" in map(str, workflow.deployment_settings.deployment_method)
PYTHON = "python" if WITH_CONDA else shlex.quote(sys.executable)
PATHS = f"export PYTHONPATH={shlex.quote(str(PACKAGE.parent))}; " if WITH_CONDA else ""
shell.prefix(
    f'set -euo pipefail; {PATHS}scalewatt() {{{{ {PYTHON} -P -m scalewatt.cli "$@"; }}}}; '
)

# --- the cluster, the campaign and its results ----------------------------------------------------

CLUSTER_FILE = " ".join(map(os.path.relpath, workflow.configfiles))
if not IN_JOB:
    # Jobs inherit it: by it a run's record knows which tries are this Snakemake's.
    os.environ[STARTED_BY] = uuid.uuid4().hex
    # Snakemake reads 1:30:00 as 5400, and of a key given twice the last.
    for path in workflow.configfiles:
        checked(read_yaml, os.path.relpath(path))
OPTIONS = " with --config" if workflow.config_settings.config else ""
CLUSTER = checked(parse_cluster, config, f"{CLUSTER_FILE or 'the profile'}{OPTIONS}")
CAMPAIGN = checked(load_campaign, CLUSTER.campaign, CLUSTER)
# A job on a cluster makes no table: it does not read what is left out of them.
RESULT_SET = checked(ResultSet.load, CAMPAIGN, CLUSTER, not IN_JOB)
CLUSTER, RESULTS_ONLY = RESULT_SET.cluster, RESULT_SET.finished_only
FIGURES = RESULT_SET.figures

# --- paths ----------------------------------------------------------------------------------------

RESULTS = RESULT_SET.folder
# One run, repeated by the target `reproduce`, has the same files in a folder of its own.
AGAIN = f"{RESULTS}/reproduction"
LOGS = f"{RESULTS}/logs"
WORK = f"{CLUSTER.work_root}/{CAMPAIGN.name}"
WORKS = {RESULTS: WORK, AGAIN: f"{WORK}.reproduce"}
if not IN_JOB:
    for sentence in checked(check_campaign, RESULT_SET, CLUSTER_FILE):
        say(sentence)
# Written before the first job; no input, so that a change of the machine makes no finished run again, and
# among the logs, so that no archive takes it: it has paths.
CLUSTER_JSON = f"{LOGS}/cluster.json"
SETUP = shell_setup(CLUSTER.setup)
RUN = "{folder}/runs/{configuration}/{repeat}"
FILES_OF_RUN = {
    "history": f"{RUN}/history.parquet",
    "events": f"{RUN}/events.parquet",
    "perun": directory(f"{RUN}/perun"),
    "log": f"{RUN}/train.log",
    "provenance": f"{RUN}/provenance.json",
}
# With results_only nothing is made of the campaign but tables and figures.
MADE_IN = [AGAIN] if RESULTS_ONLY and not IN_JOB else [RESULTS, AGAIN]
FOLDER_OF_RUNS = "|".join(map(re.escape, MADE_IN))


wildcard_constraints:
    folder=f"{re.escape(RESULTS)}|{re.escape(AGAIN)}",
    configuration=r"[a-z0-9][A-Za-z0-9._-]*",
    repeat=r"[1-9][0-9]*",
    dataset=r"[^/.][^/]*",
    year="[0-9]{4}",
    device="[^/]+",
