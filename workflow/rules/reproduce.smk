# Whether the results can be reproduced: the manifest, which records what they were; one run that is
# repeated; and the page that says what differs.
#   in   tables/, figures/; of the run that is repeated its spec, dataset and initial weights
#   out  manifest.json; reproduction/{runs,energy,traces}/ (one run more, which belongs to no table),
#        reproduction/index.html and reproduction.json
# Nothing of the campaign itself is an input or an output of it but the manifest: `reproduce` compares
# what is there with it, and rebuilds nothing.
import shlex
import subprocess

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.run_files.progress_files import done_updates
from scalewatt.scheduling.job_request import training_request
from scalewatt.scheduling.submissions import Submissions
from scalewatt.reproduction.run_selection import choose_run, weights_of
from scalewatt.targets.result_set import came_with

MANIFEST = f"{RESULTS}/manifest.json"
AGAIN = f"{RESULTS}/reproduction"
RUN_AGAIN = f"{AGAIN}/runs/{{configuration}}/{{repeat}}"
ENERGY_AGAIN = f"{AGAIN}/energy/{{configuration}}/{{repeat}}"
TRACES_AGAIN = f"{AGAIN}/traces/{{configuration}}/{{repeat}}.parquet"
# Beside the campaign's own, whose working directories have the same names; the same lock holds the node.
WORK_AGAIN = f"{WORK}.reproduce"
# What this machine is; CLUSTER may also have the devices of runs that were made elsewhere.
OWN_CLUSTER = checked(parse_cluster, config, CLUSTER_FILE)
# The executor asks it, as SUBMISSIONS of the runs themselves. The energy is in no budget.
SUBMISSIONS_AGAIN = Submissions(Path(WORK_AGAIN), OWN_CLUSTER.crash_retries)


# What an imported campaign came with is compared with the manifest that it came with.
if not (CAMPAIGN.imported and came_with([MANIFEST])):

    rule manifest:
        input:
            rules.figures.input,
            TABLE1,
            rules.tables.input,
            RESULT_SET.claims_files,
            PLANNED,
            PREDICTED,
            rules.run_pages.input,
            IDLE_TABLE,
        output:
            MANIFEST,
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        message:
            "manifest of tables and figures"
        shell:
            "scalewatt manifest --results {RESULTS:q} > /dev/null"


# --- one run, repeated ------------------------------------------------------------------------------


def again_dataset(wildcards):
    """The prepared dataset, in a file of its own: the campaign's would train all runs again."""
    spec = recorded_spec(wildcards)
    return (
        [] if is_command_spec(spec) else f"{AGAIN}/datasets/{spec.dataset['name']}.json"
    )


def again_weights(wildcards):
    """The weights that it starts from. They are there: as an input they might be trained again."""
    weights = checked(weights_of, Path(RESULTS), recorded_spec(wildcards))
    return f"--initial-weights {shlex.quote(str(weights))}" if weights else ""


def training_again(wildcards):
    """What its next job asks for, as that of the run itself."""
    spec = recorded_spec(wildcards)
    device = OWN_CLUSTER.devices[spec.device]
    done = done_updates(Path(WORK_AGAIN), spec)
    return training_request(spec, device, OWN_CLUSTER, done, upper_s(spec))


# What the run is: that of the one that is there, whatever the campaign has become.
use rule spec as spec_again with:
    output:
        f"{RUN_AGAIN}/spec.json",
    wildcard_constraints:
        configuration=ANY,
    params:
        text=lambda wildcards: recorded_spec(wildcards).text,
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}, to repeat it"


if CLUSTER.simulates:

    rule run_again:
        input:
            spec=f"{RUN_AGAIN}/spec.json",
            model=scaling_model,
            published=str(shipped("reference/published_results.csv")),
            code=code_of("scaling.simulation.simulate_run"),
        output:
            multiext(f"{RUN_AGAIN}/", "history.parquet", "events.parquet", "train.log"),
            perun=directory(f"{RUN_AGAIN}/perun"),
            provenance=f"{RUN_AGAIN}/provenance.json",
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        message:
            "simulate {wildcards.configuration} repeat {wildcards.repeat} again"
        shell:
            "scalewatt simulate {input.spec:q} --cluster {CLUSTER_JSON:q} --model {input.model:q}"

