"""The writing of a run's traces, node by node: 44 million samples in seconds, in little memory.

Most columns of a device have one value throughout, and the devices of a node share their times: what is
the same for several is encoded once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from scalewatt.common.files import atomic_path
from scalewatt.energies.accounting.energy_schema import METADATA_KEY, TRACES_SCHEMA
from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.accounting.node_energy import KindEnergy
from scalewatt.energies.accounting.run_inputs import Planned
from scalewatt.energies.integration.sample_checks import SAMPLE_FLAGS, Validated
from scalewatt.energies.integration.stage_intervals import STAGES, StageIntervals
from scalewatt.energies.traces.parquet_chunks import Chunk, ChunkedParquet
from scalewatt.recordings.series import Floats, SensorSeries, sample_quantity


class TraceSink(Protocol):
    """What takes a run's samples as its nodes are accounted for."""

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Take the samples of one device kind of one node."""


@dataclass(eq=False)
class TraceCollector:
    """Keeps a run's samples in memory, but for totals, which have none."""

    device_name: str | None = None
    """Name of the run's GPUs, which tells what their sensors report."""
    totals: int = 0
    """How many series were left out because they are totals."""
    _pieces: list[_Piece] = field(default_factory=list)

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Add the samples of one device kind of one node, device by device; `clock` is the node's."""
        found = _pieces_of(segment, kind, intervals, clock, self.device_name)
        self._pieces += (kept := [piece for piece in found if not piece.series.totals])
        self.totals += len(found) - len(kept)

    def table(self) -> pa.Table:
        """Return all samples as TRACES_SCHEMA has them."""
        if not self._pieces:
            return TRACES_SCHEMA.empty_table()
        return _trace_table(self._pieces, TRACES_SCHEMA)


