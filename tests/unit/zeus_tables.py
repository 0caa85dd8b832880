"""Zeus's published tables, made up: the headings are the real ones."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

EPOCHS = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"
TARGETS = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"
SHUFFLENET = "cifar100,shufflenetv2"


def epoch(batch: int, limit_w: float, seconds: object, watts: object, training: str = "") -> str:
    """Return a row of an epoch, of ShuffleNetV2 on CIFAR-100 unless `training` says otherwise."""
    optimiser = "adadelta"
    return f"{training or SHUFFLENET},{batch},{optimiser},{limit_w},{seconds},{watts}"


def target(batch: int, run: int, epochs: object, metric: float = 0.6, training: str = "") -> str:
    """Return a row of an execution that needed `epochs` to reach `metric`."""
    return f"{training or SHUFFLENET},{batch},adadelta,1e-1,{run},{metric},{epochs}"


def write_table(path: Path, heading: str, rows: Iterable[str]) -> Path:
    """Write rows below a heading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([heading, *rows]) + "\n")
    return path


def write_part(path: Path, source: Path, **wanted: str) -> Path:
    """Write the rows of a table that have these cells."""
    with open(source, newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if all(row[key] == cell for key, cell in wanted.items())]
        names = reader.fieldnames or ()
    return write_table(path, ",".join(names), (",".join(row.values()) for row in rows))
