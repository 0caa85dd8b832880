# What each run is: the one file that trainings and simulations read.
#   in   the campaign
#   out  runs/<configuration>/<repeat>/spec.json


rule spec:
    output:
        f"{RUN}/spec.json",
    priority: 100
    retries: 0
    localrule: True
    params:
        text=lambda wildcards: spec_text(spec_of(wildcards)),
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "printf '%s\\n' {params.text:q} > {output:q}"
