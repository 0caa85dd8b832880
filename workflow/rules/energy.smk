# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, next
#        to the latter, .epochs.parquet, .devices.parquet, .flags.parquet and .cross-checks.parquet
# And the carbon intensity that a run met, where the cluster file names a file of it.
#   in   the run's traces, its energy and its stages, and that file: a change of it makes tables alone
#   out  energy/<configuration>/<repeat>.carbon.parquet
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


if CARBON_FILE is not None:

    rule carbon:
        input:
            spec=f"{RUN}/spec.json",
            events=f"{RUN}/events.parquet",
            provenance=f"{RUN}/provenance.json",
            traces="{folder}/traces/{configuration}/{repeat}.parquet",
            energy=f"{ENERGY}.parquet",
            file=str(CARBON_FILE),
        output:
            f"{ENERGY}.carbon.parquet",
        log:
            "{folder}/logs/carbon/{configuration}-{repeat}.log",
        priority: 50
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            source=CLUSTER.carbon_intensity["source"].strip(),
            version=versions.CARBON,
        message:
            "carbon of {wildcards.configuration} repeat {wildcards.repeat}"
        script:
            "../scripts/carbon.py"
