# Simulations in place of trainings, where the cluster file says `mode: simulate`: the run folder as a training
# leaves it, without weights and perun's HDF5.


rule simulate:
    input:
        spec=f"{RUN}/spec.json",
        model=RESULT_SET.model_files,
        published=str(find_file("reference/published_results.csv")),
    output:
        **FILES_OF_RUN,
    log:
        "{folder}/logs/simulate/{configuration}-{repeat}.log",
    wildcard_constraints:
        folder=FOLDER_OF_RUNS,
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    resources:
        site=CLUSTER_JSON,
    params:
        cluster=lambda wildcards: config["devices"][spec_of(wildcards).device],
        version=versions.SIMULATION,
    message:
        "simulate {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "scalewatt simulate {input.spec:q} --site {resources.site:q} --model {input.model:q}"
        " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"
