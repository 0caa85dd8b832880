"""Tables of a run: what its nodes used by device, stage and epoch, and what of that may be stated.

Nodes give `pieces`, a row per device and interval, and `parts`, a row per device kind of a node in a
segment. Every table is a sum over pieces, in which null stays null: a sum with an unknown energy in it is
unknown.

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

from scalewatt.common.columns import schema
from scalewatt.common.files import write_table
from scalewatt.energies.node import MAX_UNCOVERED, KindEnergy
from scalewatt.energies.stages import STAGE_TYPE, Window
from scalewatt.recordings.terms import DEVICE_KINDS, NODE, Flag, flag

LEAST_OF_A_NODE = 0.5
"""If a node's coverage of a kind is less over the run, neither it nor the run has an energy of the kind."""
LEAST_S = 1e-9
"""Device seconds of a recording without length, so that it has a coverage."""

Row = dict[str, Any]

# --- columns --------------------------------------------------------------------------------------

BOUNDS = ("energy_low_j", "energy_high_j")
"""The interval of an energy, by what is estimated and what uncovered time can have cost."""
PLACE = ["segment", "node", "device_kind"]

_ENERGY = ("energy_j", *BOUNDS)
_JOULES = [*_ENERGY, "recorded_j", "discarded_j"]

ENERGY_SCHEMA = schema("energy")
"""One row per segment, node, device kind (gpu, cpu, ram, unused_gpu, node) and stage."""
DEVICES_SCHEMA = schema("energy-devices")
"""One row per segment, device with a power and stage."""
FLAGS_SCHEMA = schema("energy-flags")
"""One row per quality flag."""
EPOCHS_SCHEMA = schema("energy-epochs")
"""One row per epoch (null: outside of all), stage and device kind, over all nodes and segments."""
CROSS_CHECKS_SCHEMA = schema("energy-cross-checks")
"""One row per other source of the same energy, over the time that it covers."""

SUMS = ["recorded_j", "low_j", "high_j", "discarded_j"]
"""Energies in J of pieces (`KindEnergy.pieces`)."""


# --- from pieces to tables ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Collected:
    """Rows from the nodes of a run, before it is decided which energies may be stated."""

    pieces: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    parts: list[Row] = field(default_factory=list)
    devices: list[Row] = field(default_factory=list)
    flags: list[Row] = field(default_factory=list)
    cross_checks: list[Row] = field(default_factory=list)
    windows: dict[str, list[Window]] = field(default_factory=dict)
    """Recorded times of each node that has been counted."""

    def add(
        self,
        kind: KindEnergy,
        segment: int,
        intervals: pd.DataFrame,
        lost: Window = (0.0, 0.0),
        unrecorded_s: float = 0.0,
        recorded: bool = True,
    ) -> None:
        """Add a device kind of a node, whose time the intervals tile.

        `lost`: span of discarded work. `unrecorded_s`: run time outside of the recording. `recorded`: whether
        anything of the node was.
        """
        pieces = kind.pieces(intervals, lost, unrecorded_s)
        number = pieces["device"]
        pieces["device"] = np.where(number < 0, -1, number + len(self.devices))
        pieces["part"] = np.full_like(number, len(self.parts))
        self.pieces.append(pieces)
        rows = (device.row for device in kind.devices)
        self.devices.extend(
            {"device_index": row.index, "sensor": row.name, "uuid": row.uuid or None}
            for row in rows
        )
        same = ("node", "device_kind", "coverage", "device_s", "period_s", "shared")
        self.parts.append(
            {
                **{name: getattr(kind, name) for name in same},
                **{"segment": segment, "unrecorded_s": unrecorded_s, "recorded": recorded},
                **{"sensors": len(kind.devices), "devices": kind.count if recorded else None},
                "energy_origin": kind.origin,
                "supply": " and ".join(sorted({d.row.supply for d in kind.devices} - {""})) or None,
                "seconds": intervals["end_s"].iloc[-1] - intervals["start_s"].iloc[0],
            }
        )

    def flag(
        self, flags: Iterable[Flag], segment: int, node: str | None = None, kind: str | None = None
    ) -> None:
        """Add flags of a segment, one of its nodes, or one device kind of that."""
        self.flags.extend(_flag_row(each, segment, node, kind) for each in flags)


def _flag_row(
    each: Flag, segment: int, node: str | None, kind: str | None, stage: str | None = None
) -> Row:
    """Row of FLAGS_SCHEMA."""
    key = {"segment": segment, "node": node, "device_kind": kind, "stage": stage}
    return {**key, "code": each["code"], "sensor": each["device"], "detail": each["detail"]}


