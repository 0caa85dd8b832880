# Idle probes: what the nodes of each device draw while their GPUs are held and nothing is done.
# Only where the campaign has the key idle_probe.
#   in   the campaign's idle_probe and the cluster's devices
#   out  idle/<device>/<repeat>/ (perun/, probe.json, probe.log), idle/<device>.json, tables/idle
from scalewatt.scheduling.job_request import probe_request

PROBE = f"{RESULTS}/idle/{{device}}/{{repeat}}"


def probes():
    """{device: [repeat]} of all probes; with results_only, of the finished ones."""
    if CAMPAIGN.idle_probe is None or CLUSTER.simulates:
        return {}
    # An imported campaign came with the table, and without the probes' recordings.
    if CAMPAIGN.imported and not came_with([f"{RESULTS}/tables/idle.parquet"]):
        return {}
    repeats = range(1, CAMPAIGN.idle_probe.repeats + 1)
    found = {
        device: [
            r
            for r in repeats
            if not RESULTS_ONLY
            or Path(PROBE.format(device=device, repeat=r), "probe.json").exists()
        ]
        for device in sorted(CAMPAIGN.devices())
    }
    return {device: numbers for device, numbers in found.items() if numbers}


PROBES = probes()
IDLE_TABLE = multiext(f"{RESULTS}/tables/idle", ".parquet", ".csv") if PROBES else []


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
            [
                f"{PROBE.format(device=device, repeat=repeat)}/{name}"
                for device, numbers in PROBES.items()
                for repeat in numbers
                for name in ("probe.json", "perun")
            ],
            code_of("results.tables.idle"),
        output:
            IDLE_TABLE,
            [f"{RESULTS}/idle/{device}.json" for device in PROBES],
        retries: 0
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            definition=canonical(
                {
                    "campaign": CAMPAIGN.name,
                    "devices": {
                        device: {"repeats": numbers, "powers": powers(DEVICES[device])}
                        for device, numbers in PROBES.items()
                    },
                }
            ),
        message:
            "table of idle powers"
        shell:
            "scalewatt idle --definition {params.definition:q} --results {RESULTS:q}"
            " --out {output[0]:q}"


def idle_table(wildcards):
    if CAMPAIGN.idle_probe is None:
        refuse(
            f"{CAMPAIGN.path}: has no key 'idle_probe', so nothing is probed; add for example"
            " idle_probe: {seconds: 300, repeats: 3}"
        )
    if not PROBES:
        refuse(f"{RESULTS}/idle: no finished probe; with results_only none is started")
    return IDLE_TABLE


rule idle_probe:
    input:
        idle_table,
