"""Ask NVML about this machine's GPUs, in a process of its own: a broken driver may hang.

Prints one JSON object: {"stage": "module" or "driver", "error"} where NVML cannot be used, else
{"driver", "cuda", "gpus": [{"index", "name", "uuid", "power_w", "power_error", "energy_error",
"mig"}]}.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def ask_nvml() -> dict[str, Any]:
    """What NVML says; never raises."""
    try:
        import pynvml
    except ImportError as error:
        return {"stage": "module", "error": str(error)}
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception as error:  # whatever the binding raises without a driver
        return {"stage": "driver", "error": str(error)}
    return {
        "driver": _text(_tried(pynvml.nvmlSystemGetDriverVersion)[0]),
        "cuda": _tried(pynvml.nvmlSystemGetCudaDriverVersion)[0],
        "gpus": [_gpu(pynvml, index) for index in range(count)],
    }


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle, error = _tried(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if error is not None:  # a lost GPU
        nothing = dict.fromkeys(("name", "uuid", "power_w", "mig"))
        return {"index": index, **nothing, "power_error": error, "energy_error": error}
    power, power_error = _tried(lambda: nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3)
    mig, _ = _tried(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]))
    return {
        "index": index,
        "name": _text(_tried(lambda: nvml.nvmlDeviceGetName(handle))[0]),
        "uuid": _text(_tried(lambda: nvml.nvmlDeviceGetUUID(handle))[0]),
        "power_w": power,
        "power_error": power_error,
        "energy_error": _tried(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))[1],
        "mig": mig,
    }


def _tried(question: Callable[[], Any]) -> tuple[Any, str | None]:
    """The answer, or None with the reason."""
    try:
        return question(), None
    except Exception as error:  # not supported, no permission, a function the binding lacks
        return None, str(error) or type(error).__name__


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    print(json.dumps(ask_nvml()))
