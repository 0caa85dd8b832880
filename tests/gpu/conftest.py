"""Tests on a GPU: `pytest -m gpu tests/gpu`, some minutes, with nothing else at work on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "workflow"))


@pytest.fixture(scope="session", autouse=True)
def cuda() -> None:
    """Skip all tests where torch finds no GPU."""
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device on this machine")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no other sampler of this machine as one beside a test's own."""
    monkeypatch.setenv("SCALEWATT_SAMPLERS", str(tmp_path / "samplers"))


@pytest.fixture()
def nvml() -> Any:
    """Skip where NVML does not answer: then there is no power to compare."""
    try:
        import pynvml

        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception as error:  # no binding, no driver, a part of a GPU
        pytest.skip(f"NVML does not give the power of GPU 0 ({error!r})")
    return pynvml
