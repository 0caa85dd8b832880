"""FourCastNet layer by layer, as its authors' code computes it: whole spectra, four real products a map.

Leaner than theirs in one respect, which favours it: between the two maps of a layer it keeps the modes
that are mixed, where theirs writes them into a whole spectrum of zeros.
"""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional

from scalewatt.workloads.afno import PatchEmbed, SpectralLayer


class LiteralLayer(SpectralLayer):
    """The same maths, written down as it is defined."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, rows, columns, C) to the same; the transform in float32, the maps as autocast says."""
        batch, rows, columns, width = x.shape
        spectrum = torch.fft.rfft2(x.float(), dim=(1, 2), norm="ortho")
        zonal, kept = columns // 2 + 1, min(rows, columns) // 2 + 1
        spectrum = spectrum.reshape(batch, rows, zonal, self.blocks, width // self.blocks)
        real, imaginary = spectrum.real[:, :, :kept], spectrum.imag[:, :, :kept]
        hidden = self._map(real, imaginary, self.w1, self.b1)
        hidden = functional.relu(hidden[0]), functional.relu(hidden[1])
        whole = torch.zeros(2, *spectrum.shape, device=x.device)
        whole[0, :, :, :kept], whole[1, :, :, :kept] = self._map(*hidden, self.w2, self.b2)
        whole = functional.softshrink(whole, self.sparsity_threshold)
        mixed = torch.complex(whole[0], whole[1]).reshape(batch, rows, zonal, width)
        back = torch.fft.irfft2(mixed, s=(rows, columns), dim=(1, 2), norm="ortho")
        return back.to(x.dtype) + x

    @staticmethod
    def _map(
        real: torch.Tensor, imaginary: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        def times(part: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
            return torch.einsum("...bi,bio->...bo", part, own)

        return (
            times(real, weight[0]) - times(imaginary, weight[1]) + bias[0],
            times(imaginary, weight[0]) + times(real, weight[1]) + bias[1],
        )


class LiteralEmbed(PatchEmbed):
    """Patches by a strided convolution."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, channels, H, W) to (B, H/p, W/p, width)."""
        return self.proj(x).permute(0, 2, 3, 1)


def literal(model: nn.Module) -> nn.Module:
    """A literal copy with the same weights."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, SpectralLayer):
            module.__class__ = LiteralLayer
        elif isinstance(module, PatchEmbed):
            module.__class__ = LiteralEmbed
    return copied
