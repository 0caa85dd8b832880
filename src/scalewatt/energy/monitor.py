"""perun around a function: its file at the end, and a journal of every sample as it is taken.

Used by every rank of a training and of an idle probe. perun forks one sampler per node, from the
lowest rank of the host name.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalewatt.training.stop import ignore_stop_signals

# Everything that is not energy, as regular expressions that perun matches from a name's start.
# CPU_BUSY stands in for CPU_USAGE; memory and clocks of the GPUs are read beside, more seldom.
EXCLUDED_SENSORS = (
    r"CPU_FREQ_ CPU_USAGE_ RAM_USAGE DISK_ NET_ CUDA:\d+_(?:MEM|CLOCK) ROCM:[^_]+_MEM"
)


class JournalWriter:
    """perun's live callback: appends each sample as it is taken, with both clocks.

    It runs inside perun's sampler and ends it when the training has died.
    """

    def __init__(self, folder: Path, stem: str, period_s: float, training_pid: int) -> None:
        self.folder, self.stem = folder, stem
        self.period_s, self.training_pid = period_s, training_pid

    def __call__(self) -> Callable[[dict[str, Any]], None]:
        """Called once in the sampler; returns what is called with every sample."""
        import socket

        ignore_stop_signals()
        host = socket.gethostname()
        path = self.folder / f"{self.stem}.{host}.journal"
        file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        header = {"journal": 1, "host": host, "sampling_period_s": self.period_s}
        file.write(json.dumps(header) + "\n")

        def append(values: dict[str, Any]) -> None:
            if os.getppid() != self.training_pid:
                os._exit(0)
            sample = {"t": time.time(), "mono": time.monotonic()}
            sample.update({key: float(value) for key, value in values.items()})
            file.write(json.dumps(sample) + "\n")
            file.flush()

        return append


def monitored(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    folder: Path,
    stem: str,
    period_s: float,
    run: str,
) -> Any:
    """Run `function(*args)` under perun on every rank and return its result.

    perun's file (`<stem>.hdf5`) and the journals of the nodes go to `folder`. `run` says who
    measures, for others that measure on the same node. perun catches what `function` raises.
    """
    import cpuinfo
    import perun
    from perun.configuration import config
    from perun.core import Perun

    from scalewatt.energy import cpu_busy
    from scalewatt.energy.provenance import cpu_name

    # perun asks for the CPU's name three times a rank, which takes over a second each.
    cpuinfo.get_cpu_info = lambda: {"brand_raw": cpu_name(), "arch": platform.machine()}
    cpu_busy.register()
    Perun(config)  # the callback is registered with this singleton
    perun.register_live_callback(
        JournalWriter(folder, stem, period_s, os.getpid()), "scalewatt-journal"
    )
    decorate = perun.perun(
        configuration_file=os.devnull,
        app_name=stem,
        run_id=stem,
        data_out=str(folder),
        format="hdf5",
        sampling_period=period_s,
        exclude_sensors=EXCLUDED_SENSORS,
    )
    _, result = decorate(function)(*args)
    return result
