# Idle probes: what the nodes of each device draw while their GPUs are held and nothing is done.
# Only where the campaign has the key idle_probe.
#   in   the campaign's idle_probe and the cluster's devices
#   out  idle/<device>/<repeat>/ (perun/, probe.json, probe.log), idle/<device>.json, tables/idle
from scalewatt.scheduling.job_request import probe_request
from scalewatt.targets.obstacles import idle_obstacle

PROBE = f"{RESULTS}/idle/{{device}}/{{repeat}}"


PROBES = RESULT_SET.probes
IDLE_TABLE = RESULT_SET.idle_table


if PROBES and not RESULTS_ONLY:

    def probing(wildcards):
        """One node with all its GPUs, as for a training that fills it."""
        device = CLUSTER.devices[wildcards.device]
        return probe_request(device, CLUSTER, CAMPAIGN.idle_probe.job_minutes)

    rule probe:
        output:
            perun=directory(f"{PROBE}/perun"),
            probe=f"{PROBE}/probe.json",
        log:
            f"{PROBE}/probe.log",
        wildcard_constraints:
            device="[^/]+",
        priority: lambda wildcards: turn(wildcards, last=True)
        retries: JOB_RETRIES
        conda:
            "../../envs/training.yaml"
        resources:
            **requested(probing),
        params:
            seconds=CAMPAIGN.idle_probe.seconds,
            period=CAMPAIGN.idle_probe.sampling_period_s,
        message:
            "idle probe of {wildcards.device} repeat {wildcards.repeat}" + ASKED
        shell:
            "{SETUP} scalewatt probe {wildcards.device:q} --cluster {CLUSTER_JSON:q}"
            " --seconds {params.seconds} --sampling-period {params.period}"
            " --repeat {wildcards.repeat} --out $(dirname {output.probe:q})"


if PROBES:

    rule idle_table:
        input:
            request=f"{RESULTS}/requests/idle.json",
            probes=[
                f"{PROBE.format(device=device, repeat=repeat)}/{name}"
                for device, numbers in PROBES.items()
                for repeat in numbers
                for name in ("probe.json", "perun")
            ],
            code=code_of("results.tables.idle"),
        output:
            IDLE_TABLE,
            [f"{RESULTS}/idle/{device}.json" for device in PROBES],
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        message:
            "table of idle powers"
        shell:
            "scalewatt idle --definition {input.request:q} --results {RESULTS:q}"
            " --out {output[0]:q}"


rule idle_probe:
    input:
        required(partial(idle_obstacle, RESULT_SET), IDLE_TABLE),
