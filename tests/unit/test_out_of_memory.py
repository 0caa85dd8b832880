"""A batch that does not fit into a GPU's memory is refused in a sentence, and nothing else is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scalewatt.common.errors import InputError
from scalewatt.training.device import within_device

SPEC: Any = SimpleNamespace(
    configuration="net-gpu-n001", local_batch_size=512, settings={"compile": True}
)
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def stand_in_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 * 2**29)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")


def test_a_batch_that_does_not_fit_is_refused_with_the_memory_it_allocated() -> None:
    with pytest.raises(InputError) as refused, within_device(SPEC, GPU):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert str(refused.value) == (
        "net-gpu-n001: a local batch of 512 does not fit into the memory of A GPU (allocated: 1.5 GiB); lower"
        " local_batch_size"
    )


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"), within_device(SPEC, GPU):
        raise RuntimeError("size mismatch")
