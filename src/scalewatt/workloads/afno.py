"""The adaptive Fourier neural operator network of FourCastNet (Pathak et al. 2022), at any grid."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from scalewatt.workloads.spectral import SpectralLayer


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (..., C) to (..., C)."""
        return self.fc2(functional.gelu(self.fc1(x)))


class Block(nn.Module):
    """norm, spectral layer, skip, norm, MLP, skip."""

    def __init__(self, width: int, blocks: int, mlp_ratio: float, threshold: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.filter = SpectralLayer(width, blocks, threshold)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, int(width * mlp_ratio))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, rows, columns, C) to the same shape."""
        x = x + self.filter(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Non-overlapping patches, each embedded by one linear map."""

    def __init__(self, channels: int, patch_size: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, channels, H, W) to (B, H/p, W/p, width)."""
        if x.device.type == "cpu":
            return self._product(x)
        return self.proj(x).permute(0, 2, 3, 1)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the same as one matrix product, which takes half the time on a CPU."""
        batch, channels, height, width = x.shape
        p = self.proj.kernel_size[0]
        patches = x.reshape(batch, channels, height // p, p, width // p, p)
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class FourCastNet(nn.Module):
    """FourCastNet: patches, position embedding, `depth` AFNO blocks, linear head.

    At its defaults 74 690 304 parameters: the original's, less a last LayerNorm it never uses.
    """

    def __init__(
        self,
        grid: tuple[int, int] = (720, 1440),
        in_channels: int = 20,
        out_channels: int = 20,
        patch_size: int = 8,
        embed_dim: int = 768,
        depth: int = 12,
        num_blocks: int = 8,
        mlp_ratio: float = 4,
        sparsity_threshold: float = 0.01,
    ) -> None:
        super().__init__()
        rows, columns = grid[0] // patch_size, grid[1] // patch_size
        self.patch_size, self.out_channels = patch_size, out_channels
        self.patch_embed = PatchEmbed(in_channels, patch_size, embed_dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, rows * columns, embed_dim))
        self.blocks = nn.ModuleList(
            Block(embed_dim, num_blocks, mlp_ratio, sparsity_threshold) for _ in range(depth)
        )
        self.head = nn.Linear(embed_dim, out_channels * patch_size**2, bias=False)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, in_channels, H, W) to (B, out_channels, H, W)."""
        x = self.patch_embed(x)
        batch, rows, columns, width = x.shape
        x = x + self.pos_embed.reshape(1, rows, columns, width)
        for block in self.blocks:
            x = block(x)
        p = self.patch_size
        x = self.head(x).reshape(batch, rows, columns, p, p, self.out_channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, self.out_channels, rows * p, columns * p)


class Rollout(nn.Module):
    """Autoregressive forecast of `steps` steps in one forward pass, as DDP needs it."""

    def __init__(self, net: FourCastNet, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, C, H, W) to (B, steps, C, H, W)."""
        forecasts = []
        for _ in range(self.steps):
            x = self.net(x)
            forecasts.append(x)
        return torch.stack(forecasts, dim=1)
