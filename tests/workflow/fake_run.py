"""What the job of a run leaves behind: `python fake_run.py RUN [CODE OUTCOME FROM TO]` in its folder.

`python fake_run.py RUN published`: what another one's job does at its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from scalewatt.campaign.run_spec import read_spec
from scalewatt.run_files.attempt_log import noted_attempt
from scalewatt.run_files.progress_files import read_segments

WORK = Path(os.environ.get("FAKE_WORK", "work"))


def main(name: str, code: str = "0", outcome: str = "", began: str = "0", ended: str = "0") -> None:
    """Note an attempt that ended with `code`, and a segment if it has an outcome; a finished run is done."""
    spec = read_spec(Path(name, "spec.json"))
    if code == "published":
        Path(name, "done").touch()
        Path(name, "provenance.json").write_text(json.dumps({"spec_sha256": spec.sha256}))
        return
    with noted_attempt(WORK, spec) as note:
        note.code, note.reason = int(code), None if code in ("0", "75") else f"reason of {name}"
        if outcome:
            add_segment(WORK / f"{spec.key}-data", outcome, int(began), int(ended))
    if code == "0":
        Path(name, "done").touch()


def add_segment(workdir: Path, outcome: str, began: int, ended: int) -> None:
    """Add a segment of this job to the run's, and a log."""
    workdir.mkdir(parents=True, exist_ok=True)
    segments = read_segments(workdir)
    now = time.time()
    segment = {
        **{"segment": len(segments), "started_s": now, "ended_s": now, "outcome": outcome},
        **{"from_updates": began, "to_updates": ended, "job": os.environ["SLURM_JOB_ID"]},
    }
    (workdir / "segments.json").write_text(json.dumps([*segments, segment]))
    (workdir / "train.log").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
