# What each run is: the file that trainings and simulations read.
#   in   the campaign; of a run that is repeated, its spec.json, whatever the campaign has become
#   out  runs/<configuration>/<repeat>/spec.json


rule spec:
    output:
        f"{RUN}/spec.json",
    log:
        "{folder}/logs/spec/{configuration}-{repeat}.log",
    wildcard_constraints:
        folder=FOLDER_OF_RUNS,
    priority: 100
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        text=lambda wildcards: spec_of(wildcards).text,
    message:
        "spec of {wildcards.configuration} repeat {wildcards.repeat}"
    shell:
        "printf '%s\\n' {params.text:q} 2> {log:q} > {output:q}"
