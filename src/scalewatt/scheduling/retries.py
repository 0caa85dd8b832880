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

PUBLICATIONS = 2
"""How often the results of a trained run are published at most: a file system may fail once."""


def reason_to_end(run: Mapping[str, Any], spec: RunSpec, crash_retries: int) -> str | None:
    """Why no job follows a run's last segment; None if one does.

    A run goes on from its checkpoint unless its input was refused, its disk is full, it stopped twice in
    a row without progress, or crashed or was not recorded `crash_retries` + 1 times in a row without
    progress. One that is trained is published, twice at most. Only segments of the present Snakemake
    count.
    """
    if run["refusal"]:
        return str(run["refusal"])
    if failures := run["unpublished"]:
        is_last = len(failures) >= PUBLICATIONS
        return f"it is trained, and cannot be published ({failures[-1]})" if is_last else None
    segments = run["segments"][run["since"] :]
    if not segments:
        return None
    last = segments[-1]
    detail, outcome = last.get("detail") or "", last["outcome"]
    if outcome == FINISHED:
        return None
    if outcome == "refused" or NO_ROOM in detail:
        return detail or "its input was refused"
    in_vain = [*takewhile(lambda segment: not _has_progressed(segment), reversed(segments))]
    has_stopped_twice = [segment["outcome"] for segment in in_vain[:2]] == [STOPPED] * 2
    if not has_stopped_twice and len(in_vain) <= max(crash_retries, outcome == STOPPED):
        return None
    return (
        f"no progress in {len(in_vain)} segments in a row, the last {outcome} "
        f"{_position(last, spec)}{f' ({detail})' if detail else ''}"
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
    is_trained = (folder / RESULT).exists() and not run["unpublished"]
    if is_trained or run.get("started_by") != starter:
        return None
    if reason := reason_to_end(run, spec, crash_retries):
        return reason
    return None if has_room(folder) else full_text(folder)


def _has_progressed(segment: Mapping[str, Any]) -> bool:
    """Whether a segment left a further checkpoint; of a command, which keeps its own, if it stopped there."""
    began, ended = segment.get("from_updates"), segment.get("to_updates")
    if segment["outcome"] == MONITOR_LOST:  # its updates have no energy
        return False
    if began is None or ended is None:
        return bool(segment["outcome"] == STOPPED)
    return bool(ended > began)


def _position(segment: Mapping[str, Any], spec: RunSpec) -> str:
    done = segment.get("to_updates")
    if done is None:
        return "at an unknown update"
    return f"at update {done}" + (f" of {spec.updates}" if spec.updates else "")
