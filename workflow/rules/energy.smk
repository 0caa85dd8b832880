# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, next
#        to the latter, .epochs.parquet, .devices.parquet, .flags.parquet, .telemetry.parquet and
#        .cross-checks.parquet
# And the carbon intensity that a run met, where the cluster file names a file of it.
#   in   the run's traces, its energy and its stages, and that file: a change of it makes tables alone
#   out  energy/<configuration>/<repeat>.carbon.parquet
from scalewatt.targets.result_set import ENERGY_BESIDE

ENERGY = "{folder}/energy/{configuration}/{repeat}"


rule energy:
    input:
        spec="{folder}/runs/{configuration}/{repeat}/spec.json",
        events="{folder}/runs/{configuration}/{repeat}/events.parquet",
        perun="{folder}/runs/{configuration}/{repeat}/perun",
        provenance="{folder}/runs/{configuration}/{repeat}/provenance.json",
    output:
        multiext(ENERGY, *ENERGY_BESIDE),
        traces="{folder}/traces/{configuration}/{repeat}.parquet",
        energy=f"{ENERGY}.parquet",
    log:
        "{folder}/logs/energy/{configuration}-{repeat}.log",
    wildcard_constraints:
        folder=FOLDER,
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
            traces=f"{RESULTS}/traces/{{configuration}}/{{repeat}}.parquet",
            energy=f"{RESULTS}/energy/{{configuration}}/{{repeat}}.parquet",
            file=str(CARBON_FILE),
        output:
            f"{RESULTS}/energy/{{configuration}}/{{repeat}}.carbon.parquet",
        log:
            f"{LOGS}/carbon/{{configuration}}-{{repeat}}.log",
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
