"""How networks train on GPUs: process groups, memory layouts, compiling."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import (
    FOURCASTNET,
    RESNET50,
    energies_of,
    in_child,
    losses_of,
    prepared,
    small_spec,
    trainer_of,
)
from torch import nn

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SENSITIVE: dict[str, Any] = {"warmup_start": 1e-8}
"""A rate at which rounding of gradients does not grow from update to update."""


def test_ranks_with_a_gpu_each_learn_what_one_does_and_count_all_gpus(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("several ranks with a GPU each need two GPUs")
    losses = {}
    for gpus in (1, 2):
        spec = small_spec(FOURCASTNET, gpus, local_batch_size=4 // gpus)
        training = prepared(tmp_path / f"{gpus}", spec)
        code, output = training.run()
        assert code == 0, output
        losses[gpus] = [row["train_loss"] for row in training.history()]
        assert energies_of(training).devices("gpu") == gpus
        (held,) = read_json(training.out / "provenance.json")["gpus"].values()
        assert len(held) == gpus
    assert losses[2] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.parametrize(("precision", "apart"), [("fp32", 1e-3), ("bf16", 3e-2)])
def test_channels_last_gives_the_losses_of_the_contiguous_layout(
    tmp_path: Path, precision: str, apart: float
) -> None:
    contiguous = in_child(losses_in_layout, tmp_path / "contiguous", precision, False)
    channels_last = in_child(losses_in_layout, tmp_path / "channels_last", precision, True)
    assert contiguous["inputs"] == {False}
    assert channels_last["inputs"] == channels_last["weights"] == {True}
    assert channels_last["losses"] == pytest.approx(contiguous["losses"], rel=apart)


def losses_in_layout(folder: Path, precision: str, channels_last: bool) -> dict[str, Any]:
    """Return the first losses, and whether inputs and weights lie in memory with their channels last."""
    settings = {"precision": precision, "channels_last": channels_last, **SENSITIVE}
    spec = small_spec(RESNET50, protocol="paper", settings=settings)
    trainer = trainer_of(spec, folder, max_updates=1)
    network = trainer.network
    first = next(part for part in network.modules() if isinstance(part, nn.Conv2d))
    inputs: set[bool] = set()
    first.register_forward_pre_hook(lambda _, given: inputs.add(is_channels_last(given[0])))
    weights = {is_channels_last(part) for part in network.parameters() if part.dim() == 4}
    return {"losses": losses_of(trainer), "inputs": inputs, "weights": weights}


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return True if a 4-d tensor lies in memory with its channels last."""
    return tensor.is_contiguous(memory_format=torch.channels_last)


def test_a_compiled_network_has_the_eager_losses_and_a_second_start_takes_its_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    _, eager = in_child(warmed_up, tmp_path / "eager", False)
    first_s, first = in_child(warmed_up, tmp_path / "first", True)
    second_s, second = in_child(warmed_up, tmp_path / "second", True)
    if first is None:
        pytest.skip("this machine has no compiler")
    assert first == pytest.approx(eager, rel=1e-2)
    assert second == pytest.approx(first, rel=1e-2)
    assert second_s < 0.5 * first_s


def warmed_up(folder: Path, compile_it: bool) -> tuple[float, list[float] | None]:
    """Return the seconds of a FourCastNet's warm-up and its first losses; None without a compiler."""
    spec = small_spec(FOURCASTNET, settings={"compile": compile_it})
    try:
        trainer = trainer_of(spec, folder, max_updates=1)
    except InputError:
        return 0.0, None
    began_s = time.perf_counter()
    trainer.warm_up()
    return time.perf_counter() - began_s, losses_of(trainer)
