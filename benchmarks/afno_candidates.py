"""Ways to compute FourCastNet's spectral layer, beside the shipped one: whether they win only a GPU can tell.

`ProductLayer` writes both Fourier transforms as matrix products. Of 180 zonal modes 46 are kept and the
grid has 90 rows, so that they take about a fifteenth of the MLP's operations, and features stay innermost:
nothing is transposed for them.
"""

from __future__ import annotations

import copy
import math

import torch
from afno import literal
from torch import nn
from torch.nn import functional

from scalewatt.workloads.afno import FourCastNet, SpectralLayer

__all__ = ["ProductLayer", "literal", "with_products"]


class ProductLayer(SpectralLayer):
    """The same maths as `SpectralLayer`, by matrix products alone."""

    zonal: torch.Tensor
    zonal_back: torch.Tensor
    meridional: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Filter `x`, (B, rows, columns, C), keeping shape and type."""
        real, imaginary = _forward(x, self.zonal, self.meridional)
        real, imaginary = self._mix_parts(real, imaginary)
        return _backward(real, imaginary, self.zonal_back, self.meridional).to(x) + x

    def _mix_parts(
        self, real: torch.Tensor, imaginary: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply both maps, ReLU and soft-shrink to (B, rows, modes, C) and its imaginary part."""
        shape, size = real.shape, real.shape[-1] // self.blocks
        parts = torch.stack([real, imaginary], dim=-2).reshape(-1, 2, self.blocks, size)
        parts = parts.permute(2, 0, 1, 3).reshape(self.blocks, -1, 2 * size)
        parts = functional.relu(_map(parts, self.w1, self.b1))
        parts = functional.softshrink(_map(parts, self.w2, self.b2), self.sparsity_threshold)
        parts = parts.reshape(self.blocks, -1, 2, size).permute(2, 1, 0, 3)
        return parts[0].reshape(shape), parts[1].reshape(shape)


def _map(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a complex map of each block: x (blocks, N, 2·size), the real part first."""
    real, imaginary = weight
    matrix = torch.cat([torch.cat([real, imaginary], 2), torch.cat([-imaginary, real], 2)], 1)
    return torch.baddbmm(torch.cat([bias[0], bias[1]], dim=1)[:, None], x, matrix)


def _forward(
    x: torch.Tensor, zonal: torch.Tensor, meridional: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both parts of the first zonal modes of the orthonormal rfft2, (B, rows, modes, C) each."""
    batch, rows, _, width = x.shape
    parts = torch.matmul(zonal, x)  # (B, rows, 2·modes, C): cosines, then sines
    both = torch.matmul(meridional, parts.reshape(batch, rows, -1))
    both = both.reshape(batch, 2, rows, 2, -1, width)
    cosine, sine = both[:, 0], both[:, 1]
    return cosine[:, :, 0] + sine[:, :, 1], cosine[:, :, 1] - sine[:, :, 0]


def _backward(
    real: torch.Tensor, imaginary: torch.Tensor, zonal: torch.Tensor, meridional: torch.Tensor
) -> torch.Tensor:
    """Invert `_forward`, with zeros for the modes that were dropped: (B, rows, columns, C)."""
    batch, rows, modes, width = real.shape
    parts = torch.stack([real, imaginary], dim=2).reshape(batch, rows, -1)
    both = torch.matmul(meridional, parts).reshape(batch, 2, rows, 2, modes, width)
    cosine, sine = both[:, 0], both[:, 1]
    back = torch.stack([cosine[:, :, 0] - sine[:, :, 1], cosine[:, :, 1] + sine[:, :, 0]], dim=2)
    return torch.matmul(zonal, back.reshape(batch, rows, 2 * modes, width))


def _angles(count: int, numbers: int) -> torch.Tensor:
    """Return 2π·m·k/count of modes m (rows) and places k (columns), float64."""
    product = torch.outer(torch.arange(numbers), torch.arange(count)) % count
    return 2 * math.pi / count * product.double()


def _zonal(columns: int, modes: int) -> torch.Tensor:
    angles = _angles(columns, modes)
    return (torch.cat([angles.cos(), -angles.sin()]) / math.sqrt(columns)).float()


def _zonal_back(columns: int, modes: int) -> torch.Tensor:
    angles = _angles(columns, modes).T
    number = torch.arange(modes)
    weight = torch.where((number == 0) | (2 * number == columns), 1.0, 2.0)
    both = torch.cat([angles.cos() * weight, -angles.sin() * weight], dim=1)
    return (both / math.sqrt(columns)).float()


def _meridional(rows: int) -> torch.Tensor:
    angles = _angles(rows, rows)
    return (torch.cat([angles.cos(), angles.sin()]) / math.sqrt(rows)).float()


def with_products(model: FourCastNet, rows: int, columns: int) -> nn.Module:
    """Return a copy with the same weights whose transforms of so many patches are matrix products."""
    copied = copy.deepcopy(model)
    modes = min(rows, columns) // 2 + 1
    for module in copied.modules():
        if isinstance(module, SpectralLayer):
            module.__class__ = ProductLayer
            module.register_buffer("zonal", _zonal(columns, modes))
            module.register_buffer("zonal_back", _zonal_back(columns, modes))
            module.register_buffer("meridional", _meridional(rows))
    return copied
