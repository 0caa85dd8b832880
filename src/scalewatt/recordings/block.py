"""Recordings and their blocks: the samples of one sampler of one node on one time axis."""

from __future__ import annotations

from bisect import bisect_left
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewatt.recordings.terms import GAP_PERIODS, Flag, Floats

SENSOR = {
    "name": "",  # as the tool has it, unique in its node and kind
    "kind": "",  # gpu, cpu, ram; node of a whole node's meter
    "index": 0,  # number of the device among those of its kind in the node
    "quantity": "power",  # (W), mean_power (W since the sample before), counter (J), utilisation (0..1)
    "range_j": np.nan,  # where a counter begins anew; infinite where never
    "limit_w": np.nan,  # the device's own power limit
    "uuid": "",
    "device": "",  # its name, such as "NVIDIA GH200 480GB"
    "origin": "measured",  # or estimated, simulated
    "supply": "",  # side of a node's power supply that its meter reads: AC or DC
    "factor": np.nan,  # an estimate lies within × or ÷ this
    "samples": "",  # of a power: instantaneous or moving_mean (over the last second)
    "totals": False,  # a counter that begins at 0 J with each of some windows, and ends with their energy
}
"""Columns of a frame of sensors, with their values where nothing is known.

With `totals`, the energy between two windows is unknown, and so is its course within one."""


@dataclass(frozen=True, eq=False)
class Block:
    """The samples of k sensors of one node, read together n times.

    Missing samples are NaN. Times are unix seconds where the recording's clock is known.
    """

    node: str
    time_s: Floats
    """(n,)"""
    values: Floats
    """(n, k), a column a sensor, in Fortran order"""
    sensors: pd.DataFrame
    """k rows with the columns of SENSOR; its index is 0 … k-1."""
    flags: tuple[Flag, ...] = ()
    """Quality flags from reading its sensors, which they name."""

    @cached_property
    def rows(self) -> list[Any]:
        """Rows of `sensors`, whose columns are attributes."""
        return [*self.sensors.itertuples(index=False)]

    @cached_property
    def in_order(self) -> NDArray[np.intp]:
        """Indices of the samples whose clock runs forward."""
        return np.flatnonzero(forward(self.time_s))

    @cached_property
    def backwards(self) -> NDArray[np.intp]:
        """Indices of all other samples."""
        return np.delete(np.arange(self.time_s.size), self.in_order)

    @cached_property
    def steps_s(self) -> Floats:
        """Steps in s between the samples in order."""
        return np.diff(self.time_s[self.in_order])

    @cached_property
    def step_s(self) -> float:
        """Sampling period in s, by the samples."""
        return sampling_period(self.time_s)

    @property
    def span_s(self) -> tuple[float, float] | None:
        """First and last time of the samples in order; None without any."""
        if not self.in_order.size:
            return None
        first, last = self.in_order[[0, -1]]
        return float(self.time_s[first]), float(self.time_s[last])


@dataclass(frozen=True, eq=False)
class Recording:
    """One round of one run of one sampler, or all journals of one segment."""

    nodes: Mapping[str, Sequence[Block]]
    """The blocks of each node, in the order of names; may be read when asked for."""
    clock_known: bool
    """False if times are seconds from the first sample of each node."""
    period_s: float | None
    """Declared sampling period."""
    source: str
    flags: tuple[Flag, ...] = ()
    started: str | None = None
    """perun's naive local start time."""
    run: str | None = None
    round: str | None = None
    is_part: bool = False
    """True if its file holds other runs, or other rounds and this one was asked for."""
    format: str = "perun"
    named_by_file: tuple[str, ...] = ()
    """Nodes that nothing but the name of their file names."""
    perun_j: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Perun's own energies in J, of each node by device kind."""


class LazyNodes(UserDict[str, Any]):
    """Blocks of each node, made of functions that read them anew at each access."""

    data: dict[str, Callable[[], list[Block]]]

    def __getitem__(self, node: str) -> list[Block]:
        return self.data[node]()


