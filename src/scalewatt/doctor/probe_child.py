"""Probes that the doctor runs in processes of their own, because drivers and file systems may hang.

`python -m scalewatt.doctor.probe_child KIND …` prints one JSON object:

- `nvml`: what NVML says of the GPUs, see `probe_nvml`.
- `folder FOLDER`: whether files can be written there, see `probe_folder`.
- `mpi`: on rank 0 the size of the world, see `probe_mpi`.
- `perun FOLDER SECONDS POWERS`: what perun samples on this node, see `probe_perun`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.common.files import try_writing

if TYPE_CHECKING:
    from scalewatt.recordings.block import Block

Found = dict[str, Any]

PERIOD_S = 0.2
"""perun's sampling period."""
_UNITS = {"power": "W", "mean_power": "W", "counter": "W", "utilisation": "%"}


# --- GPUs ---------------------------------------------------------------------------------------


def probe_nvml() -> Found:
    """Return what NVML says of this machine's GPUs; never raises.

    {"stage": "module" or "driver", "error"} where NVML cannot be used, else {"driver", "cuda",
    "gpus": [{"index", "name", "uuid", "power_w", "power_error", "energy_error", "mig"}]}.
    """
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
        "driver": _text(_attempt(pynvml.nvmlSystemGetDriverVersion)[0]),
        "cuda": _attempt(pynvml.nvmlSystemGetCudaDriverVersion)[0],
        "gpus": [_gpu(pynvml, index) for index in range(count)],
    }


def _gpu(nvml: Any, index: int) -> Found:
    handle, error = _attempt(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if error is not None:  # a lost GPU
        nothing = dict.fromkeys(("name", "uuid", "power_w", "mig"))
        return {"index": index, **nothing, "power_error": error, "energy_error": error}
    power, power_error = _attempt(lambda: nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3)
    return {
        "index": index,
        "name": _text(_attempt(lambda: nvml.nvmlDeviceGetName(handle))[0]),
        "uuid": _text(_attempt(lambda: nvml.nvmlDeviceGetUUID(handle))[0]),
        "power_w": power,
        "power_error": power_error,
        "energy_error": _attempt(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))[1],
        "mig": _attempt(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]))[0],
    }


def _attempt(query: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return the result and None, or None and the reason."""
    try:
        return query(), None
    except Exception as error:  # not supported, no permission, a function the binding lacks
        return None, str(error) or type(error).__name__


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# --- folders ------------------------------------------------------------------------------------


def probe_folder(folder: Path) -> Found:
    """Write a file and delete it: {"exists", "tried", "free_gib", "error"}; never raises OSError.

    Where the folder does not exist, the nearest existing one above it is tried, and nothing is
    created. `exists` is None if a folder above may not be searched; then nothing is tried.
    `error` is None if writing works.
    """
    tried = folder.absolute()
    hidden: OSError | None = None
    while tried != tried.parent:
        try:
            if tried.exists():
                break
        except OSError as error:  # below a folder that may not be searched, a dead mount
            hidden = hidden or error
        tried = tried.parent
    found: Found = {"exists": tried == folder.absolute(), "tried": str(tried), "free_gib": None}
    if hidden is not None:
        return {**found, "exists": None, "error": hidden.strerror or str(hidden)}
    try:
        disk = os.statvfs(tried)
        found["free_gib"] = disk.f_bavail * disk.f_frsize / (1 << 30)
        try_writing(tried)
    except OSError as error:
        return {**found, "error": error.strerror or str(error)}
    return {**found, "error": None}


# --- MPI ----------------------------------------------------------------------------------------


def probe_mpi() -> Found | None:
    """Meet the other ranks; on rank 0 {"size", "hosts", "library"}, None on the others."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    hosts = comm.gather(socket.gethostname(), root=0)
    if hosts is None:
        return None
    library = " ".join(MPI.Get_library_version().splitlines()[0].split())
    return {"size": comm.Get_size(), "hosts": sorted(set(hosts)), "library": library}


# --- perun --------------------------------------------------------------------------------------


def probe_perun(folder: Path, seconds: float, powers: dict[str, Any]) -> Found:
    """Sample this node with perun; raises where perun leaves no journal in `folder`.

    {"sensors": [{"sensor", "device_kind", "quantity", "samples", "mean", "unit"}], "kinds": {device
    kind: {"origin", "devices", "sensors", "flags"}}}. `mean` is None if a sensor delivered
    nothing. An origin is what the accounting of runs gives with these sensors and rated `powers`.
    """
    from scalewatt.energies.node import NodeFacts, node_kinds, node_window
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.recordings.block import select
    from scalewatt.recordings.journal import journal_files, read_journal

    monitored(_sleep, (seconds,), folder, "segment-000", PERIOD_S, "scalewatt doctor")
    recording = read_journal(journal_files(folder)[0].values())
    ((node, blocks),) = recording.nodes.items()
    sensors = [
        {
            "sensor": sensor["name"],
            "device_kind": sensor["kind"],
            "quantity": sensor["quantity"],
            "samples": int(block.time_s.size),
            "mean": mean_of(block, column),
            "unit": _UNITS[sensor["quantity"]],
        }
        for block in blocks
        for column, sensor in enumerate(block.sensors.to_dict("records"))
    ]
    silent = {one["sensor"] for one in sensors if one["mean"] is None}
    blocks = [select(block, (~block.sensors["name"].isin(silent)).to_numpy()) for block in blocks]
    facts = NodeFacts(node, node_window(blocks) or (0.0, 0.0), PERIOD_S, powers)
    kinds = {
        kind.device_kind: {
            "origin": kind.origin,
            "devices": kind.count,
            "sensors": [device.row.name for device in kind.devices],
            "flags": sorted({one["code"] for one in kind.flags}),
        }
        for kind in node_kinds(facts, blocks)
    }
    return {"sensors": sensors, "kinds": kinds}


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def mean_of(block: Block, column: int) -> float | None:
    """Mean power in W, or percent; None if the sensor delivered nothing plausible."""
    import numpy as np

    sensor, samples = block.sensors.iloc[column], block.values[:, column]
    good = np.isfinite(samples)
    values, time_s = samples[good], block.time_s[good]
    if sensor["quantity"] == "counter":
        if values.size < 2:
            return None
        used_j, took_s = values[-1] - values[0], time_s[-1] - time_s[0]
        used_j += np.nan_to_num(sensor["range_j"], posinf=0.0) if used_j < 0 else 0.0
        return float(used_j / took_s) if used_j > 0 and took_s > 0 else None
    if not values.size:
        return None
    mean = float(values.mean())
    return 100 * mean if sensor["quantity"] == "utilisation" else mean or None


def main(kind: str, *arguments: str) -> None:
    """Run the probe of one kind and print its result."""
    found: Found | None
    if kind == "nvml":
        found = probe_nvml()
    elif kind == "folder":
        found = probe_folder(Path(arguments[0]))
    elif kind == "mpi":
        found = probe_mpi()
    else:
        found = probe_perun(Path(arguments[0]), float(arguments[1]), json.loads(arguments[2]))
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
