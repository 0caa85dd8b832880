"""Batches that do not fit into a GPU's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.training import batch_limit
from scalewatt.training.batch_limit import largest_that_fits, within_memory

GIB = 2**30


@given(limit=st.integers(0, 5000), beyond=st.integers(1, 5000))
def test_the_largest_size_is_found_in_steps_of_eight_with_few_attempts(
    limit: int, beyond: int
) -> None:
    too_large, tried = limit + beyond, []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    expected = limit if limit < 64 else limit - limit % 8
    if too_large <= 64:
        expected = limit
    assert largest_that_fits(fits, too_large) == (expected or None)
    assert len(tried) <= 11
    assert all(size < too_large for size in tried)


class LittleMemory(torch.nn.Module):
    """A network for which a batch of more than `limit` runs out of memory."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return (self.weight * x).mean()


def trainer_of(limit: int, batch: int) -> Any:
    """A trainer on a stand-in GPU of 4 GiB, of which other processes hold 1.5."""
    network = LittleMemory(limit)
    spec = SimpleNamespace(configuration="net-gpu-n001", local_batch_size=batch)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def trial_pass(weights: torch.nn.Module, size: int) -> None:
        weights(torch.ones(size)).backward()

    return SimpleNamespace(
        spec=spec,
        device=SimpleNamespace(type="cuda"),
        network=SimpleNamespace(weights=network),
        optimizer=optimizer,
        workload=SimpleNamespace(
            release=lambda: None,
            optimizer=lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
        ),
        trial_pass=trial_pass,
    )


@pytest.fixture
def stand_in_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2 * GIB, 4 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: GIB // 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(100, "largest local batch size that fits: 96"), (5, "largest local batch size that fits: 5"),
     (0, "not even a local batch of 1 fits")],
)  # fmt: skip
def test_a_batch_that_does_not_fit_is_one_sentence_that_names_the_largest_that_does(
    stand_in_gpu: None, limit: int, words: str
) -> None:
    trainer = trainer_of(limit, 512)
    with pytest.raises(InputError) as refused:
        within_memory(trainer, lambda: trainer.trial_pass(trainer.network.weights, 512))
    assert str(refused.value) == (
        "net-gpu-n001: a local batch of 512 does not fit into the 4.0 GiB of A GPU, of which other"
        f" processes and CUDA itself hold 1.5 GiB; {words}"
    )


def test_nothing_is_tried_while_the_failed_step_still_holds_its_memory(
    stand_in_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error's traceback keeps all tensors of the failed step alive."""
    alive: list[bool] = []
    held: set[Any] = set()

    class Tensor:
        def __init__(self) -> None:
            held.add(id(self))

        def __del__(self) -> None:
            held.discard(id(self))

    def step() -> None:
        mine = Tensor()  # noqa: F841 (a local of the failed step)
        raise torch.OutOfMemoryError("CUDA out of memory")

    def noted(trainer: Any) -> Any:
        alive.append(bool(held))
        return lambda size: True

    monkeypatch.setattr(batch_limit, "trials", noted)
    with pytest.raises(InputError):
        within_memory(trainer_of(8, 16), step)
    assert alive and not any(alive)


@pytest.mark.parametrize(
    "words",
    ["CUDA out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "FIND was unable to find an engine to execute this computation"],
)  # fmt: skip
def test_libraries_that_lack_memory_in_their_own_words_are_understood(
    stand_in_gpu: None, words: str
) -> None:
    def step() -> None:
        raise RuntimeError(words)

    with pytest.raises(InputError, match="largest local batch size that fits: 8"):
        within_memory(trainer_of(8, 16), step)
    with pytest.raises(RuntimeError, match="size mismatch"):
        within_memory(
            trainer_of(8, 16), lambda: (_ for _ in ()).throw(RuntimeError("size mismatch"))
        )


def test_other_errors_pass_and_results_come_back() -> None:
    trainer: Any = None
    assert within_memory(trainer, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        within_memory(trainer, lambda: 1 // 0)


def test_trying_leaves_the_trainings_weights_as_they_are_and_no_gradients(
    stand_in_gpu: None,
) -> None:
    trainer = trainer_of(8, 16)
    fits = batch_limit.trials(trainer)
    assert fits(8) and not fits(9) and fits(8)
    weight = trainer.network.weights.weight
    assert weight.grad is None and weight.item() == 1
