# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, next
#        to the latter, .epochs.parquet, .devices.parquet, .flags.parquet and .cross-checks.parquet
from scalewatt.targets.result_set import ENERGY_BESIDE

ENERGY = "{folder}/energy/{configuration}/{repeat}"


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
    priority: 50
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        powers=rated_powers,
        version=versions.ENERGY,
    message:
        "energy of {wildcards.configuration} repeat {wildcards.repeat}"
    script:
        "../scripts/energy.py"
