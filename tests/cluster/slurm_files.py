"""What a miniature HoreKa is configured by: nodes, partitions, and the texts of Slurm's files.

Partitions: `accelerated` (a1 a2 a3, four "A100" each), `accelerated-h100` (h1, four "H100"), `cpuonly`
(c1), and `low` and `scavenge`: the nodes of `accelerated`, whose jobs are requeued or cancelled when
`accelerated` wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CLUSTER = "minihoreka"
ACCOUNT = "test"
DATABASE = "slurm_acct_db"
CPUS_PER_NODE = 8
MEMORY_MB = 20000
GPU_FILES = "/dev/tty[0-3]"
"""A GPU without a file that exists puts its node into state `inval`."""


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike."""

    names: tuple[str, ...]
    partitions: tuple[str, ...]
    gpu: str | None
    """Slurm's type of the node's four GPUs; None without."""


KINDS = (
    NodeKind(("a1", "a2", "a3"), ("accelerated", "low", "scavenge"), "a100"),
    NodeKind(("h1",), ("accelerated-h100",), "h100"),
    NodeKind(("c1",), ("cpuonly",), None),
)
NODES = tuple(name for kind in KINDS for name in kind.names)
_PREEMPTED = {"low": "REQUEUE", "scavenge": "CANCEL"}


def slurm_conf(base: Path, host: str, ports: dict[str, int]) -> str:
    """Text of slurm.conf; `ports` are those of slurmctld, slurmdbd and every node."""
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports['slurmctld']}",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"StateSaveLocation={base}/state",
        f"SlurmdSpoolDir={base}/spool/%n",
        f"SlurmctldPidFile={base}/slurmctld.pid",
        f"SlurmdPidFile={base}/slurmd-%n.pid",
        f"SlurmctldLogFile={base}/log/slurmctld.log",
        f"SlurmdLogFile={base}/log/slurmd-%n.log",
        "SlurmctldDebug=verbose",
        "SlurmdDebug=verbose",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A job that was put back into the queue waits so long (s) before it may start again.
        f"AuthInfo=socket={base}/munge.socket,cred_expire=20",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "SlurmdParameters=config_overrides",
        "GresTypes=gpu",
        "ReturnToService=2",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=2",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePass={base}/munge.socket",
        f"AccountingStoragePort={ports['slurmdbd']}",
        "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu",
        # Long enough for a node's answer on a machine with much to do.
        "SlurmdTimeout=30",
        # Short, so that tests need not wait.
        "SlurmctldTimeout=10",
        "KillWait=20",
        "OverTimeLimit=0",
        "MinJobAge=15",
        "InactiveLimit=0",
        "CompleteWait=0",
        # Long, since a node whose step takes longer to end is drained, and its jobs wait for ever.
        "UnkillableStepTimeout=600",
    ]
    for kind in KINDS:
        gres = f" Gres=gpu:{kind.gpu}:4" if kind.gpu else ""
        lines += [
            f"NodeName={name} NodeAddr=127.0.0.1 Port={ports[name]} CPUs={CPUS_PER_NODE} "
            f"RealMemory={MEMORY_MB}{gres} State=UNKNOWN"
            for name in kind.names
        ]
        for partition in kind.partitions:
            mode = _PREEMPTED.get(partition, "OFF")
            tier = f"PriorityTier={10 if mode == 'OFF' else 1} PreemptMode={mode}"
            default = " Default=YES" if partition == "accelerated" else ""
            lines.append(
                f"PartitionName={partition} Nodes={','.join(kind.names)} State=UP "
                f"MaxTime=2-00:00:00 DefaultTime=30 {tier}{default}"
            )
    return "\n".join(lines) + "\n"


def gres_conf() -> str:
    """Text of gres.conf."""
    return "".join(
        f"NodeName={name} Name=gpu Type={kind.gpu} File={GPU_FILES}\n"
        for kind in KINDS
        if kind.gpu
        for name in kind.names
    )


def slurmdbd_conf(base: Path, host: str, port: int) -> str:
    """Text of slurmdbd.conf, which must be readable by its owner only."""
    lines = [
        f"DbdHost={host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={port}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={base}/munge.socket",
        f"PidFile={base}/slurmdbd.pid",
        f"LogFile={base}/log/slurmdbd.log",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        f"StorageLoc={DATABASE}",
    ]
    return "\n".join(lines) + "\n"


def hosts(host: str) -> str:
    """Text of the nodes' /etc/hosts: all of them are on the machine `host`."""
    return f"127.0.0.1 localhost {host} {' '.join(NODES)}\n"
