# Datasets: from their sources to prepared folders.
#   in   the cluster's data roots and sources; nothing for the embedded datasets
#   out  datasets/<name>.json: what the prepared dataset is, without any path, so that moving the
#        data re-runs nothing; the data themselves are no outputs and are never deleted;
#        beside it what the preparation printed (.log) and took (.benchmark.tsv)
# ERA5 is prepared by jobs of one year each, or of era5_years_per_job of the cluster file
# (datasets/<name>/<year>.json or <first>-<last>.json), then its statistics are merged.
from scalewatt.campaign.campaign_types import is_made_here
from scalewatt.datasets.era5.channels import all_years
from scalewatt.datasets.era5.year_jobs import year_jobs, years_of_job
from scalewatt.datasets.prepared_check import is_staged, source_warning


def years_of(wildcards):
    """What the jobs of years leave, of a dataset that is prepared year by year."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    if definition["format"] != "era5" or is_made_here(definition):
        return []
    folder = Path(f"{RESULTS}/datasets/{wildcards.dataset}")
    done = [path.stem for path in folder.glob("*.json")]
    jobs = year_jobs(all_years(definition), CLUSTER.era5_years_per_job, done)
    return [f"{folder}/{job}.json" for job in jobs]


def number_of_years(wildcards):
    """How many years a job prepares, one process each."""
    definition = CAMPAIGN.datasets()[wildcards.dataset]
    return len(years_of_job(wildcards.year, all_years(definition)))


# Snakemake knows of prepared data only what it once noted: say so where they are gone or changed.
if not (workflow.remote_exec or RESULTS_ONLY or CLUSTER.simulates):
    for name, definition in CAMPAIGN.datasets().items():
        noted = Path(f"{RESULTS}/datasets/{name}.json").exists()
        if noted and not is_made_here(definition):
            folder = Path(CLUSTER.data_folder(definition))
            text = checked(source_warning, folder, CLUSTER.sources.get(name))
            if text:
                print(f"scalewatt: {text}", file=sys.stderr, flush=True)


def pack_option(wildcards):
    """Return `--pack` for images that nodes unpack to their own disks.

    Not in `params`: a change there would prepare the data again and so re-run all trainings. After
    adding `scratch`, prepare the data in a run of its own; a training asks for that before it begins.
    """
    images = CAMPAIGN.datasets()[wildcards.dataset]["format"] == "imagenet"
    return "--pack" if images and CLUSTER.scratch else ""


def check_packed_images():
    """Refuse to begin trainings whose nodes would find nothing to unpack."""
    from scalewatt.datasets.packed_tar import check_packed

    jobs = list(workflow.dag.needrun_jobs())
    prepared_now = {job.wildcards.dataset for job in jobs if job.rule.name == "dataset"}
    specs = [spec_of(job.wildcards) for job in jobs if job.rule.name == "train"]
    found = {
        spec.dataset["name"]: spec.dataset
        for spec in specs
        if is_staged(spec, CLUSTER.scratch)
    }
    for name in sorted(found.keys() - prepared_now):
        check_packed(CLUSTER.data_folder(found[name]))


rule dataset:
    input:
        years_of,
    output:
        f"{RESULTS}/datasets/{{dataset}}.json",
    log:
        f"{RESULTS}/datasets/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/datasets/{{dataset}}.benchmark.tsv"
    priority: 100
    retries: JOB_RETRIES
    conda:
        "../../envs/training.yaml"
    resources:
        **ACCOUNT,
        data_folder=lambda wildcards: CLUSTER.data_folder(
            CAMPAIGN.datasets()[wildcards.dataset]
        ),
        data_source=lambda wildcards: CLUSTER.source_text(wildcards.dataset),
        pack=pack_option,
        mem_mb=3000,
    params:
        definition=lambda wildcards: canonical(CAMPAIGN.datasets()[wildcards.dataset]),
    message:
        "prepare dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} --folder {resources.data_folder:q}"
        " --source={resources.data_source:q} {resources.pack} --out {output:q}"
        " 2>&1 | tee -i {log:q}"


rule era5_year:
    output:
        f"{RESULTS}/datasets/{{dataset}}/{{year}}.json",
    log:
        f"{RESULTS}/datasets/{{dataset}}/{{year}}.log",
    benchmark:
        f"{RESULTS}/datasets/{{dataset}}/{{year}}.benchmark.tsv"
    wildcard_constraints:
        year="[0-9]{4}(-[0-9]{4})?",
    priority: 100
    retries: JOB_RETRIES
    conda:
        "../../envs/training.yaml"
    threads: number_of_years
    resources:
        **ACCOUNT,
        data_folder=lambda wildcards: CLUSTER.data_folder(
            CAMPAIGN.datasets()[wildcards.dataset]
        ),
        data_source=lambda wildcards: CLUSTER.source_text(wildcards.dataset),
        mem_mb=lambda wildcards: 2500 * number_of_years(wildcards),
    params:
        definition=lambda wildcards: canonical(CAMPAIGN.datasets()[wildcards.dataset]),
    message:
        "prepare {wildcards.year} of dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} --folder {resources.data_folder:q}"
        " --source={resources.data_source:q} --year {wildcards.year} --processes {threads}"
        " --out {output:q}"
        " 2>&1 | tee -i {log:q}"


for format_ in ("imagenet", "era5"):

    rule:
        name:
            f"prepare_{format_}"
        input:
            [
                f"{RESULTS}/datasets/{name}.json"
                for name, definition in CAMPAIGN.datasets().items()
                if definition["format"] == format_
            ],
