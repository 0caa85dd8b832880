# Idle probes: what the nodes of each device draw while their GPUs are held and nothing is done.
# Only where the campaign has the key idle_probe.
#   in   the campaign's idle_probe and the cluster's devices
#   out  idle/<device>/<repeat>/ (perun/, probe.json, probe.log), tables/idle
PROBE = f"{RESULTS}/idle/{{device}}/{{repeat}}"
PROBES = RESULT_SET.probes
IDLE_TABLE = RESULT_SET.idle_table


if PROBES and not RESULTS_ONLY:

    rule probe:
        output:
            perun=directory(f"{PROBE}/perun"),
            probe=f"{PROBE}/probe.json",
        log:
            f"{LOGS}/probe/{{device}}-{{repeat}}.log",
        wildcard_constraints:
            device="[^/]+",
        priority: lambda wildcards: repeat_priority(wildcards) - 1
        retries: JOB_RETRIES
        conda:
            "../../envs/training.yaml"
        resources:
            **slurm_resources_of(probe_job),
            site=CLUSTER_JSON,
            setup=SETUP,
        params:
            seconds=float(CAMPAIGN.idle_probe.seconds),
            period=CAMPAIGN.sampling_period_s,
        message:
            f"idle probe of {{wildcards.device}} repeat {{wildcards.repeat}}{ASKED}"
        shell:
            "{resources.setup} scalewatt probe {wildcards.device:q} --site {resources.site:q}"
            " --seconds {params.seconds} --sampling-period {params.period}"
            " --repeat {wildcards.repeat} --out $(dirname {output.probe:q})"
            " > >(trap '' TERM HUP USR1; exec tee -i {log:q}) 2>&1"


if PROBES:

    rule idle_table:
        input:
            [
                f"{PROBE.format(device=device, repeat=repeat)}/{name}"
                for device, numbers in PROBES.items()
                for repeat in numbers
                for name in ("probe.json", "perun")
            ],
        output:
            table=IDLE_TABLE[0],
            csv=IDLE_TABLE[1],
        log:
            f"{LOGS}/idle_table.log",
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            definition=lambda wildcards: RESULT_SET.definition("idle"),
            version=versions.IDLE,
        message:
            "table of idle powers"
        script:
            "../scripts/idle_table.py"


rule idle_probe:
    input:
        required(partial(idle_obstacle, RESULT_SET), IDLE_TABLE),
