"""Slurm: its commands, the partitions of the cluster file, the launcher's PMI, and accounting."""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scalewatt.campaign.campaign_types import Cluster, Device
from scalewatt.common.schema_validation import nearest
from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    Check,
    CheckFunction,
    Machine,
    PlannedChecks,
    Profile,
    unknown,
)
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.slurm.partitions import PARTITIONS_QUESTION, Partition, misfits, parse_partitions

PROGRAMS = ("sbatch", "srun", "sinfo", "squeue", "scancel", "scontrol")
_LOGIN_NODE = "the login node of the cluster, or `module load slurm` (ask its support)"


def plan_slurm_checks(machine: Machine, programs: Subprocesses, profile: Profile) -> PlannedChecks:
    """Return the checks of Slurm, by name."""
    present = {name: programs.which(name) for name in PROGRAMS}
    commands = assess_commands(present, profile.submits, str(profile.folder))
    planned: PlannedChecks = {("slurm",): lambda: [commands]}
    if not profile.submits or commands.outcome == MISSING:
        return planned
    cluster, limit_s = profile.cluster, machine.limits.command_s

    def check(assess: Callable[[Answer], Check], *command: str) -> CheckFunction:
        return lambda: [assess(programs.run(command, limit_s))]

    where = profile.cluster_file
    planned |= {
        ("slurm_partitions",): lambda: [
            assess_partitions(lambda command: programs.run(command, limit_s), cluster, where)
        ],
        ("slurm_pmi",): check(
            lambda answer: assess_pmi(answer, cluster.launcher, where), "srun", "--mpi=list"
        ),
        ("slurm_account",): check(
            lambda answer: assess_account(answer, cluster.account, machine.environment, where),
            *("sacctmgr", "-nP", "show", "assoc", f"user={_user()}", "format=account"),
        ),
        ("slurm_accounting",): check(assess_accounting, "scontrol", "show", "config"),
        ("slurm_job",): lambda: [assess_job(machine.environment, profile)],
    }
    return planned


def _user() -> str:
    """Return the user's name, or number where there is no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def assess_commands(present: Mapping[str, str | None], needed: bool, profile: str) -> Check:
    """Check that Slurm's commands are there; `needed` where the profile's runs are jobs."""
    absent = [name for name in PROGRAMS if not present[name]]
    facts = {"commands": dict(present)}
    if not needed:
        found = "not installed" if len(absent) == len(PROGRAMS) else "installed"
        means = f"{profile} names no partition, so its runs need no Slurm"
        fix = ("scalewatt doctor --profile profiles/slurm",) if found == "installed" else ()
        outcome = OK if found == "installed" else MISSING
        return Check("slurm", outcome, found, means, fix, facts=facts)
    if absent:
        found = f"{', '.join(absent)}: not found"
        means = "no job can be submitted from here"
        return Check("slurm", MISSING, found, means, (), True, facts, (_LOGIN_NODE,))
    return Check("slurm", OK, f"{', '.join(PROGRAMS)} are there", needed=True, facts=facts)


def assess_partitions(
    asked: Callable[[Sequence[str]], Answer], cluster: Cluster, where: str
) -> Check:
    """Check that each device's partition exists and has nodes that hold a node's ranks.

    `asked` runs a command of Slurm's.
    """
    name = "slurm_partitions"
    answer = asked(PARTITIONS_QUESTION)
    if answer.problem:
        return _no_answer(name, answer, needed=True)
    known = parse_partitions(answer.lines)
    devices = cluster.devices.values()
    jobs = [(device.name, _full_node(device, cluster.exclude_nodes)) for device in devices]
    refused, _ = misfits(jobs, known, lambda command: asked(command).problem)
    problems = [f"{', '.join(names)}: {problem}" for problem, names in refused.items()]
    facts = {
        "partitions": {d.name: d.partition for d in devices},
        "known": sorted(known),
        "problems": problems,
    }
    if problems:
        ask = (f"{where}: devices.<name>.partition, gres, cpus_per_rank as `sinfo` shows them",)
        means = "runs on these devices are refused before they are submitted"
        return Check(name, MISSING, "; ".join(problems), means, (), True, facts, ask)
    found = dict.fromkeys(_described(known[str(device.partition)]) for device in devices)
    return Check(name, OK, "; ".join(found), needed=True, facts=facts)


def _described(partition: Partition) -> str:
    limit = partition.time_limit_min
    hours = "no time limit" if limit is None else f"{limit / 60:g} h"
    return f"{partition.name}: {partition.nodes} nodes, {hours}"


def _full_node(device: Device, excluded: Sequence[str]) -> dict[str, Any]:
    """Resources of a job that fills a node with ranks."""
    exclude = [f"--exclude={','.join(excluded)}"] if excluded else []
    return {
        "slurm_partition": device.partition,
        "nodes": 1,
        "cpus_per_task": device.cpus_per_rank,
        "gres": f"{device.gres}:{device.gpus_per_node}" if device.gres else None,
        "mem_mb": device.memory_mb,
        "runtime": device.time_limit_min,
        "slurm_extra": shlex.join([f"--ntasks-per-node={device.gpus_per_node}", *exclude]),
    }


def assess_pmi(answer: Answer, launcher: str, where: str) -> Check:
    """Check that srun knows the PMI that the launcher asks for."""
    wanted = re.search(r"--mpi[= ](\S+)", launcher)
    text = f"{answer.output} {answer.errors}"
    listed = re.findall(r"\w+", text.partition("are")[2])
    known = (word for word in listed if re.fullmatch(r"none|pmi\w*|cray\w*|openmpi", word))
    plugins = list(dict.fromkeys(known))
    facts = {"wanted": wanted[1] if wanted else None, "plugins": plugins}
    if answer.problem and not plugins:
        return _no_answer("slurm_pmi", answer, needed=True)
    found = f"srun knows {', '.join(plugins) or 'no PMI'}"
    if wanted is None:
        means = "the launcher names none; the MPI of the wheel speaks PMI-2"
        uses_srun = "".join(launcher.split()[:1]).endswith("srun")
        ask = (f"{where}: launcher: srun --mpi=pmi2 …",) if uses_srun else ()
        return Check("slurm_pmi", LIMITED if uses_srun else OK, found, means, facts=facts, ask=ask)
    if wanted[1] not in plugins:
        means = "ranks started by srun would be worlds of one, which is refused"
        ask = (f"the cluster's support, for Slurm's plugin {wanted[1]}",)
        return Check("slurm_pmi", MISSING, found, means, (), True, facts, ask)
    return Check(
        "slurm_pmi", OK, f"{found}; the launcher asks for {wanted[1]}", needed=True, facts=facts
    )


def assess_account(
    answer: Answer, account: str | None, environment: Mapping[str, str], where: str
) -> Check:
    """Check that the account that jobs are charged to is set, and one of the user's."""
    name = "slurm_account"
    accounts = sorted({line.strip() for line in answer.lines}) if not answer.problem else []
    none = "which are yours is not known" if answer.problem else "Slurm names none of yours"
    yours = f"yours: {', '.join(accounts)}" if accounts else none
    facts = {"account": account, "accounts": accounts}
    if account is None:
        return Check(name, OK, f"{where} names none: Slurm's default ({yours})", facts=facts)
    unset = [v for v in re.findall(r"\$\{?(\w+)\}?", account) if not environment.get(v)]
    if unset:
        fix = tuple(f"export {v}={accounts[0]}" for v in unset if accounts)
        ask = () if accounts else ("the cluster's support, for the name of your project",)
        found = f"{', '.join(unset)} not set; {yours}"
        return Check(name, MISSING, found, "no job is submitted", fix, True, facts, ask)
    given = re.sub(r"\$\{?(\w+)\}?", lambda one: environment[one[1]], account)
    facts["account"] = given
    if answer.problem:
        return _no_answer(name, answer, needed=True)
    if accounts and given.lower() not in [known.lower() for known in accounts]:
        found = f"{given} is none of yours{nearest(given, accounts)}; {yours}"
        ask = (f"{where}: account: {accounts[0]}",)
        return Check(name, MISSING, found, "no job is submitted", (), True, facts, ask)
    return Check(name, OK, f"{given} ({yours})", needed=True, facts=facts)


