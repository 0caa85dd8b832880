"""axe-core's findings on a page, where the environment names its file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browser import Browser

AXE = "SCALEWATT_AXE"
"""The variable that names axe.min.js (`npm pack axe-core`); it is not part of the project."""


def serious_findings(page: Browser) -> list[str]:
    """What axe-core finds on a page that is serious or critical; skips the test without axe-core."""
    path = os.environ.get(AXE)
    if not path:
        pytest.skip(f"{AXE} names no axe.min.js (npm pack axe-core)")
    page.evaluate(Path(path).read_text(encoding="utf-8") + ";0")
    wanted = "found.violations.filter(one => ['serious', 'critical'].includes(one.impact))"
    words = "one => one.id + ': ' + one.nodes.map(node => node.html).slice(0, 3).join(' | ')"
    return page.evaluate(f"axe.run().then(found => {wanted}.map({words}))")
