# Simulations in place of trainings, where the cluster file says `mode: simulate`.
#   in   spec.json (which alone says what the run is), the scaling model
#   out  the run folder as a training leaves it, without weights: perun/ (one HDF5 per segment,
#        journals), history, events, log, provenance; and truth.json, which only tests read
from scalewatt.scheduling.preflight import check_before_submission
from scalewatt.scaling.simulation.simulated_run import check_simulations

if not workflow.remote_exec:
    checked(check_simulations, CAMPAIGN, CLUSTER, forecaster().model)


onstart:
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


def deciding(configuration):
    """What of the cluster file decides what a configuration's simulations are."""
    device = CAMPAIGN.configurations[configuration].device
    others = {
        name: config[name] for name in ("simulate", "stop_warning_s") if name in config
    }
    return canonical({**others, "device": config["devices"][device]})


SIMULATED = ("history.parquet", "events.parquet", "train.log", "truth.json")


for name, repeats, configurations in repeats_together():

    rule:
        name:
            f"simulate_{name}"
        input:
            specs=of_repeats(repeats, f"{RUN}/spec.json"),
            model=lambda wildcards: scaling_model(),
            published="reference/published_results.csv",
            code=code_of("scaling.simulation.simulate_run"),
        output:
            of_repeats(repeats, *(f"{RUN}/{file}" for file in SIMULATED)),
            perun=[directory(path) for path in of_repeats(repeats, f"{RUN}/perun")],
            provenance=of_repeats(repeats, f"{RUN}/provenance.json"),
        wildcard_constraints:
            configuration=configurations,
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            # What of the cluster file decides what is written.
            cluster=lambda wildcards: deciding(wildcards.configuration),
        message:
            "simulate {wildcards.configuration}, all repeats"
        shell:
            "scalewatt simulate {input.specs:q} --cluster {CLUSTER_JSON:q} --model {input.model:q}"