else:

    use rule dataset as dataset_again with:
        input:
            [],
        output:
            f"{AGAIN}/datasets/{{dataset}}.json",
        log:
            f"{AGAIN}/datasets/{{dataset}}.log",
        benchmark:
            f"{AGAIN}/datasets/{{dataset}}.benchmark.tsv"

    # Once it is published its working directory is of no use: `-R run_again` asks for another
    # training, not for the same results.
    rule run_again:
        input:
            spec=f"{RUN_AGAIN}/spec.json",
            dataset=again_dataset,
        output:
            multiext(f"{RUN_AGAIN}/", "history.parquet", "events.parquet", "train.log"),
            perun=directory(f"{RUN_AGAIN}/perun"),
            provenance=f"{RUN_AGAIN}/provenance.json",
        conda:
            "../../envs/training.yaml"
        resources:
            **requested(training_again),
        params:
            weights=again_weights,
        message:
            "train {wildcards.configuration} repeat {wildcards.repeat} again" + ASKED
        shell:
            "{SETUP} scalewatt train {input.spec:q} --cluster {CLUSTER_JSON:q} --work {WORK_AGAIN:q}"
            " {params.weights} --out $(dirname {output.provenance:q})"
            " && rm -rf {WORK_AGAIN:q}/{wildcards.configuration:q}-{wildcards.repeat:q}-????????????-*"


use rule energy as energy_again with:
    input:
        spec=f"{RUN_AGAIN}/spec.json",
        events=f"{RUN_AGAIN}/events.parquet",
        perun=f"{RUN_AGAIN}/perun",
        provenance=f"{RUN_AGAIN}/provenance.json",
        code=ENERGY_CODE,
    output:
        traces=TRACES_AGAIN,
        energy=f"{ENERGY_AGAIN}.parquet",
        beside=multiext(ENERGY_AGAIN, *ENERGY_BESIDE),
    wildcard_constraints:
        configuration=ANY,
    params:
        powers=lambda wildcards: canonical(
            powers(OWN_CLUSTER.devices[recorded_spec(wildcards).device])
        ),
    message:
        "energy of {wildcards.configuration} repeat {wildcards.repeat}, repeated"


# --- the page ---------------------------------------------------------------------------------------


def again_files(wildcards):
    """The files of the run that is repeated; none if none can be: the page says why."""
    if not Path(MANIFEST).exists():
        refuse(
            f"{MANIFEST}: does not exist, so there is nothing to compare results with; make them first"
            " (snakemake all), or import an archive of them"
        )
    run = checked(choose_run, CAMPAIGN, OWN_CLUSTER, Path(RESULTS)).run
    if run is None:
        return []
    place = dict(zip(("configuration", "repeat"), run))
    return [
        path.format(**place)
        for path in (f"{RUN_AGAIN}/history.parquet", f"{ENERGY_AGAIN}.parquet")
    ]


# It has no output, so that it runs whenever it is asked for, and the page stays if it fails.
rule reproduce:
    input:
        again_files,
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
    message:
        "compare environment, files and the repeated run with what was recorded"
    shell:
        "scalewatt reproduce --cluster {CLUSTER_JSON:q} --campaign {params.campaign:q}"
        " --results $(dirname {RESULTS:q})"


# If the run cannot be repeated, the page says so, with all other checks. Snakemake knows one onerror
# only; it has none in a job.
onerror:
    asked = [job for job in workflow.dag.jobs if job.rule.name == "reproduce"]
    files = [path for job in asked for path in job.input]
    if not all(Path(path).exists() for path in files):
        folders = (
            f"--campaign={CAMPAIGN.path}",
            f"--results={Path(RESULTS).parent}",
        )
        failed = "/".join(Path(files[0]).parts[-3:-1])
        command = [sys.executable, "-m", "scalewatt.cli", "reproduce", *folders]
        subprocess.run(
            [*command, f"--cluster={CLUSTER_JSON}", f"--run-failed={failed}"],
            check=False,
        )
    elif asked:
        page = f"{AGAIN}/index.html"
        print(f"scalewatt: what differs is above and in {page}", file=sys.stderr)