def sensor_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Frame of sensors from rows that state at least `name` and `kind`."""
    return pd.DataFrame([{**SENSOR, **row} for row in rows], columns=list(SENSOR))


def make_node_blocks(node: str, rows: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Blocks of a node's sensors, each of those that were read at the same times.

    Rows are those of a frame of sensors, with `time_s` and `values`, (n,), and `flags` if there are any.
    """
    blocks: dict[bytes, list[Mapping[str, Any]]] = {}
    for row in rows:
        blocks.setdefault(row["time_s"].tobytes(), []).append(row)
    return [
        Block(
            node,
            sensors[0]["time_s"],
            np.asfortranarray(np.column_stack([row["values"] for row in sensors])),
            sensor_frame(sensors),
            flags=tuple(flag for row in sensors for flag in row.get("flags", ())),
        )
        for sensors in blocks.values()
    ]


def make_blocks(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Block]]:
    """Blocks of each node, of rows as `make_node_blocks` takes them with their `node`.

    Sensors without a value are left out; of a device without any the first of its power and energy stays, so
    that it is known to be without.
    """
    nodes: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        nodes.setdefault(row["node"], []).append(row)
    blocks = {}
    for node, of_node in sorted(nodes.items()):
        kept = [row for row in of_node if np.isfinite(row["values"]).any()]
        known = {(row["kind"], row["index"]) for row in kept if row["quantity"] != "utilisation"}
        for row in (row for row in of_node if row["quantity"] != "utilisation"):
            if (device := (row["kind"], row["index"])) not in known:
                kept.append(row)
                known.add(device)
        blocks[node] = make_node_blocks(node, kept or of_node[:1])
    return blocks


def sampling_period(time_s: Floats) -> float:
    """Median in s of the steps that go forward; 0 without any."""
    steps_s = np.diff(time_s)
    ahead_s = steps_s[steps_s > 0]
    return median(ahead_s) if ahead_s.size else 0.0


def median(values: NDArray[Any]) -> float:
    """Median of at least one value, none NaN: five times as fast as numpy's, which looks for NaN."""
    half = values.size // 2
    parts = np.partition(values, half)
    return float(parts[half] if values.size % 2 else 0.5 * (parts[:half].max() + parts[half]))


def in_stretches(time_s: Floats, other_s: Floats) -> NDArray[np.bool_]:
    """Mark the times, (n,), at which another source has samples or is between two, with no gap there.

    `other_s` (m,): the other's times, in any order.
    """
    if not other_s.size:
        return np.zeros(time_s.size, dtype=np.bool_)
    other_s = np.sort(other_s)
    at = np.searchsorted(other_s, time_s)
    before_s, after_s = other_s[np.maximum(at - 1, 0)], other_s[np.minimum(at, other_s.size - 1)]
    is_between = (at > 0) & (at < other_s.size)
    is_between &= after_s - before_s <= GAP_PERIODS * sampling_period(other_s)
    return is_between | (after_s == time_s)


def forward(time_s: Floats) -> NDArray[np.bool_]:
    """Mark the samples whose clock runs forward: the most that strict order allows.

    A stamp far in the future costs itself alone, not everything until then; of equal ones the first counts.
    """
    good = np.isfinite(time_s)
    if good.all() and (np.diff(time_s) > 0).all():
        return good
    # The longest rising subsequence, from the end: of two that exclude each other the earlier is kept.
    # `heads[k]` is the latest stamp, negated, that k later ones can follow, `first[k]` its index.
    heads: list[float] = []
    first: list[int] = []
    after: dict[int, int] = {}
    for index in np.flatnonzero(good)[::-1].tolist():
        stamp = -float(time_s[index])
        k = bisect_left(heads, stamp)
        after[index] = first[k - 1] if k else -1
        heads[k : k + 1], first[k : k + 1] = [stamp], [index]
    kept, index = [], first[-1] if first else -1
    while index >= 0:
        kept.append(index)
        index = after[index]
    return np.isin(np.arange(time_s.size), kept)
