"""The energy curve of a series, and what else its validation gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scalewatt.energy.integration.sample_checks import GAP_PERIODS, Codes
from scalewatt.recordings.series import Flag, Floats

BRIDGE_S = 30.0


@dataclass(frozen=True, eq=False)
class EnergyCurve:
    """Energy cumulated over time: `time_s`, `energy_j`, `cumulated_s` (covered time), all (n,)."""

    time_s: Floats
    energy_j: Floats
    cumulated_s: Floats

    def between(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the energy in J between two times (scalars or arrays); additive over any split.

        Between two samples the curve is a straight line; outside of the samples it is flat.
        """
        return self._at(self.energy_j, end_s) - self._at(self.energy_j, start_s)

    def covered_s(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the seconds between two times of which the energy is known."""
        return self._at(self.cumulated_s, end_s) - self._at(self.cumulated_s, start_s)

    def _at(self, values: Floats, time_s: ArrayLike) -> Floats:
        if self.time_s.size == 0:
            return np.zeros_like(np.asarray(time_s, dtype=np.float64))
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, values))


@dataclass(frozen=True, eq=False)
class Validated:
    """One validated series of n samples."""

    curve: EnergyCurve
    flags: list[Flag]
    power_w: Floats
    """Power in W at each sample, (n,); NaN where unknown. Of a counter and of mean powers: the mean
    since the sample before, so the first is unknown. May be the values of the series themselves."""
    sample_flags: Codes
    """Place in SAMPLE_FLAGS of the first flag of each sample, (n,); 0: none. `gap`: first sample after it."""


@dataclass(frozen=True)
class Device:
    """What is known of the device behind a series."""

    sensor: str
    limit_w: float
    """What it cannot draw more than in W."""
    measured: bool
    """True if a sensor stands behind it: one that may freeze, of a device that never draws 0 W."""
    valid_max: float | None
    """Range of the counter in J; None where unknown or no counter."""
    period_s: float | None
    """The declared sampling period; None where unknown."""


def sampling_period(time_s: Floats, declared_s: float | None = None) -> float:
    """Return the period in s: the declared one or, if that is longer or alone, the median step."""
    steps = np.diff(time_s)
    steps = steps[steps > 0]
    median = float(np.median(steps)) if steps.size else 0.0
    return max(median, declared_s or 0.0)


def bridge_s(period_s: float) -> float:
    """Return the longest time in s that is bridged."""
    return max(BRIDGE_S, GAP_PERIODS * period_s)


def is_even(step_s: Floats, period_s: float | None) -> bool:
    """Tell whether the clock runs forward without a gap; False where full validation is needed."""
    if step_s.size == 0 or not float(step_s.min()) > 0:
        return False
    period = period_s or float(np.median(step_s))
    return bool(step_s.max() <= GAP_PERIODS * period)


def cumulate(time_s: Floats, energy_j: Floats, covered_s: Floats | None = None) -> EnergyCurve:
    """Return the curve of k samples from the energy and covered time of the k-1 intervals.

    Without `covered_s` all of them are covered.
    """
    if time_s.size == 0:
        return EnergyCurve(time_s, time_s, time_s)
    # Of covered time only differences count: where all is covered, the clock itself will do.
    covered = time_s if covered_s is None else _summed(covered_s)
    return EnergyCurve(time_s, _summed(energy_j), covered)


def _summed(parts: Floats) -> Floats:
    total = np.empty(parts.size + 1)
    total[0] = 0.0
    np.cumsum(parts, out=total[1:])
    return total
