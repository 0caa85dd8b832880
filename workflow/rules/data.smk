# Datasets: from their sources to prepared folders, ERA5 by a job for each year.
# datasets/<name>.json says what the prepared dataset is, without any path, so that moving the data re-runs
# nothing; the data themselves are no outputs and are never deleted. Paths, sources and packing are
# `resources`, not `params`: a change of them prepares nothing anew.


rule dataset:
    input:
        years_of_dataset,
    output:
        "{folder}/datasets/{dataset}.json",
    log:
        "{folder}/datasets/{dataset}.log",
    retries: JOB_RETRIES
    conda:
        "../../envs/training.yaml"
    resources:
        **ACCOUNT,
        options=dataset_options,
        mem_mb=3000,
    params:
        definition=dataset_definition,
    message:
        "prepare dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} {resources.options} --out {output:q}"
        " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"


use rule dataset as era5_year with:
    input:
        [],
    output:
        "{folder}/datasets/{dataset}/{year}.json",
    log:
        "{folder}/datasets/{dataset}/{year}.log",
    message:
        "prepare {wildcards.year} of dataset {wildcards.dataset}"
