"""Power where a node has no power sensor, from utilisation and the cluster's rated powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalewatt.recordings.series import Flag, SensorSeries, flag


def node_utilisation(
    series: Sequence[SensorSeries],
) -> tuple[SensorSeries | None, list[Flag]]:
    """Return the utilisation of all cores of one node (0..1) from the best series there is.

    Our own `CPU_BUSY` or perun's `CPU_USAGE` mean all cores. `CPU_USAGE_n` is core n: the mean of
    those recorded stands in, flagged, because perun 1.0.0 records core 0 only by default, and with
    more cores resets psutil's clock between them, so that only the first is right.
    """
    found = [s for s in series if s.device_kind == "cpu" and s.quantity == "utilisation"]
    for wanted in (lambda s: "CPU_BUSY" in s.sensor, lambda s: s.sensor == "CPU_USAGE"):
        best = [s for s in found if wanted(s)]
        if best:
            return best[0], []
    if not found:
        return None, []
    if len(found) == 1:
        detail = "the only utilisation is that of one core, taken for all"
        return found[0], [flag("utilisation_one_core", found[0].sensor, detail)]
    same = [s for s in found if s.time_s.size == found[0].time_s.size]
    mean = np.mean([s.values for s in same], axis=0)
    detail = f"utilisation is the mean of {len(same)} cores read one after another"
    return replace(found[0], values=mean), [flag("utilisation_per_core", None, detail)]


def estimated_cpu(utilisation: SensorSeries, cpu: dict[str, Any]) -> SensorSeries:
    """Return the power of all sockets of a node: sockets · (idle + utilisation · (rated - idle)).

    `cpu` = {"sockets", "idle_w", "rated_w"}, the powers per socket.
    """
    power = int(cpu["sockets"]) * _between(utilisation, cpu)
    return replace(utilisation, quantity="power", values=power, device_index=0, origin="estimated")


def estimated_gpu(utilisation: SensorSeries, gpu: dict[str, Any]) -> SensorSeries:
    """Return one GPU's power: idle + utilisation · (rated - idle); `gpu` = {idle_w, rated_w}."""
    values = _between(utilisation, gpu)
    return replace(utilisation, quantity="power", values=values, origin="estimated")


def estimated_ram(like: SensorSeries, ram: dict[str, Any]) -> SensorSeries:
    """Return a node's constant memory power at the times of `like`; `ram` = {"power_w"}."""
    return SensorSeries(
        node=like.node,
        sensor="rated_power",
        device_kind="ram",
        device_index=0,
        quantity="power",
        time_s=like.time_s,
        values=np.full(like.time_s.shape, float(ram["power_w"])),
        origin="estimated",
    )


def _between(utilisation: SensorSeries, powers: dict[str, Any]) -> np.ndarray:
    idle, rated = float(powers["idle_w"]), float(powers["rated_w"])
    # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
    # idle but unknown.
    share = np.where(utilisation.values < 0, np.nan, np.minimum(utilisation.values, 1.0))
    return idle + share * (rated - idle)
