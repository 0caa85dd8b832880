"""Telemetry of a node: its table, and the flags of GPUs that were slowed down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from scalewatt.energies.accounting.energy_schema import TELEMETRY_SCHEMA
from scalewatt.energies.accounting.segment_recordings import NodeRecording
from scalewatt.energies.estimate import node_utilisation
from scalewatt.energies.integration.operating_point import POWER_CAP, SLOWDOWNS
from scalewatt.energies.stages import seconds_where
from scalewatt.recordings.series import Flag, SensorSeries, flag
from scalewatt.recordings.telemetry import TelemetrySeries
from scalewatt.recordings.transition import to_blocks

Window = tuple[float, float]


def state_flags(
    telemetry: Iterable[TelemetrySeries],
    held: Sequence[int] | None,
    window: Window,
    limit_is_wanted: bool = False,
) -> list[Flag]:
    """Return the flags `throttled` and `power_capped` of the GPUs that the run held (None: all).

    Where a power limit was asked for, working at it is what was wanted, and no flag.
    """
    flags = []
    for one in telemetry:
        if one.quantity != "throttle_reasons" or (
            held is not None and one.device_index not in held
        ):
            continue
        reasons = np.nan_to_num(one.values).astype(np.int64)
        slow = {
            word: seconds_where(one.time_s, reasons & bit != 0, window)
            for bit, word in SLOWDOWNS.items()
        }
        capped = seconds_where(one.time_s, reasons & POWER_CAP != 0, window)
        device = f"{one.node}: GPU {one.device_index}"
        length = window[1] - window[0]
        if any(slow.values()):
            words = ", ".join(f"{word} {s:.0f} s" for word, s in slow.items() if s)
            flags.append(flag("throttled", None, f"{device}: {words} of {length:.0f} s"))
        if capped and not limit_is_wanted:
            detail = f"{device}: at its power limit for {capped:.0f} s of {length:.0f} s"
            flags.append(flag("power_capped", None, detail))
    return flags


def gpu_utilisation(recording: NodeRecording) -> list[SensorSeries]:
    """Return the load of the GPUs (0..1) as series, to estimate from where power is unknown."""
    return [
        SensorSeries(
            node=one.node,
            sensor=f"GPU {one.device_index} utilisation",
            device_kind="gpu",
            device_index=one.device_index,
            quantity="utilisation",
            time_s=one.time_s,
            values=one.values / 100.0,
        )
        for one in recording.telemetry
        if one.quantity == "gpu_utilisation"
    ]


def telemetry_table(recording: NodeRecording, segment: int) -> pa.Table:
    """Return the rows of TELEMETRY_SCHEMA of one node: its telemetry, and its CPUs' load."""
    found = list(recording.telemetry)
    load, _ = node_utilisation(to_blocks(recording.series))
    if load is not None:
        cpu = ("cpu", 0, "cpu_utilisation", "%")
        found.append(TelemetrySeries(recording.node, *cpu, load.time_s, 100 * load.values[:, 0]))
    return pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *(_rows(c, segment) for c in found)])


def _rows(series: TelemetrySeries, segment: int) -> pa.Table:
    times = pa.array(np.rint(series.time_s * 1e6).astype(np.int64))
    same = {**vars(series), "segment": segment}
    columns = {
        field.name: pa.array([same[field.name]] * len(times), field.type)
        for field in TELEMETRY_SCHEMA
        if field.name in same
    }
    columns["time"] = times.view(TELEMETRY_SCHEMA.field("time").type)
    columns["value"] = pa.array(series.values, from_pandas=True)
    names = TELEMETRY_SCHEMA.names
    return pa.Table.from_arrays([columns[name] for name in names], schema=TELEMETRY_SCHEMA)
