"""Whether a run whose job ended gets another job, by what its launcher recorded (`run.json`).

Asked by the job before it starts ranks, by Snakemake for the resources of the next try, and by
`scalewatt status`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import NO_ROOM, full_text, has_room
from scalewatt.run_files.inventory import find_workdirs
from scalewatt.run_files.record import STARTED_BY, read_ended_run


def retry(run: Mapping[str, Any], spec: RunSpec, crash_retries: int) -> tuple[str, str | None]:
    """How a run's last segment ended, and why no job follows; None if one does.

    A run goes on from its checkpoint unless its input was refused, its disk is full, it stopped twice in
    a row without progress, crashed `crash_retries` + 1 times in a row without progress, or could not be
    recorded in all starts of a job. Only segments of the present Snakemake count.
    """
    if run["refusal"]:
        return run["refusal"], run["refusal"]
    segments = run["segments"][run["since"] :]
    if not segments:
        return "its job ended before its training began", None
    last = segments[-1]
    detail, outcome = last.get("detail") or "", outcome_of(last)
    ended = f"{outcome} {_position(last, spec)}{f' ({detail})' if detail else ''}"
    if outcome == "finished":
        return "trained to its end, and not published yet", None
    is_unrecorded = outcome == "monitor_lost" and last.get("code") == ExitCode.FAILED
    if outcome == "refused" or is_unrecorded or NO_ROOM in detail:
        return ended, detail or "its input was refused"
    in_vain = [*takewhile(lambda segment: not _has_progressed(segment), reversed(segments))]
    has_stopped_twice = [outcome_of(segment) for segment in in_vain[:2]] == ["stopped"] * 2
    if not has_stopped_twice and len(in_vain) <= max(crash_retries, outcome == "stopped"):
        return ended, None
    return ended, f"no progress in {len(in_vain)} segments in a row, the last {ended}"


def no_further_try(work: Path, spec: RunSpec, crash_retries: int) -> str | None:
    """Why the present Snakemake does not try a run again, by what its last job recorded; None if it does.

    `work` is the campaign's folder. Nothing of an earlier Snakemake's, or of a start by hand, is held
    against a run.
    """
    starter = os.environ.get(STARTED_BY)
    folder = next(iter(find_workdirs(work, spec)), None)
    if starter is None or folder is None or (folder / "result.json").exists():
        return None
    run = read_ended_run(folder, spec)
    if run.get("started_by") != starter:
        return None
    return retry(run, spec, crash_retries)[1] if has_room(folder) else full_text(folder)


def outcome_of(segment: Mapping[str, Any]) -> str:
    """Outcome of a segment that has ended, however."""
    return "killed" if segment["outcome"] == "running" else str(segment["outcome"])


def _has_progressed(segment: Mapping[str, Any]) -> bool:
    """Whether a segment left a further checkpoint; of a command, which keeps its own, if it stopped there."""
    began, ended = segment.get("from_updates"), segment.get("to_updates")
    if outcome_of(segment) == "monitor_lost":  # its updates have no energy
        return False
    if began is None or ended is None:
        return outcome_of(segment) == "stopped"
    return bool(ended > began)


def _position(segment: Mapping[str, Any], spec: RunSpec) -> str:
    done = segment.get("to_updates")
    if done is None:
        return "at an unknown update"
    return f"at update {done}" + (f" of {spec.updates}" if spec.updates else "")