def assess_accounting(answer: Answer) -> Check:
    """Check whether Slurm keeps how jobs ended, and measures energy itself, as a cross-check."""
    name = "slurm_accounting"
    if answer.problem:
        return _no_answer(name, answer)
    plugins = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", answer.output, re.MULTILINE))
    kept = plugins.get("AccountingStorageType", "").rpartition("/")[2] not in ("", "none", "(null)")
    meter = plugins.get("AcctGatherEnergyType", "none").rpartition("/")[2]
    measures = meter not in ("none", "(null)")
    facts = {"accounting": kept, "energy": meter if measures else None}
    lacks = [] if kept else ["how a job ended is known from the queue alone"]
    lacks += [] if measures else ["no cross-check of the energy of nodes"]
    found = f"accounting {'is kept' if kept else 'is off'}; Slurm measures " + (
        f"nodes by {meter}" if measures else "no energy"
    )
    ask = ("the cluster's support, for slurmdbd and AcctGatherEnergyType (rapl, ipmi, xcc)",)
    means = "; ".join(lacks)
    outcome = LIMITED if lacks else OK
    return Check(name, outcome, found, means, facts=facts, ask=ask if lacks else ())


def assess_job(environment: Mapping[str, str], profile: Profile) -> Check:
    """Check whether this is a compute node, where the sensors are."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    keys = ("SLURM_JOB_PARTITION", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_JOB_GPUS")
    facts = {"job": job, **{key: environment.get(key) for key in keys}}
    if job:
        partition = environment.get("SLURM_JOB_PARTITION", "?")
        found = f"inside job {job} on partition {partition}, host {os.uname().nodename}"
        return Check("slurm_job", OK, found, facts=facts)
    fix = tuple(dict.fromkeys(_there(d, profile) for d in profile.cluster.devices.values()))
    means = "sensors and GPUs here are this node's; runs go to others, so run the doctor there"
    return Check("slurm_job", LIMITED, "not in a job (a login node)", means, fix, facts=facts)


def _there(device: Device, profile: Profile) -> str:
    """Return the command of a job of two ranks, in which the cluster file's launcher is tested too."""
    gres = f" --gres={device.gres}:1" if device.gres else ""
    account = f" --account={profile.cluster.account}" if profile.cluster.account else ""
    asked = shlex.join(["scalewatt", "doctor", "--profile", str(profile.folder)])
    return (
        f"sbatch --wait --partition={device.partition} --nodes=1 --ntasks=2 --time=2{gres}{account} "
        f'--output=doctor.txt --wrap="{asked}"; cat doctor.txt'
    )


def _no_answer(name: str, answer: Answer, needed: bool = False) -> Check:
    """Return the check of a command that timed out (unknown) or failed (missing)."""
    if answer.timed_out:
        return unknown(name, answer.problem, needed)
    means = "Slurm does not answer; whether jobs can be submitted is undetermined"
    return Check(name, MISSING, answer.problem, means, needed=needed, ask=(_LOGIN_NODE,))
