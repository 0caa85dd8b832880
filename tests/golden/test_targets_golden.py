"""What Snakemake can be asked for stays: scripts and people know these names."""

from __future__ import annotations

from pathlib import Path

import golden_targets
import pytest


@pytest.mark.slow
def test_every_target_keeps_its_name(tmp_path: Path) -> None:
    known = set(golden_targets.TARGETS.read().target)
    assert known - set(golden_targets.targets(tmp_path / "project")) == set()
