"""Sensors of recordings one by one, as tests look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.perun_file import open_perun_file
from scalewatt.recordings.terms import Flag, Floats


@dataclass(frozen=True, eq=False)
class SensorSeries:
    """A column of a block."""

    node: str
    sensor: str
    device_kind: str
    device_index: int
    quantity: str
    time_s: Floats
    values: Floats
    valid_max: float | None
    limit_w: float | None
    uuid: str | None
    samples: str | None
    origin: str
    flags: tuple[Flag, ...] = ()

    @property
    def block(self) -> Block:
        """A block of this sensor alone."""
        row = {
            "name": self.sensor,
            "kind": self.device_kind,
            "index": self.device_index,
            "quantity": self.quantity,
            "range_j": np.nan if self.valid_max is None else self.valid_max,
            "limit_w": np.nan if self.limit_w is None else self.limit_w,
            "samples": self.samples or "",
            "origin": self.origin,
        }
        return Block(self.node, self.time_s, self.values[:, None], sensor_frame([row]))


def series_of(recording: Recording) -> list[SensorSeries]:
    """All sensors of a recording, by node, kind, index and name."""
    series = (one for blocks in recording.nodes.values() for b in blocks for one in _series(b))
    return sorted(series, key=lambda s: (s.node, s.device_kind, s.device_index, s.sensor))


def _series(block: Block) -> Iterator[SensorSeries]:
    def known(number: float) -> float | None:
        return None if np.isnan(number) else float(number)

    for column, row in enumerate(block.sensors.itertuples(index=False)):
        facts: Any = row
        yield SensorSeries(
            block.node,
            facts.name,
            facts.kind,
            int(facts.index),
            facts.quantity,
            block.time_s,
            block.values[:, column],
            known(facts.range_j),
            known(facts.limit_w),
            facts.uuid or None,
            facts.samples or None,
            facts.origin,
            tuple(one for one in block.flags if one["device"] == facts.name),
        )


def read_perun_file(path: Path, run: str | None = None, round: str | None = None) -> Recording:
    """Read all hosts of one round of a perun file at once."""
    with open_perun_file(path, run, round) as recording:
        return replace(recording, nodes=dict(recording.nodes))
