"""The steps between a sensor's times: found once for all sensors of a node, which share their times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import local

import numpy as np

from scalewatt.recordings.series import Floats


@dataclass(frozen=True, eq=False)
class TimeSteps:
    """The n - 1 steps between n times, in s."""

    step_s: Floats
    least_s: float
    """The shortest step; NaN if any is, infinite without any."""
    longest_s: float
    runs_forward: bool
    """True if all times are finite, each after the one before."""

    @cached_property
    def median_s(self) -> float:
        """Return the median of the steps above 0; 0 without any."""
        steps = self.step_s if self.least_s > 0 else self.step_s[self.step_s > 0]
        return float(np.median(steps)) if steps.size else 0.0


_last = local()


def steps_of(time_s: Floats) -> TimeSteps:
    """Return the steps of times; those of the last array that a thread asked for are kept."""
    kept: tuple[Floats, TimeSteps] | None = getattr(_last, "kept", None)
    if kept is not None and kept[0] is time_s:
        return kept[1]
    step_s = np.diff(time_s)
    step_s.flags.writeable = False
    least, longest = float(step_s.min(initial=np.inf)), float(step_s.max(initial=-np.inf))
    # Between finite ends no time is without end where each is after the one before.
    forward = least > 0 and bool(np.isfinite(time_s[:1]).all() and np.isfinite(time_s[-1:]).all())
    found = TimeSteps(step_s, least, longest, forward)
    _last.kept = time_s, found
    return found
