# Datasets: from their sources to prepared folders.
#   in   the cluster's data roots and sources; nothing for the embedded datasets
#   out  datasets/<name>.json: what the prepared dataset is, without any path, so that moving the
#        data re-runs nothing; the data themselves are no outputs and are never deleted


rule dataset:
    output:
        f"{RESULTS}/datasets/{{dataset}}.json",
    priority: 100
    resources:
        data_folder=lambda wildcards: CLUSTER.data_folder(
            CAMPAIGN.datasets()[wildcards.dataset]
        ),
        data_source=lambda wildcards: CLUSTER.source_text(wildcards.dataset),
    params:
        definition=lambda wildcards: canonical(CAMPAIGN.datasets()[wildcards.dataset]),
    message:
        "prepare dataset {wildcards.dataset}"
    shell:
        "scalewatt prepare --definition {params.definition:q} --folder {resources.data_folder:q}"
        " --source={resources.data_source:q} --out {output:q}"


def datasets_of_format(format_):
    return [
        f"{RESULTS}/datasets/{name}.json"
        for name, definition in CAMPAIGN.datasets().items()
        if definition["format"] == format_
    ]


rule prepare_imagenet:
    input:
        datasets_of_format("imagenet"),


rule prepare_era5:
    input:
        datasets_of_format("era5"),
