"""One segment of one run, as a rank sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.run_files.run_lock import require_lock

FINISHED, STOPPED = "finished", "stopped"
"""Outcomes of a segment that does not fail."""


@dataclass(frozen=True)
class Job:
    """What to train, where, and from what."""

    spec: RunSpec
    spec_sha256: str
    data_folder: str
    work: Path
    """The run's working directory; rank 0 writes checkpoint.pt, result.json and weights.pt there."""
    segment: int
    scratch: str | None = None
    """Folder of the node for a copy of the data; null for none."""
    initial_weights: Path | None = None
    max_updates: int | None = None
    """Stop after so many updates of this segment."""
    lock_token: str | None = None
    """The token of this process's lock of the working directory (`run_lock`)."""

    def require_lock(self) -> None:
        """Raise LockedError if another process has taken over the run: nothing more may be written."""
        require_lock(self.work, self.lock_token)
