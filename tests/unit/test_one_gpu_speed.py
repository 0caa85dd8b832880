"""`benchmarks/one_gpu_speed.py`: what it compares computes the same, and its files say what was measured."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from scalewatt.workloads.afno import SpectralLayer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from gpu_speed import candidates

# --- transforms as matrix products --------------------------------------------------------------

SHAPES = [(6, 12), (5, 9), (8, 8), (7, 16), (12, 6), (1, 4), (4, 1), (90, 180)]


def layer_with_products(rows: int, columns: int, exact: bool) -> tuple[nn.Module, nn.Module]:
    """The shipped layer with weights that fill the spectrum, and one by products with the same weights."""
    torch.manual_seed(0)
    layer = SpectralLayer(12, 3, sparsity_threshold=0.01)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3)
    whole = nn.ModuleList([copy.deepcopy(layer)])
    candidates.with_products(whole, rows, columns, exact)
    return layer, whole[0]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transforms_by_matrix_products_are_those_of_torch(
    shape: tuple[int, int], exact: bool
) -> None:
    shipped, products = layer_with_products(*shape, exact)
    x = torch.randn(2, *shape, 12, requires_grad=True)
    y = torch.randn(2, *shape, 12)
    expected, found = shipped(x), products(x)
    assert (expected - x).norm() > 0.1 * x.norm(), "the layer must do something here"
    assert relative(found, expected) < 1e-5
    theirs = torch.autograd.grad((expected * y).sum(), [x, *shipped.parameters()])
    ours = torch.autograd.grad((found * y).sum(), [x, *products.parameters()])
    for mine, other in zip(ours, theirs, strict=True):
        assert relative(mine, other) < 1e-4


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_the_matrices_are_the_transforms(rows: int, columns: int) -> None:
    modes = min(rows, columns) // 2 + 1
    x = torch.randn(rows, columns, dtype=torch.float64)
    zonal = candidates.zonal_matrix(columns, modes).double()
    parts = torch.stack([zonal[:modes] @ x.T, zonal[modes:] @ x.T])  # (part, modes, rows)
    by_rows = parts.permute(2, 0, 1).reshape(2 * rows, modes)
    spectrum = candidates.meridional_matrix(rows, inverse=False).double() @ by_rows
    real, imaginary = spectrum.reshape(rows, 2, modes).unbind(1)
    expected = torch.fft.rfft2(x, norm="ortho")[:, :modes]
    assert (
        relative(torch.view_as_real(torch.complex(real, imaginary)), torch.view_as_real(expected))
        < 1e-6
    )
    back = candidates.meridional_matrix(rows, inverse=True).double() @ spectrum
    kept = back.reshape(rows, 2 * modes) @ candidates.zonal_back_matrix(columns, modes).double().T
    dropped = torch.zeros(rows, columns // 2 + 1, dtype=torch.complex128)
    dropped[:, :modes] = expected
    inverted = torch.fft.irfft2(dropped, s=(rows, columns), norm="ortho")
    assert relative(kept, inverted) < 1e-6
