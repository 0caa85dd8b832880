"""What each precision means on each device."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from scalewatt.campaign import model_registry
from scalewatt.training.device import set_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
SETTINGS = get_args(model_registry.Precision)


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))


@pytest.mark.parametrize(
    ("setting", "used", "autocast", "flags"),
    [
        ("torch_default", "tf32_convolutions", None, (True, False)),
        ("fp32", "fp32", None, (False, False)),
        ("tf32", "tf32", None, (True, True)),
        ("fp16", "fp16", torch.float16, (True, False)),
        ("bf16", "bf16", torch.bfloat16, (True, False)),
    ],
)
def test_a_gpu_computes_as_set(
    ampere: None, setting: str, used: str, autocast: torch.dtype | None, flags: tuple
) -> None:
    assert set_precision(setting, GPU) == (used, autocast)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == flags


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_cpu_computes_in_fp32_but_for_bf16(setting: str) -> None:
    bf16 = setting == "bf16"
    assert set_precision(setting, CPU) == (("bf16", torch.bfloat16) if bf16 else ("fp32", None))
