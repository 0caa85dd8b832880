# What rules take: functions of wildcards to inputs, params and resources.
from scalewatt.campaign.campaign_file import all_years
from scalewatt.campaign.cluster import is_made_here
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.operating_points import lever_commands
from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.reproduction.run_choice import choose_run, initial_weights_path
from scalewatt.run_files.inventory import (
    is_of_campaign,
    json_object,
    published_run,
)
from scalewatt.targets.changes import note_change

# --- datasets -------------------------------------------------------------------------------------


def dataset_definition(wildcards):
    """Return what a dataset is, as JSON: the same text for equal values."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    return json.dumps(definition, sort_keys=True, separators=(",", ":"))


def dataset_options(wildcards):
    """Return from what to where a dataset is prepared, and which part: a year, or all.

    All of ImageNet is packed too if nodes unpack it to their own disks.
    """
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    source = CLUSTER.sources.get(wildcards.dataset, "")
    options = ["--folder", CLUSTER.data_folder(definition), f"--source={source}"]
    if "year" in wildcards.keys():
        options += ["--year", wildcards.year]
    elif definition["format"] == "imagenet" and CLUSTER.scratch:
        options.append("--pack")
    return shlex.join(options)


def years_of_dataset(wildcards):
    """Return the descriptions of the years of a dataset that is prepared year by year."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    is_by_year = definition["format"] == "era5" and not is_made_here(definition)
    years = all_years(definition) if is_by_year and wildcards.folder == RESULTS else []
    return expand(f"{RESULTS}/datasets/{wildcards.dataset}/{{year}}.json", year=years)


# --- runs -----------------------------------------------------------------------------------------


def run_of(wildcards):
    """Return the configuration and the repeat of a run."""
    return wildcards.configuration, int(wildcards.repeat)


def finished_run(wildcards):
    """Return a run as its folder has it; None if it is not finished."""
    return published_run(Path(RUN.format(**wildcards)), *run_of(wildcards))


def spec_of(wildcards):
    """Return a run's spec: in a job, or if a finished run is repeated, that of its spec.json."""
    id_, repeat = run_of(wildcards)
    is_campaigns = wildcards.folder == RESULTS and id_ in CAMPAIGN.configurations
    if is_campaigns and not IN_JOB:
        return run_spec(CAMPAIGN, id_, repeat)
    return read_spec(f"{RESULTS}/runs/{id_}/{repeat}/spec.json")


def change_of_spec(wildcards):
    """Return a note newer than a run's spec.json if that is of other settings; none where Snakemake runs a job."""
    path = Path(RUN.format(**wildcards), "spec.json")
    if IN_JOB or wildcards.folder != RESULTS or not path.exists():
        return []
    if is_of_campaign(CAMPAIGN, RESULTS, run_of(wildcards)):
        return []
    name = f"{wildcards.configuration}-{wildcards.repeat}"
    asked = spec_of(wildcards).as_json()
    return note_change(Path(RESULTS), name, json_object(path), asked)


def spec_of_training(wildcards):
    """Return a run's spec.json; its time alone, as of a copy, never re-trains a finished run of this spec."""
    path = f"{RUN}/spec.json".format(**wildcards)
    run = finished_run(wildcards)
    is_same = run is not None and run.spec_sha256 == spec_of(wildcards).sha256
    return ancient(path) if is_same else path


PREPARING = {"dataset", "era5_year", "prepare_imagenet", "prepare_era5"}


def dataset_of_training(wildcards):
    """Return the description of a run's dataset; none for a command, which reads its own data.

    Its time alone, as of a copy, never re-trains a finished run of these data, unless they are asked to be
    prepared again.
    """
    spec = spec_of(wildcards)
    if is_command_spec(spec):
        return []
    path = f"{wildcards.folder}/datasets/{spec.dataset['name']}.json"
    settings = workflow.dag_settings
    if settings and (
        settings.forceall or {*PREPARING, path} & {*map(str, settings.forcerun)}
    ):
        return path
    run = finished_run(wildcards)
    content = json_object(Path(path)).get("content_sha256")
    is_same = run is not None and content is not None and run.dataset_sha256 == content
    return ancient(path) if is_same else path


def path_of_initial_weights(wildcards):
    """Return the path of the weights that a run starts from; None if it starts from none."""
    return checked(initial_weights_path, Path(RESULTS), spec_of(wildcards))


def file_of_initial_weights(wildcards):
    """Return the weights that a run starts from: whose newer time alone never re-trains a finished run.

    For a run that is repeated they are no input: they might be trained again.
    """
    path = wildcards.folder == RESULTS and path_of_initial_weights(wildcards)
    return ancient(str(path)) if path else []


def initial_weights(wildcards):
    """Return the option for the weights that a run starts from."""
    path = path_of_initial_weights(wildcards)
    return f"--initial-weights {shlex.quote(str(path))}" if path else ""


def training_options(wildcards):
    """Return where a run is trained, and the budget that it counts against."""
    options = ["--work", WORKS[wildcards.folder]]
    if CAMPAIGN.energy_budget_kwh is not None and wildcards.folder == RESULTS:
        options += ["--budget-of", str(CAMPAIGN.path)]
    return shlex.join(options)


def levers_of_training(wildcards):
    """Return the commands that set a run's clocks and power limits, where the launcher does not."""
    return lever_commands(spec_of(wildcards).operating_point, CLUSTER.levers)


def plan_content(wildcards):
    """Return all that a plan depends on."""
    from scalewatt.scaling.plan import plan_definition  # with pyarrow

    return plan_definition(CAMPAIGN, CLUSTER)


# --- targets --------------------------------------------------------------------------------------


@cache
def obstacle_to(target):
    """Return why a target cannot be made; None if it can."""
    return obstacle(RESULT_SET, target, CLUSTER_FILE)


def required(target, files):
    """Return a target's input function: its files; an obstacle ends Snakemake with its message."""
    return lambda wildcards: refuse(text) if (text := obstacle_to(target)) else files


def files_of_rerun(wildcards):
    """Return the files of the run that is repeated; none if none can be: the findings say why."""
    if not Path(MANIFEST[0]).exists():
        refuse(
            f"{MANIFEST[0]}: does not exist, so there is nothing to compare results with; make them first"
            " (snakemake all), or import an archive of them"
        )
    run, _ = checked(choose_run, CAMPAIGN, CLUSTER, Path(RESULTS))
    kinds = ("runs/{0}/{1}/history.parquet", "energy/{0}/{1}.parquet")
    return [f"{AGAIN}/{kind.format(*run)}" for kind in kinds] if run else []
