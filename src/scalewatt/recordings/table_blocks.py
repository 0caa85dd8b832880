"""Blocks of a table's rows, as its description says: those of each node and device, with their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown
from scalewatt.recordings.block import Block, Flag, Floats, sensor_frame
from scalewatt.recordings.row_times import RowTimes
from scalewatt.recordings.series import flag, gpu_quantity
from scalewatt.recordings.table_rows import DESCRIBED, NO_NAME, UNITS, Column, Preset, listed, where
from scalewatt.recordings.times import as_numbers

NEVER_WRAPS_J = 2.0**64 / 1e3
"""Range of NVML's counters, 64 bits of mJ: they are reset, but never wrap."""
_MOST_DEVICES = 4096
_MOST_CONTRADICTING = 0.1
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25


@dataclass(eq=False)
class Table:
    """The rows of a table, from which each node and device takes its own."""

    path: Path
    rules: Preset
    frame: pd.DataFrame
    columns: Sequence[Column]
    times: RowTimes
    flags: list[Flag] = field(default_factory=list)
    repeats: int = 0
    contradicting: int = 0

    def __post_init__(self) -> None:
        self.lost = ~self.times.known_rows
        """Rows without a time, or without a name of their device or node, (n,)."""

    def flag(self, code: str, detail: str, device: str | None = None) -> None:
        self.flags.append(flag(code, device, f"{self.path.name}: {detail}"))

    def label(self, column: Column, key: str) -> str | None:
        """Name in the frame of a column of labels; None without it."""
        names = listed(column.rule.get(key))
        return names[0] if names and names[0] in self.frame else None

    def first(self, rows: np.ndarray, column: Column, key: str) -> str:
        """First text of a column of labels in some rows; empty without one."""
        label = self.label(column, key)
        texts = self.frame[label].iloc[rows] if label else pd.Series(dtype="str")
        return next(iter(texts[~texts.str.contains(NO_NAME)]), "")


def read_blocks(table: Table, node: str, place: str) -> dict[str, list[Block]]:
    """Blocks of each node, in the order of names; `node` is that of rows that name none.

    Raises InputError if no row can be read, or nothing tells them apart; `place` is that of the description.
    """
    if not table.times.known_rows.any():
        raise InputError(
            f"{table.path}: holds no row with a time that can be read{table.times.unread()}"
        )
    if "gpus" in table.rules:
        _take_in_turn(table, table.rules["gpus"])
    blocks = [block for group in _groups(table, node) for block in _blocks(table, *group)]
    if not blocks:
        raise InputError(f"{table.path}: holds no row of a device that is named")
    if table.rules.get("second_dies"):
        blocks = _without_second_dies(table, blocks)
    if table.rules["name"] == DESCRIBED:
        _refuse_doubles(place, blocks)
    if table.repeats:
        table.flag("duplicate", f"{table.repeats} samples repeat one with the same time and value")
    if table.contradicting:
        detail = f"times with two values that contradict: {table.contradicting}; the first counts"
        table.flag("duplicate", detail)
    names = sorted({block.node for block in blocks})
    return {name: [block for block in blocks if block.node == name] for name in names}


# --- rows of nodes and devices --------------------------------------------------------------------


