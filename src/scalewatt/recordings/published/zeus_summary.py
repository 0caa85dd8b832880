"""The measurements that Zeus publishes: tables of results by configuration, without samples.

`summary_power_<gpu>.csv`: seconds of an epoch and the mean power in W of one GPU, by dataset, network,
batch size, optimiser and power limit (W). `summary_train.csv`: in which epoch a training's metric
first reached a target, by batch size, optimiser, learning rate and run; empty where it never did. One
row of the former, alone or joined with one of the latter, is what a registered run keeps.
Source: github.com/ml-energy/zeus, examples/research_reproducibility/zeus_nsdi23/trace (Apache-2.0).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.tabular_files import csv_rows
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import (
    TOTAL_ONLY,
    Format,
    Head,
    Options,
    node_of,
    number,
    total_series,
)
from scalewatt.recordings.series import EPOCHS_COMBINED, Recording, SensorSeries, by_node, flag

_Row = TypeVar("_Row", "EpochRow", "TargetRow")
_TRAINING = ("dataset", "network", "batch_size", "optimizer")
EPOCH_COLUMNS = (*_TRAINING, "power_limit", "time_per_epoch", "average_power")
_REACHED = ("learning_rate", "run", "target_metric", "target_epoch")
TARGET_COLUMNS = (*_TRAINING, *_REACHED)
_LARGEST = 10**9
_TABLES = (["dataset", "network", "batch_size"], ["network", "dataset", "batch_size"])
"""Beginnings of the headings of Zeus's tables."""
_LIMITS = {"power_limit": 1e4, "time_per_epoch": 1e9, "average_power": 1e4}
"""Above 0 and at most so many W or s: an epoch of longer, or a GPU of more, there is not."""


@dataclass(frozen=True)
class Training:
    """What was trained, as the tables name it."""

    dataset: str
    network: str
    batch_size: int
    optimizer: str

    def __str__(self) -> str:
        return f"{self.network} on {self.dataset}, batch {self.batch_size}, {self.optimizer}"


@dataclass(frozen=True)
class EpochRow:
    """One epoch as it was measured on one GPU."""

    where: str
    """File and line, for messages."""
    training: Training
    power_limit_w: float
    epoch_s: float
    power_w: float
    """Mean of the epoch."""
    cells: Mapping[str, str]
    """The row as it stands in the file."""

    @property
    def energy_j(self) -> float:
        """Return the GPU's energy in the epoch, in J."""
        return self.epoch_s * self.power_w


@dataclass(frozen=True)
class TargetRow:
    """When one execution of a training reached one target."""

    where: str
    training: Training
    learning_rate: str
    run: str
    target: float
    epochs: int | None
    """Until the target was reached; None if it never was."""
    cells: Mapping[str, str]


def read_epoch_rows(path: Path) -> tuple[list[EpochRow], list[str]]:
    """Return the rows of a `summary_power_<gpu>.csv`, and why others are none, each with its line.

    Raises InputError for a file that is no such table.
    """
    return _read(path, EPOCH_COLUMNS, epoch_row)


def read_target_rows(path: Path) -> tuple[list[TargetRow], list[str]]:
    """Return the rows of a `summary_train.csv`, and why others are none, each with its line.

    Raises InputError for a file that is no such table.
    """
    return _read(path, TARGET_COLUMNS, target_row)


def _read(
    path: Path, columns: Iterable[str], parse: Callable[[str, Mapping[str, str]], _Row]
) -> tuple[list[_Row], list[str]]:
    rows = csv_rows(path)
    missing = [name for name in columns if not rows or name not in rows[0][1]]
    if missing:
        raise InputError(
            f"{path}: lacks the columns {', '.join(missing)}, or has no row; expected {','.join(columns)}"
        )
    found, refused = [], []
    for where, cells in rows:
        try:
            found.append(parse(where, cells))
        except InputError as error:
            refused.append(str(error))
    return found, refused


def epoch_row(where: str, cells: Mapping[str, str]) -> EpochRow:
    """Return a row of measured epochs; InputError, with `where`, for a number that is none or too large."""
    limit_w, epoch_s, power_w = (
        _above_zero(where, cells, name, most) for name, most in _LIMITS.items()
    )
    kept = {name: cells[name] for name in EPOCH_COLUMNS}
    return EpochRow(where, _training(where, cells), limit_w, epoch_s, power_w, kept)


