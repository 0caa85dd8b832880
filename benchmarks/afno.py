"""AFNO forward and backward on a CPU: the shipped network against a literal one.

    python benchmarks/afno.py [--rounds 9] [--threads 1]

At two reduced sizes, alternately and in one process: the literal spectral layer (whole spectra filled
with zeros, four real einsums a map, torch's own transforms both ways) and ours, alone and within the
network. Checks first that both agree to rounding. On a GPU: one_gpu_speed.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from gpu_speed.literal_network import literal
from torch import nn

from scalewatt.workloads.afno import FourCastNet, SpectralLayer

SIZES: tuple[dict[str, Any], ...] = (
    {"grid": (180, 360), "patch_size": 2, "embed_dim": 96, "depth": 2},
    {"grid": (180, 360), "patch_size": 4, "embed_dim": 192, "depth": 2},
)


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
