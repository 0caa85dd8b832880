"""The Arrow schemas of a run's energy tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from scalewatt.common.files import write_table

METADATA_KEY = b"scalewatt"

_FEW = pa.dictionary(pa.int8(), pa.string())
_MANY = pa.dictionary(pa.int16(), pa.string())

_RUN = [("configuration", pa.string()), ("repeat", pa.int32())]
BOUNDS = ("energy_low_j", "energy_high_j")
"""The interval of an energy, by what is estimated and what uncovered time can have cost."""
_ENERGY = [(name, pa.float64()) for name in ("energy_j", *BOUNDS)]
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
        *_ENERGY,
        ("recorded_j", pa.float64()),
        ("discarded_j", pa.float64()),
        ("energy_origin", pa.string()),
        ("coverage", pa.float64()),
        ("short", pa.bool_()),
    ]
)
"""One row per segment, node, device kind (gpu, cpu, ram, unused_gpu, node) and stage.
`energy_origin` is null if the kind is absent or its node was not recorded, `coverage` only where the kind
is absent. `short`: as the flag `stage_short`; such energies are right in sums alone."""

DEVICES_SCHEMA = pa.schema(
    [
        *_RUN,
        ("segment", pa.int32()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("device_index", pa.int32()),
        ("sensor", pa.string()),
        ("uuid", pa.string()),
        ("stage", pa.string()),
        ("duration_s", pa.float64()),
        ("covered_s", pa.float64()),
        *_ENERGY,
        ("recorded_j", pa.float64()),
        ("mean_power_w", pa.float64()),
        ("samples", pa.int64()),
        ("energy_origin", pa.string()),
        ("copy_of", pa.string()),
    ]
)
"""One row per segment, device with a power and stage. `energy_j` is null if that of its device kind is,
`mean_power_w` is over the covered time; `copy_of` names the recording (`<node>/<sensor>`) whose samples
these are, to the last one. Samples outside of the accounted window count as `unattributed`."""

FLAGS_SCHEMA = pa.schema(
    [
        *_RUN,
        ("segment", pa.int32()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("stage", pa.string()),
        ("code", pa.string()),
        ("sensor", pa.string()),
        ("detail", pa.string()),
    ]
)
"""One row per quality flag. It concerns all nodes of the segment where `node` is null, all device kinds where
`device_kind` is, all stages where `stage` is; `sensor` is null if it is not about one sensor."""

EPOCHS_SCHEMA = pa.schema(
    [
        *_RUN,
        ("epoch", pa.int32()),
        ("stage", pa.string()),
        ("device_kind", pa.string()),
        ("node_s", pa.float64()),
        *_ENERGY,
        ("short", pa.bool_()),
        ("energy_origin", pa.string()),
    ]
)
"""One row per epoch (null: outside of all), stage and device kind, over all nodes and segments. `short`: as
the flag `stage_short`."""

TELEMETRY_SCHEMA = pa.schema(
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
"""One row per reading of anything but power; null: it could not be read."""

CROSS_CHECKS_SCHEMA = pa.schema(
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
        ("recorded_scope", pa.string()),
        ("extra_w", pa.float64()),
    ]
)
"""One row per other source of the same energy, over the time that it covers."""


@dataclass(frozen=True, eq=False)
class Accounts:
    """All tables of one run but its traces."""

    energy: pa.Table
    epochs: pa.Table
    devices: pa.Table
    flags: pa.Table
    telemetry: pa.Table
    cross_checks: pa.Table

    def write(self, energy_path: Path) -> None:
        """Write <repeat>.parquet and, before it, the others as <repeat>.<name>.parquet."""
        others = {
            "epochs": self.epochs,
            "devices": self.devices,
            "flags": self.flags,
            "telemetry": self.telemetry,
            "cross-checks": self.cross_checks,
        }
        for name, table in others.items():
            write_table(table, energy_path.with_suffix(f".{name}.parquet"))
        write_table(self.energy, energy_path)
