# What each run is: the one file that trainings and simulations read.
#   in   the campaign
#   out  runs/<configuration>/<repeat>/spec.json


rule spec:
    output:
        f"{RUN}/spec.json",
    wildcard_constraints:
        # With results_only nothing is made of the campaign but tables and figures.
        configuration=NONE if RESULTS_ONLY and not workflow.remote_exec else ANY,
    priority: 100
    retries: 0
    conda:
        "../../envs/analysis.yaml"
    params:
        text=lambda wildcards: spec_of(wildcards).text,
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "printf '%s\\n' {params.text:q} > {output:q}"