def target_row(where: str, cells: Mapping[str, str]) -> TargetRow:
    """Return a row of epochs to a target; InputError, with `where`, for a number that is none."""
    target = number(cells["target_metric"])
    if np.isnan(target):
        raise InputError(f"{where}: target_metric: {_said(cells, 'target_metric')}; expected one")
    never = cells["target_epoch"].lower() in ("", "nan")
    return TargetRow(
        where,
        _training(where, cells),
        learning_rate=printable(cells["learning_rate"]),
        run=printable(cells["run"]),
        target=target,
        epochs=None if never else _count(where, cells, "target_epoch"),
        cells={name: cells[name] for name in TARGET_COLUMNS},
    )


def _training(where: str, cells: Mapping[str, str]) -> Training:
    names = [printable(cells[name]) for name in ("dataset", "network", "optimizer")]
    if not all(re.fullmatch(r"[A-Za-z0-9._-]{1,60}", name) for name in names):
        raise InputError(f"{where}: dataset, network, optimizer: {names}; expected one word each")
    dataset, network, optimizer = names
    return Training(dataset, network, _count(where, cells, "batch_size"), optimizer)


def _count(where: str, cells: Mapping[str, str], name: str) -> int:
    found = number(cells[name])
    if not 1 <= found <= _LARGEST or found != int(found):
        raise InputError(f"{where}: {name}: {_said(cells, name)}; expected a count from 1")
    return int(found)


def _above_zero(where: str, cells: Mapping[str, str], name: str, most: float) -> float:
    found = number(cells[name])
    if not 0 < found <= most:
        raise InputError(
            f"{where}: {name}: {_said(cells, name)}; expected above 0, at most {most:g}"
        )
    return found


def _said(cells: Mapping[str, str], name: str) -> str:
    return printable(cells[name][:40]) or "empty"


def kept_text(*rows: EpochRow | TargetRow) -> str:
    """Return rows of one run as one row below one heading: what its run folder keeps of the tables."""
    cells = {name: cell for row in rows for name, cell in row.cells.items()}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(cells), list(cells.values())])
    return text.getvalue()


# --- one row as a recording ---------------------------------------------------------------------


def read_zeus_result(path: Path, options: Options) -> Recording:
    """Read one row as a total of one GPU, in J, of the row's epochs; InputError for a damaged one."""
    ((where, cells),) = csv_rows(path)
    missing = [name for name in EPOCH_COLUMNS if name not in cells]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}; expected {','.join(EPOCH_COLUMNS)}")
    row = epoch_row(where, cells)
    epochs = _count(where, cells, "target_epoch") if "target_epoch" in cells else 1
    flags = [flag(TOTAL_ONLY, "average_power", "average_power: the mean of one epoch")]
    if "target_epoch" in cells:
        detail = (
            f"one measured epoch, times the {epochs} that another execution of the training needed"
        )
        flags.append(flag(EPOCHS_COMBINED, "average_power", detail))
    total = SensorSeries(
        node=node_of(path, options),
        sensor="average_power",
        device_kind="gpu",
        device_index=0,
        quantity="counter",
        time_s=np.array([0.0, epochs * row.epoch_s]),
        values=np.array([0.0, epochs * row.energy_j]),
        flags=tuple(flags),
    )
    return Recording(
        nodes=by_node([total_series(total)]),
        t0_known=False,
        sampling_period_s=None,
        source=str(path),
    )


def _is_table(head: Head) -> bool:
    return bool(head.lines) and head.lines[0].split(",")[:3] in _TABLES


def _is_result(head: Head) -> bool:
    return _is_table(head) and len(head.lines) == 2 and "average_power" in head.lines[0]


def _refuse_table(path: Path, options: Options) -> Recording:
    raise InputError(
        f"{path}: is a table of results by configuration, as Zeus publishes; expected a recording of one "
        f"run (`scalewatt register NAME {path}` makes a run of each row)"
    )


RESULT = Format("zeus-result", _is_result, read_zeus_result)
TABLE = Format("zeus-table", _is_table, _refuse_table, records=False)
