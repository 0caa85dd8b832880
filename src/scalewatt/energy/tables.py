"""The Arrow schemas of traces and energy, and the building of the traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.energy.estimate import node_utilisation
from scalewatt.energy.integrate import power_samples
from scalewatt.energy.node import KindEnergy
from scalewatt.energy.samples import Floats, SensorSeries
from scalewatt.energy.stages import StageIntervals

_WORD = pa.dictionary(pa.int32(), pa.string())

TRACES_SCHEMA = pa.schema(
    [
        ("configuration", _WORD),
        ("repeat", pa.int32()),
        ("segment", pa.int32()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("node", _WORD),
        ("device_kind", _WORD),
        ("device_index", pa.int32()),
        ("device", _WORD),
        ("power_w", pa.float32()),
        ("utilisation", pa.float32()),
        ("energy_origin", _WORD),
        ("stage", _WORD),
    ]
)
"""One row per power sensor and sample. `power_w` of a counter is the mean since the sample before;
null: unknown. `utilisation` (0..1): of the GPU, or of all cores of the node."""

ENERGY_SCHEMA = pa.schema(
    [
        ("configuration", pa.string()),
        ("repeat", pa.int32()),
        ("segment", pa.int32()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("devices", pa.int32()),
        ("stage", pa.string()),
        ("duration_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("energy_origin", pa.string()),
        ("coverage", pa.float64()),
        ("flags", pa.string()),
    ]
)
"""One row per segment, node, device kind (gpu, cpu, ram, unused_gpu) and stage. `energy_origin` is
null where the kind is absent or its node was not recorded; `flags` is a JSON list of {code, device,
detail}."""


class _Codes:
    """Words to the codes of a dictionary column."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def of(self, word: str) -> int:
        return self.words.setdefault(word, len(self.words))

    def array(self, codes: np.ndarray) -> pa.Array:
        words = pa.array(list(self.words), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words)


class TraceRows:
    """Collects the columns of a run's traces."""

    _WORDS = ("node", "device_kind", "device", "energy_origin", "stage")

    def __init__(self, configuration: str, repeat: int) -> None:
        self._configuration = configuration
        self._repeat = repeat
        self._codes = {name: _Codes() for name in self._WORDS}
        self._parts: list[dict[str, np.ndarray]] = []

    def add(
        self,
        segment: int,
        kind: KindEnergy,
        node_series: Sequence[SensorSeries],
        intervals: StageIntervals,
    ) -> None:
        """Add the samples of one device kind of one node."""
        for series in kind.series:
            size = series.time_s.size
            codes = {
                name: np.full(size, self._codes[name].of(word), dtype=np.int32)
                for name, word in (
                    ("node", series.node),
                    ("device_kind", kind.device_kind),
                    ("device", series.sensor),
                    ("energy_origin", series.origin),
                )
            }
            self._parts.append(
                codes
                | {
                    "stage": self._stage_codes(series.time_s, intervals),
                    "segment": np.full(size, segment, dtype=np.int32),
                    "time": np.round(series.time_s * 1e6).astype(np.int64),
                    "device_index": np.full(size, series.device_index, dtype=np.int32),
                    "power_w": power_samples(series).astype(np.float32),
                    "utilisation": _utilisation(series, node_series).astype(np.float32),
                }
            )

    def _stage_codes(self, time_s: Floats, intervals: StageIntervals) -> np.ndarray:
        names, place = np.unique(intervals.at(time_s).astype(str), return_inverse=True)
        codes = np.array([self._codes["stage"].of(str(name)) for name in names], dtype=np.int32)
        return codes[place]

    def table(self) -> pa.Table:
        """Return the traces sorted by time, node, device kind and device index."""
        if not self._parts:
            return TRACES_SCHEMA.empty_table()
        columns = {
            name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]
        }
        keys = (
            columns["device_index"],
            self._ranks("device_kind", columns),
            self._ranks("node", columns),
            columns["time"],
        )
        order = np.lexsort(keys)
        arrays: dict[str, Any] = {}
        for name, column in columns.items():
            column = column[order]
            if name in self._codes:
                arrays[name] = self._codes[name].array(column)
            elif column.dtype == np.float32:
                arrays[name] = pa.array(column, from_pandas=True)
            else:
                arrays[name] = pa.array(column)
        arrays["time"] = arrays["time"].cast(TRACES_SCHEMA.field("time").type)
        zeros = np.zeros(order.size, dtype=np.int32)
        arrays["configuration"] = pa.DictionaryArray.from_arrays(
            pa.array(zeros), pa.array([self._configuration])
        )
        arrays["repeat"] = pa.array(np.full(order.size, self._repeat, dtype=np.int32))
        return pa.table([arrays[name] for name in TRACES_SCHEMA.names], schema=TRACES_SCHEMA)

    def _ranks(self, name: str, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Return the alphabetical rank of each row's word."""
        words = list(self._codes[name].words)
        rank = np.empty(len(words), dtype=np.int32)
        rank[np.argsort(np.array(words))] = np.arange(len(words), dtype=np.int32)
        return rank[columns[name]]


def _utilisation(series: SensorSeries, node_series: Sequence[SensorSeries]) -> Floats:
    """Return the utilisation at each sample of a device, NaN where unknown."""
    found: SensorSeries | None = None
    if series.device_kind == "cpu":
        found, _ = node_utilisation(node_series)
    elif series.device_kind == "gpu":
        same = (
            s
            for s in node_series
            if s.quantity == "utilisation"
            and (s.device_kind, s.device_index) == ("gpu", series.device_index)
        )
        found = next(same, None)
    if found is None or found.time_s.size == 0:
        return np.full(series.time_s.shape, np.nan)
    return np.interp(series.time_s, found.time_s, found.values, left=np.nan, right=np.nan)
