"""The list of all checks, what they ran on, and the files of their results."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import numbered_folder, write_json, write_text
from scalewatt.common.schema_validation import one_of
from scalewatt.gpu_checks import (
    fault_checks,
    measuring_checks,
    network_checks,
    resume_checks,
    sharing_checks,
)
from scalewatt.gpu_checks.check_runner import Checked
from scalewatt.gpu_checks.check_types import FAILED, PASSED, SKIPPED, Check, CheckResult

CHECKS: tuple[Check, ...] = (
    *measuring_checks.CHECKS,
    *resume_checks.CHECKS,
    *network_checks.CHECKS,
    *sharing_checks.CHECKS,
    *fault_checks.CHECKS,
)
DEFAULT_FOLDER = Path("results/gpu-check")


def chosen_checks(names: Sequence[str] | None) -> list[Check]:
    """Return the checks of these names, or all; InputError for an unknown name."""
    known = {check.name: check for check in CHECKS}
    for name in names or ():
        if name not in known:
            raise InputError(f"gpu-check --only: unknown '{name}'; {one_of(name, known)}")
    return [check for check in CHECKS if not names or check.name in names]


def machine(rehearse: bool) -> dict[str, Any]:
    """Return what the checks run on; InputError if that is to be a GPU and there is none."""
    import torch

    from scalewatt.execution.segment_description import software
    from scalewatt.provenance.versions import cpu_name, made_with, package_versions

    if not rehearse and not torch.cuda.is_available():
        raise InputError(
            "gpu-check: torch finds no GPU on this machine; expected one, or --rehearse for a "
            "rehearsal with tiny sizes on the CPU"
        )
    code = made_with()
    return {
        "rehearsal": rehearse,
        "device_name": cpu_name() if rehearse else torch.cuda.get_device_name(0),
        "driver": None if rehearse else _driver(),
        "cores": len(_cores()),
        "packages": package_versions(),
        "software": software(torch, _mpi()),
        "kernel": platform.release(),
        "commit": code["commit"],
        "commit_clean": code["commit_clean"],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cores() -> set[int]:
    import os

    return os.sched_getaffinity(0)


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
    except Exception:  # no binding: the checks of power say so
        return None
    return found.decode() if isinstance(found, bytes) else str(found)


def _mpi() -> Any:
    try:
        import mpi4py

        mpi4py.rc.initialize = False  # this process is no rank
        from mpi4py import MPI
    except ImportError:
        return None
    return MPI


def new_folder(given: Path | None, device_name: str) -> Path:
    """Make and return a folder for results: that given, or the device's, with a number if it is taken."""
    slug = re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "gpu"
    return numbered_folder(given or DEFAULT_FOLDER / slug)


def write_results(
    folder: Path, facts: dict[str, Any], found: Sequence[Checked], seconds: float
) -> None:
    """Write checks.json and checks.md to `folder`, in the order of CHECKS, and a log of what did not pass."""
    order = {check.name: number for number, check in enumerate(CHECKS)}
    results = sorted((one.result for one in found), key=lambda one: order.get(one.name, -1))
    for one in found:
        if one.log and one.result.verdict != PASSED:
            write_text(folder / f"{one.result.name}.log", one.log)
    content = {**facts, "seconds": seconds, "checks": [asdict(one) for one in results]}
    write_text(folder / "checks.md", _markdown(facts, results, seconds))
    write_json(folder / "checks.json", content)


def summary(results: Sequence[CheckResult], seconds: float) -> str:
    """Return how many checks passed, failed and were skipped."""
    counts = {v: sum(one.verdict == v for one in results) for v in (PASSED, FAILED, SKIPPED)}
    return f"{', '.join(f'{n} {v}' for v, n in counts.items())} in {seconds:.0f} s"


def _markdown(facts: dict[str, Any], results: Sequence[CheckResult], seconds: float) -> str:
    packages, software = facts["packages"], facts["software"]
    versions = {
        "driver": facts["driver"],
        "torch": packages["torch"],
        **{name: software[name] for name in ("cuda", "cudnn", "nccl")},
        **{name: packages[name] for name in ("python", "perun", "scalewatt")},
        "MPI": " ".join(filter(None, [software["mpi_library"], software["mpi_version"]])),
        "commit": facts["commit"],
    }
    known = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    what = "Rehearsal on the CPU, tiny sizes" if facts["rehearsal"] else "Checks on a GPU"
    rows = [
        f"| {one.name} | {one.verdict} | {_cell(one.measured)} | {_cell(one.limit)} | "
        f"{one.seconds:.1f} | {_cell(one.reason)} |"
        for one in results
    ]
    statements = [f"- **{one.name}**: {one.statement}" for one in results]
    return "\n".join(
        [
            f"# {what}: {facts['device_name']}",
            "",
            f"{summary(results, seconds)}; {facts['started']}; {known}.",
            "",
            "| check | verdict | measured | limit | s | remark |",
            "| --- | --- | --- | --- | ---: | --- |",
            *rows,
            "",
            *statements,
            "",
        ]
    )


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")
