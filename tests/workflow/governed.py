"""GPUs of a stated law, in place of real ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from workspace import first_on_path

FOLDER = Path(__file__).parent / "governed_gpus"


def environment_of(gpus: int) -> dict[str, str]:
    """The environment in which processes see `gpus` such GPUs on each node."""
    return {"PYTHONPATH": first_on_path(FOLDER), "SCALEWATT_FAULTS": "," * (gpus - 1)}


def power_w(clock_mhz: float) -> float:
    """The law of their power."""
    spec = importlib.util.spec_from_file_location("governed_nvml", FOLDER / "pynvml.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return float(module.power_w(clock_mhz))
