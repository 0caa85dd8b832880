# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder, and the code that accounts for it
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, beside
#        the latter, .epochs.parquet, .devices.parquet, .flags.parquet, .telemetry.parquet and
#        .cross-checks.parquet
# And the carbon intensity that a run met, where the cluster file names a file of it.
#   in   the run's traces, its energy and its stages, and that file: a change of it makes tables alone
#   out  energy/<configuration>/<repeat>.carbon.parquet
from scalewatt.campaign.cluster import powers
from scalewatt.targets.result_set import ENERGY_BESIDE

ENERGY = f"{RESULTS}/energy/{{configuration}}/{{repeat}}"
ENERGY_CODE = code_of("energies.account")
TRACES = f"{RESULTS}/traces/{{configuration}}/{{repeat}}.parquet"


rule energy:
    input:
        spec=f"{RUN}/spec.json",
        events=f"{RUN}/events.parquet",
        perun=f"{RUN}/perun",
        provenance=f"{RUN}/provenance.json",
        code=ENERGY_CODE,
    output:
        traces=TRACES,
        energy=f"{ENERGY}.parquet",
        beside=multiext(ENERGY, *ENERGY_BESIDE),
    wildcard_constraints:
        # Repeats that were simulated are accounted for together (simulate.smk); an imported
        # campaign came with its energies and without recordings.
        configuration=NONE if CLUSTER.simulates or CAMPAIGN.imported else ANY,
    priority: 50
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        powers=lambda wildcards: canonical(powers(DEVICES[spec_of(wildcards).device])),
    message:
        "energy of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "scalewatt account $(dirname {input.spec:q}) --powers {params.powers:q}"
        " --traces {output.traces:q} --energy {output.energy:q}"


if CARBON_FILE is not None:

    rule carbon:
        input:
            spec=f"{RUN}/spec.json",
            events=f"{RUN}/events.parquet",
            provenance=f"{RUN}/provenance.json",
            traces=TRACES,
            energy=f"{ENERGY}.parquet",
            file=str(CARBON_FILE),
            code=code_of("results.carbon.run_carbon"),
        output:
            f"{ENERGY}.carbon.parquet",
        priority: 50
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            source=CLUSTER.carbon_intensity["source"],
        message:
            "carbon of {wildcards.configuration} repeat {wildcards.repeat}"
        shell:
            "scalewatt carbon $(dirname {input.spec:q}) --traces {input.traces:q}"
            " --energy {input.energy:q} --file {input.file:q} --source={params.source:q}"
            " --out {output:q}"
