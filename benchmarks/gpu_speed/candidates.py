"""Ways to compute FourCastNet beside the shipped one: whether they win only a GPU can tell.

All keep the names of the weights, and change a network in place.

`ProductLayer` writes both Fourier transforms as matrix products. Of 180 zonal modes 46 are kept, and the
grid has 90 rows, so that they take about a fifteenth of the MLP's operations. Features stay innermost from
the tokens to the spectrum and back: nothing is transposed for them, where a fast transform copies its input
to have columns or rows innermost.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from scalewatt.workloads.afno import Block, FourCastNet, PatchEmbed, SpectralLayer


class ProductLayer(SpectralLayer):
    """The same maths as `SpectralLayer`, by matrix products alone, which are computed as autocast says."""

    zonal: torch.Tensor
    zonal_back: torch.Tensor
    meridional: torch.Tensor
    meridional_back: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Filter `x`, (B, rows, columns, C), keeping shape and type."""
        mixed = self._mix_parts(self._to_spectrum(x))
        return self._to_grid(mixed).to(x.dtype) + x

    def _to_spectrum(self, x: torch.Tensor) -> torch.Tensor:
        """Return the kept modes, (B, rows, 2, modes, C), whose third dimension is real and imaginary part."""
        batch, rows, _, width = x.shape
        parts = torch.matmul(self.zonal, x).reshape(batch, 2 * rows, -1)
        return torch.matmul(self.meridional, parts).reshape(batch, rows, 2, -1, width)

    def _to_grid(self, spectrum: torch.Tensor) -> torch.Tensor:
        batch, rows, _, _, width = spectrum.shape
        parts = torch.matmul(self.meridional_back, spectrum.reshape(batch, 2 * rows, -1))
        return torch.matmul(self.zonal_back, parts.reshape(batch, rows, -1, width))

    def _mix_parts(self, spectrum: torch.Tensor) -> torch.Tensor:
        """Apply both maps, ReLU and soft-shrink to a spectrum, keeping its shape."""
        batch, rows, _, modes, width = spectrum.shape
        size = width // self.blocks
        parts = spectrum.reshape(batch, rows, 2, modes, self.blocks, size)
        parts = parts.permute(4, 0, 1, 3, 2, 5).reshape(self.blocks, -1, 2 * size)
        parts = functional.relu(_map(parts, self.w1, self.b1))
        parts = functional.softshrink(_map(parts, self.w2, self.b2), self.sparsity_threshold)
        parts = parts.reshape(self.blocks, batch, rows, modes, 2, size)
        return parts.permute(1, 2, 4, 3, 0, 5).reshape(spectrum.shape)


class ExactProductLayer(ProductLayer):
    """Transforms in float32, or in TF32 where torch's flag allows it; the maps as autocast says."""

    def _to_spectrum(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super()._to_spectrum(x.float())

    def _to_grid(self, spectrum: torch.Tensor) -> torch.Tensor:
        with torch.autocast(spectrum.device.type, enabled=False):
            return super()._to_grid(spectrum.float())


def _map(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a complex map of each block: x (blocks, N, 2·size), the real part first."""
    real, imaginary = weight
    matrix = torch.cat([torch.cat([real, imaginary], 2), torch.cat([-imaginary, real], 2)], 1)
    return torch.baddbmm(torch.cat([bias[0], bias[1]], dim=1)[:, None], x, matrix)


def _angles(count: int, numbers: int) -> torch.Tensor:
    """Return 2π·m·k/count of modes m (rows) and places k (columns), float64."""
    product = torch.outer(torch.arange(numbers), torch.arange(count)) % count
    return 2 * math.pi / count * product.double()


def zonal_matrix(columns: int, modes: int) -> torch.Tensor:
    """Return the orthonormal transform of real rows to their first modes: (2·modes, columns)."""
    angles = _angles(columns, modes)
    return (torch.cat([angles.cos(), -angles.sin()]) / math.sqrt(columns)).float()


def zonal_back_matrix(columns: int, modes: int) -> torch.Tensor:
    """Return its inverse, with zeros for the modes that were dropped: (columns, 2·modes)."""
    angles = _angles(columns, modes).T
    number = torch.arange(modes)
    twice = torch.where((number == 0) | (2 * number == columns), 1.0, 2.0)
    both = torch.cat([angles.cos() * twice, -angles.sin() * twice], dim=1)
    return (both / math.sqrt(columns)).float()


def meridional_matrix(rows: int, inverse: bool) -> torch.Tensor:
    """Return the orthonormal complex transform in real numbers, (2·rows, 2·rows): (row, part) to the same."""
    angles = _angles(rows, rows)
    cosine, sine = angles.cos(), angles.sin() * (-1 if inverse else 1)
    # exp(-iφ)·(re + i·im) = (cos·re + sin·im) + i·(cos·im - sin·re)
    to_real, to_imaginary = torch.stack([cosine, sine], -1), torch.stack([-sine, cosine], -1)
    both = torch.stack([to_real, to_imaginary], dim=1)  # (rows, part, rows, part)
    return (both.reshape(2 * rows, 2 * rows) / math.sqrt(rows)).float()


def with_products(network: nn.Module, rows: int, columns: int, exact: bool = False) -> nn.Module:
    """Let the transforms of so many patches be matrix products; its patches are embedded by one too."""
    modes = min(rows, columns) // 2 + 1
    matrices = {
        "zonal": zonal_matrix(columns, modes),
        "zonal_back": zonal_back_matrix(columns, modes),
        "meridional": meridional_matrix(rows, inverse=False),
        "meridional_back": meridional_matrix(rows, inverse=True),
    }
    for module in network.modules():
        if isinstance(module, SpectralLayer):
            module.__class__ = ExactProductLayer if exact else ProductLayer
            for name, matrix in matrices.items():
                module.register_buffer(name, matrix, persistent=False)
    return with_product_embedding(network)


class ProductEmbed(PatchEmbed):
    """Patches as rows of a matrix, on a GPU too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, channels, H, W) to (B, H/p, W/p, width)."""
        return self._product(x)


def with_product_embedding(network: nn.Module) -> nn.Module:
    """Let patches be embedded by a matrix product."""
    for module in network.modules():
        if isinstance(module, PatchEmbed):
            module.__class__ = ProductEmbed
    return network


def with_compiled_blocks(
    network: nn.Module, mode: str | None = None, backend: str = "inductor"
) -> nn.Module:
    """Compile each block: one graph serves all of them, so that it takes a fraction of the time."""
    for module in network.modules():
        if isinstance(module, Block):
            module.compile(dynamic=False, mode=mode, backend=backend)
    return network


def patches_of(network: nn.Module, grid: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of patches of a grid."""
    net = next(part for part in network.modules() if isinstance(part, FourCastNet))
    return grid[0] // net.patch_size, grid[1] // net.patch_size
