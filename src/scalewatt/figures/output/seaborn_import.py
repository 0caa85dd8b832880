"""seaborn, imported in less than half of its time."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

_FOR_DENSITIES = ("scipy.stats", "scipy.cluster")


@cache
def seaborn() -> Any:
    """Import seaborn without SciPy's statistics, more than half of its time; no density is drawn here."""
    absent = [name for name in _FOR_DENSITIES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        return importlib.import_module("seaborn")
    finally:
        for name in absent:
            del sys.modules[name]
