# Energy: perun's files to power traces and to energy per node, device kind and stage.
#   in   a run folder, and the code that accounts for it
#   out  traces/<configuration>/<repeat>.parquet, energy/<configuration>/<repeat>.parquet and, beside
#        the latter, .epochs.parquet, .conditions.parquet and .second-opinions.parquet


rule energy:
    input:
        spec=f"{RUN}/spec.json",
        events=f"{RUN}/events.parquet",
        perun=f"{RUN}/perun",
        provenance=f"{RUN}/provenance.json",
        code=code_of("energy"),
    output:
        traces=f"{RESULTS}/traces/{{configuration}}/{{repeat}}.parquet",
        energy=f"{RESULTS}/energy/{{configuration}}/{{repeat}}.parquet",
        beside=multiext(
            f"{RESULTS}/energy/{{configuration}}/{{repeat}}",
            ".epochs.parquet",
            ".conditions.parquet",
            ".second-opinions.parquet",
        ),
    priority: 50
    retries: 0
    localrule: True
    params:
        powers=lambda wildcards: canonical(
            powers(DEVICES[spec_of(wildcards)["device"]])
        ),
    message:
        "energy of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "scalewatt account $(dirname {input.spec:q}) --powers {params.powers:q}"
        " --traces {output.traces:q} --energy {output.energy:q}"
