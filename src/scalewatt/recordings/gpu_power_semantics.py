"""What a sample of a GPU's power sensor stands for, by the device's name.

Source: NVML's reference, nvmlDeviceGetPowerUsage: averaged over a second from Ampere on, but for GA100.
"""

from __future__ import annotations

import re

MOMENT, MEAN = "moment", "mean"
"""The power of a moment, or the mean over the second before."""
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


def sample_of(device_name: str) -> str | None:
    """MOMENT, MEAN, or None where it is not known; of a name as a driver or a cluster file gives it."""
    if _INSTANTANEOUS.search(device_name):
        return MOMENT
    return MEAN if _AVERAGED.search(device_name) else None
