# Whether the results can be reproduced: the manifest, which records what they were; one run that is
# repeated; and the page that says what differs.
#   in   tables/, figures/; of the run that is repeated its spec, dataset and initial weights
#   out  manifest.json; reproduction/{runs,energy,traces}/ (one run more, which belongs to no table),
#        reproduction/index.html and reproduction.json
# Nothing of the campaign itself is an input or an output of it but the manifest: `reproduce` compares
# what is there with it, and rebuilds nothing.
RUN_AGAIN = f"{AGAIN}/runs/{{configuration}}/{{repeat}}"


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
    log:
        f"{LOGS}/manifest.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "manifest of tables and figures"
    script:
        "../scripts/manifest.py"


if not CLUSTER.simulates:

    # Once it is published its working directory is of no use: `-R run_again` asks for another
    # training, not for the same results. The dataset is described in a file of its own: the
    # campaign's would train all runs again.
    rule run_again:
        input:
            spec=f"{RUN_AGAIN}/spec.json",
            dataset=dataset_of_rerun,
        output:
            multiext(f"{RUN_AGAIN}/", "history.parquet", "events.parquet", "train.log"),
            perun=directory(f"{RUN_AGAIN}/perun"),
            provenance=f"{RUN_AGAIN}/provenance.json",
        log:
            f"{AGAIN}/logs/train/{{configuration}}-{{repeat}}.log",
        retries: RUN_RETRIES
        conda:
            "../../envs/training.yaml"
        resources:
            **slurm_resources_of(rerun_job),
            site=CLUSTER_JSON,
            setup=SETUP,
            work=WORK_AGAIN,
        params:
            weights=initial_weights_of_rerun,
        message:
            f"train {{wildcards.configuration}} repeat {{wildcards.repeat}} again{ASKED}"
        shell:
            "{resources.setup} scalewatt train {input.spec:q} --site {resources.site:q}"
            " --work {resources.work:q} {params.weights} --out $(dirname {output.provenance:q})"
            " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"
            " && rm -rf {resources.work:q}/{wildcards.configuration:q}-{wildcards.repeat:q}-????????????-*"


# It has no output, so that it runs whenever it is asked for, and the page stays if it fails.
rule reproduce:
    input:
        files_of_rerun,
    log:
        f"{LOGS}/reproduce.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        campaign=str(CAMPAIGN.path),
        results=str(Path(RESULTS).parent),
    message:
        "compare environment, files and the repeated run with what was recorded"
    script:
        "../scripts/reproduce.py"
