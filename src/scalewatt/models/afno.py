"""The adaptive Fourier neural operator network of FourCastNet (Pathak et al. 2022), at any grid."""

from __future__ import annotations

from pathlib import Path
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
        """Filter `x` as the original code does, keeping shape and type.

        The whole spectrum is transformed, in float32, and a complex product is four real ones.
        """
        batch, rows, columns, width = x.shape
        spectrum = torch.fft.rfft2(x.float(), dim=(1, 2), norm="ortho")
        modes, kept = spectrum.shape[2], slice(rows // 2 + 1)
        parts = spectrum.reshape(batch, rows, modes, self.blocks, -1)[:, :, kept]
        real, imaginary = (
            _padded(functional.relu(part), modes)[:, :, kept]
            for part in _complex_linear(parts.real, parts.imag, self.w1, self.b1)
        )
        mixed = _complex_linear(real, imaginary, self.w2, self.b2)
        values = torch.stack([_padded(part, modes) for part in mixed], dim=-1)
        values = functional.softshrink(values, self.sparsity_threshold)
        spectrum = torch.view_as_complex(values).reshape(batch, rows, modes, width)
        grid = torch.fft.irfft2(spectrum, s=(rows, columns), dim=(1, 2), norm="ortho")
        return grid.to(x.dtype) + x


def _complex_linear(
    real: torch.Tensor, imaginary: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Map (B, rows, modes, blocks, size) by four products to the real and the imaginary part."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...bi,bio->...bo", x, w)

    return (
        product(real, weight[0]) - product(imaginary, weight[1]) + bias[0],
        product(imaginary, weight[0]) + product(real, weight[1]) + bias[1],
    )


def _padded(kept: torch.Tensor, modes: int) -> torch.Tensor:
    """Copy the kept modes into zeros for all, float32 (B, rows, modes, blocks, size)."""
    padded = torch.zeros((*kept.shape[:2], modes, *kept.shape[3:]), device=kept.device)
    padded[:, :, : kept.shape[2]] = kept
    return padded


class FastSpectralLayer(SpectralLayer):
    """Computes the same with half of the transform and one real product a linear map."""

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
        device = spectrum.device.type
        is_cast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if is_cast else torch.float32
        parts = _copied(parts.permute(1, 0, 3, 2, 4), dtype)
        parts = parts.reshape(self.blocks, -1, 2 * size)
        parts = functional.relu(_linear(parts, self.w1, self.b1))
        parts = functional.softshrink(_linear(parts, self.w2, self.b2), self.sparsity_threshold)
        parts = parts.reshape(self.blocks, batch, modes * rows, size, 2)
        parts = _copied(parts.permute(1, 0, 3, 2, 4), torch.float32)
        return torch.view_as_complex(parts.reshape(batch, width, modes, rows, 2))


def _copied(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Make `x` contiguous and of a type, in one pass over memory where both must change."""
    return x.to(dtype, memory_format=torch.contiguous_format).contiguous()


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a complex linear map of each block in real arithmetic.

    x (blocks, N, 2·size) has real and imaginary parts in turn, as has the result; weight (2,
    blocks, size, size) and bias (2, blocks, size).
    """
    blocks, size = bias.shape[1:]
    real, imaginary = weight
    to_real = torch.stack([real, -imaginary], dim=2)
    to_imaginary = torch.stack([imaginary, real], dim=2)
    # (blocks, in, part in, out, part out)
    matrix = torch.stack([to_real, to_imaginary], dim=-1).reshape(blocks, 2 * size, 2 * size)
    offset = bias.permute(1, 2, 0).reshape(blocks, 1, 2 * size)
    return torch.baddbmm(offset, x, matrix)


# --- the transform ------------------------------------------------------------------------------
# As operators of our own: torch's compiler sees their shapes only (it mistakes the memory layout of
# torch's transforms), and the gradient of a real transform stays one (torch's own is complex).


@torch.library.custom_op("scalewatt::to_spectrum", mutates_args=())
def to_spectrum(x: torch.Tensor, modes: int) -> torch.Tensor:
    """Compute the first zonal modes of the orthonormal rfft2: real (B, C, rows, columns) to complex
    (B, C, modes, rows). The meridional transform skips the modes that are dropped."""
    zonal = torch.fft.rfft(x, dim=3, norm="ortho")[..., :modes]
    return torch.fft.fft(zonal.transpose(2, 3), dim=3, norm="ortho").contiguous()


@torch.library.custom_op("scalewatt::to_grid", mutates_args=())
def to_grid(spectrum: torch.Tensor, columns: int) -> torch.Tensor:
    """Invert `to_spectrum`, with zeros for the modes that were dropped."""
    zonal = torch.fft.ifft(spectrum, dim=3, norm="ortho").transpose(2, 3)
    return torch.fft.irfft(zonal, n=columns, dim=3, norm="ortho").contiguous()


def _keep_size(ctx: Any, inputs: tuple[torch.Tensor, int], output: torch.Tensor) -> None:
    """Keep the modes of a spectrum, the columns of a grid."""
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


to_spectrum.register_fake(
    lambda x, modes: x.new_empty((*x.shape[:2], modes, x.shape[2]), dtype=torch.complex64)
)
to_grid.register_fake(
    lambda x, columns: x.new_empty((*x.shape[:2], x.shape[3], columns), dtype=torch.float32)
)
to_spectrum.register_autograd(_from_spectrum_gradient, setup_context=_keep_size)
to_grid.register_autograd(_from_grid_gradient, setup_context=_keep_size)


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

    def __init__(self, width: int, spectral_layer: SpectralLayer, mlp_ratio: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.filter = spectral_layer
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, int(width * mlp_ratio))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, rows, columns, C) to the same shape."""
        x = x + self.filter(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Non-overlapping patches, each embedded by one linear map.

    If `fast`, a CPU computes it as one matrix product, in half of the time.
    """

    def __init__(self, channels: int, patch_size: int, width: int, fast: bool) -> None:
        super().__init__()
        self.fast, self.size = fast, patch_size
        self.proj = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, channels, H, W) to (B, H/p, W/p, width)."""
        if not (self.fast and x.device.type == "cpu"):
            return self.proj(x).permute(0, 2, 3, 1)
        batch, channels, height, width = x.shape
        p = self.size
        patches = x.reshape(batch, channels, height // p, p, width // p, p)
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class FourCastNet(nn.Module):
    """FourCastNet: patches, position embedding, `depth` AFNO blocks, linear head.

    At its defaults 74 690 304 parameters: the original's, less a last LayerNorm it never uses. Not `fast`,
    it computes by the operations of the original code.
    """

    def __init__(
        self,
        grid: tuple[int, int] = (720, 1440),
        channels: int = 20,
        patch_size: int = 8,
        embed_dim: int = 768,
        depth: int = 12,
        num_blocks: int = 8,
        mlp_ratio: float = 4,
        sparsity_threshold: float = 0.01,
        fast: bool = True,
    ) -> None:
        super().__init__()
        rows, columns = grid[0] // patch_size, grid[1] // patch_size
        self.patch_size, self.channels = patch_size, channels
        layer = FastSpectralLayer if fast else SpectralLayer
        self.patch_embed = PatchEmbed(channels, patch_size, embed_dim, fast)
        self.pos_embed = nn.Parameter(torch.zeros(1, rows * columns, embed_dim))
        self.blocks = nn.ModuleList(
            Block(embed_dim, layer(embed_dim, num_blocks, sparsity_threshold), mlp_ratio)
            for _ in range(depth)
        )
        self.head = nn.Linear(embed_dim, channels * patch_size**2, bias=False)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, channels, H, W) to the same shape, 6 h later."""
        x = self.patch_embed(x)
        batch, rows, columns, width = x.shape
        x = x + self.pos_embed.reshape(1, rows, columns, width)
        for block in self.blocks:
            x = block(x)
        p = self.patch_size
        x = self.head(x).reshape(batch, rows, columns, p, p, self.channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, self.channels, rows * p, columns * p)


class Rollout(nn.Module):
    """Autoregressive forecast of `steps` steps in one forward pass, as DDP needs it."""

    def __init__(self, net: FourCastNet, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, C, H, W) to (B, steps, C, H, W)."""
        states = [x]
        for _ in range(self.steps):
            states.append(self.net(states[-1]))
        return torch.stack(states[1:], dim=1)


def load_original_checkpoint(model: FourCastNet | Rollout, path: Path | str) -> None:
    """Load the weights of a checkpoint of the original code, without its last `norm`, which it never uses."""
    network = model.net if isinstance(model, Rollout) else model
    # Only data: a file from elsewhere must not run code.
    saved = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    state = {name.removeprefix("module."): value for name, value in saved.items()}
    network.load_state_dict({k: v for k, v in state.items() if not k.startswith("norm.")})
