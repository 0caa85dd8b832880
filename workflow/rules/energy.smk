# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder, and the code that accounts for it
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, beside
#        the latter, .epochs.parquet, .devices.parquet, .flags.parquet, .telemetry.parquet and
#        .cross-checks.parquet
from scalewatt.campaign.cluster import powers

ENERGY = f"{RESULTS}/energy/{{configuration}}/{{repeat}}"
ENERGY_BESIDE = tuple(
    f".{name}.parquet"
    for name in ("epochs", "devices", "flags", "telemetry", "cross-checks")
)
ENERGY_CODE = code_of("energies.accounting.account")
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
