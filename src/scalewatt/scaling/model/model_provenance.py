"""What a scaling model was made from and by what: hashes of the tables and specs, and versions."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import text_sha256
from scalewatt.scaling.model.calibration_points import table_of
from scalewatt.scaling.model.kind_model import Point
from scalewatt.scaling.model.posterior import DRAWS, SEED

_PACKAGES = ("numpy", "scipy", "emcee")


def provenance_of(sources: Sequence[Path], points: Iterable[Point]) -> dict[str, Any]:
    """JSON-ready: when, by which versions and settings of the sampler, from which tables and specs."""
    specs = sorted({one.spec_sha256 for one in points if one.spec_sha256 is not None})
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "seed": SEED,
        "draws": DRAWS,
        "tables_sha256": {str(source): _sha256(table_of(source)) for source in sources},
        "specs": len(specs),
        "specs_sha256": text_sha256("\n".join(specs)) if specs else None,
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
