"""What a sample of power stands for; of a GPU's sensor it depends on the device.

Source: NVML's reference, nvmlDeviceGetPowerUsage: averaged over a second from Ampere on, but for GA100.
"""

from __future__ import annotations

import re

from scalewatt.recordings.series import ESTIMATED, SensorSeries

INSTANTANEOUS, MEAN, MOVING_MEAN = "instantaneous", "mean", "moving_mean"
"""Instantaneous power, the mean since the sample before, or the mean over the last MEAN_OVER_S seconds."""
MEAN_OVER_S = 1.0

_INSTANTANEOUS = re.compile(
    r"\b(A100|A800|A30|GA100|V100S?|P100|P40|T4|K80|Quadro RTX \d000|TITAN RTX|RTX 20\d\d)\b",
    re.IGNORECASE,
)
_AVERAGED = re.compile(
    r"\b(A2|A10|A10G|A16|A40|L4|L40S?|H100|H800|H200|H20|GH200|B100|B200|B300|GB200|GB300"
    r"|RTX A\d{3,4}|RTX \d{4}(?: SFF)? Ada|RTX [345]0\d\d|RTX PRO \d{4})\b",
    re.IGNORECASE,
)


def gpu_quantity(device_name: str) -> str | None:
    """Return INSTANTANEOUS, MOVING_MEAN, or None where the GPU is not known.

    `device_name` is as a driver or a cluster file gives it.
    """
    if _INSTANTANEOUS.search(device_name):
        return INSTANTANEOUS
    return MOVING_MEAN if _AVERAGED.search(device_name) else None


def sample_quantity(series: SensorSeries, device_name: str | None) -> str | None:
    """Return what a sample of a series stands for; None where unknown, and of an estimate.

    `device_name` is that of the run's GPUs.
    """
    if series.origin == ESTIMATED:
        return None
    if series.quantity in ("counter", "mean_power"):
        return MEAN
    return gpu_quantity(device_name or "") if series.device_kind == "gpu" else None