def _take_in_turn(table: Table, gpus: int) -> None:
    """Number rows that are of `gpus` GPUs in turn; refuse where one is missing, as the others then shift."""
    count, seconds = len(table.frame), table.times.seconds
    is_whole = count % gpus == 0
    if seconds is not None and count >= 2 * gpus:
        sets = seconds[: count // gpus * gpus].reshape(-1, gpus)
        apart = np.median(np.diff(sets[:, 0]))
        is_whole = bool((np.ptp(sets, axis=1) < 0.5 * apart).all())
    if not is_whole:
        raise InputError(
            f"{table.path}: its {count} rows do not come {gpus} at a time (gpus: {gpus}); record the index"
        )
    table.frame["gpus"] = pd.Series(np.arange(count) % gpus).astype("str")
    table.columns = [replace(c, rule={**c.rule, "index_column": "gpus"}) for c in table.columns]


_Group = tuple[str, int | None, np.ndarray, list[Column]]


def _groups(table: Table, unnamed_node: str) -> Iterator[_Group]:
    """Node, device (None if the columns tell it), rows and columns of values of each set of sensors."""
    kinds: dict[tuple[Any, ...], list[Column]] = {}
    for column in table.columns:
        labels = (table.label(column, "node_column"), table.label(column, "index_column"))
        node = column.labels.get("node", column.rule.get("node"))
        kinds.setdefault((repr(column.rule.get("where")), *labels, node), []).append(column)
    for (_, node_label, index_label, stated), columns in kinds.items():
        named = where(table.frame, columns[0].rule)
        if not named.any():
            raise InputError(f"{table.path}: no row has {shown(columns[0].rule['where'])}")
        for label in filter(None, (node_label, index_label)):
            unnamed = table.frame[label].str.contains(NO_NAME).to_numpy()
            table.lost |= named & unnamed
            named &= ~unnamed
        if index_label is None and "index_column" in columns[0].rule:
            _check_one_gpu(table)
        rows = table.times.order[named[table.times.order]]
        nodes = (
            table.frame[node_label].iloc[rows] if node_label else pd.Series("", range(rows.size))
        )
        for node, positions in nodes.groupby(nodes.to_numpy(), sort=True).indices.items():
            name = str(node) or stated or unnamed_node
            of_node = rows[positions]
            if index_label is None:
                yield name, None, of_node, columns
                continue
            for index, of_device in _by_device(table, of_node, index_label):
                yield name, index, of_device, columns


def _by_device(table: Table, rows: np.ndarray, label: str) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of each device of a node, by its number: the one written, else by the order of the names."""
    names = table.frame[label].iloc[rows]
    plain = names.str.fullmatch(r"\d{1,9}").to_numpy(np.bool_)
    split = names.str.extract(r"^(\D*)(\d{1,4})$")
    if plain.mean() > 0.9:  # the others are damaged
        numbers = np.where(plain, as_numbers(names), -1)
    elif split[1].notna().all() and split[0].nunique() == 1:  # card0, card1
        numbers = as_numbers(split[1])
    else:
        numbers = pd.factorize(names.to_numpy(), sort=True)[0].astype(np.float64)
    if not plain.any() and numbers.max(initial=0) >= _MOST_DEVICES:
        raise InputError(f"{table.path}: column {shown(label)} names over {_MOST_DEVICES} devices")
    known = (numbers >= 0) & (numbers < _MOST_DEVICES)
    table.lost[rows[~known]] = True
    for number in np.unique(numbers[known]):
        yield int(number), rows[numbers == number]


def _check_one_gpu(table: Table) -> None:
    """Take rows that name no GPU, though the tool could, as those of one, flagged; or refuse."""
    if table.times.seconds is not None:
        steps = np.diff(table.times.seconds[table.times.known_rows])
        steps = steps[steps >= 0]
        usual = float(np.quantile(steps, 0.9)) if steps.size else 0.0
        if steps.size and float(np.mean(steps < _SHORT * usual)) > _MOST_SHORT:
            raise InputError(
                f"{table.path}: holds rows of several GPUs, and nothing tells whose; record the field "
                "'index', or say how many come in turn (gpus: 8)"
            )
    table.flag("assumed", "its rows name no GPU and are taken as those of one; record the index")


# --- a block --------------------------------------------------------------------------------------


def _blocks(
    table: Table, node: str, index: int | None, rows: np.ndarray, columns: list[Column]
) -> Iterator[Block]:
    """Blocks of the samples and of the energies of intervals in some rows."""
    if index is not None:
        _refuse_several(table, rows, columns[0], index)
    for is_used in (False, True):
        mine = [column for column in columns if (column.quantity == "energy") == is_used]
        if not mine:
            continue
        sensors = sensor_frame([_sensor(table, column, index, rows) for column in mine])
        values = table.frame[[column.key for column in mine]].to_numpy(np.float64)[rows]
        read = _energies if is_used else _samples
        time_s, values = read(table, rows, values, sensors)
        kept = _with_values(sensors, values)
        yield Block(
            node,
            time_s,
            np.asfortranarray(values[:, kept]),
            sensors.iloc[kept].reset_index(drop=True),
        )


def _sensor(table: Table, column: Column, index: int | None, rows: np.ndarray) -> dict[str, Any]:
    """Row of a sensor in the frame of a block's sensors."""
    rule, header = column.rule, column.header
    name = rule.get("name", header if index is None else f"{header}:{{index}}")
    if index is None:
        text = column.labels.get("index", "")
        index = int(text) if text.isdigit() else 0
        index += rule.get("index", 0)
    device = table.first(rows, column, "device_column")
    is_gpu_power = column.quantity == "power" and rule["kind"] == "gpu"
    limit = table.label(column, "limit_column")
    watts = table.frame[limit].iloc[rows].str.removesuffix("W") if limit else pd.Series(dtype="str")
    limit_w = rule.get("limit_w", np.nanmax(as_numbers(watts), initial=0.0))
    return {
        "name": name.replace("{index}", str(index)).replace("{column}", header),
        "kind": rule["kind"],
        "index": index,
        "quantity": "counter" if column.quantity == "energy" else column.quantity,
        "range_j": _range_j(column),
        "limit_w": float(limit_w) or np.nan,
        "uuid": table.first(rows, column, "uuid_column"),
        "device": device,
        "origin": rule.get("origin", "measured"),
        "samples": rule.get("samples") or (gpu_quantity(device) if is_gpu_power else "") or "",
    }


def _range_j(column: Column) -> float:
    """Where a counter begins anew, in J. Only those of CPUs and memories are known to, early."""
    if "valid_max" in column.rule:
        return float(column.rule["valid_max"] * UNITS[column.rule.get("unit", "J")][1])
    may_wrap = column.quantity != "energy" and column.rule["kind"] in ("cpu", "ram")
    return NEVER_WRAPS_J if column.quantity in ("counter", "energy") and not may_wrap else np.nan


def _refuse_several(table: Table, rows: np.ndarray, column: Column, index: int) -> None:
    """Refuse rows of several nodes, in which one index is several GPUs."""
    label = table.label(column, "uuid_column")
    if label is None or label == table.label(column, "index_column"):
        return
    texts = table.frame[label].iloc[rows]
    counts = texts[~texts.str.contains(NO_NAME)].value_counts()
    several = sorted(counts[counts > 1].index)  # of a damaged text there is one row
    if len(several) > 1:
        raise InputError(
            f"{table.path}: index {index} is {len(several)} GPUs ({', '.join(several[:2])[:90]}): rows of "
            "several nodes; expected a column that tells them (hostname), or one file for each node"
        )


def _with_values(sensors: pd.DataFrame, values: Floats) -> list[int]:
    """Positions of the sensors to keep: of a device that has values, those that have some.

    Of one without, the first of its power and energy stays, so that it is known to be without values.
    """
    valued = pd.Series(np.isfinite(values).any(axis=0))
    kept = valued.copy()
    energetic = sensors[sensors["quantity"] != "utilisation"]
    for _, device in energetic.groupby(["kind", "index"]):
        if not valued[device.index].any():
            kept[device.index[0]] = True
    return list(np.flatnonzero(kept)) or [0]


def _samples(
    table: Table, rows: np.ndarray, values: Floats, sensors: pd.DataFrame
) -> tuple[Floats, Floats]:
    """Times and values of rows, (n,) and (n, k): of several at one time the first counts.

    Raises InputError where these are many: rows of several devices, or several samples a second.
    """
    timed = table.times.known_rows[rows]
    time_s, values = table.times.of(rows[timed]), values[timed]
    if table.rules["time"].get("spread"):
        return _spread(time_s), values
    turn = np.cumsum(np.diff(time_s, prepend=np.nan) != 0) - 1
    for name, column in zip(sensors["name"], values.T, strict=True):
        if _contradicts(time_s, column):
            raise InputError(
                f"{table.path}: column {shown(name)} has several values at one time; name index_column, "
                "node_column or where in the YAML file (or time: {spread: true} if whole seconds are stamped)"
            )
    if turn.size == 0 or turn[-1] == turn.size - 1:
        return time_s, values
    at_once = pd.DataFrame(values).groupby(turn)
    differ = int((at_once.nunique() > 1).any(axis=1).sum())
    table.contradicting += differ
    table.repeats += turn.size - int(turn[-1]) - 1 - differ
    return time_s[np.diff(turn, prepend=-1) > 0], at_once.first().to_numpy(np.float64)


def _spread(time_s: Floats) -> Floats:
    """Times of samples that carry whole seconds, several each: evenly within their second."""
    begins = np.flatnonzero(np.diff(time_s, prepend=np.nan) != 0)
    counts = np.repeat(np.diff(begins, append=time_s.size), np.diff(begins, append=time_s.size))
    turn = np.arange(time_s.size) - np.repeat(begins, np.diff(begins, append=time_s.size))
    return time_s + turn / counts


def _contradicts(time_s: Floats, values: Floats) -> bool:
    """True if over a tenth of the values share their time with another one."""
    valued = np.isfinite(values)
    pairs = np.unique(np.column_stack((time_s[valued], values[valued])), axis=0)
    counts = np.unique(pairs[:, 0], return_counts=True)[1]
    return bool(counts[counts > 1].sum() > _MOST_CONTRADICTING * np.count_nonzero(valued))


def _energies(
    table: Table, rows: np.ndarray, used_j: Floats, sensors: pd.DataFrame
) -> tuple[Floats, Floats]:
    """Times and counters in J, (m,) and (m, k), of the energies of intervals, (n, k).

    An interval ends at its stamp unless `time.stamp` says that it begins there. One whose other end nothing
    tells is not counted, and flagged.
    """
    time_s, time = table.times.of(rows), table.rules["time"]
    at_begin, begin_s = time.get("stamp") == "begin", table.times.begin_s
    if "duration" in time:
        durations = as_numbers(table.frame[time["duration"]].iloc[rows])
        begin_s = time_s[0] if at_begin else time_s[0] - durations[0]
        time_s = time_s + durations if at_begin else time_s
    elif at_begin:
        begin_s, used_j = None, np.vstack([used_j[:1], used_j[:-1]])
    if begin_s is None:
        name, which = str(sensors["name"][0]), "last" if at_begin else "first"
        detail = f"{name}: the energy of the {which} interval is not counted: nothing tells how long it is"
        table.flag(
            "missing_samples", f"{detail}; name a column of durations (time: duration)", name
        )
    else:
        time_s, used_j = np.concatenate(([begin_s], time_s)), np.vstack([used_j[:1], used_j])
    counters = np.column_stack([_added_up(time_s, used) for used in used_j.T])
    timed = np.isfinite(time_s)
    return time_s[timed], counters[timed]


def _added_up(time_s: Floats, used_j: Floats) -> Floats:
    """Counter in J, (n,), of energies used since the row before, in the order of the rows.

    The first is not counted, nor is one that repeats the one before, at the same time. Where one is unknown
    the counter begins anew, lower, so that it is told from no energy.
    """
    unknown = ~(used_j >= 0)
    unknown[:1] = False
    steps = np.where(unknown, 0.0, used_j)
    steps[:1] = 0.0
    steps[1:][(used_j[1:] == used_j[:-1]) & (time_s[1:] == time_s[:-1])] = 0.0
    total, begun = np.cumsum(steps), np.cumsum(unknown)
    begins = np.concatenate(([0.0], total[unknown]))
    return total - begins[begun] + 1.0 + np.count_nonzero(unknown) - begun


# --- all blocks -----------------------------------------------------------------------------------


def _without_second_dies(table: Table, blocks: list[Block]) -> list[Block]:
    """Leave out GPUs of odd numbers if all are without power and no other is: the first die has both's."""
    odd = [block.sensors["index"].iloc[0] % 2 == 1 for block in blocks]
    power = [block.values[:, block.sensors["quantity"] != "utilisation"] for block in blocks]
    dead = [not (np.nan_to_num(values) > 0).any() for values in power]
    if not any(odd) or odd != dead:
        return blocks
    table.flag(
        "assumed", "GPUs of odd numbers are second dies, the power of both is that of the first"
    )
    return [block for block, is_second in zip(blocks, odd, strict=True) if not is_second]


def _refuse_doubles(place: str, blocks: Sequence[Block]) -> None:
    """Refuse two columns that say the same of one device: one of them has a wrong index or node."""
    sensors = pd.concat([block.sensors.assign(node=block.node) for block in blocks])
    same = ["node", "kind", "index", "quantity"]
    doubles = sensors[sensors.duplicated(same, keep=False)]
    if len(doubles):
        first = doubles.iloc[0]
        names = [shown(n) for n in doubles.loc[(doubles[same] == first[same]).all(axis=1), "name"]]
        raise InputError(
            f"{place}: {' and '.join(names[:2])} are both {first['quantity']} of {first['kind']} "
            f"{first['index']} of {first['node']}; give each its index or node"
        )
