# What rules take: functions of wildcards to inputs, params and resources.
import shlex
from dataclasses import asdict

from scalewatt.campaign.cluster import basis, is_made_here, powers
from scalewatt.campaign.exclusions import remeasured_runs
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.campaign_file import all_years
from scalewatt.report.definition import report_definition
from scalewatt.reproduction.run_choice import choose_run, initial_weights_path
from scalewatt.run_files.inventory import published_run
from scalewatt.run_files.record import done_updates, no_further_try
from scalewatt.scheduling.job_request import (
    probe_request,
    refused_request,
    training_request,
)
from scalewatt.targets.obstacles import figure_obstacle

# --- datasets -------------------------------------------------------------------------------------


def dataset_definition(wildcards):
    """Return what a dataset is, as JSON: the same text for equal values."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    return json.dumps(definition, sort_keys=True, separators=(",", ":"))


def years_of_dataset(wildcards):
    """Return the descriptions of the years of a dataset that is prepared year by year."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    is_repeated = wildcards.folder == AGAIN
    if is_repeated or definition["format"] != "era5" or is_made_here(definition):
        return []
    return [
        f"{RESULTS}/datasets/{wildcards.dataset}/{year}.json"
        for year in all_years(definition)
    ]


def pack_option(wildcards):
    """Return `--pack` for images that nodes unpack to their own disks.

    After adding `scratch`, prepare the data in a run of its own; a training asks for that before it
    begins.
    """
    images = CAMPAIGN.datasets()[wildcards.dataset]["format"] == "imagenet"
    return "--pack" if images and CLUSTER.scratch else ""


def datasets_of_format(format_):
    """Return the descriptions of the campaign's datasets of a format."""
    return [
        f"{RESULTS}/datasets/{name}.json"
        for name, definition in CAMPAIGN.datasets().items()
        if definition["format"] == format_
    ]


# --- runs -----------------------------------------------------------------------------------------


def spec_of_training(wildcards):
    """Return a run's spec.json. Its time alone, as of a copy, never re-trains a finished run of this spec."""
    path = Path(RUN.format(**wildcards), "spec.json")
    run = published_run(path.parent, wildcards.configuration, int(wildcards.repeat))
    is_same = run is not None and run.spec_sha256 == spec_of(wildcards).sha256
    return ancient(str(path)) if is_same else str(path)


def dataset_of_training(wildcards):
    """Return the description of a run's dataset; none for a command, which has its own data."""
    spec = spec_of(wildcards)
    if is_command_spec(spec):
        return []
    return f"{wildcards.folder}/datasets/{spec.dataset['name']}.json"


def file_of_initial_weights(wildcards):
    """Return the weights that a run starts from.

    A change of its spec changes this run's spec. A newer time alone, as of weights re-trained after
    `scalewatt remeasure`, never re-trains a finished run. For a run that is repeated they are no input:
    they might be trained again.
    """
    source = spec_of(wildcards).initial_weights
    if source is None or wildcards.folder == AGAIN:
        return []
    run = {"configuration": source.configuration, "repeat": source.repeat}
    return ancient(f"{RUN.format(folder=RESULTS, **run)}/weights.pt")


def initial_weights(wildcards, input):
    """Return the option for the weights that a run starts from."""
    path = input.get("initial")
    if wildcards.folder == AGAIN:
        path = checked(initial_weights_path, Path(RESULTS), spec_of(wildcards))
    return f"--initial-weights {shlex.quote(str(path))}" if path else ""


def training_options(wildcards):
    """Return where a run is trained, and the budget that it counts against."""
    budget = BUDGET if wildcards.folder == RESULTS else ""
    return f"--work {shlex.quote(WORKS[wildcards.folder])} {budget}"


def training_job(wildcards):
    """Return what a run's next job asks for: the further its checkpoint, the less wall time.

    A job that would be refused by what the last has recorded only says so.
    """
    spec, work = spec_of(wildcards), Path(WORKS[wildcards.folder])
    device, done = CLUSTER.devices[spec.device], done_updates(work, spec)
    request = training_request(spec, device, CLUSTER, done, upper_s(spec))
    is_refused = no_further_try(work, spec, CLUSTER.crash_retries)
    return refused_request(request) if is_refused else request


def simulation_settings(wildcards):
    """Return what of the cluster file decides a configuration's simulations."""
    return config["devices"][spec_of(wildcards).device]


def rated_powers(wildcards):
    """Return the powers that a run's energy is estimated from where nothing was measured."""
    devices = CLUSTER.devices if wildcards.folder == AGAIN else DEVICES
    return powers(devices[spec_of(wildcards).device])


def probe_job(wildcards):
    """Return the request of a probe: a node with all its GPUs, as for a training that fills it."""
    device = CLUSTER.devices[wildcards.device]
    return probe_request(device, CLUSTER, CAMPAIGN.idle_probe.job_minutes)


# --- tables, figures, report ----------------------------------------------------------------------


def files_of_figure(name):
    """Return the input of a figure's target: its files, or the reason why they cannot be made."""
    obstacle = partial(figure_obstacle, RESULT_SET, name)
    return required(obstacle, RESULT_SET.figure_files(name))


def plan_content(wildcards):
    """Return all that a plan depends on."""
    from scalewatt.scaling.plan import plan_definition  # with pyarrow

    return plan_definition(CAMPAIGN, CLUSTER)


def report_content(wildcards):
    """Return what the report is about beyond its tables: the campaign, and the cluster's facts.

    As values of Python's types: of others Snakemake does not see that they change.
    """
    devices = [DEVICES[name] for name in sorted(CAMPAIGN.devices())]
    left_out = [f"{sentence}." for sentence in CAMPAIGN.left_out]
    facts = left_out + basis(CLUSTER, devices)
    remeasured = remeasured_runs(EXCLUSIONS)
    return asdict(report_definition(CAMPAIGN, CLUSTER, facts, remeasured))


# --- a run that is repeated -----------------------------------------------------------------------


def files_of_rerun(wildcards):
    """Return the files of the run that is repeated; none if none can be: the findings say why."""
    if not Path(MANIFEST[0]).exists():
        refuse(
            f"{MANIFEST[0]}: does not exist, so there is nothing to compare results with; make them first"
            " (snakemake all), or import an archive of them"
        )
    run, _ = checked(choose_run, CAMPAIGN, CLUSTER, Path(RESULTS))
    if run is None:
        return []
    name = "/".join(map(str, run))
    return [f"{AGAIN}/runs/{name}/history.parquet", f"{AGAIN}/energy/{name}.parquet"]
