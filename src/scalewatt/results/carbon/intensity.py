"""The carbon intensity of electricity over time: a step function with gaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from scalewatt.recordings.terms import Floats

_LONGER = 1.01
"""A step longer than the regular one by more than this factor is a gap."""


@dataclass(frozen=True, eq=False)
class CarbonIntensity:
    """Grams of CO₂e for each kWh: `g_per_kwh[i]` counts from `edges_s[i]` to `edges_s[i + 1]`."""

    edges_s: Floats
    """Unix times in s, increasing, (m + 1,)."""
    g_per_kwh: Floats
    """(m,); NaN in a gap."""
    name: str
    """The file that it comes from, without its folder."""

    @property
    def cover_s(self) -> tuple[float, float]:
        """Return the unix times in s of its begin and end, gaps between included."""
        return float(self.edges_s[0]), float(self.edges_s[-1])

    def at(self, time_s: ArrayLike) -> Floats:
        """Return g/kWh at unix times in s; NaN in gaps, before the begin, and from the end on."""
        time = np.asarray(time_s, dtype=np.float64)
        place = np.searchsorted(self.edges_s, time, side="right") - 1
        inside = (place >= 0) & (place < self.g_per_kwh.size)
        values = self.g_per_kwh[np.clip(place, 0, self.g_per_kwh.size - 1)]
        return np.where(inside, values, np.nan)

    def mean(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the mean g/kWh from one time to another, both in s and of one shape.

        NaN where a part of the time is not covered. Without length it is the value at that time.
        """
        start, end = (np.asarray(one, dtype=np.float64) for one in (start_s, end_s))
        length = end - start
        # Sums of what differs from one value: a constant file gives exactly its constant.
        beyond = self._at(self._sums[0], end) - self._at(self._sums[0], start)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._reference + beyond / length
        gaps_s = self._at(self._sums[1], end) - self._at(self._sums[1], start)
        outside = (start < self.edges_s[0]) | (end > self.edges_s[-1]) | (gaps_s > 0)
        return np.where(length > 0, np.where(outside, np.nan, mean), self.at(start))

    @cached_property
    def _reference(self) -> float:
        return float(self.g_per_kwh[np.isfinite(self.g_per_kwh)][0])

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        """Return the sums up to each edge: of g/kWh · s beyond the reference, and of s in gaps."""
        length, known = np.diff(self.edges_s), np.isfinite(self.g_per_kwh)
        beyond = np.where(known, self.g_per_kwh - self._reference, 0.0) * length
        parts = (beyond, np.where(known, 0.0, length))
        first, second = (np.concatenate(([0.0], np.cumsum(part))) for part in parts)
        return first, second

    def _at(self, sums: Floats, time_s: Floats) -> Floats:
        return np.asarray(np.interp(time_s, self.edges_s, sums))


def of_intervals(start_s: Floats, end_s: Floats, g_per_kwh: Floats, name: str) -> CarbonIntensity:
    """Return the intensity of intervals in order of time, (n,) each; what lies between two is a gap.

    Where an interval lasts beyond the begin of the next, the next one counts from there.
    """
    end = np.minimum(end_s, np.append(start_s[1:], np.inf))
    gaps = np.flatnonzero(start_s[1:] > end[:-1])
    edges = np.append(np.insert(start_s, gaps + 1, end[gaps]), end[-1])
    return CarbonIntensity(edges, np.insert(g_per_kwh, gaps + 1, np.nan), name)


def of_times(time_s: Floats, g_per_kwh: Floats, name: str) -> CarbonIntensity:
    """Return the intensity of rows in order of time, (n,) with n ≥ 2; NaN for a value that is not known.

    A value counts until the next row, but no longer than the regular step, which is the median: beyond
    it is a gap. The last row counts as long as the step before it.
    """
    step = np.diff(time_s)
    regular = float(np.median(step))
    lasts = np.where(step > _LONGER * regular, regular, step)
    return of_intervals(time_s, time_s + np.append(lasts, lasts[-1]), g_per_kwh, name)