@dataclass(frozen=True, eq=False)
class Accounts:
    """All tables of one run but its traces, as frames; null is NaN, NaT or NA."""

    energy: pd.DataFrame
    epochs: pd.DataFrame
    devices: pd.DataFrame
    flags: pd.DataFrame
    cross_checks: pd.DataFrame

    def write(self, energy_path: Path) -> None:
        """Write <repeat>.parquet and, before it, the others as <repeat>.<name>.parquet."""
        for name, columns in _SCHEMAS.items():
            suffix = "" if name == "energy" else f".{name.replace('_', '-')}"
            table = pa.Table.from_pandas(getattr(self, name), columns, preserve_index=False)
            table = table.replace_schema_metadata(None)
            write_table(table, energy_path.with_suffix(f"{suffix}.parquet"))


_SCHEMAS = {
    **{"epochs": EPOCHS_SCHEMA, "devices": DEVICES_SCHEMA, "flags": FLAGS_SCHEMA},
    **{"cross_checks": CROSS_CHECKS_SCHEMA, "energy": ENERGY_SCHEMA},
}


_DTYPES = {pa.string(): "str", pa.float64(): "float64", pa.bool_(): "bool"}
"""Types of a frame's columns; of whole numbers Int64."""


def records(frame: pd.DataFrame) -> list[Row]:
    """Rows of a frame; null is None."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[return-value]


def tables(collected: Collected, configuration: str | None, repeat: int | None) -> Accounts:
    """Sum up the pieces of a run, and state what may be stated."""
    parts = _stated(pd.DataFrame(collected.parts))
    each = collected.pieces
    columns: Row = {name: np.concatenate([rows[name] for rows in each]) for name in each[0]}
    columns["stage"] = pd.Categorical.from_codes(columns["stage"], dtype=STAGE_TYPE)
    # Parts by their order; of those left out it is null, so that no sum has them
    columns["part"] = parts["order"].reindex(columns["part"]).array
    parts = parts.set_index("order")
    added = ["duration_s", "covered_s", *SUMS, "samples"]
    of_stage = ["part", "device", "epoch", "stage"]
    pieces = _sums(pd.DataFrame(columns), of_stage, added, ["short_s", "short_epoch"])
    known = parts["known"].reindex(pieces["part"]).array
    stated = dict(zip((*_ENERGY, "discarded_j"), SUMS, strict=True))
    pieces = pieces.assign(**{k: pieces[v].where(known) for k, v in stated.items()})

    # The device kinds of nodes, by stage and epoch and by stage
    of_piece = ["duration_s", "short_s", "short_epoch"]
    cells = _sums(pieces, ["part", "epoch", "stage"], _JOULES, of_piece)
    energy = _sums(cells, ["part", "stage"], ["duration_s", *_JOULES], ["short_s"])
    energy = energy.join(parts, on="part")
    energy = energy.assign(coverage=energy["covered"], short=energy["short_s"].notna())

    # Epochs, over all nodes and segments
    cells = cells.join(parts[["device_kind", "energy_origin", "absent"]], on="part")
    groups = cells[~cells["absent"]].groupby(["epoch", "stage", "device_kind"], observed=True)
    origins = groups["energy_origin"]
    epochs = (
        groups[[*_ENERGY]]
        .sum(skipna=False)
        .assign(
            node_s=groups["duration_s"].sum(),
            short=groups["short_epoch"].any(),
            energy_origin=origins.first().where(origins.nunique() <= 1, "mixed"),
        )
    )
    epochs = epochs.reset_index()
    epochs["epoch"] = epochs["epoch"].where(epochs["epoch"] >= 0)

    # Devices, by stage
    added = ["duration_s", "covered_s", *_JOULES, "samples"]
    devices = _sums(pieces[pieces["device"] >= 0], ["part", "device", "stage"], added, [])
    described = pd.DataFrame(collected.devices, columns=["device_index", "sensor", "uuid"])
    watts = devices["recorded_j"] / devices["covered_s"].where(devices["covered_s"] > 0)
    devices = devices.assign(mean_power_w=watts).join(described, on="device")
    devices = devices.join(parts[[*PLACE, "energy_origin"]], on="part")

    # Cross-checks, with the relative difference and what a node's meter has beyond its parts
    checks = pd.DataFrame(collected.cross_checks, columns=CROSS_CHECKS_SCHEMA.names)
    sources = checks[["energy_j", "recorded_j", "duration_s"]].astype("float64")
    more_j = sources["energy_j"] - sources["recorded_j"]
    extra_w = more_j / sources["duration_s"].replace(0.0, np.nan)
    checks = checks.assign(
        difference=more_j / sources["recorded_j"].replace(0.0, np.nan),
        extra_w=extra_w.where(checks["recorded_scope"].notna()),
    )

    frames = {
        "energy": energy,
        "epochs": epochs,
        "devices": devices,
        "flags": _flags(collected.flags, parts, devices, energy),
        "cross_checks": checks,
    }
    for name, frame in frames.items():
        dtypes = {column.name: _DTYPES.get(column.type, "Int64") for column in _SCHEMAS[name]}
        whole = frame.assign(configuration=configuration, repeat=repeat)
        frames[name] = whole.reindex(columns=[*dtypes]).astype(dtypes).reset_index(drop=True)
    return Accounts(**frames)


def _sums(rows: pd.DataFrame, by: list[str], added: list[str], same: list[str]) -> pd.DataFrame:
    """Sums of the columns `added`, null if a row is, and what is the `same` in all rows of a group."""
    groups = rows.groupby(by, observed=True)
    return groups[same].first().join(groups[added].sum(skipna=False)).reset_index()


def _stated(parts: pd.DataFrame) -> pd.DataFrame:
    """Add to parts what may be stated of them.

    Without a node's meter or an unrecorded node's kinds that no node has a sensor of; if no node has any, an
    unrecorded one has its three parts.

    absent    no node of the run has anything of the kind
    missing   the node has nothing of it, but others have
    known     its energy may be stated, whatever is unknown of other nodes
    covered   share of the kind's device seconds in the run with a known power
    order     number among the parts: by segment, node and kind
    """
    kinds = set(parts["device_kind"][parts["sensors"] > 0]) or DEVICE_KINDS
    is_part = parts["recorded"] & (parts["device_kind"] != NODE)
    parts = parts[is_part | parts["device_kind"].isin(kinds)].astype({"coverage": "float64"})
    has, lacks = parts["sensors"] > 0, parts["coverage"].isna()
    most = parts["sensors"].groupby(parts["device_kind"]).transform("max")
    absent = lacks & (most == 0)
    # A node without a sensor of a kind lacks as many devices as the others have.
    device_s = parts["device_s"].where(has, parts["seconds"] * most.clip(lower=1)).clip(LEAST_S)
    covered_s = (parts["coverage"] * device_s).where(has, 0.0)
    seconds = pd.DataFrame({"covered": covered_s, "device": device_s})

    def share(rows: pd.Series, *keys: str) -> pd.Series:
        """Share of the device seconds of some rows with a known power."""
        sums = seconds.where(rows, 0.0).groupby([parts[key] for key in keys]).transform("sum")
        return sums["covered"] / sums["device"]

    of_node = share(has, "device_kind", "node")
    known = has & ~parts["shared"] & (of_node >= LEAST_OF_A_NODE)
    known &= np.maximum(of_node, share(has, "device_kind")) >= 1 - MAX_UNCOVERED
    return parts.assign(
        absent=absent,
        missing=lacks & ~absent,
        known=known,
        covered=share(~absent, "device_kind").where(~absent),
        order=pd.Series(np.arange(len(parts)), parts.sort_values(PLACE, kind="stable").index),
    )


def _flags(
    flags: Sequence[Row], parts: pd.DataFrame, devices: pd.DataFrame, energy: pd.DataFrame
) -> pd.DataFrame:
    """Flags by segment, node, device kind and stage, with those that only whole tables show."""
    rows = [*flags]
    # A kind that other nodes have is missing, and not `absent`
    missing = parts.loc[parts["missing"], PLACE]
    for segment, node, kind in missing.itertuples(index=False):
        detail = f"{node}: no {kind} sensor, but other nodes of the run have one"
        rows.append(_flag_row(flag("not_recorded", None, detail), segment, node, kind))

    # Two nodes with one GPU, by its uuid, may be one machine by two names. They count for both: a sampler
    # names its own machine's devices.
    gpus = devices[["segment", "uuid", "node"]].dropna().drop_duplicates()
    first = gpus.groupby(["segment", "uuid"])["node"].transform("min")
    twice = gpus.assign(first=first)[first < gpus["node"]].drop(columns="uuid").drop_duplicates()
    for segment, node, first_node in twice.itertuples(index=False):
        detail = f"{node}: its GPUs are those of {first_node}, by their uuid, and count twice"
        rows.append(_flag_row(flag("assumed", None, detail), segment, node, None))

    # Stages whose energy cannot be resolved
    short = energy.loc[energy["short"], [*PLACE, "stage", "short_s", "period_s"]]
    for segment, node, kind, stage, short_s, period_s in short.itertuples(index=False):
        detail = f"{stage}: pieces of {short_s:.2g} s, {kind} resolved to {period_s:.2g} s"
        rows.append(_flag_row(flag("stage_short", None, detail), segment, node, kind, stage))

    frame = pd.DataFrame(rows, columns=FLAGS_SCHEMA.names)
    is_missing = pd.MultiIndex.from_frame(frame[PLACE]).isin(pd.MultiIndex.from_frame(missing))
    frame = frame[~(is_missing & (frame["code"] == "absent"))]
    stages = pd.Categorical(frame["stage"], dtype=STAGE_TYPE)
    return frame.assign(stage=stages).sort_values([*PLACE, "stage"], na_position="first")


# --- totals ---------------------------------------------------------------------------------------

ALL = "all"
"""Device kind of all kinds in scope together."""


class EnergyTotals:
    """Totals of an energy table. Under the paper's protocol staging does not count."""

    def __init__(self, energy: pd.DataFrame, with_staging: bool) -> None:
        staged = energy["stage"] == "stage_data"
        self.rows = energy if with_staging else energy[~staged]
        self.staging = energy[staged]
        covered = set(self.rows.loc[self.rows["coverage"].notna(), "device_kind"])
        metered = [NODE] if (self.rows["device_kind"] == NODE).any() else []
        self.scope = [kind for kind in DEVICE_KINDS if kind in covered] or metered
        """Device kinds that count: those that the nodes have a sensor or an estimate of; if there is
        nothing of a node's parts, the whole nodes by their own meters."""
        supplies = self.rows.loc[self.rows["device_kind"] == NODE, "supply"].dropna().unique()
        supply = f" ({' and '.join(supplies)})" if self.scope == [NODE] and len(supplies) else ""
        self.scope_name = "+".join(self.scope) + supply or None
        """Name of the scope, such as gpu+cpu or node (AC)."""
        self.in_scope = counted = self.rows[self.rows["device_kind"].isin(self.scope)]
        """Rows of the device kinds that count."""
        origins = counted["energy_origin"].where(counted["energy_j"].notna())
        rows = pd.concat([self.rows, counted.assign(device_kind=ALL, energy_origin=origins)])
        rows["devices"] = rows["devices"].astype("float64").fillna(0.0)
        rows["device_s"] = rows["duration_s"] * rows["devices"]
        groups = rows.groupby("device_kind")
        of_segment = rows.drop_duplicates(PLACE).groupby(["device_kind", "segment"])["devices"]
        kinds = (
            groups[[*_ENERGY, "discarded_j"]]
            .sum(skipna=False)
            .assign(
                **groups[["recorded_j", "device_s"]].sum(),
                node_s=groups["duration_s"].sum(),
                devices=of_segment.sum().groupby("device_kind").max(),
                energy_origin=groups["energy_origin"].agg(one_origin),
                coverage=groups["coverage"].min(),
            )
        )
        self.kinds = kinds.reindex(kinds.index.union([ALL]))
        """Sums by device kind, and of those in scope as ALL; null if a row is, but for `recorded_j`.

        `device_s`: recorded time of each device, summed over devices, nodes and segments, `node_s` of each
        node. `devices`: most devices of a kind that a segment had, over all its nodes."""

    def joules(self, kind: str = ALL, column: str = "energy_j") -> float | None:
        """Total of a device kind in J, by default of all in scope; None if any part of it is unknown."""
        joules = self.kinds[column].get(kind)
        return None if joules is None or pd.isna(joules) else float(joules)

    @property
    def runtime_s(self) -> float:
        """Sum over segments of the longest node's time, recorded or known to lie outside."""
        nodes = self.rows.groupby(PLACE)
        times = nodes["duration_s"].sum() + nodes["unrecorded_s"].first().fillna(0.0)
        return float(times.groupby("segment").max().sum())

    @property
    def origin(self) -> str | None:
        """measured, estimated, …, or mixed; None if there is no energy."""
        return one_origin([self.kinds["energy_origin"][ALL]])

    @property
    def coverage(self) -> float | None:
        """Least coverage of the device kinds that count and have sensors."""
        return self.joules(column="coverage")


def known_sum(values: Iterable[float | None]) -> float | None:
    """Sum of values; None if one is null, or there is none."""
    known = list(values)
    return None if not known or any(map(pd.isna, known)) else float(sum(known))  # type: ignore[arg-type]


def one_origin(origins: Iterable[str | None]) -> str | None:
    """Origin of several energies, `mixed` if they have several, None without any."""
    known = {origin for origin in origins if not pd.isna(origin)}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)


def flags_of_run(flags: pd.DataFrame) -> list[Flag]:
    """Different flags of a flag table, in order, but for those of stages."""
    rows = flags.loc[flags["stage"].isna(), ["code", "sensor", "detail"]].drop_duplicates()
    return [flag(*row.values()) for row in records(rows)]
