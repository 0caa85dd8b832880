"""The doctor: all checks in turn, and what they mean for runs of a site and their energy."""

from __future__ import annotations

import socket
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError
from typing import Any

from scalewatt.campaign.cluster import load_site, powers
from scalewatt.common.errors import InputError
from scalewatt.doctor import checks
from scalewatt.doctor.checks import FAIL, SET_UP, Check, CommandFailed, Site, fail, warn
from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, MEASURED
from scalewatt.results.text.number_format import listed
from scalewatt.slurm.slurm_commands import NoAnswerError

CheckFunction = Callable[[Site], Check | None]

_FOLDERS = ("work", "results", "data", "scratch")
CHECKS: dict[str, CheckFunction] = {
    "gpus": checks.gpus,
    "torch": checks.torch,
    "cpu_counters": checks.cpu_counters,
    "perun": checks.perun,
    "mpi": checks.mpi,
    "slurm": checks.slurm,
    **{f"folder_{name}": partial(checks.folder, name=name) for name in _FOLDERS},
}
"""All checks, in the order in which they are reported. None: not of this site."""


def examine(site_name: str) -> dict[str, Any]:
    """Examine this machine for the runs of a site, as `--site` names it."""
    site = Site(site_name, load_site(site_name))
    every = {name: run_check(function, site) for name, function in CHECKS.items()}
    results = {name: check for name, check in every.items() if check}
    energy = energy_of(results, site)
    obstacles = obstacles_of(results, site, energy)
    return {
        "host": socket.gethostname(),
        "site": site_name,
        "device": site.device.name,
        "runs_here": site.runs_here,
        "can_run": not obstacles,
        "obstacles": obstacles,
        "energy": energy,
        "checks": [{"name": name, **asdict(check)} for name, check in results.items()],
    }


def run_check(check: CheckFunction, site: Site) -> Check | None:
    """Run a check; what gives no answer is undetermined."""
    try:
        return check(site)
    except PackageNotFoundError as error:
        return fail(f"{error.name} is not installed, so no run can be made", *SET_UP)
    except (NoAnswerError, CommandFailed, InputError, OSError) as error:
        return warn(f"undetermined: {error}")
    except Exception as error:  # an unforeseen machine: the other checks still count
        return warn(f"undetermined: the doctor failed ({type(error).__name__}: {error})")


# --- what follows for energy --------------------------------------------------------------------


def energy_of(checks: Mapping[str, Check], site: Site) -> dict[str, Any]:
    """Origin (None: unknown) and scope of a run's energy, as its tables have them, and of each kind."""
    kinds = {kind: _kind(kind, checks, site) for kind in DEVICE_KINDS}
    origins = {kind: part["origin"] for kind, part in kinds.items() if part["in_scope"]}
    origin = scope = None
    if None not in origins.values():
        origin = origins["cpu"] if len(set(origins.values())) == 1 else "mixed"
        scope = "+".join(origins)
    return {"origin": origin, "scope": scope, "kinds": kinds}


def _kind(kind: str, checks: Mapping[str, Check], site: Site) -> dict[str, Any]:
    """Origin of a device kind's energy, why, and whether it is in a run's scope."""
    gpus, perun = checks["gpus"], checks["perun"]
    if kind == "gpu" and site.device.torch_device == "cpu":
        return {"origin": None, "why": "runs of this device use the CPU", "in_scope": False}
    if kind == "gpu" and gpus.facts.get("count") == 0:
        return {"origin": None, "why": gpus.text, "in_scope": site.needs_gpu}
    if not perun.facts:
        return {"origin": None, "why": "perun was not tested", "in_scope": True}
    # As the accounting of runs has it from perun's samples.
    sampled = perun.facts["kinds"][kind]
    origin, why = sampled["origin"], f"perun reads {listed(sampled['sensors'], 4)}"
    if kind == "gpu" and 0 < len(sampled["sensors"]) < gpus.facts.get("count", 0):
        origin, why = None, f"{why}, and not the other GPUs"
    elif origin == ESTIMATED:
        rated = ", ".join(f"{key} {value}" for key, value in powers(site.device)[kind].items())
        why = f"perun reads no power; from the cluster file's {rated} (how far off: docs/guide/energy.md)"
    elif origin != MEASURED:
        remedy = f"the cluster file has no rated one (key {kind})" if kind != "gpu" else gpus.text
        why = f"perun reads no power: {remedy}"
    return {"origin": origin, "why": why, "in_scope": kind != "ram" or origin is not None}


def obstacles_of(checks: Mapping[str, Check], site: Site, energy: Mapping[str, Any]) -> list[str]:
    """Names of the checks because of which no run can be made."""
    failed = [name for name, check in checks.items() if check.outcome == FAIL]
    # Sensors of the nodes that runs are sent to are not seen from here.
    if not site.runs_here or not checks["perun"].facts:
        return failed
    unknown = [k for k, part in energy["kinds"].items() if part["in_scope"] and not part["origin"]]
    causes = {"gpu": "gpus", "cpu": "cpu_counters"}
    return list(dict.fromkeys([*failed, *(causes[kind] for kind in unknown)]))


# --- as text --------------------------------------------------------------------------------------

KIND_NAMES = {"gpu": "GPU", "cpu": "CPU", "ram": "memory"}


def as_text(report: dict[str, Any]) -> str:
    """The conclusion, then each check with its fixes."""
    here, energy = report["runs_here"], report["energy"]
    verdict = "can be made here" if here else "can be submitted from here"
    if report["obstacles"]:
        verdict = f"cannot be made yet because of {', '.join(report['obstacles'])}, see below"
    origins = ", ".join(
        f"{KIND_NAMES[kind]} {part['origin'] or 'unknown'}"
        for kind, part in energy["kinds"].items()
        if part["in_scope"]
    )
    total = "a run's total would be unknown (null)"
    if energy["origin"]:
        total = f"energy_origin {energy['origin']}, scope {energy['scope']}"
    lines = [
        f"{report['host']}, site {report['site']}, device {report['device']}\n",
        f"Runs {verdict}.",
        f"On this {'machine' if here else 'node'} energy is: {origins} ({total})",
    ]
    for kind, part in energy["kinds"].items():
        lines.append(_wrapped(f"  {KIND_NAMES[kind]:<7} {part['origin'] or '-':<9}  ", part["why"]))
    lines.append("")
    for check in report["checks"]:
        lines.append(_wrapped(f"{check['outcome']:<4}  {check['name']:<16}  ", check["text"]))
        # Never wrapped, so that a command can be copied.
        lines += [f"{'':<24}fix: {fix}" for fix in check["fix"]]
    return "\n".join(lines)


def _wrapped(begin: str, text: str) -> str:
    """Text after its row's beginning, below which further lines are indented."""
    wrapper = textwrap.TextWrapper(110, begin, " " * len(begin))
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.fill(text)
