"""perun around a function: its file at the end, and a journal of every sample as it is taken.

Used by every rank of a training and of an idle probe. perun forks one sampler per node, from the
lowest rank of the host name.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Everything that is not energy, as regular expressions that perun matches from a name's start.
# CPU_BUSY stands in for CPU_USAGE; memory and clocks of the GPUs are telemetry, read less often.
EXCLUDED_SENSORS = (
    r"CPU_FREQ_ CPU_USAGE_ RAM_USAGE DISK_ NET_ CUDA:\d+_(?:MEM|CLOCK) ROCM:[^_]+_MEM"
)
SAMPLER_S = 60
"""Seconds that perun waits after a run for its sampler's data, if `monitored` gets no others."""
SETTINGS: dict[str, dict[str, Any]] = {
    "monitor": {"exclude_sensors": EXCLUDED_SENSORS},
    "output": {"format": "hdf5"},
    "benchmarking": {
        "metrics": "runtime,energy",
        "region_metrics": "runtime",
        "metric_stats": "avg",
    },
    "post-processing": {"emissions_factor": 0.0, "price_factor": 0.0},
}
"""Settings of all runs that differ from perun's defaults."""


def monitored(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    folder: Path,
    stem: str,
    period_s: float,
    closing_s: float = SAMPLER_S,
) -> Any:
    """Run `function(*args)` under perun on every rank and return its result.

    perun's file (`<stem>.hdf5`) and the journals of the nodes go to `folder`. After it perun waits for its
    sampler's data for `closing_s`; without them there is no file of perun's. perun catches what `function`
    raises.
    """
    import perun
    from perun import core
    from perun.backend import available_backends, hwmon_grace, powercap_rapl
    from perun.configuration import _default_config, config
    from perun.monitoring.monitor import PerunMonitor

    from scalewatt.monitoring.cpu_utilisation import CpuBusyBackend
    from scalewatt.monitoring.sampler import JournalWriter, describe_sensors
    from scalewatt.provenance.node_description import cpu_name

    # perun asks for the CPU's name three times a rank, over a second each
    facts = {"brand_raw": cpu_name(), "arch": platform.machine()}
    for module in (core, hwmon_grace, powercap_rapl):
        vars(module)["cpuinfo"] = SimpleNamespace(get_cpu_info=lambda: dict(facts))
    available_backends[CpuBusyBackend.__name__] = CpuBusyBackend
    # The callback is registered with the one object that Perun(config) always gives.
    sensors = describe_sensors(core.Perun(config).backends.values())
    journal = JournalWriter(folder, stem, period_s, os.getpid(), sensors)
    perun.register_live_callback(journal, "scalewatt-journal")

    # A user's own settings of perun are not in effect: when it was imported it has read ~/.config/perun.ini
    # and ./.perun.ini, and it is about to read PERUN_* from the environment
    for name in [name for name in os.environ if name.startswith("PERUN_")]:
        del os.environ[name]
    config[config.default_section].clear()
    config.clear()
    whole_s = max(1, math.ceil(closing_s))
    data_out = str(folder).replace("%", "%%")
    output = {"app_name": stem, "run_id": stem, "data_out": data_out}
    monitor = {"sampling_period": period_s, "queue_timeout": whole_s}
    config.read_dict(_default_config)
    config.read_dict(SETTINGS)
    config.read_dict({"output": output, "monitor": monitor})

    # perun 1.0.0 takes `queue_timeout` for runs that failed, and 60 s for all others: a sampler that had
    # recorded for days on many sensors lost its data for taking longer to put them together
    perun_monitor: Any = PerunMonitor
    process_run = partialmethod(perun_monitor._process_single_run, queue_timeout=whole_s)
    perun_monitor._process_single_run = process_run
    decorate = perun.perun(configuration_file=os.devnull)
    _, result = decorate(function)(*args)
    return result


def settings_in_effect() -> dict[str, Any]:
    """perun's version and options, but paths, by section; to be called while it measures."""
    from importlib.metadata import version

    from perun.configuration import config

    left_out = {"data_out", "log_file", "starttime"}  # the last perun adds itself
    settings = {
        section: {name: value for name, value in config.items(section) if name not in left_out}
        for section in config.sections()
    }
    return {"version": version("perun"), "settings": settings}
