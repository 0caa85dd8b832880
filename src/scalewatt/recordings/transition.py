"""Blocks as series and back, until all of recordings and energies speak of blocks. Goes with issue 38."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from scalewatt.recordings import series as old
from scalewatt.recordings.block import Block, Recording, sensor_frame


def to_series(block: Block) -> list[old.SensorSeries]:
    """Return one series a sensor."""
    found = []
    for i, row in enumerate(block.sensors.to_dict("records")):
        ends = None if block.bounds is None else tuple(b[:, i] for b in block.bounds)
        found.append(
            old.SensorSeries(
                node=block.node,
                sensor=row["name"],
                device_kind=row["kind"],
                device_index=int(row["index"]),
                quantity=row["quantity"],
                time_s=block.time_s,
                values=np.ascontiguousarray(block.values[:, i]),
                valid_max=None if np.isnan(row["range_j"]) else float(row["range_j"]),
                limit_w=None if np.isnan(row["limit_w"]) else float(row["limit_w"]),
                origin=row["origin"],
                bounds_w=ends,  # type: ignore[arg-type]
                uuid=row["uuid"] or None,
                totals=bool(row["totals"]),
                samples=row["samples"] or None,
                flags=tuple(f for f in block.flags if f["device"] == row["name"]),
            )
        )
    return found


def to_blocks(series: Iterable[old.SensorSeries]) -> list[Block]:
    """Return a block for each time axis; flags of series are left behind."""
    groups: dict[tuple[object, ...], list[old.SensorSeries]] = {}
    for one in series:
        groups.setdefault((one.node, id(one.time_s), one.bounds_w is not None), []).append(one)
    return [
        Block(
            group[0].node,
            group[0].time_s,
            np.asfortranarray(np.column_stack([one.values for one in group])),
            sensor_frame(
                [
                    {
                        "name": one.sensor,
                        "kind": one.device_kind,
                        "index": one.device_index,
                        "quantity": one.quantity,
                        "range_j": np.nan if one.valid_max is None else one.valid_max,
                        "limit_w": np.nan if one.limit_w is None else one.limit_w,
                        "uuid": one.uuid or "",
                        "origin": one.origin,
                        "samples": one.samples or "",
                        "totals": one.totals,
                    }
                    for one in group
                ]
            ),
            None
            if group[0].bounds_w is None
            else tuple(  # type: ignore[arg-type]
                np.column_stack([one.bounds_w[i] for one in group if one.bounds_w]) for i in (0, 1)
            ),
            tuple(f for one in group for f in one.flags),
        )
        for group in groups.values()
    ]


class _Series(Mapping[str, tuple[old.SensorSeries, ...]]):
    """The series of each node, read when asked for."""

    def __init__(self, new: Recording) -> None:
        self._nodes = new.nodes
        self._stated: Mapping[tuple[str, str], float] = new.perun_j or {}
        self._flags = _of_sensors(new)

    def __getitem__(self, node: str) -> tuple[old.SensorSeries, ...]:
        series = [one for block in self._nodes[node] for one in to_series(block)]
        series.sort(key=lambda one: (one.device_kind, one.device_index, one.sensor))
        return tuple(
            _with(one, self._stated.get((node, one.device_kind)), self._flags) for one in series
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def recording_to_old(new: Recording) -> old.Recording:
    """Return a recording of series, which are read when asked for."""
    of_sensors = _of_sensors(new)
    return old.Recording(
        nodes=_Series(new),
        t0_known=new.clock_known,
        sampling_period_s=new.period_s,
        source=new.source,
        problems=tuple(one for one in new.flags if one not in of_sensors)
        if of_sensors
        else new.flags,
        execution_dt=new.started,
        run_id=new.run,
        round_id=new.round,
        format=new.format,
        windows=new.windows,
    )


def recording_to_new(record: old.Recording) -> Recording:
    """Return a recording of blocks; all its series are read, and their flags are the recording's."""
    nodes: dict[str, Sequence[Block]] = {n: to_blocks(s) for n, s in record.nodes.items()}
    return Recording(
        nodes=nodes,
        clock_known=record.t0_known,
        period_s=record.sampling_period_s,
        source=record.source,
        flags=tuple(record.problems),
        started=record.execution_dt,
        run=record.run_id,
        round=record.round_id,
        format=record.format,
        perun_j={(s.node, s.device_kind): s.perun_kind_j for s in record.series if s.perun_kind_j},
        windows=record.windows,
    )


def _of_sensors(new: Recording) -> list[old.Flag]:
    """Flags of totals that are about a sensor."""
    return [one for one in new.flags if one.get("kind")] if new.format != "perun" else []


def _with(
    one: old.SensorSeries, stated_j: float | None, flags: Iterable[old.Flag]
) -> old.SensorSeries:
    from dataclasses import replace

    own = tuple(
        old.flag(flag["code"], flag["device"], flag["detail"])
        for flag in flags
        if (flag["node"], flag["kind"], flag["device"]) == (one.node, one.device_kind, one.sensor)
    )
    return replace(one, perun_kind_j=stated_j, flags=(*one.flags, *own))
