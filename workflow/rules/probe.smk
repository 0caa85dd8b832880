# Idle probes: what the nodes of each device draw while their GPUs are held and nothing is done. Only where the
# campaign has the key idle_probe.
PROBE = f"{RESULTS}/idle/{{device}}/{{repeat}}"


if RESULT_SET.probes and not RESULTS_ONLY:

    rule probe:
        output:
            perun=directory(f"{PROBE}/perun"),
            probe=f"{PROBE}/probe.json",
        log:
            f"{LOGS}/probe/{{device}}-{{repeat}}.log",
        priority: repeat_priority
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