class TraceWriter:
    """Writes a run's traces as its nodes are accounted for, in a thread of its own.

    A context manager; the file appears under its name when the block ends well. The Parquet
    metadata, key `scalewatt`, names the run. Memory: that of a few million samples.
    """

    _ALONE = 1 << 14
    """Samples from which on a device has row groups of its own."""
    _ROWS = 1 << 19
    """Samples that are written at once."""
    _AHEAD = 1
    """How many such parts may wait to be written."""

    def __init__(self, path: Path | str, spec: Planned, device_name: str | None = None) -> None:
        """Take the run's spec and the name of its GPUs, which tells what their sensors report."""
        self._path, self._files = Path(path), ExitStack()
        self._device_name = device_name
        named = {"configuration": spec.configuration, "repeat": spec.repeat}
        self._schema = TRACES_SCHEMA.with_metadata({METADATA_KEY: json.dumps(named).encode()})
        self._pieces: list[_Piece] = []
        self._waiting: deque[Future[None]] = deque()
        self._encoded: dict[str, tuple[tuple[Any, ...], Chunk]] = {}
        """The last chunk of each column that several devices may share, with what it was made of."""
        self._constant: dict[tuple[Any, ...], Chunk] = {}

    def __enter__(self) -> TraceWriter:
        # What is opened is closed again where the next cannot be: on a full disk, for example.
        with ExitStack() as files:
            temporary = files.enter_context(atomic_path(self._path))
            self._writer = self._opened(files.enter_context(temporary.open("wb")))
            self._thread = files.enter_context(ThreadPoolExecutor(max_workers=1))
            self._files = files.pop_all()
        return self

    def _opened(self, file: BinaryIO) -> ChunkedParquet:
        return ChunkedParquet(
            file,
            self._schema,
            compression="zstd",
            compression_level=-5,
            write_page_checksum=True,
            use_dictionary=[f.name for f in self._schema if pa.types.is_dictionary(f.type)],
            # Adjacent samples differ little: in time by a period, in power in low bits.
            column_encoding={"time": "DELTA_BINARY_PACKED", "power_w": "BYTE_STREAM_SPLIT"},
            write_batch_size=1 << 20,
            data_page_size=8 << 20,
            write_statistics=["segment", "time"],
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            with self._files:
                self._flush()
                self._wait(0)
                self._writer.close()
        else:
            self._files.__exit__(kind, error, trace)

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Add the samples of one device kind of one node, device by device; `clock` is the node's."""
        self._pieces += _pieces_of(segment, kind, intervals, clock, self._device_name)
        if sum(piece.time_s.size for piece in self._pieces) >= self._ROWS:
            self._flush()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            self._waiting.append(self._thread.submit(self._write, pieces))
        self._wait(self._AHEAD)

    def _wait(self, at_most: int) -> None:
        """Wait until at most so many pieces are still to be written; raise what went wrong."""
        while len(self._waiting) > at_most:
            self._waiting.popleft().result()

    def _write(self, pieces: list[_Piece]) -> None:
        """Write the samples of devices with many by themselves, of all others together."""
        few: list[_Piece] = []
        for piece in pieces:
            if piece.time_s.size < self._ALONE:
                few.append(piece)
                continue
            self._write_together(few)
            few = []
            self._writer.write([self._chunk(name, piece) for name in self._schema.names])
        self._write_together(few)

    def _write_together(self, pieces: list[_Piece]) -> None:
        if pieces:
            names = self._schema.names
            columns = [_column(name, pieces, self._schema) for name in names]
            self._writer.write(list(map(self._writer.encode, names, columns)))

    def _chunk(self, name: str, piece: _Piece) -> Chunk:
        """Return a column of one device, encoded: that of the device before, where it is the same."""

        def encoded() -> Chunk:
            return self._writer.encode(name, _column(name, [piece], self._schema))

        if name in _OF_DEVICES:
            key = name, _OF_DEVICES[name](piece), piece.time_s.size
            if key not in self._constant:
                self._constant[key] = encoded()
            return self._constant[key]
        shared = piece.shared(name)
        if shared is None:
            return encoded()
        kept = self._encoded.get(name)
        if kept is None or not all(a is b for a, b in zip(kept[0], shared, strict=True)):
            self._encoded[name] = kept = shared, encoded()
        return kept[1]


@dataclass(frozen=True, eq=False)
class _Piece:
    """The samples of one device."""

    segment: int
    device_kind: str
    series: SensorSeries
    quantity: str | None
    validated: Validated
    intervals: StageIntervals
    clock: NodeClock

    @property
    def time_s(self) -> Floats:
        """Return the times of its samples."""
        return self.series.time_s

    def shared(self, column: str) -> tuple[Any, ...] | None:
        """Return what a column is made of, where other devices may have the same; else None."""
        if column == "time":
            return self.time_s, self.clock
        if column == "stage":
            return self.time_s, self.intervals
        if column == "flag" and not self.validated.sample_flags.any():
            return (self.time_s,)
        return None


def _pieces_of(
    segment: int,
    kind: KindEnergy,
    intervals: StageIntervals,
    clock: NodeClock,
    device_name: str | None,
) -> list[_Piece]:
    """Return the devices of a kind that have samples."""
    return [
        _Piece(
            segment,
            kind.device_kind,
            series,
            sample_quantity(series, device_name),
            validated,
            intervals,
            clock,
        )
        for series, validated in zip(kind.series, kind.validated, strict=True)
        if series.time_s.size
    ]


_OF_DEVICES: dict[str, Callable[[_Piece], Any]] = {
    "segment": lambda piece: piece.segment,
    "node": lambda piece: piece.series.node,
    "device_kind": lambda piece: piece.device_kind,
    "device_index": lambda piece: piece.series.device_index,
    "uuid": lambda piece: piece.series.uuid or None,
    "quantity": lambda piece: piece.quantity,
    "energy_origin": lambda piece: piece.series.origin,
}
"""Columns that are the same for all samples of a device."""


def _trace_table(pieces: list[_Piece], schema: pa.Schema) -> pa.Table:
    columns = [_column(name, pieces, schema) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(name: str, pieces: list[_Piece], schema: pa.Schema) -> pa.Array:
    kind = schema.field(name).type
    if name in _OF_DEVICES:
        values = [_OF_DEVICES[name](piece) for piece in pieces]
        return _repeated(values, [piece.time_s.size for piece in pieces], kind)
    if name == "time":
        return _microseconds(pieces).view(kind)
    if name == "power_w":
        return _watts(pieces)
    if name == "stage":
        return _words(_stages(pieces), STAGES)
    flags = np.concatenate([piece.validated.sample_flags for piece in pieces])
    return _words(flags.view(np.int8), SAMPLE_FLAGS)


def _repeated(values: list[Any], sizes: list[int], kind: pa.DataType) -> pa.Array:
    """Return each value as often as its device has samples; of words a dictionary."""
    if not pa.types.is_dictionary(kind):
        return _array(kind, np.repeat(np.array(values, dtype=kind.to_pandas_dtype()), sizes))
    known = list(dict.fromkeys(value for value in values if value is not None))
    codes = [-1 if value is None else known.index(value) for value in values]
    width = kind.index_type.to_pandas_dtype()
    return _words(np.repeat(np.array(codes, dtype=width), sizes), known)


def _microseconds(pieces: list[_Piece]) -> pa.Array:
    """Return the times of all pieces by rank 0's clock; the devices of a node share theirs."""
    found: dict[int, np.ndarray] = {}
    for piece in pieces:
        if id(piece.time_s) not in found:
            wall_s = piece.clock.of_rank_0(piece.time_s)
            found[id(piece.time_s)] = np.rint(wall_s * 1e6).astype(np.int64)
    return _array(pa.int64(), np.concatenate([found[id(p.time_s)] for p in pieces]))


def _stages(pieces: list[_Piece]) -> np.ndarray:
    """Return the stage code of each sample; the devices of a node share theirs."""
    found: dict[tuple[int, int], np.ndarray] = {}
    for p in pieces:
        key = id(p.time_s), id(p.intervals)
        if key not in found:
            found[key] = p.intervals.codes_at(p.time_s)
    return np.concatenate([found[id(p.time_s), id(p.intervals)] for p in pieces])


def _watts(pieces: list[_Piece]) -> pa.Array:
    powers = [piece.validated.power_w for piece in pieces]
    watts = np.concatenate(powers, dtype=np.float32, casting="same_kind")
    return _array(pa.float32(), watts, ~np.isnan(watts))


def _words(codes: np.ndarray, words: Sequence[str]) -> pa.DictionaryArray:
    """Return the words of codes; null if a code is negative."""
    indices = _array(pa.from_numpy_dtype(codes.dtype), codes, codes >= 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _array(kind: pa.DataType, values: np.ndarray, known: np.ndarray | None = None) -> pa.Array:
    """Return an array on the memory of `values`; null if not `known`."""
    mask = None
    if known is not None and not known.all():
        mask = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [mask, pa.py_buffer(values)])
