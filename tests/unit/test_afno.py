"""The AFNO network against a literal second implementation (`literal_afno`), of the original code's form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_afno import OriginalLayout, literal_spectral
from torch import Tensor, nn

from scalewatt.models.afno import (
    FastSpectralLayer,
    FourCastNet,
    SpectralLayer,
    load_original_checkpoint,
    to_grid,
    to_spectrum,
)

GRID, PATCH, WIDTH, DEPTH, BLOCKS = (12, 24), 2, 16, 2, 4
layers = pytest.mark.parametrize("kind", [SpectralLayer, FastSpectralLayer])


def network(depth: int = DEPTH, fast: bool = True) -> FourCastNet:
    torch.manual_seed(1)
    sizes = {"patch_size": PATCH, "embed_dim": WIDTH, "num_blocks": BLOCKS, "mlp_ratio": 3}
    return FourCastNet(GRID, depth=depth, fast=fast, **sizes)


def assert_alike(result: Tensor, expected: Tensor, name: str) -> None:
    """Equal but for float32's rounding of sums as large as the largest value."""
    largest = expected.abs().max().item()
    assert largest > 0, name
    assert (result - expected).abs().max().item() < 2e-5 * largest, name


# --- the spectral layer -------------------------------------------------------------------------


def spectral(
    kind: type[SpectralLayer], width: int = 12, blocks: int = 3, threshold: float = 0.01
) -> SpectralLayer:
    """A layer with weights so large that shrinking does not empty it."""
    torch.manual_seed(0)
    layer = kind(width, blocks, threshold)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


@pytest.mark.parametrize(
    "shape", [(6, 12), (5, 9), (8, 8), (7, 16), (12, 6), (1, 4), (4, 1)], ids=str
)
@layers
def test_the_spectral_layers_are_that_of_the_second_implementation(
    kind: type[SpectralLayer], shape: tuple[int, int]
) -> None:
    layer = spectral(kind)
    x, y = torch.randn(2, *shape, 12, requires_grad=True), torch.randn(2, *shape, 12)
    weights = layer.w1, layer.b1, layer.w2, layer.b2
    result, expected = layer(x), literal_spectral(x, *weights, threshold=0.01)
    assert (result - x).abs().max() > 0.05, "the layer must do something here"
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad((result * y).sum(), [x, *weights])
    expected_gradients = torch.autograd.grad((expected * y).sum(), [x, *weights])
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("number", "mixed"), [(0, True), (45, True), (46, False), (90, False)])
@layers
def test_of_the_papers_91_zonal_modes_the_first_46_are_mixed(
    kind: type[SpectralLayer], number: int, mixed: bool
) -> None:
    layer = spectral(kind, 4, 2, threshold=0.0)
    for bias in (layer.b1, layer.b2):  # so that a mode that is not there stays away
        nn.init.zeros_(bias)
    wave = torch.cos(2 * math.pi * torch.arange(180) * number / 180)
    x = wave[:, None].expand(1, 90, 180, 4).contiguous()
    assert torch.allclose(layer(x), x, atol=1e-4) != mixed


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 7), st.integers(0, 99))
@settings(max_examples=60)
def test_the_gradient_of_either_transform_is_that_of_torchs_own(
    rows: int, columns: int, most: int, seed: int
) -> None:
    modes = min(most, columns // 2 + 1)
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, rows, columns, generator=random, requires_grad=True)
    s = torch.randn(2, 3, modes, rows, generator=random, dtype=torch.complex64, requires_grad=True)
    grid = torch.fft.irfft2(s.transpose(2, 3), s=(rows, columns), norm="ortho")
    pairs = [
        (to_spectrum(x, modes), torch.fft.rfft2(x, norm="ortho")[..., :modes].mT, x),
        (to_grid(s, columns), grid, s),
    ]
    for result, expected, start in pairs:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        weight = torch.randn(result.shape, generator=random, dtype=result.dtype)
        [gradient] = torch.autograd.grad(result, start, weight)
        [expected_gradient] = torch.autograd.grad(expected, start, weight)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


# --- the network, and weights that the original code saved ----------------------------------------


@pytest.fixture(scope="module")
def original() -> OriginalLayout:
    torch.manual_seed(0)
    net = OriginalLayout(GRID, PATCH, WIDTH, DEPTH, BLOCKS, 3)
    for name, parameter in net.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return net


@pytest.fixture(scope="module")
def path(original: OriginalLayout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as the original code saves it: more than weights, and these by the names of its DDP."""
    path = tmp_path_factory.mktemp("checkpoint") / "best_ckpt.tar"
    weights = {f"module.{name}": value for name, value in original.state_dict().items()}
    optimizer = torch.optim.Adam(original.parameters(), lr=5e-4).state_dict()
    saved: dict[str, Any] = {"iters": 54020, "model_state": weights}
    torch.save(saved | {"optimizer_state_dict": optimizer}, path)
    return path


def pass_through(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Output, and gradients by the parameters' names."""
    model.zero_grad()
    y = model(x)
    (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
    return y.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("fast", [False, True])
def test_outputs_and_gradients_are_the_originals(
    original: OriginalLayout, path: Path, fast: bool
) -> None:
    net, x = network(fast=fast), torch.randn(2, 20, *GRID)
    load_original_checkpoint(net, path)
    expected, expected_gradients = pass_through(original, x)
    result, gradients = pass_through(net, x)
    assert_alike(result, expected, "output")
    assert set(gradients) == set(expected_gradients)  # so also: nothing uses the last norm
    for name, gradient in gradients.items():
        assert_alike(gradient, expected_gradients[name], name)


def test_the_compiled_network_is_the_same() -> None:
    """Traced forward and backward; the kernels are the compiler's own business."""
    net, x = network(depth=1), torch.randn(1, 20, *GRID)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    expected, expected_gradients = pass_through(net, x)
    result, gradients = pass_through(compiled, x)  # type: ignore[arg-type]
    assert_alike(result, expected, "output")
    for name, gradient in gradients.items():
        assert_alike(gradient, expected_gradients[name.removeprefix("_orig_mod.")], name)


def test_the_full_network_has_74_690_304_parameters() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in FourCastNet().parameters()) == 74_690_304
