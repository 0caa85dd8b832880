# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder, and the code that accounts for it
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, beside
#        the latter, .epochs.parquet, .devices.parquet, .flags.parquet, .telemetry.parquet and
#        .cross-checks.parquet


ENERGY = f"{RESULTS}/energy/{{configuration}}/{{repeat}}"
ENERGY_BESIDE = tuple(
    f".{name}.parquet"
    for name in ("epochs", "devices", "flags", "telemetry", "cross-checks")
)
ENERGY_INPUT = ("spec.json", "events.parquet", "perun", "provenance.json")
TRACES = f"{RESULTS}/traces/{{configuration}}/{{repeat}}.parquet"


def rated_powers(device):
    return canonical(powers(DEVICES[device]))


# An imported campaign came with its energies and without recordings.
if not (CLUSTER.simulates or CAMPAIGN.imported):

    rule energy:
        input:
            spec=f"{RUN}/spec.json",
            events=f"{RUN}/events.parquet",
            perun=f"{RUN}/perun",
            provenance=f"{RUN}/provenance.json",
            code=code_of("energy.accounting.account"),
        output:
            traces=TRACES,
            energy=f"{ENERGY}.parquet",
            beside=multiext(ENERGY, *ENERGY_BESIDE),
        priority: 50
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            powers=lambda wildcards: rated_powers(spec_of(wildcards)["device"]),
        message:
            "energy of {wildcards.configuration} repeat {wildcards.repeat}"
        shell:
            "scalewatt account $(dirname {input.spec:q}) --powers {params.powers:q}"
            " --traces {output.traces:q} --energy {output.energy:q}"


# The same, for all repeats of a configuration at once.
for name, repeats, configurations in repeats_together():

    rule:
        name:
            f"energy_{name}"
        input:
            of_repeats(repeats, *(f"{RUN}/{file}" for file in ENERGY_INPUT)),
            code=code_of("energy.accounting.account"),
        output:
            traces=of_repeats(repeats, TRACES),
            energy=of_repeats(repeats, f"{ENERGY}.parquet"),
            beside=of_repeats(repeats, *(ENERGY + suffix for suffix in ENERGY_BESIDE)),
        wildcard_constraints:
            configuration=configurations,
        priority: 50
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            powers=lambda wildcards: rated_powers(
                CAMPAIGN.configurations[wildcards.configuration].device
            ),
            folders=lambda wildcards, repeats=repeats: [
                RUN.format(configuration=wildcards.configuration, repeat=repeat)
                for repeat in repeats
            ],
        message:
            "energy of {wildcards.configuration}, all repeats"
        shell:
            "scalewatt account {params.folders:q} --powers {params.powers:q}"
            " --traces {output.traces:q} --energy {output.energy:q}"
