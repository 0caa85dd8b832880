"""Weights saved by the original FourCastNet code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from literal_afno import OriginalLayout
from torch import Tensor, nn

from scalewatt.common.errors import InputError
from scalewatt.workloads.afno import FourCastNet, Rollout, load_original_checkpoint

GRID, PATCH, WIDTH, DEPTH, BLOCKS = (12, 24), 2, 16, 2, 4


def network(depth: int = DEPTH) -> FourCastNet:
    return FourCastNet(
        grid=GRID, patch_size=PATCH, embed_dim=WIDTH, depth=depth, num_blocks=BLOCKS, mlp_ratio=3
    )


@pytest.fixture(scope="module")
def original() -> OriginalLayout:
    torch.manual_seed(0)
    return OriginalLayout(GRID, PATCH, WIDTH, DEPTH, BLOCKS, 3)


@pytest.fixture(scope="module")
def saved(original: OriginalLayout) -> dict[str, Any]:
    """What the original code saves: more than weights, and these by the names of its DDP."""
    optimizer = torch.optim.Adam(original.parameters(), lr=5e-4)
    return {
        "iters": 54020,
        "epoch": 80,
        "model_state": {f"module.{name}": value for name, value in original.state_dict().items()},
        "optimizer_state_dict": optimizer.state_dict(),
    }


@pytest.fixture(scope="module")
def path(saved: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "best_ckpt.tar"
    torch.save(saved, path)
    return path


def pass_through(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    y = model(x)
    (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
    names = {name.removeprefix("net."): p.grad for name, p in model.named_parameters()}
    return y.detach(), {name: grad for name, grad in names.items() if grad is not None}


def assert_alike(found: Tensor, expected: Tensor, name: str) -> None:
    """To float32 rounding of sums as large as the largest value."""
    largest = expected.abs().max().item()
    assert largest > 0, name
    assert (found - expected).abs().max().item() < 2e-5 * largest, name


def test_outputs_and_gradients_are_the_originals(original: OriginalLayout, path: Path) -> None:
    torch.manual_seed(1)
    net, x = network(), torch.randn(2, 20, *GRID)
    load_original_checkpoint(net, path)
    expected, their_gradients = pass_through(original, x)
    found, gradients = pass_through(net, x)
    assert_alike(found, expected, "output")
    assert set(gradients) == set(their_gradients)  # so also: nothing uses the last norm
    for name, gradient in gradients.items():
        assert_alike(gradient, their_gradients[name], name)


def test_a_rollout_of_two_steps_is_the_originals_applied_twice(
    original: OriginalLayout, path: Path
) -> None:
    torch.manual_seed(2)
    model, x = Rollout(network(), 2), torch.randn(1, 20, *GRID)
    load_original_checkpoint(model, str(path))
    with torch.no_grad():
        first = original(x)
        found, expected = model(x), torch.stack([first, original(first)], dim=1)
    assert_alike(found, expected, "output")


def test_files_that_do_not_fit_are_named(path: Path, saved: dict[str, Any], tmp_path: Path) -> None:
    torn, foreign = tmp_path / "torn.tar", tmp_path / "foreign.tar"
    torn.write_bytes(path.read_bytes()[:5000])
    torch.save({"model_state": network()}, foreign)  # a pickled class could run anything
    for file in (torn, foreign, tmp_path / "missing.tar"):
        with pytest.raises(InputError, match=rf"{file.name}: cannot be used as weights"):
            load_original_checkpoint(network(), file)
    with pytest.raises(InputError, match=r"(?s)best_ckpt\.tar: .*blocks\.2\.norm1\.weight"):
        load_original_checkpoint(network(depth=3), path)
