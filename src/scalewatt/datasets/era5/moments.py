"""Count, mean and sum of squared deviations of every channel, added up exactly.

Partial results are merged by the formulas of Chan, Golub and LeVeque (1979); all in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scalewatt.datasets.era5.channels import CHANNELS

PART = 2**15
"""Values at once: their float64 copy stays in a core's cache."""


def field_moments(values: np.ndarray) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations from it, of a float32 array.

    Sums are of the deviations from a guess of the mean, so that nothing is lost where the mean is
    large against the deviations.
    """
    flat = values.reshape(-1)
    guess = float(flat[:: max(1, flat.size // 4096)].mean(dtype=np.float64))
    total = squares = 0.0
    buffer = np.empty(min(PART, flat.size))
    for first in range(0, flat.size, PART):
        part = flat[first : first + PART]
        deviations = np.subtract(part, guess, out=buffer[: part.size], dtype=np.float64)
        total += float(deviations.sum())
        squares += float(np.einsum("i,i", deviations, deviations))
    return flat.size, guess + total / flat.size, max(0.0, squares - total**2 / flat.size)


@dataclass
class Moments:
    """Of every channel; and the sum of its fields of z500 (latitude, longitude), if there is any."""

    count: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS), np.int64))
    mean: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS)))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS)))
    z500_sum: np.ndarray | None = None

    def add_field(self, channel: int, values: np.ndarray) -> None:
        """Count in one field of a channel."""
        self._add(np.array([channel]), *(np.array([x]) for x in field_moments(values)))

    def add_z500(self, values: np.ndarray) -> None:
        """Count in one field of z500 for the mean field."""
        if self.z500_sum is None:
            self.z500_sum = np.zeros(values.shape)
        self.z500_sum += values

    def merge(self, other: Moments) -> None:
        """Count in all that another has counted."""
        counted = np.flatnonzero(other.count)
        self._add(counted, other.count[counted], other.mean[counted], other.squares[counted])
        if other.z500_sum is not None:
            self.add_z500(other.z500_sum)

    def _add(
        self, channels: np.ndarray, count: np.ndarray, mean: np.ndarray, squares: np.ndarray
    ) -> None:
        before = self.count[channels]
        both = before + count
        difference = mean - self.mean[channels]
        self.squares[channels] += squares + difference**2 * (before * (count / both))
        self.mean[channels] += difference * (count / both)
        self.count[channels] = both
