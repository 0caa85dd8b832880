"""Throughputs that a device cannot have had: samples or epochs typed wrong, most likely.

What a GPU can reach depends on the network, so the other runs of the same network on the same device
say what is to be expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNLIKE = 10.0
"""Batch size, precision and loader make a factor of up to about five; a wrong unit makes a thousand."""


@dataclass(frozen=True)
class Throughput:
    """What one run trained per second and GPU."""

    name: str
    """How a message names the run."""
    kind: tuple[str, ...]
    """Network, phase and device, which it shares with comparable runs."""
    samples_per_s: float


def unlike_others(runs: Sequence[Throughput]) -> dict[str, str]:
    """Return a sentence by name for each run that is UNLIKE times any other of its kind, or a part of it."""
    found = {}
    for one in runs:
        others = [x.samples_per_s for x in runs if x.kind == one.kind and x is not one]
        ratios = [max(one.samples_per_s / other, other / one.samples_per_s) for other in others]
        if others and min(ratios) >= UNLIKE:
            nearest = others[ratios.index(min(ratios))]
            found[one.name] = (
                f"{one.samples_per_s:.4g} samples/s per GPU; of the other runs of {' on '.join(one.kind)} "
                f"the nearest has {nearest:.4g}; expected its samples per epoch, epochs and number of GPUs"
            )
    return found
