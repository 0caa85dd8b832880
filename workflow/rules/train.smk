# Trainings: one job is one segment of a run, under perun. The spec.json alone says what the run is.
# On Slurm a segment that stopped at a checkpoint, or crashed, is followed by another job: these are
# the rule's `retries` (docs/guide/slurm.md). A job that would be of no use says so in a second.

# Runs of commands have no weights and no dataset of ours. No model is named "-".
COMMANDS = f"(?:{'|'.join(sorted(CAMPAIGN.command_settings())) or '-'})-"


rule train:
    input:
        spec=spec_of_training,
        dataset=dataset_of_training,
        initial=file_of_initial_weights,
    output:
        **FILES_OF_RUN,
        weights=f"{RUN}/weights.pt",
    log:
        "{folder}/logs/train/{configuration}-{repeat}.log",
    wildcard_constraints:
        folder=FOLDER_OF_RUNS,
        configuration=rf"(?!{COMMANDS})[a-z0-9][A-Za-z0-9._-]*",
    priority: repeat_priority
    retries: RUN_RETRIES
    conda:
        "../../envs/training.yaml"
    resources:
        **slurm_resources_of(training_job),
        site=CLUSTER_JSON,
        levers=levers_of_training,
        setup=SETUP,
        options=training_options,
    params:
        weights=initial_weights,
    message:
        f"train {{wildcards.configuration}} repeat {{wildcards.repeat}}{ASKED}"
    shell:
        "{resources.levers} {resources.setup} scalewatt train {input.spec:q} --site {resources.site:q}"
        " {resources.options} {params.weights} --out $(dirname {output.provenance:q})"
        " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"


use rule train as train_command with:
    output:
        **FILES_OF_RUN,
    wildcard_constraints:
        folder=FOLDER_OF_RUNS,
        configuration=rf"(?={COMMANDS})[a-z0-9][A-Za-z0-9._-]*",
