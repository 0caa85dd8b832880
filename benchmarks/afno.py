"""AFNO forward and backward: the shipped network against a literal one, on a CPU.

    python benchmarks/afno.py [--rounds 9] [--threads 1]

At two reduced sizes, alternately and in one process: the literal spectral layer (whole spectra filled
with zeros, four real einsums a map, torch's own transforms both ways) and ours, alone and within the
network. Checks first that both agree to rounding. At full size on a GPU: one_gpu_speed.py.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from scalewatt.workloads.afno import FourCastNet, PatchEmbed, SpectralLayer

SIZES: tuple[dict[str, Any], ...] = (
    {"grid": (180, 360), "patch_size": 2, "embed_dim": 96, "depth": 2},
    {"grid": (180, 360), "patch_size": 4, "embed_dim": 192, "depth": 2},
)


class LiteralLayer(SpectralLayer):
    """The same maths, written down as it is defined."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, rows, columns, C) to the same."""
        batch, rows, columns, width = x.shape
        spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
        zonal, kept = columns // 2 + 1, min(rows, columns) // 2 + 1
        spectrum = spectrum.reshape(batch, rows, zonal, self.blocks, width // self.blocks)
        real, imaginary = spectrum.real[:, :, :kept], spectrum.imag[:, :, :kept]
        hidden = self._map(real, imaginary, self.w1, self.b1)
        hidden = functional.relu(hidden[0]), functional.relu(hidden[1])
        whole = torch.zeros(2, *spectrum.shape, device=x.device)
        whole[0, :, :, :kept], whole[1, :, :, :kept] = self._map(*hidden, self.w2, self.b2)
        whole = functional.softshrink(whole, self.sparsity_threshold)
        mixed = torch.complex(whole[0], whole[1]).reshape(batch, rows, zonal, width)
        return torch.fft.irfft2(mixed, s=(rows, columns), dim=(1, 2), norm="ortho") + x

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


def passes(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """One forward and backward pass; the output and all gradients."""
    model.zero_grad(set_to_none=True)
    y = model(x)
    y.backward(y.detach())
    return [y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def disagreement(ours: nn.Module, theirs: nn.Module, x: torch.Tensor) -> float:
    """Largest difference of outputs and gradients, each as a share of its largest value."""
    pairs = zip(passes(ours, x), passes(theirs, x), strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def seconds(model: nn.Module, x: torch.Tensor) -> float:
    """Of one forward and backward pass."""
    began = time.perf_counter()
    passes(model, x)
    return time.perf_counter() - began


def compare(what: str, ours: nn.Module, x: torch.Tensor, rounds: int) -> None:
    """Alternate and print both times and the ratio."""
    theirs = literal(ours)
    differ = disagreement(ours, theirs, x)
    pairs = [(seconds(theirs, x), seconds(ours, x)) for _ in range(rounds + 1)][1:]
    ratios = sorted(a / b for a, b in pairs)
    print(
        f"{what}: literal {1e3 * statistics.median(a for a, _ in pairs):.1f} ms, "
        f"ours {1e3 * statistics.median(b for _, b in pairs):.1f} ms, "
        f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"of the fastest {min(a for a, _ in pairs) / min(b for _, b in pairs):.2f}; "
        f"differ by {differ:.1e}",
        flush=True,
    )


def reduced(rounds: int) -> None:
    """The layer and the network at both sizes."""
    for size in SIZES:
        torch.manual_seed(0)
        net = FourCastNet(**size)
        rows, columns = (side // size["patch_size"] for side in size["grid"])
        layer = net.blocks[0].filter
        assert isinstance(layer, SpectralLayer)
        layer.sparsity_threshold = 1e-3  # else fresh weights leave nothing to transform back
        where = f"{rows} × {columns} patches, width {size['embed_dim']}"
        tokens = torch.randn(1, rows, columns, size["embed_dim"], requires_grad=True)
        compare(f"spectral layer, {where}", layer, tokens, rounds)
        fields = torch.randn(1, 20, *size["grid"])
        compare(f"network of {size['depth']} blocks, {where}", net, fields, rounds)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of torch; default: all cores")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    reduced(options.rounds)


if __name__ == "__main__":
    main()
