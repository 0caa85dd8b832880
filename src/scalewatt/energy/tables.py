"""The Arrow schemas of a run's energy tables, and the writing of its traces as they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.energy.integrate import DOUBTS, Judged
from scalewatt.energy.node import UNUSED_GPU, KindEnergy
from scalewatt.energy.samples import DEVICE_KINDS, Floats
from scalewatt.energy.stages import STAGES, StageIntervals
from scalewatt.files import atomic_path

METADATA_KEY = b"scalewatt"

_FEW = pa.dictionary(pa.int8(), pa.string())
_MANY = pa.dictionary(pa.int16(), pa.string())

TRACES_SCHEMA = pa.schema(
    [
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("node", _MANY, nullable=False),
        pa.field("device_kind", _FEW, nullable=False),
        pa.field("device_index", pa.int16(), nullable=False),
        pa.field("uuid", _MANY),
        pa.field("power_w", pa.float32()),
        pa.field("energy_origin", _FEW, nullable=False),
        pa.field("stage", _FEW, nullable=False),
        pa.field("flag", _FEW, nullable=False),
    ]
)
"""One row per power sensor and sample, sorted by segment, node, device kind, device index, time."""

_RUN = [("configuration", pa.string()), ("repeat", pa.int32())]
ENERGY_SCHEMA = pa.schema(
    [
        *_RUN,
        ("segment", pa.int32()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("devices", pa.int32()),
        ("stage", pa.string()),
        ("duration_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("recorded_j", pa.float64()),
        ("discarded_j", pa.float64()),
        ("energy_origin", pa.string()),
        ("coverage", pa.float64()),
        ("flags", pa.string()),
    ]
)
"""One row per segment, node, device kind (gpu, cpu, ram, unused_gpu) and stage. `energy_origin` is
null where the kind is absent or its node was not recorded; `flags` is a JSON list of {code, device,
detail}."""

EPOCHS_SCHEMA = pa.schema(
    [
        *_RUN,
        ("epoch", pa.int32()),
        ("stage", pa.string()),
        ("device_kind", pa.string()),
        ("node_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("energy_origin", pa.string()),
    ]
)
"""One row per epoch (null: outside of all), stage and device kind, over all nodes and segments."""

CONDITIONS_SCHEMA = pa.schema(
    [
        ("segment", pa.int32()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("node", _MANY),
        ("device_kind", _FEW),
        ("device_index", pa.int16()),
        ("quantity", _FEW),
        ("unit", _FEW),
        ("value", pa.float64()),
    ]
)
"""One row per reading of what was recorded beside power; null: it could not be read."""

SECOND_OPINIONS_SCHEMA = pa.schema(
    [
        *_RUN,
        ("segment", pa.int32()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("device_index", pa.int32()),
        ("source", pa.string()),
        ("duration_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("recorded_j", pa.float64()),
        ("difference", pa.float64()),
        ("tolerance", pa.float64()),
    ]
)
"""One row per other source of the same energy, over the time that it has."""


@dataclass(frozen=True, eq=False)
class Accounts:
    """The tables of one run, beside its traces."""

    energy: pa.Table
    epochs: pa.Table
    conditions: pa.Table
    second_opinions: pa.Table

    def beside(self) -> dict[str, pa.Table]:
        """Return the tables that lie beside the energy table, by the end of their names."""
        return {
            "epochs": self.epochs,
            "conditions": self.conditions,
            "second-opinions": self.second_opinions,
        }


class TraceWriter:
    """Writes a run's traces as its nodes are accounted for, in a thread beside.

    A context manager; the file appears under its name when the block ends well. The Parquet
    metadata, key `scalewatt`, names the run. Memory: that of a few million samples.
    """

    _ROWS = 1 << 19
    """Samples that are written at once."""

    def __init__(self, path: Path | str, spec: dict[str, Any]) -> None:
        self._path, self._files = Path(path), ExitStack()
        named = {name: spec[name] for name in ("configuration", "repeat")}
        self._schema = TRACES_SCHEMA.with_metadata({METADATA_KEY: json.dumps(named).encode()})
        self._words: dict[str, dict[str, int]] = {"node": {}, "uuid": {}}
        self._pieces: list[_Piece] = []
        self._written: Future[None] | None = None

    def __enter__(self) -> TraceWriter:
        temporary = self._files.enter_context(atomic_path(self._path))
        words = [f.name for f in self._schema if pa.types.is_dictionary(f.type)]
        self._writer = self._files.enter_context(
            pq.ParquetWriter(
                temporary,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=words,
                # Neighbouring samples differ little: in time by a period, in power in low bits.
                column_encoding={"time": "DELTA_BINARY_PACKED", "power_w": "BYTE_STREAM_SPLIT"},
                write_batch_size=1 << 18,
            )
        )
        self._thread = self._files.enter_context(ThreadPoolExecutor(max_workers=1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            with self._files:
                self._flush()
                self._wait()
        else:
            self._files.__exit__(kind, error, trace)

    def add(self, segment: int, kind: KindEnergy, intervals: StageIntervals) -> None:
        """Add the samples of one device kind of one node, device by device."""
        for series, judged in zip(kind.series, kind.judged, strict=True):
            if series.time_s.size:
                self._pieces.append(
                    _Piece(
                        segment,
                        self._code("node", series.node),
                        _KINDS.index(kind.device_kind),
                        series.device_index,
                        self._code("uuid", series.uuid) if series.uuid else None,
                        _ORIGINS.index(series.origin),
                        series.time_s,
                        judged,
                        intervals,
                    )
                )
        if sum(piece.time_s.size for piece in self._pieces) >= self._ROWS:
            self._flush()

    def _code(self, column: str, word: str) -> int:
        return self._words[column].setdefault(word, len(self._words[column]))

    def _flush(self) -> None:
        self._wait()
        pieces, self._pieces = self._pieces, []
        words = {name: list(codes) for name, codes in self._words.items()}
        if pieces:
            self._written = self._thread.submit(self._write, pieces, words)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()

    def _write(self, pieces: list[_Piece], words: dict[str, list[str]]) -> None:
        sizes = [piece.time_s.size for piece in pieces]
        known = np.array([piece.uuid is not None for piece in pieces])
        columns = {
            "segment": np.repeat(np.array([p.segment for p in pieces], np.int32), sizes),
            "time": _microseconds(pieces),
            "node": _words([p.node for p in pieces], sizes, words["node"], np.int16),
            "device_kind": _words([p.kind for p in pieces], sizes, _KINDS, np.int8),
            "device_index": np.repeat(np.array([p.index for p in pieces], np.int16), sizes),
            "uuid": _words(
                [p.uuid or 0 for p in pieces],
                sizes,
                words["uuid"] or [""],
                np.int16,
                None if known.all() else np.repeat(~known, sizes),
            ),
            "power_w": pa.array(
                np.concatenate([p.judged.power_w.astype(np.float32) for p in pieces]),
                from_pandas=True,
            ),
            "energy_origin": _words([p.origin for p in pieces], sizes, _ORIGINS, np.int8),
            "stage": pa.DictionaryArray.from_arrays(
                np.concatenate([p.intervals.codes_at(p.time_s) for p in pieces]), list(STAGES)
            ),
            "flag": pa.DictionaryArray.from_arrays(
                np.concatenate([p.judged.doubts for p in pieces]).astype(np.int8), list(DOUBTS)
            ),
        }
        table = pa.Table.from_arrays(
            [pa.array(columns[name]) for name in TRACES_SCHEMA.names], schema=self._schema
        )
        self._writer.write_table(table, row_group_size=len(table))


_KINDS = (*DEVICE_KINDS, UNUSED_GPU)
_ORIGINS = ("measured", "estimated", "simulated")


@dataclass(frozen=True, eq=False)
class _Piece:
    """The samples of one device; words as codes."""

    segment: int
    node: int
    kind: int
    index: int
    uuid: int | None
    origin: int
    time_s: Floats
    judged: Judged
    intervals: StageIntervals


def _microseconds(pieces: list[_Piece]) -> pa.Array:
    """Return the times of all pieces; the devices of a node share theirs."""
    found: dict[int, np.ndarray] = {}
    for piece in pieces:
        if id(piece.time_s) not in found:
            found[id(piece.time_s)] = np.rint(piece.time_s * 1e6).astype(np.int64)
    times = np.concatenate([found[id(piece.time_s)] for piece in pieces])
    return pa.array(times).view(TRACES_SCHEMA.field("time").type)


def _words(
    codes: list[int],
    sizes: list[int],
    words: Sequence[str],
    width: type[np.signedinteger[Any]],
    missing: np.ndarray | None = None,
) -> pa.DictionaryArray:
    """Return a word for each sample, from one code a piece."""
    indices = pa.array(np.repeat(np.array(codes, dtype=width), sizes), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, list(words))
