# Simulations in place of trainings, where the cluster file says `mode: simulate`.
#   in   spec.json (which alone says what the run is), the scaling model
#   out  the run folder as a training leaves it, without weights: perun/ (one HDF5 per segment,
#        journals), history, events, log, provenance; and truth.json, which only tests read
from scalewatt.jobs.preflight import check_before_submission


onstart:
    if any(job.rule.name == "simulate" for job in workflow.dag.needrun_jobs()):
        folders = [RESULTS, ".snakemake"]
        checked(
            check_before_submission,
            [],
            CLUSTER,
            CLUSTER_FILE,
            folders,
            CLUSTER.min_free_gib,
        )


rule simulate:
    input:
        spec=f"{RUN}/spec.json",
        model=CLUSTER.scaling_model,
        code=code_of("scaling/simulate"),
    output:
        history=f"{RUN}/history.parquet",
        events=f"{RUN}/events.parquet",
        perun=directory(f"{RUN}/perun"),
        log=f"{RUN}/train.log",
        truth=f"{RUN}/truth.json",
        provenance=f"{RUN}/provenance.json",
    priority: turn
    retries: 0
    localrule: True
    params:
        # What of the cluster file decides what is written.
        cluster=canonical(
            {
                name: config[name]
                for name in ("devices", "simulate", "stop_warning_s")
                if name in config
            }
        ),
    message:
        "simulate {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "scalewatt simulate {input.spec:q} --cluster {CLUSTER_JSON:q} --model {input.model:q}"
        " --out $(dirname {output.provenance:q})"
