"""The version of each step of the workflow, next to the SHA-256 of the goldens that it makes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from golden_tables import FOLDER, Golden

from scalewatt.common.files import file_sha256
from scalewatt.targets import versions

VERSIONS = Golden("versions.csv", ("step", "golden"))
_TABLES = (
    *("runs", "configurations", "scaling", "comparisons", "table1"),
    *("figure*", "breakdown", "learning", "pareto"),
)
GOLDENS = {
    "ENERGY": ("paper/energies.csv.xz", "paper/flags.csv.xz", "recordings/*-energies.csv"),
    "IDLE": ("paper/idle.csv.xz",),
    "TABLES": tuple(f"paper/{name}.csv.xz" for name in _TABLES),
    "CLAIMS": ("paper/claims.csv.xz", "claims_*.csv"),
    "PREDICTION": ("paper/prediction.csv.xz",),
}
"""Patterns of the goldens that a step makes. Steps without a golden are not compared."""


def made(_: Path | None = None) -> dict[Golden, pd.DataFrame]:
    """The golden of today's numbers; ValueError if a golden changed and its step's number did not."""
    table = today()
    stale = unraised(table)
    if stale:
        raise ValueError(f"raise these numbers in scalewatt.targets.versions: {', '.join(stale)}")
    return {VERSIONS: table}


def today() -> pd.DataFrame:
    """Today's versions and goldens."""
    rows = [
        (step, str(getattr(versions, step)), str(path.relative_to(FOLDER)), file_sha256(path))
        for step, patterns in GOLDENS.items()
        for pattern in patterns
        for path in sorted(FOLDER.glob(pattern))
    ]
    return pd.DataFrame(rows, columns=["step", "version", "golden", "sha256"])


def unraised(table: pd.DataFrame) -> list[str]:
    """Steps with another golden than noted, and the noted version."""
    both = table.merge(VERSIONS.read(), on=["step", "golden"], suffixes=("", "_noted"))
    changed = both[both.sha256 != both.sha256_noted]
    return sorted(set(changed[changed.version == changed.version_noted].step))
