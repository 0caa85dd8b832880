"""Make all goldens by today's code, and say what is other than it was: `python tests/golden/make.py`.

Names make some of them alone: specs, targets, claims, paper, recordings, trainings, versions.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import golden_claims
import golden_paper
import golden_recordings
import golden_specs
import golden_targets
import golden_trainings
import golden_versions
import pandas as pd
from golden_tables import Golden, renew

MAKERS: dict[str, Callable[[Path], Mapping[Golden, pd.DataFrame]]] = {
    "specs": golden_specs.made,
    "targets": golden_targets.made,
    "claims": golden_claims.made,
    "paper": golden_paper.made,
    "recordings": golden_recordings.made,
    "trainings": golden_trainings.made,
    "versions": golden_versions.made,
}


def main(names: list[str]) -> None:
    """Make the goldens of these names; without a name all."""
    for name in names or MAKERS:
        begun_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for line in renew(MAKERS[name](Path(folder) / "project")):
                print(line, flush=True)
        print(f"{name}: {time.monotonic() - begun_s:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
