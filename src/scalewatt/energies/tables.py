"""Tables of a run: what its nodes used by device, stage and epoch, and what of that may be stated.

Nodes give `pieces`, a row per device, stage and epoch (PIECES), and `parts`, a row per device kind of a node
in a segment (PARTS). Every table is a sum over pieces, in which null stays null: a sum with an unknown
energy in it is unknown.

What may be stated is decided over the whole run: up to MAX_UNCOVERED of the device seconds of a kind may be
without a known power, of one node or of all together, and what they can have cost is in the interval. But a
node that lacks more than LEAST_OF_A_NODE leaves was not recorded. A kind that no node has a sensor or an
estimate of is `absent`, outside of the run's scope; any other null energy was used and is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.common.files import write_table
from scalewatt.energies.stages import STAGES
from scalewatt.recordings.terms import DEVICE_KINDS, NODE, Flag, flag

MAX_UNCOVERED = 0.05
"""If more of a kind's device seconds is without a known power, its energy is null. Of 64 nodes three."""
LEAST_OF_A_NODE = 0.5
"""If a node's coverage of a kind is less over the run, neither it nor the run has an energy of the kind."""

METADATA_KEY = b"scalewatt"
Row = dict[str, Any]
_FEW = pa.dictionary(pa.int8(), pa.string())
_MANY = pa.dictionary(pa.int16(), pa.string())
BOUNDS = ("energy_low_j", "energy_high_j")
"""The interval of an energy, by what is estimated and what uncovered time can have cost."""
_RUN = [("configuration", pa.string()), ("repeat", pa.int32())]
_KIND = [("segment", pa.int32()), ("node", pa.string()), ("device_kind", pa.string())]
_ENERGY = [(name, pa.float64()) for name in ("energy_j", *BOUNDS)]
ENERGY_SCHEMA = pa.schema(
    [
        *_RUN,
        *_KIND,
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
        *_KIND,
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
    ]
)
"""One row per segment, device with a power and stage. `energy_j` is null if that of its device kind is,
`mean_power_w` is over the covered time. Samples outside of the accounted window count as `unattributed`."""

