"""The GPU of this machine, and the cluster file that names it as a device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import INSTANTANEOUS, MEAN_OVER_S, gpu_quantity

_VENDOR = {"nvidia", "amd", "tesla", "quadro", "geforce", "instinct", "graphics", "device"}
_BUILD = re.compile(r"sxm|pcie|hbm|nvl|\d+gb?$|vf$", re.IGNORECASE)
"""Words of a GPU's name that tell its connector and memory."""
STEADY_S = 10.0
CPU = "cpu"
"""The device of a rehearsal."""


@dataclass(frozen=True)
class Machine:
    """What computes here."""

    device: str
    """Its word as a device of a campaign, such as h100."""
    name: str
    """As the driver has it, such as NVIDIA H100 80GB HBM3."""
    cores: int

    @property
    def is_gpu(self) -> bool:
        """Return False in a rehearsal, on a CPU."""
        return self.device != CPU


def machine_here(rehearse: bool) -> Machine:
    """Return this machine's first GPU, or in a rehearsal its CPU; InputError where there is no GPU."""
    if rehearse:
        # On one core: threads of several that wait for each other are slow on a machine with other work.
        return Machine(CPU, "CPU", 1)
    import torch

    if not torch.cuda.is_available():
        raise InputError(
            "this machine shows no GPU that torch can use; allowed: a machine with one (scalewatt doctor"
            " says what is missing), or --rehearse, which tries everything at a small size on the CPU"
        )
    name = torch.cuda.get_device_name(0)
    _require_power(name)
    return Machine(device_word(name), name, len(os.sched_getaffinity(0)))


def _require_power(name: str) -> None:
    """Raise InputError if the power of torch's first GPU cannot be read: nothing would be measured."""
    import torch

    from scalewatt.provenance.versions import gpu_identity

    try:
        index = gpu_identity(torch.device("cuda", 0)).index
        if index is None:
            raise RuntimeError("NVML does not know it, or it is a part of a GPU")
        import pynvml

        pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(index))
    except Exception as error:  # whatever a driver's binding raises
        raise InputError(
            f"{name}: its power cannot be read ({error}); expected a GPU whose power NVML gives"
            " (scalewatt doctor says what is missing)"
        ) from None


def device_word(name: str) -> str:
    """Return a GPU's name as a campaign's device: "NVIDIA A100-SXM4-40GB" is a100."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    words = [word for word in words if word.lower() not in _VENDOR]
    kept = [word for word in words if not _BUILD.search(word)] or words or ["gpu"]
    return "".join(kept).lower()


def least_train_s(name: str, period_s: float, error: float) -> float:
    """Return how long a stage must be for its energy to be known to the share `error`.

    At its beginning the power rises from that of the stage before. A sensor that reports a mean over the
    last second tells of it half a second late, and a sample stands for half a period on either side: up
    to so many seconds' worth of the power are attributed to the wrong stage. Of a GPU that is not known,
    the sensor is taken for one that averages. At least STEADY_S: clocks take some seconds to settle.
    """
    window_s = 0.0 if gpu_quantity(name) == INSTANTANEOUS else MEAN_OVER_S
    return max(STEADY_S, (window_s / 2 + period_s) / error)


def cluster_content(
    local: dict[str, Any], machine: Machine, name: str, campaign: str
) -> dict[str, Any]:
    """Return the content of the cluster file `name` for this machine, after that of profiles/local.

    `campaign` is the file that it trains by default. The one rank is started directly: an mpiexec would
    bind it and its loaders to a core, or refuse root.
    """
    device = dict(local["devices"]["local"])
    device.pop("max_local_batch_size", None)
    device |= {
        "description": machine.name,
        "gpus_per_node": 1,
        "max_gpus": 1,
        "cpus_per_rank": machine.cores,
        "torch_device": "cuda" if machine.is_gpu else "cpu",
    }
    launcher = "env SCALEWATT_RANK_COUNT={gpus}"
    own = {"cluster": name, "campaign": campaign, "launcher": launcher}
    return {**local, **own, "devices": {machine.device: device}}
