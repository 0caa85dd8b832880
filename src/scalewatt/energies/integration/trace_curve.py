"""The energy curve of a device from its trace: known samples of power, whatever the sensor was."""

from __future__ import annotations

import numpy as np

from scalewatt.energies.integration.sample_checks import EnergyCurve, cumulate
from scalewatt.recordings.series import Floats


def power_curve(time_s: Floats, power_w: Floats, longest_s: float, mean: bool) -> EnergyCurve:
    """Return the energy in J cumulated over known samples of one device.

    Steps over `longest_s` are not covered. `mean`: a sample is the mean since the one before, not a
    power at its time.
    """
    step = np.diff(time_s)
    known = (step > 0) & (step <= longest_s)
    height = power_w[1:] if mean else 0.5 * (power_w[1:] + power_w[:-1])
    return cumulate(time_s, np.where(known, height * step, 0.0), np.where(known, step, 0.0))
