"""The Arrow schemas of a run's energy tables."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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
        ("unrecorded_s", pa.float64()),
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
detail}. Energies of rows with the flag `stage_short` are right in sums alone."""

EPOCHS_SCHEMA = pa.schema(
    [
        *_RUN,
        ("epoch", pa.int32()),
        ("stage", pa.string()),
        ("device_kind", pa.string()),
        ("node_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("short", pa.bool_()),
        ("energy_origin", pa.string()),
    ]
)
"""One row per epoch (null: outside of all), stage and device kind, over all nodes and segments. `short`: as
the flag `stage_short`."""

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
