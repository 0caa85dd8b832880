"""A literal second implementation of what the paper's network computes.

It keeps the whole spectrum, with zeros where nothing is mixed, and computes real and imaginary
parts apart by real sums. Parameters are found by the original code's names.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def shrink(x: Tensor, threshold: float) -> Tensor:
    return torch.sign(x) * torch.clamp(x.abs() - threshold, min=0)


def literal_spectral(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, threshold: float
) -> Tensor:
    """(B, rows, columns, C) to the same; weights (2, blocks, size, size), real part first."""
    batch, rows, columns, width = x.shape
    blocks, size = w1.shape[1:3]
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
    zonal = columns // 2 + 1
    kept = rows // 2 + 1  # derived from the rows, though it cuts the zonal modes
    parts = spectrum.reshape(batch, rows, zonal, blocks, size)
    re, im = parts.real[:, :, :kept], parts.imag[:, :, :kept]

    def times(a: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("byxki,kio->byxko", a, w)

    hidden_re = torch.relu(times(re, w1[0]) - times(im, w1[1]) + b1[0])
    hidden_im = torch.relu(times(im, w1[0]) + times(re, w1[1]) + b1[1])
    out_re = torch.zeros(batch, rows, zonal, blocks, size, dtype=x.dtype)
    out_im = torch.zeros_like(out_re)
    out_re[:, :, :kept] = times(hidden_re, w2[0]) - times(hidden_im, w2[1]) + b2[0]
    out_im[:, :, :kept] = times(hidden_im, w2[0]) + times(hidden_re, w2[1]) + b2[1]
    mixed = torch.complex(shrink(out_re, threshold), shrink(out_im, threshold))
    back = torch.fft.irfft2(
        mixed.reshape(batch, rows, zonal, width), s=(rows, columns), dim=(1, 2), norm="ortho"
    )
    return back + x


def literal_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-6) * weight + bias


def literal_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def literal_network(p: dict[str, Tensor], x: Tensor, depth: int, patch: int) -> Tensor:
    """(B, C, H, W) to the same, from the parameters by name."""
    batch, channels, height, width = x.shape
    rows, columns = height // patch, width // patch
    patches = x.reshape(batch, channels, rows, patch, columns, patch)
    tokens = torch.einsum("bcrisj,ecij->brse", patches, p["patch_embed.proj.weight"])
    tokens = tokens + p["patch_embed.proj.bias"]
    tokens = tokens + p["pos_embed"].reshape(1, rows, columns, -1)
    for i in range(depth):
        q = {k.removeprefix(f"blocks.{i}."): v for k, v in p.items() if f"blocks.{i}." in k}
        normed = literal_norm(tokens, q["norm1.weight"], q["norm1.bias"])
        weights = [q[f"filter.{name}"] for name in ("w1", "b1", "w2", "b2")]
        tokens = tokens + literal_spectral(normed, *weights, threshold=0.01)
        normed = literal_norm(tokens, q["norm2.weight"], q["norm2.bias"])
        hidden = literal_gelu(normed @ q["mlp.fc1.weight"].T + q["mlp.fc1.bias"])
        tokens = tokens + hidden @ q["mlp.fc2.weight"].T + q["mlp.fc2.bias"]
    out = torch.zeros(batch, channels, height, width, dtype=x.dtype)
    for i in range(patch):
        for j in range(patch):
            first = (i * patch + j) * channels  # a patch's pixels, each with all its channels
            head = p["head.weight"][first : first + channels]
            out[:, :, i::patch, j::patch] = torch.einsum("brse,ce->bcrs", tokens, head)
    return out


class OriginalLayout(nn.Module):
    """The network with its parameters named and shaped as in the original code."""

    def __init__(
        self, grid: tuple[int, int], patch: int, width: int, depth: int, blocks: int, ratio: int
    ) -> None:
        super().__init__()
        self.patch, self.depth = patch, depth
        tokens, size = grid[0] * grid[1] // patch**2, width // blocks
        self.pos_embed = nn.Parameter(0.3 * torch.randn(1, tokens, width))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(20, width, patch, patch)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            block, spectral, mlp = nn.Module(), nn.Module(), nn.Module()
            block.norm1, block.filter = nn.LayerNorm(width, eps=1e-6), spectral
            block.norm2, block.mlp = nn.LayerNorm(width, eps=1e-6), mlp
            mlp.fc1, mlp.fc2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)
            for layer in "12":
                weight, bias = torch.randn(2, blocks, size, size), torch.randn(2, blocks, size)
                spectral.register_parameter(f"w{layer}", nn.Parameter(0.4 * weight))
                spectral.register_parameter(f"b{layer}", nn.Parameter(0.4 * bias))
            self.blocks.append(block)
        self.norm = nn.LayerNorm(width, eps=1e-6)  # which nothing uses
        self.head = nn.Linear(width, 20 * patch**2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return literal_network(dict(self.named_parameters()), x, self.depth, self.patch)
