# Datasets: from their sources to prepared folders.
#   in   the cluster's data roots and sources; nothing for the embedded datasets
#   out  datasets/<name>.json: what the prepared dataset is, without any path, so that moving the
#        data re-runs nothing; the data themselves are no outputs and are never deleted;
#        next to it what the preparation printed (.log)
# ERA5 is prepared by a job for each year (datasets/<name>/<year>.json), then its statistics are merged.
# Paths, sources and packing are `resources`, not `params`: a change of them prepares nothing anew.


rule dataset:
    input:
        years_of_dataset,
    output:
        "{folder}/datasets/{dataset}.json",
    log:
        "{folder}/datasets/{dataset}.log",
    priority: 100
    retries: JOB_RETRIES
    conda:
        "../../envs/training.yaml"
    resources:
        **ACCOUNT,
        data_folder=lambda wildcards: CLUSTER.data_folder(
            CAMPAIGN.datasets()[wildcards.dataset]
        ),
        data_source=lambda wildcards: CLUSTER.sources.get(wildcards.dataset, ""),
        pack=pack_option,
        mem_mb=3000,
    params:
        definition=dataset_definition,
    message:
        "prepare dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} --folder {resources.data_folder:q}"
        " --source={resources.data_source:q} {resources.pack} --out {output:q}"
        " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"


rule era5_year:
    output:
        f"{RESULTS}/datasets/{{dataset}}/{{year}}.json",
    log:
        f"{RESULTS}/datasets/{{dataset}}/{{year}}.log",
    wildcard_constraints:
        year="[0-9]{4}",
    priority: 100
    retries: JOB_RETRIES
    conda:
        "../../envs/training.yaml"
    resources:
        **ACCOUNT,
        data_folder=lambda wildcards: CLUSTER.data_folder(
            CAMPAIGN.datasets()[wildcards.dataset]
        ),
        data_source=lambda wildcards: CLUSTER.sources.get(wildcards.dataset, ""),
        mem_mb=2500,
    params:
        definition=dataset_definition,
    message:
        "prepare {wildcards.year} of dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} --folder {resources.data_folder:q}"
        " --source={resources.data_source:q} --year {wildcards.year}"
        " --out {output:q}"
        " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"


rule prepare_imagenet:
    input:
        datasets_of_format("imagenet"),


rule prepare_era5:
    input:
        datasets_of_format("era5"),
