"""Running checks: those that need the machine for themselves first, then the others side by side."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scalewatt.doctor.subprocess_runner import Subprocesses
from scalewatt.gpu_checks.check_types import (
    FAILED,
    PASSED,
    SKIPPED,
    Bench,
    Check,
    CheckFailed,
    CheckResult,
    CheckSkipped,
)

SIDE_BY_SIDE = 3
"""How many checks that do not measure times run at once."""
_REASON = 400


@dataclass(frozen=True)
class Checked:
    """A check's result, and what its processes printed."""

    result: CheckResult
    log: str


def run_checks(
    checks: Sequence[Check],
    rehearse: bool,
    told: Callable[[Checked], None],
    named: bool = False,
) -> list[Checked]:
    """Run all checks and return their results in the order of `checks`; `told` gets each as it ends.

    Whatever a check raises is its own failure. Every process that one started has ended. `named`:
    the checks were asked for by their names, so that a rehearsal leaves out only what it cannot do.
    In a rehearsal no time counts, so that none is alone.
    """
    processes = Subprocesses(sys.executable, _environment())
    lock = threading.Lock()
    found: dict[str, Checked] = {}
    with tempfile.TemporaryDirectory(prefix="scalewatt-gpu-check-") as folder:

        def run(check: Check) -> None:
            place = Path(folder) / check.name
            checked = run_check(check, place, rehearse, processes, named)
            with lock:
                found[check.name] = checked
                told(checked)

        try:
            alone = [] if rehearse else [one for one in checks if one.alone]
            for check in alone:
                run(check)
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                try:
                    list(pool.map(run, (one for one in checks if one not in alone)))
                except BaseException:  # Ctrl-C: the pool would wait for what still runs
                    processes.end_all()
                    raise
        finally:
            processes.end_all()
    return [found[check.name] for check in checks]


def run_check(
    check: Check, folder: Path, rehearse: bool, processes: Subprocesses, named: bool = True
) -> Checked:
    """Run one check in a folder that is made for it."""
    folder.mkdir(parents=True)
    began_s = time.monotonic()
    bench = Bench(folder, rehearse, processes, began_s + check.limit_s)
    measured = None
    try:
        if rehearse and check.needs_gpu:
            raise CheckSkipped("needs a GPU: not rehearsed")
        if rehearse and not named and check.not_rehearsed:
            raise CheckSkipped(f"not rehearsed: {check.not_rehearsed}")
        finding = check.run(bench)
        measured, reason = finding.measured, finding.note
        verdict = PASSED if finding.holds else FAILED
    except CheckSkipped as skipped:
        verdict, reason = SKIPPED, _line(skipped)
    except CheckFailed as failed:
        verdict, reason = FAILED, _line(failed)
    except Exception as error:  # whatever a driver, a library or a file system may raise
        verdict, reason = FAILED, _line(f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - began_s
    facts = (check.name, check.statement, check.limit, measured, verdict, reason, seconds)
    log = bench.log.read_text(encoding="utf-8") if bench.log.exists() else ""
    return Checked(CheckResult(*facts), log)


def _line(problem: object) -> str:
    return " ".join(str(problem).split())[:_REASON]


def _environment() -> dict[str, str]:
    """Return the environment of all child processes: this package first, and Open MPI as mpich is."""
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
