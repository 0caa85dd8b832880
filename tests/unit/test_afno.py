"""The AFNO network against a literal second implementation (`literal_afno`)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_afno import literal_network, literal_spectral
from torch import Tensor

from scalewatt.workloads.afno import (
    Block,
    FourCastNet,
    Rollout,
    SpectralLayer,
    to_grid,
    to_spectrum,
)

# --- forward and gradient -----------------------------------------------------------------------


def spectral(width: int = 12, blocks: int = 3, threshold: float = 0.01) -> SpectralLayer:
    """A layer with weights so large that shrinking does not empty it."""
    layer = SpectralLayer(width, blocks, threshold)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return layer


@pytest.mark.parametrize(
    "shape", [(6, 12), (5, 9), (8, 8), (7, 16), (12, 6), (1, 4), (4, 1)], ids=str
)
def test_the_spectral_layer_is_that_of_the_second_implementation(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = spectral()
    x = torch.randn(2, *shape, 12, requires_grad=True)
    y = torch.randn(2, *shape, 12)
    weights = [layer.w1, layer.b1, layer.w2, layer.b2]
    expected = literal_spectral(x, *weights, threshold=0.01)
    found = layer(x)
    assert (found - x).abs().max() > 0.05, "the layer must do something here"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    ours = torch.autograd.grad((found * y).sum(), [x, *weights])
    theirs = torch.autograd.grad((expected * y).sum(), [x, *weights])
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def small_network(depth: int = 2) -> FourCastNet:
    torch.manual_seed(1)
    net = FourCastNet(
        grid=(12, 24), in_channels=5, out_channels=5, patch_size=2, embed_dim=16, depth=depth,
        num_blocks=4, mlp_ratio=3,
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.normal_(std=0.4)
    return net


def test_the_network_is_that_of_the_second_implementation_forward_and_backward() -> None:
    net = small_network()
    x, target = torch.randn(2, 5, 12, 24), torch.randn(2, 5, 12, 24)
    parameters = dict(net.named_parameters())
    found = net(x)
    expected = literal_network(parameters, x, depth=2, patch=2)
    scale = expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * scale)
    ours = torch.autograd.grad(((found - target) ** 2).mean(), list(parameters.values()))
    theirs = torch.autograd.grad(((expected - target) ** 2).mean(), list(parameters.values()))
    for name, mine, other in zip(parameters, ours, theirs, strict=True):
        size = other.abs().max().item()
        assert size > 0, name
        torch.testing.assert_close(mine, other, rtol=1e-2, atol=1e-3 * size, msg=name)


# --- kept modes ---------------------------------------------------------------------------------


def zonal_wave(number: int, rows: int = 90, columns: int = 180, width: int = 4) -> Tensor:
    angle = 2 * math.pi * torch.arange(columns) * number / columns
    return torch.cos(angle)[None, None, :, None].expand(1, rows, columns, width).contiguous()


@pytest.mark.parametrize(("number", "mixed"), [(0, True), (45, True), (46, False), (90, False)])
def test_of_the_papers_91_zonal_modes_the_first_46_are_mixed(number: int, mixed: bool) -> None:
    torch.manual_seed(2)
    layer = spectral(4, 2, threshold=0.0)
    with torch.no_grad():  # so that a mode that is not there stays away
        layer.b1.zero_()
        layer.b2.zero_()
    x = zonal_wave(number)
    unchanged = torch.allclose(layer(x), x, atol=1e-4)
    assert unchanged != mixed


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 7), st.integers(0, 99))
@settings(max_examples=60)
def test_the_gradient_of_either_transform_is_that_of_torchs_own(
    rows: int, columns: int, most: int, seed: int
) -> None:
    modes = min(most, columns // 2 + 1)
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, rows, columns, generator=random, requires_grad=True)
    s = torch.randn(2, 3, modes, rows, generator=random, dtype=torch.complex64, requires_grad=True)

    def torchs(spectrum: Tensor) -> Tensor:
        kept = spectrum.transpose(2, 3)
        return torch.fft.irfft2(kept, s=(rows, columns), norm="ortho")

    pairs = [
        (to_spectrum(x, modes), torch.fft.rfft2(x, norm="ortho")[..., :modes].mT, x),
        (to_grid(s, columns), torchs(s), s),
    ]
    for found, expected, start in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        weight = torch.randn(found.shape, generator=random, dtype=found.dtype)
        [mine] = torch.autograd.grad(found, start, weight)
        [other] = torch.autograd.grad(expected, start, weight)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


# --- size and start -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full_size() -> FourCastNet:
    with torch.device("meta"):
        return FourCastNet()


def test_the_full_network_has_74_690_304_parameters(full_size: FourCastNet) -> None:
    assert sum(p.numel() for p in full_size.parameters()) == 74_690_304


def test_the_compiled_network_is_the_same() -> None:
    """Traced forward and backward; the kernels are the compiler's own business."""
    net = small_network(depth=1)
    x = torch.randn(1, 5, 12, 24)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    results = []
    for one in (net, compiled):
        net.zero_grad()
        y = one(x)
        y.square().mean().backward()
        results.append([y.detach(), *(p.grad.clone() for p in net.parameters())])
    for mine, other in zip(*results, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5 * scale)


def test_weights_start_as_the_paper_says() -> None:
    torch.manual_seed(6)
    net = FourCastNet(grid=(32, 64), patch_size=4, embed_dim=128, depth=1, num_blocks=2)
    block = net.blocks[0]
    assert isinstance(block, Block)
    normal = [block.filter.w1, block.filter.w2, block.filter.b1, block.mlp.fc1.weight]
    for weight in (*normal, block.mlp.fc2.weight, net.head.weight, net.pos_embed):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert abs(weight.mean().item()) < 0.002
    assert not block.mlp.fc1.bias.any() and not block.mlp.fc2.bias.any()
    assert net.head.bias is None
    assert block.norm1.eps == block.norm2.eps == 1e-6
    for norm in (block.norm1, block.norm2):
        assert (norm.weight == 1).all() and (norm.bias == 0).all()


# --- rollout ------------------------------------------------------------------------------------


def test_two_steps_are_the_network_applied_twice() -> None:
    net = small_network(depth=1)
    x = torch.randn(2, 5, 12, 24)
    found = Rollout(net, 2)(x)
    assert found.shape == (2, 2, 5, 12, 24)
    torch.testing.assert_close(found[:, 0], net(x))
    torch.testing.assert_close(found[:, 1], net(net(x)))


def test_pre_training_and_fine_tuning_have_the_same_weights_by_name() -> None:
    """So that fine-tuning loads what pre-training saved."""
    net = small_network(depth=1)
    assert set(Rollout(net, 1).state_dict()) == set(Rollout(net, 2).state_dict())
