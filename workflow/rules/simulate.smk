# Simulations in place of trainings, where the cluster file says `mode: simulate`.
#   in   spec.json (which alone says what the run is), the scaling model
#   out  the run folder as a training leaves it, without weights: perun/ (one HDF5 per segment,
#        journals), history, events, log, provenance;
#        and the energies and traces that rule `energy` makes elsewhere
# One job simulates all repeats of a configuration, and one accounts for their energy: starting a
# program takes longer than what it does. So there is a rule for each set of repeats.
import re

from scalewatt.scheduling.preflight import check_before_submission
from scalewatt.scaling.simulation.simulated_run import check_simulations

if not workflow.remote_exec:
    checked(check_simulations, CAMPAIGN, CLUSTER, forecaster().model)


def check_before_jobs():
    """Refuse what could not be written, before the first simulation starts."""
    if any(
        job.rule.name.startswith("simulate_") for job in workflow.dag.needrun_jobs()
    ):
        folders = [RESULTS, ".snakemake"]
        checked(
            check_before_submission,
            [],
            CLUSTER,
            CLUSTER_FILE,
            folders,
            CLUSTER.min_free_gib,
        )


def deciding(wildcards):
    """What of the cluster file decides what a configuration's simulations are."""
    device = CAMPAIGN.configurations[wildcards.configuration].device
    others = {
        name: config[name] for name in ("simulate", "stop_warning_s") if name in config
    }
    return canonical({**others, "device": config["devices"][device]})


def of_repeats(repeats, *patterns):
    """Files of all repeats; `patterns` with {configuration}, which stays, and {repeat}."""
    return [
        pattern.replace("{repeat}", str(repeat))
        for repeat in repeats
        for pattern in patterns
    ]


SIMULATED = ("history.parquet", "events.parquet", "train.log")
RECORDED = ("spec.json", "events.parquet", "perun", "provenance.json")


for repeats, configurations in RESULT_SET.by_repeats().items():

    rule:
        name:
            f"simulate_{'_'.join(map(str, repeats))}"
        input:
            specs=of_repeats(repeats, f"{RUN}/spec.json"),
            model=scaling_model,
            published=str(shipped("reference/published_results.csv")),
            code=code_of("scaling.simulation.simulate_run"),
        output:
            of_repeats(repeats, *(f"{RUN}/{file}" for file in SIMULATED)),
            perun=[directory(path) for path in of_repeats(repeats, f"{RUN}/perun")],
            provenance=of_repeats(repeats, f"{RUN}/provenance.json"),
        wildcard_constraints:
            configuration="|".join(map(re.escape, configurations)),
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            cluster=deciding,
        message:
            "simulate {wildcards.configuration}, all repeats"
        shell:
            "scalewatt simulate {input.specs:q} --cluster {CLUSTER_JSON:q} --model {input.model:q}"

    rule:
        name:
            f"energy_{'_'.join(map(str, repeats))}"
        input:
            of_repeats(repeats, *(f"{RUN}/{file}" for file in RECORDED)),
            code=ENERGY_CODE,
        output:
            traces=of_repeats(repeats, TRACES),
            energy=of_repeats(repeats, f"{ENERGY}.parquet"),
            beside=of_repeats(repeats, *(ENERGY + suffix for suffix in ENERGY_BESIDE)),
        wildcard_constraints:
            configuration="|".join(map(re.escape, configurations)),
        priority: 50
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            powers=lambda wildcards: canonical(
                powers(
                    DEVICES[CAMPAIGN.configurations[wildcards.configuration].device]
                )
            ),
            folders=of_repeats(repeats, RUN),
        message:
            "energy of {wildcards.configuration}, all repeats"
        shell:
            "scalewatt account {params.folders:q} --powers {params.powers:q}"
            " --traces {output.traces:q} --energy {output.energy:q}"
