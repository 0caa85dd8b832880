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


@pytest.mark.parametrize("form", ["whole", "model_state", "without prefix"])
def test_what_a_file_holds_may_be_given_itself(form: str, saved: dict[str, Any]) -> None:
    state = saved["model_state"]
    bare = {name.removeprefix("module."): value for name, value in state.items()}
    net = network()
    load_original_checkpoint(net, {"whole": saved, "model_state": state}.get(form, bare))
    assert torch.equal(net.head.weight, bare["head.weight"])


def test_names_and_shapes_that_do_not_fit_are_named(saved: dict[str, Any]) -> None:
    state = dict(saved["model_state"])
    head = state.pop("module.head.weight")
    net = network()
    before = net.pos_embed.clone()

    def refused(match: str, changed: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=match):
            load_original_checkpoint(net, {"model_state": changed})

    refused(r"checkpoint: misses head\.weight$", state)
    refused(r"unknown tail\.weight", state | {"module.head.weight": head, "module.tail.weight": 1})
    refused(
        r"other shapes: head\.weight \(80, 15\) \(expected \(80, 16\)\)",
        state | {"module.head.weight": head[:, :15]},
    )
    refused(r"no tensor for head\.weight", state | {"module.head.weight": "lost"})
    refused("has no weights by name", [head])  # type: ignore[arg-type]
    assert torch.equal(net.pos_embed, before)


def test_a_network_of_another_depth_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"best_ckpt\.tar: misses blocks\.2\.norm1\.weight.* more"):
        load_original_checkpoint(network(depth=3), path)


def test_files_that_are_no_checkpoint_are_named(path: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.tar"
    torn.write_bytes(path.read_bytes()[:5000])
    unsafe = tmp_path / "unsafe.tar"
    torch.save({"model_state": network()}, unsafe)  # a pickled class could run anything
    for bad in (torn, unsafe):
        with pytest.raises(InputError, match=rf"{bad.name}: cannot be read as a checkpoint"):
            load_original_checkpoint(network(), bad)
    with pytest.raises(InputError, match=r"none\.tar: no such checkpoint"):
        load_original_checkpoint(network(), tmp_path / "none.tar")
