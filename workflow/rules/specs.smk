# What each run is: the one file that trainings and simulations read.
#   in   the campaign
#   out  runs/<configuration>/<repeat>/spec.json


if not CLUSTER.simulates:

    rule spec:
        output:
            f"{RUN}/spec.json",
        priority: 100
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            text=lambda wildcards: spec_text(spec_of(wildcards)),
        message:
            "spec of {wildcards.configuration} repeat {wildcards.repeat}"
        shell:
            "printf '%s\\n' {params.text:q} > {output:q}"


# The same, for all repeats of a configuration at once.
for name, repeats, configurations in repeats_together():

    rule:
        name:
            f"specs_{name}"
        output:
            of_repeats(repeats, f"{RUN}/spec.json"),
        wildcard_constraints:
            configuration=configurations,
        priority: 100
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            texts=lambda wildcards, repeats=repeats: [
                spec_text(run_spec(CAMPAIGN, wildcards.configuration, repeat))
                for repeat in repeats
            ],
        message:
            "specs of {wildcards.configuration}"
        shell:
            "set -- {params.texts:q}; for file in {output:q};"
            ' do printf \'%s\\n\' "$1" > "$file"; shift; done'
