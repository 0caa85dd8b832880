"""Whether a run whose job ended gets another job, by what its launcher recorded (`run.json`).

Asked by the job before it starts ranks, by Snakemake before it submits the next try, and by
`scalewatt status`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import NO_ROOM, full_text, has_room
from scalewatt.run_files.inventory import find_workdirs
from scalewatt.run_files.record import (
    FINISHED,
    MONITOR_LOST,
    RESULT,
    STARTED_BY,
    STOPPED,
    read_ended_run,
)


def reason_to_end(run: Mapping[str, Any], spec: RunSpec, crash_retries: int) -> str | None:
    """Why no job follows a run's last segment; None if one does.

    A run goes on from its checkpoint unless its input was refused, its disk is full, it stopped twice in
    a row without progress, or crashed or was not recorded `crash_retries` + 1 times in a row without
    progress. Only segments of the present Snakemake count.
    """
    segments = run["segments"][run["since"] :]
    if run["refusal"] or not segments:
        return run["refusal"]
    last = segments[-1]
    detail, outcome = last.get("detail") or "", last["outcome"]
    if outcome == FINISHED:
        return None
    if outcome == "refused" or NO_ROOM in detail:
        return detail or "its input was refused"
    fruitless = [*takewhile(lambda segment: not _has_progressed(segment), reversed(segments))]
    has_stopped_twice = [segment["outcome"] for segment in fruitless[:2]] == [STOPPED] * 2
    if not has_stopped_twice and len(fruitless) <= max(crash_retries, outcome == STOPPED):
        return None
    done = last.get("to_updates")
    position = "at an unknown update" if done is None else f"at update {done} of {spec.updates}"
    return (
        f"no progress in {len(fruitless)} segments in a row, the last {outcome} {position}"
        f"{f' ({detail})' if detail else ''}"
    )


def no_further_try(work: Path, spec: RunSpec, crash_retries: int) -> str | None:
    """Why the present Snakemake does not try a run again, by what its last job recorded; None if it does.

    `work` is the campaign's folder. Nothing of an earlier Snakemake's, or of a start by hand, is held
    against a run.
    """
    starter = os.environ.get(STARTED_BY)
    folder = next(iter(find_workdirs(work, spec)), None)
    if starter is None or folder is None:
        return None
    run = read_ended_run(folder, spec)
    if run.get("started_by") != starter:
        return None
    if (folder / RESULT).exists():
        return run["refusal"]
    return reason_to_end(run, spec, crash_retries) or (
        None if has_room(folder) else full_text(folder)
    )


def _has_progressed(segment: Mapping[str, Any]) -> bool:
    """Whether a segment left a further checkpoint; that of a command, which keeps its own, if it stopped."""
    began, ended = segment.get("from_updates"), segment.get("to_updates")
    if segment["outcome"] == MONITOR_LOST:  # its updates have no energy
        return False
    if began is None or ended is None:
        return bool(segment["outcome"] == STOPPED)
    return bool(ended > began)
