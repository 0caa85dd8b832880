# Runs: their specs, which trainings and simulations read, and from perun's files their power traces and
# energy per node, device kind and stage, and the run's row, which tables start from.
from scalewatt.campaign.cluster import powers
from scalewatt.targets.result_set import ENERGY_BESIDE

ENERGY = "{folder}/energy/{configuration}/{repeat}"


rule spec:
    input:
        change_of_spec,
    output:
        f"{RUN}/spec.json",
    log:
        "{folder}/logs/spec/{configuration}-{repeat}.log",
    wildcard_constraints:
        folder=FOLDER_OF_RUNS,
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        text=lambda wildcards: spec_of(wildcards).text,
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "printf '%s\\n' {params.text:q} 2> {log:q} > {output:q}"


rule energy:
    input:
        spec=f"{RUN}/spec.json",
        events=f"{RUN}/events.parquet",
        perun=f"{RUN}/perun",
        provenance=f"{RUN}/provenance.json",
    output:
        multiext(ENERGY, *ENERGY_BESIDE),
        traces="{folder}/traces/{configuration}/{repeat}.parquet",
        energy=f"{ENERGY}.parquet",
    log:
        "{folder}/logs/energy/{configuration}-{repeat}.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        powers=lambda wildcards: powers(RESULT_SET.devices[spec_of(wildcards).device]),
        version=versions.ENERGY,
    message:
        "energy of {wildcards.configuration} repeat {wildcards.repeat}"
    script:
        "../scripts/energy.py"
