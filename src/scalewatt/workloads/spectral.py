"""The spectral layer of the adaptive Fourier neural operator (Guibas et al. 2022)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class SpectralLayer(nn.Module):
    """Mixes (B, rows, columns, C) in Fourier space by two block-diagonal complex linear maps.

    Only the first rows//2 + 1 zonal modes are mixed and the others dropped, because the original
    derives that number from the rows; at 90 × 180 patches these are 46 of 91.
    """

    def __init__(self, width: int, blocks: int, sparsity_threshold: float) -> None:
        super().__init__()
        size = width // blocks
        self.blocks = blocks
        self.sparsity_threshold = sparsity_threshold
        # Index 0 is the real part, 1 the imaginary part.
        self.w1 = nn.Parameter(0.02 * torch.randn(2, blocks, size, size))
        self.b1 = nn.Parameter(0.02 * torch.randn(2, blocks, size))
        self.w2 = nn.Parameter(0.02 * torch.randn(2, blocks, size, size))
        self.b2 = nn.Parameter(0.02 * torch.randn(2, blocks, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Filter `x`, keeping shape and type; the transform runs in float32, the maps as autocast says."""
        rows, columns = x.shape[1:3]
        modes = min(rows // 2 + 1, columns // 2 + 1)
        spectrum = to_spectrum(x.float().permute(0, 3, 1, 2), modes)
        mixed = to_grid(self._mix(spectrum), columns)
        return (mixed.permute(0, 2, 3, 1) + x.float()).to(x.dtype)

    def _mix(self, spectrum: torch.Tensor) -> torch.Tensor:
        """Apply both maps, ReLU and soft-shrink: (B, C, modes, rows) complex to the same."""
        batch, width, modes, rows = spectrum.shape
        size = width // self.blocks
        # A block's features innermost, each its real and imaginary part: one real product a map.
        parts = torch.view_as_real(spectrum).reshape(batch, self.blocks, size, modes * rows, 2)
        parts = parts.permute(1, 0, 3, 2, 4).reshape(self.blocks, -1, 2 * size)
        parts = functional.relu(_linear(parts, self.w1, self.b1))
        parts = functional.softshrink(_linear(parts, self.w2, self.b2), self.sparsity_threshold)
        parts = parts.float().reshape(self.blocks, batch, modes * rows, size, 2)
        parts = parts.permute(1, 0, 3, 2, 4).reshape(batch, width, modes, rows, 2)
        return torch.view_as_complex(parts.contiguous())


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a complex linear map of each block in real arithmetic.

    x (blocks, N, 2·size) has real and imaginary parts in turn, as has the result; weight (2,
    blocks, size, size) and bias (2, blocks, size).
    """
    blocks, size = bias.shape[1:]
    real, imaginary = weight
    to_real, to_imaginary = (
        torch.stack([real, -imaginary], dim=2),
        torch.stack([imaginary, real], dim=2),
    )
    # (blocks, in, part in, out, part out)
    matrix = torch.stack([to_real, to_imaginary], dim=-1).reshape(blocks, 2 * size, 2 * size)
    offset = bias.permute(1, 2, 0).reshape(blocks, 1, 2 * size)
    return torch.baddbmm(offset, x, matrix)


# --- the transform ------------------------------------------------------------------------------
# As operators of our own: torch's compiler sees their shapes only (it mistakes the memory layout of
# torch's transforms), and the gradient of a real transform stays one (torch's own is complex).


@torch.library.custom_op("scalewatt::to_spectrum", mutates_args=())
def to_spectrum(x: torch.Tensor, modes: int) -> torch.Tensor:
    """Return the first zonal modes of the orthonormal rfft2: real (B, C, rows, columns) to complex
    (B, C, modes, rows). The meridional transform skips the modes that are dropped."""
    zonal = torch.fft.rfft(x, dim=3, norm="ortho")[..., :modes]
    return torch.fft.fft(zonal.transpose(2, 3), dim=3, norm="ortho").contiguous()


@torch.library.custom_op("scalewatt::to_grid", mutates_args=())
def to_grid(spectrum: torch.Tensor, columns: int) -> torch.Tensor:
    """Invert `to_spectrum`, with zeros for the modes that were dropped."""
    zonal = torch.fft.ifft(spectrum, dim=3, norm="ortho").transpose(2, 3)
    return torch.fft.irfft(zonal, n=columns, dim=3, norm="ortho").contiguous()


@to_spectrum.register_fake
def _spectrum_shape(x: torch.Tensor, modes: int) -> torch.Tensor:
    batch, width, rows, _ = x.shape
    return x.new_empty((batch, width, modes, rows), dtype=torch.complex64)


@to_grid.register_fake
def _grid_shape(spectrum: torch.Tensor, columns: int) -> torch.Tensor:
    batch, width, _, rows = spectrum.shape
    return spectrum.new_empty((batch, width, rows, columns), dtype=torch.float32)


def _keep_size(ctx: Any, inputs: tuple[torch.Tensor, int], output: torch.Tensor) -> None:
    """Return the modes of a spectrum, the columns of a grid."""
    ctx.size = inputs[0].shape[2 if inputs[0].is_complex() else 3]


def _from_spectrum_gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    return to_grid(_scale_paired(gradient, ctx.size, 0.5), ctx.size), None


def _from_grid_gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    columns = gradient.shape[3]
    # A gradient that is one number everywhere comes without memory of its own.
    spectrum = to_spectrum(gradient.contiguous(), ctx.size)
    return _scale_paired(spectrum, columns, 2.0), None


def _scale_paired(spectrum: torch.Tensor, columns: int, factor: float) -> torch.Tensor:
    """Multiply modes by `factor`, except those that are their own mirror image (0 and columns/2)."""
    number = torch.arange(spectrum.shape[2], device=spectrum.device)[:, None]
    single = (number == 0) | (2 * number == columns)
    return spectrum * torch.where(single, 1.0, factor)


to_spectrum.register_autograd(_from_spectrum_gradient, setup_context=_keep_size)
to_grid.register_autograd(_from_grid_gradient, setup_context=_keep_size)