FLAGS_SCHEMA = pa.schema(
    [
        *_RUN,
        *_KIND,
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
        *_KIND,
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

PLACE = ["segment", "node", "device_kind"]
SUMS = ["recorded_j", "low_j", "high_j", "discarded_j"]
PIECES = {
    "part": 0,
    "device": -1,
    "stage": 0,
    "epoch": -1,
    "duration_s": 0.0,
    "covered_s": 0.0,
    **dict.fromkeys(SUMS, 0.0),
    "samples": 0,
    "short_s": np.nan,
    "short_epoch": False,
    "outside": False,
}
"""Columns of pieces, with what stands where nothing is stated.

part        row of `parts`
device      row of `devices`; -1: of devices without a series, whose recorded_j is null if all lack one
stage       place in STAGES
epoch       -1 outside of all epochs
short_s     mean length of the stage's pieces if the samples do not resolve them, else NaN
short_epoch whether they do not resolve the stage in this epoch
outside     whether it stands for samples outside of the window
"""

Pieces = dict[str, NDArray[Any]]
"""Columns of PIECES, all of one length."""


@dataclass(frozen=True, eq=False)
class Accounts:
    """All tables of one run but its traces, as frames; null is NaN, NaT or NA."""

    energy: pd.DataFrame
    epochs: pd.DataFrame
    devices: pd.DataFrame
    flags: pd.DataFrame
    telemetry: pd.DataFrame
    cross_checks: pd.DataFrame

    def write(self, energy_path: Path) -> None:
        """Write <repeat>.parquet and, before it, the others as <repeat>.<name>.parquet."""
        for name, schema in _SCHEMAS.items():
            suffix = "" if name == "energy" else f".{name.replace('_', '-')}"
            table = arrow_table(getattr(self, name), schema)
            write_table(table, energy_path.with_suffix(f"{suffix}.parquet"))


_SCHEMAS = {
    "epochs": EPOCHS_SCHEMA,
    "devices": DEVICES_SCHEMA,
    "flags": FLAGS_SCHEMA,
    "telemetry": TELEMETRY_SCHEMA,
    "cross_checks": CROSS_CHECKS_SCHEMA,
    "energy": ENERGY_SCHEMA,
}
_TYPES = {pa.int32(): "Int64", pa.int64(): "Int64", pa.float64(): "float64", pa.bool_(): "bool"}


def arrow_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Arrow table of a frame; what is NaN in it is null."""
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    return table.replace_schema_metadata(schema.metadata)


def records(frame: pd.DataFrame) -> list[Row]:
    """Rows of a frame; null is None."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[return-value]


def _typed(frame: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    """Columns and types of a schema of a frame that lacks none but null ones."""
    types = {column.name: _TYPES.get(column.type, "str") for column in schema}
    return frame.reindex(columns=schema.names).astype(types).reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class Collected:
    """What the nodes of a run gave, before it is known what may be stated."""

    pieces: list[Pieces] = field(default_factory=list)
    parts: list[Row] = field(default_factory=list)
    """Rows with PLACE, `sensors` (devices with a series), `devices`, `energy_origin`, `coverage` (null if the
    node has nothing of the kind), `device_s`, `seconds` and `unrecorded_s` of the node, `period_s`, `shared`
    and `uncounted_known`."""
    devices: list[Row] = field(default_factory=list)
    """Rows with `device_index`, `sensor` and `uuid`."""
    unrecorded: list[tuple[int, str, Pieces]] = field(default_factory=list)
    """Segment, name and pieces of each node that nothing was recorded of."""
    flags: list[Row] = field(default_factory=list)
    telemetry: list[pa.Table] = field(default_factory=list)
    cross_checks: list[Row] = field(default_factory=list)

    def add(self, part: Row, pieces: Pieces, devices: Sequence[Row]) -> None:
        """Add a device kind of a node; its pieces number its devices from 0."""
        device = np.where(pieces["device"] < 0, -1, pieces["device"] + len(self.devices))
        number = np.full(device.size, len(self.parts))
        self.pieces.append({**pieces, "part": number, "device": device})
        self.parts.append(part)
        self.devices.extend(devices)

    def flag(
        self, flags: Iterable[Flag], segment: int, node: str | None = None, kind: str | None = None
    ) -> None:
        """Add flags of a segment, one of its nodes, or one device kind of that."""
        self.flags.extend(
            {
                **dict(zip(PLACE, (segment, node, kind), strict=True)),
                **_row(each),
            }
            for each in flags
        )


def tables(found: Collected, configuration: str | None, repeat: int | None) -> Accounts:
    """Sum up the pieces of a run, and state what may be stated."""
    _add_missing(found)
    parts = _stated(pd.DataFrame(found.parts, columns=_PARTS))
    none = {name: np.array([value])[:0] for name, value in PIECES.items()}
    rows = pd.DataFrame(
        {name: np.concatenate([each[name] for each in (none, *found.pieces)]) for name in PIECES}
    )
    cells = _cells(rows, parts)
    made = {
        "energy": _energy(cells),
        "epochs": _epochs(cells),
        "devices": _devices(rows, parts, found.devices),
        "flags": _flags(found.flags, cells, parts),
        "cross_checks": pd.DataFrame(found.cross_checks),
    }
    named = {"configuration": configuration, "repeat": repeat}
    frames = {k: _typed(frame.assign(**named), _SCHEMAS[k]) for k, frame in made.items()}
    telemetry = pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *found.telemetry])
    return Accounts(**frames, telemetry=telemetry.unify_dictionaries().to_pandas())


_PARTS = [
    *PLACE,
    *("sensors", "devices", "energy_origin", "coverage", "device_s", "seconds", "unrecorded_s"),
    *("period_s", "shared", "uncounted_known"),
]
NOTHING: Row = {
    **{"sensors": 0, "devices": None, "energy_origin": None, "coverage": 0.0, "device_s": 0.0},
    **{"unrecorded_s": 0.0, "period_s": 0.0, "shared": False, "uncounted_known": True},
}
"""Part of a node that nothing was recorded of."""


def _add_missing(found: Collected) -> None:
    """Add the device kinds that other nodes have: of unrecorded nodes, and of nodes without a meter.

    If no node has any, an unrecorded one has all three of its parts.
    """
    kinds = {part["device_kind"] for part in found.parts if part["sensors"]}
    for segment, node, unknown in found.unrecorded:
        for kind in kinds or DEVICE_KINDS:
            of_kind = {"segment": segment, "node": node, "device_kind": kind}
            part = {**NOTHING, **of_kind, "seconds": float(unknown["duration_s"].sum())}
            found.add(part, unknown, [])
    if NODE in kinds:
        metered = {(p["segment"], p["node"]) for p in found.parts if p["device_kind"] == NODE}
        recorded = {(p["segment"], p["node"]): i for i, p in enumerate(found.parts)}
        for place, i in recorded.items():
            if place not in metered:
                part = {**NOTHING, **dict(zip(PLACE, (*place, NODE), strict=True))}
                same = {name: found.parts[i][name] for name in ("seconds", "unrecorded_s")}
                of_device = found.pieces[i]["device"] == found.pieces[i]["device"][0]
                first = of_device & ~found.pieces[i]["outside"]
                seconds = {k: found.pieces[i][k][first] for k in ("stage", "epoch", "duration_s")}
                found.add({**part, **same, "devices": 0, "coverage": None}, nothing(seconds), [])


def pieces(**columns: Any) -> Pieces:
    """Columns of PIECES from some of them: arrays of one length, or a value for all rows."""
    size = max(np.size(values) for values in columns.values())
    return {name: np.broadcast_to(columns.get(name, PIECES[name]), size) for name in PIECES}


def nothing(seconds: Pieces) -> Pieces:
    """Pieces of a kind of which nothing was recorded, from `stage`, `epoch` and `duration_s`."""
    return pieces(**seconds, **dict.fromkeys(SUMS, np.nan))


def _stated(parts: pd.DataFrame) -> pd.DataFrame:
    """Add to parts what may be stated of them.

    absent    no node of the run has anything of the kind
    missing   the node has nothing of it, but others have
    known     its energy may be stated, whatever is unknown of other nodes
    covered   share of the kind's device seconds in the run with a known power
    order     place among the parts: by segment, as these come, node and kind
    """
    kind, has = parts["device_kind"], parts["sensors"] > 0
    most = parts["sensors"].groupby(kind).transform("max")
    nothing_of_it = parts["coverage"].isna()
    absent = nothing_of_it & (most == 0)
    expected_s = parts["seconds"] * most.clip(lower=1)
    coverage = parts["coverage"].astype("float64").fillna(0.0)
    device_s = parts["device_s"].where(has, expected_s).where(~absent, 0.0)
    covered_s = (coverage * parts["device_s"]).where(has, 0.0)

    def share(rows: pd.Series, *keys: pd.Series) -> pd.Series:
        whole = device_s.where(rows, 0.0).groupby([*keys]).transform("sum")
        known = covered_s.where(rows, 0.0).groupby([*keys]).transform("sum")
        least = coverage.where(rows, 0.0).groupby([*keys]).transform("max")
        return (known / whole.where(whole > 0)).fillna(least)

    of_node = share(has, kind, parts["node"])
    known = has & ~parts["shared"].astype("bool") & (of_node >= LEAST_OF_A_NODE)
    known &= np.maximum(of_node, share(has, kind)) >= 1 - MAX_UNCOVERED
    places = parts.assign(segment=pd.factorize(parts["segment"])[0])
    order = pd.Series(np.arange(len(parts)), places.sort_values(PLACE, kind="stable").index)
    return parts.assign(
        absent=absent,
        missing=nothing_of_it & ~absent,
        known=known,
        covered=share(~absent, kind).where(~absent),
        order=order,
    )


def _cells(pieces: pd.DataFrame, parts: pd.DataFrame) -> pd.DataFrame:
    """Sum up the devices of each part, by stage and epoch, with the columns of its part."""
    groups = pieces[~pieces["outside"].astype("bool")].groupby(["part", "epoch", "stage"])
    same = groups[["duration_s", "short_s", "short_epoch"]].first()
    cells = same.join(groups[SUMS].sum(skipna=False)).reset_index().join(parts, on="part")
    return _with_energy(cells)


def _with_energy(sums: pd.DataFrame) -> pd.DataFrame:
    """Add the energies that may be stated; time that does not count may be too little covered."""
    known = sums["known"].astype("bool")
    known &= sums["uncounted_known"].astype("bool") | (sums["stage"] != STAGES.index("stage_data"))
    stated = zip(("energy_j", *BOUNDS), ("recorded_j", "low_j", "high_j"), strict=True)
    energies = {name: sums[of].where(known) for name, of in stated}
    return sums.assign(**energies, discarded_j=sums["discarded_j"].where(known))


def _energy(cells: pd.DataFrame) -> pd.DataFrame:
    groups = cells.groupby(["order", "stage"])
    names = ["energy_j", *BOUNDS, "recorded_j", "discarded_j"]
    kept = [*PLACE, "devices", "unrecorded_s", "energy_origin", "covered", "short_s"]
    sums = groups[kept].first().join(groups[["duration_s", *names]].sum(skipna=False))
    sums = sums.reset_index().rename(columns={"covered": "coverage"})
    return sums.assign(stage=_words(sums), short=sums["short_s"].notna())


def _epochs(cells: pd.DataFrame) -> pd.DataFrame:
    groups = cells[~cells["absent"].astype("bool")].groupby(["epoch", "stage", "device_kind"])
    sums = groups[["duration_s", "energy_j", *BOUNDS]].sum(skipna=False)
    origins = groups["energy_origin"]
    sums = sums.assign(
        short=groups["short_epoch"].any(),
        energy_origin=origins.first().where(origins.nunique() <= 1, "mixed"),
    ).reset_index()
    epoch = sums["epoch"].where(sums["epoch"] >= 0)
    return sums.assign(epoch=epoch, stage=_words(sums)).rename(columns={"duration_s": "node_s"})


def _devices(pieces: pd.DataFrame, parts: pd.DataFrame, devices: list[Row]) -> pd.DataFrame:
    groups = pieces[pieces["device"] >= 0].groupby(["device", "stage"])
    sums = groups[["duration_s", "covered_s", *SUMS, "samples"]].sum()
    sums = (
        sums.join(groups["part"].first()).reset_index().join(parts.drop(columns="devices"), "part")
    )
    described = pd.DataFrame(devices, columns=["device_index", "sensor", "uuid"])
    sums = _with_energy(sums.join(described, "device")).sort_values(["order", "device", "stage"])
    watts = sums["recorded_j"] / sums["covered_s"].where(sums["covered_s"] > 0)
    return sums.assign(stage=_words(sums), mean_power_w=watts)


def _words(rows: pd.DataFrame) -> Any:
    return np.array(STAGES, dtype=object)[rows["stage"].astype("int64")]


def _flags(flags: list[Row], cells: pd.DataFrame, parts: pd.DataFrame) -> pd.DataFrame:
    """All flags: of a segment, its nodes, their device kinds, and stages of these."""
    frame = pd.DataFrame(flags, columns=FLAGS_SCHEMA.names)
    missing = parts[parts["missing"]]
    places = pd.MultiIndex.from_frame(missing[PLACE])
    replaced = frame.set_index(PLACE).index.isin(places) & (frame["code"] == "absent")
    others = [*_not_recorded(missing), *_short(cells)]
    frame = pd.concat([frame[~replaced], pd.DataFrame(others, columns=frame.columns)])
    order = dict(zip(parts["segment"], pd.factorize(parts["segment"])[0], strict=True))
    keys = frame.assign(
        segment=frame["segment"].map(order).fillna(-1),
        stage=frame["stage"].map({name: i for i, name in enumerate(STAGES)}),
    )
    by = [*PLACE, "stage"]
    return frame.iloc[np.lexsort([_ranks(keys[name]) for name in reversed(by)])]


def _ranks(values: pd.Series) -> Any:
    """Place of each value among the sorted ones; null is first."""
    return pd.factorize(values, sort=True)[0]


def _not_recorded(missing: pd.DataFrame) -> Iterable[Row]:
    """Flags of nodes that lack a kind."""
    for segment, node, kind in missing[PLACE].itertuples(index=False):
        detail = f"{node}: no {kind} sensor, but other nodes of the run have one"
        place = dict(zip(PLACE, (segment, node, kind), strict=True))
        yield {**place, **_row(flag("not_recorded", None, detail))}


def _short(cells: pd.DataFrame) -> Iterable[Row]:
    """Flags of stages whose energy cannot be resolved."""
    short = cells[cells["short_s"].notna()].drop_duplicates(["part", "stage"])
    for row in short.to_dict("records"):
        stage, kind = STAGES[row["stage"]], row["device_kind"]
        detail = (
            f"{stage}: pieces of {_seconds(row['short_s'])} on average, {kind} resolved to "
            f"{_seconds(row['period_s'])}: "
            "their energy cannot be separated from that of the stages around them"
        )
        made = _row(flag("stage_short", None, detail))
        yield {**{k: row[k] for k in PLACE}, **made, "stage": stage}


def _row(one: Flag) -> Row:
    return {"code": one["code"], "sensor": one["device"], "detail": one["detail"]}


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def kind_totals(energy: pd.DataFrame) -> pd.DataFrame:
    """Sums of an energy table's rows by device kind; a sum of which a row is null is null.

    `recorded_j` is what was recorded, whether or not that is enough to be stated, `device_s` the recorded
    time of each device, summed over devices, nodes and segments, `node_s` that of each node.
    """
    devices = energy["devices"].astype("float64").fillna(0.0)
    groups = energy.assign(device_s=energy["duration_s"] * devices).groupby("device_kind")
    stated = groups[["energy_j", *BOUNDS, "discarded_j"]].sum(skipna=False)
    sums = groups[["recorded_j", "device_s", "duration_s"]].sum()
    origins = groups["energy_origin"]
    return stated.join(sums.rename(columns={"duration_s": "node_s"})).assign(
        energy_origin=origins.first().where(origins.nunique(dropna=False) == 1),
        coverage=groups["coverage"].min(),
    )


class EnergyTotals:
    """Totals of an energy table. Under the paper's protocol staging does not count."""

    def __init__(self, energy: pd.DataFrame, with_staging: bool) -> None:
        staged = energy["stage"] == "stage_data"
        self.rows = energy if with_staging else energy[~staged]
        self.staging = energy[staged]
        self.kinds = kind_totals(self.rows)
        """`kind_totals` of the rows that count."""
        covered = self.kinds["coverage"].dropna().index
        metered = [NODE] if NODE in self.kinds.index else []
        self.scope = [kind for kind in DEVICE_KINDS if kind in covered] or metered
        """Device kinds that count: those that the nodes have a sensor or an estimate of; if there is
        nothing of a node's parts, the whole nodes by their own meters."""

    def of_kind(self, kind: str) -> pd.DataFrame:
        """Rows of a device kind."""
        return self.rows[self.rows["device_kind"] == kind]

    @property
    def in_scope(self) -> pd.DataFrame:
        """Rows of the device kinds that count."""
        return self.rows[self.rows["device_kind"].isin(self.scope)]

    def _value(self, kind: str, name: str) -> Any:
        value = self.kinds[name].get(kind)
        return None if value is None or pd.isna(value) else value

    def joules(self, kind: str) -> float | None:
        """Energy of a device kind over all nodes, segments and stages; None if any part is."""
        return self._value(kind, "energy_j")

    def bounds_j(self, kind: str) -> tuple[float | None, float | None]:
        """Interval of `joules`, by what is estimated and what uncovered time can have cost."""
        low, high = (self._value(kind, name) for name in BOUNDS)
        return low, high

    def discarded_j(self, kind: str) -> float | None:
        """Part of `joules` that was lost work."""
        return self._value(kind, "discarded_j")

    def recorded_j(self, kind: str) -> float:
        """What was recorded of a device kind in J, whether or not that is enough to be stated."""
        return float(self._value(kind, "recorded_j") or 0.0)

    @property
    def total_j(self) -> float | None:
        """Energy of all device kinds in scope; None if one is, or none is in scope."""
        return known_sum(map(self.joules, self.scope))

    @property
    def total_bounds_j(self) -> tuple[float | None, float | None]:
        """Interval of `total_j`, as if the errors of all kinds had the same sign."""
        bounds = [self.bounds_j(kind) for kind in self.scope]
        return known_sum(low for low, _ in bounds), known_sum(high for _, high in bounds)

    def origin_of(self, kind: str) -> str | None:
        """Origin of a kind's energy; None if it has none, or several."""
        origin: str | None = self._value(kind, "energy_origin")
        return origin

    @property
    def runtime_s(self) -> float:
        """Sum over segments of the longest node's time, recorded or known to lie outside."""
        nodes = self.rows.groupby(PLACE)
        times = nodes["duration_s"].sum() + nodes["unrecorded_s"].first().fillna(0.0)
        return float(times.groupby("segment").max().sum())

    def device_seconds(self, kind: str) -> float:
        """Recorded time of each device of a kind, summed over devices, nodes and segments."""
        return float(self._value(kind, "device_s") or 0.0)

    def node_seconds(self, kind: str) -> float:
        """Recorded time of a kind, summed over nodes and segments."""
        return float(self._value(kind, "node_s") or 0.0)

    def devices(self, kind: str) -> int:
        """Most devices of a kind that a segment had, over all its nodes."""
        of_nodes = self.of_kind(kind).groupby(["segment", "node"])["devices"].first()
        return (
            int(of_nodes.astype("float64").groupby("segment").sum().max()) if len(of_nodes) else 0
        )

    @property
    def origin(self) -> str | None:
        """measured, estimated, …, or mixed; None if there is no energy."""
        counted = self.in_scope
        return one_origin(counted.loc[counted["energy_j"].notna(), "energy_origin"])

    @property
    def hosts(self) -> list[str]:
        """Names of the nodes, sorted."""
        return sorted(self.rows["node"].unique())

    @property
    def coverage(self) -> float | None:
        """Least coverage of the device kinds that count and have sensors."""
        least = self.kinds["coverage"].reindex(self.scope).min()
        return None if pd.isna(least) else float(least)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Sum of values; None if one is null, or there is none."""
    known = list(values)
    return None if not known or any(map(pd.isna, known)) else float(sum(known))  # type: ignore[arg-type]


def one_origin(origins: Iterable[str | None]) -> str | None:
    """Origin of several energies, `mixed` if they have several, None without any."""
    known = {origin for origin in origins if not pd.isna(origin)} - {""}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)


def flags_of_run(flags: pd.DataFrame) -> list[Flag]:
    """Different flags of a flag table, in order, but for those of stages."""
    rows = flags.loc[flags["stage"].isna(), ["code", "sensor", "detail"]].drop_duplicates()
    rows = rows.astype(object).where(rows.notna(), None)
    return [flag(*row) for row in rows.itertuples(index=False)]
