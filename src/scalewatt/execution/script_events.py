"""Events that a command's script reports (`scalewatt.events`), joined with those of its recorder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import write_text
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.recordings.stage_log import final_reports, read_json_lines

Row = dict[str, Any]


def joined_events(work: Path) -> Path:
    """Write the run's stage marks to a file in the working directory `work`, for `read_events`.

    Where a script marks stages, they replace the one stage `train` of the recorder;
    `startup` then lasts until its first mark.
    """
    own, given = read_json_lines(work / "events.jsonl"), read_json_lines(work / EVENTS_FILE)
    marked = {mark["segment"] for mark in given}
    seen = [m for m in own if m["stage"] != "train" or m["segment"] not in marked]
    marks = sorted([*seen, *given], key=lambda mark: (mark["segment"], mark["start_s"]))
    path = work / "events.joined.jsonl"
    write_text(path, "".join(json.dumps(mark) + "\n" for mark in marks))
    return path


def history_rows(work: Path, spec: RunSpec, segment: int) -> list[Row]:
    """Return one row per reported epoch; without reports one row of the whole training, in `segment`.

    A segment that reports an epoch has trained from there anew: what segments before it reported of
    that epoch and of later ones is of an abandoned attempt. Samples that were not reported are those
    that the campaign declares, where epochs are whole.
    """
    rows = final_reports(work / HISTORY_FILE)
    declared = spec.dataset_samples
    if not rows:
        whole = None if declared is None else declared * spec.epochs
        last = {"epoch": spec.epochs - 1, "segment": segment}
        return [{**last, "metric": None, "samples": whole, "updates": None}]
    if len(rows) == spec.epochs:
        rows = [{**r, "samples": declared if r["samples"] is None else r["samples"]} for r in rows]
    return [{**row, "throughput_samples_per_s": _throughput(row)} for row in rows]


def report_summary(work: Path, spec: RunSpec) -> dict[str, Any]:
    """Return what is known of the reports that `history_rows` takes, for the run's provenance.

    `epochs`: how many were done, null without a report. `joined`: whether its ranks formed one world, null
    where nothing tells. `declared`: what the campaign alone says. `not_finite`: epochs whose value was no
    finite number, by the name of the value.
    """
    reports = final_reports(work / HISTORY_FILE)
    seen = {report.get("joined") for report in reports}
    counted = all(report["samples"] is not None for report in reports)
    declared = [] if reports else ["epochs"]
    if spec.dataset_samples is not None and not (reports and counted):
        declared.append("samples")
    not_finite: dict[str, list[int]] = {}
    for report in reports:
        for name in report.get("not_finite", ()):
            not_finite.setdefault(name, []).append(report["epoch"])
    return {
        "epochs": reports[-1]["epoch"] + 1 if reports else None,
        "joined": True if True in seen else False if False in seen else None,
        "declared": declared,
        "not_finite": not_finite,
    }


def _throughput(row: Row) -> float | None:
    """Return the samples per s of an epoch's training; None where either is unknown."""
    samples, train_s = row["samples"], row.get("train_s")
    return samples / train_s if samples is not None and train_s else None
