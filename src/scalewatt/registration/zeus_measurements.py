"""Runs in the tables that Zeus publishes: found, described, and said if left out.

A row of `summary_power_<gpu>.csv` is a run of one epoch. Where `summary_train.csv` is named too, each
execution in it that reached the paper's target is a run with each power limit: the measured epoch's
time and energy, times the epochs that this execution needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from scalewatt.campaign.operating_points import id_suffix, point_of
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL, model_key
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.recordings.foreign_files import recording_name
from scalewatt.recordings.formats.format import listed
from scalewatt.recordings.published.zeus_summary import (
    EpochRow,
    TargetRow,
    Training,
    kept_text,
    read_epoch_rows,
    read_target_rows,
)
from scalewatt.registration.mlperf_lines import FoundRun, LeftOut
from scalewatt.registration.recording_discovery import Recorded, RecordedFile
from scalewatt.registration.run_descriptions import Description
from scalewatt.registration.zeus_trainings import GPU_NAMES, KnownTraining, known_training

_Row = TypeVar("_Row", EpochRow, TargetRow)
_POWER = "summary_power_*.csv"
_GPU = re.compile(r"summary_power_([a-z0-9][a-z0-9._-]{0,60})\.csv")
_TRAIN = "summary_train.csv"
SOURCE = "Zeus (NSDI 2023)"


@dataclass(frozen=True)
class _Table:
    """The epochs that were measured on one GPU."""

    path: Path
    sha256: str
    gpu: str
    rows: tuple[EpochRow, ...]

    def variant(self, training: Training) -> str | None:
        """Return the optimiser where the table has several for this training, else None."""
        same = (training.dataset, training.network)
        found = {
            one.training.optimizer
            for one in self.rows
            if (one.training.dataset, one.training.network) == same
        }
        return training.optimizer if len(found) > 1 else None


def is_measurements(path: Path) -> bool:
    """Return True if a path is a table of Zeus's, by its name, or a folder with tables of powers."""
    if path.is_dir():
        return any(path.glob(_POWER))
    return path.match(_POWER) or path.name == _TRAIN


def find_measurements(paths: Sequence[Path]) -> tuple[list[FoundRun], list[LeftOut]]:
    """Return the runs in the tables at `paths`, and what is left out.

    Runs of one epoch, or where a table of epochs to targets is named itself, runs to the target. Raises
    InputError for a file that is no such table, and where no run's power was measured.
    """
    files = [file for path in paths for file in _power_files(path)]
    trains = [path for path in paths if path.name == _TRAIN and not path.is_dir()]
    if not files:
        raise InputError(
            f"{paths[0]}: has no power; expected summary_power_<gpu>.csv, of the same trainings, with it"
        )
    left_out: list[LeftOut] = []
    runs: list[FoundRun] = []
    reached = {path: _reached(path, left_out) for path in trains}
    for file in files:
        table = _table(file, left_out)
        if trains:
            for path, rows in reached.items():
                runs += _to_target(table, path, rows, left_out)
        else:
            runs += [_run(table, row) for row in table.rows]
    return runs, left_out


def _power_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob(_POWER))
    return [path] if path.name != _TRAIN else []


def _table(path: Path, left_out: list[LeftOut]) -> _Table:
    """Return the rows of trainings that are known; note the others, and rows that stand there twice."""
    named = _GPU.fullmatch(path.name.lower())
    if named is None:
        raise InputError(
            f"{path}: its name tells no GPU; expected summary_power_<gpu>.csv, such as "
            "summary_power_v100.csv"
        )
    rows, refused = read_epoch_rows(path)
    left_out += [LeftOut(path, reason) for reason in refused]
    known = _each_once(_known(rows, left_out), left_out)
    known.sort(key=lambda row: (*vars(row.training).values(), row.power_limit_w))
    return _Table(path, file_sha256(path), named[1], tuple(known))


def _each_once(rows: Iterable[_Row], left_out: list[LeftOut]) -> list[_Row]:
    """Return the rows, without those that repeat another to the last digit; note these."""
    once: dict[str, _Row] = {}
    for row in rows:
        first = once.setdefault(kept_text(row), row)
        if first is not row:
            reason = f"{row.where}: is the same as {first.where}"
            left_out.append(LeftOut(Path(row.where), reason))
    return list(once.values())


def _known(rows: Iterable[EpochRow], left_out: list[LeftOut]) -> Iterator[EpochRow]:
    for row in rows:
        if known_training(row.training) is not None:
            yield row
        else:
            reason = (
                f"{row.where}: {row.training}: how many samples an epoch has is not known; "
                "expected one of the six trainings of Zeus's paper"
            )
            left_out.append(LeftOut(Path(row.where), reason))


def _reached(path: Path, left_out: list[LeftOut]) -> list[TargetRow]:
    """Return the executions that reached the target of the paper; note those that did not."""
    rows, refused = read_target_rows(path)
    left_out += [LeftOut(path, reason) for reason in refused]
    at_target = _each_once(filter(_is_target, rows), left_out)
    executions = Counter(one.training for one in at_target)
    never: dict[Training, list[str]] = {}
    for row in at_target:
        if row.epochs is None:
            never.setdefault(row.training, []).append(row.run)
    for training, those in never.items():
        known = known_training(training)
        assert known is not None
        reason = (
            f"{path}: {training}: {len(those)} of {executions[training]} executions (run "
            f"{listed(those)}) never reached {known.target:g} {known.metric_name}"
        )
        left_out.append(LeftOut(path, reason))
    return [one for one in at_target if one.epochs is not None]


def _is_target(row: TargetRow) -> bool:
    known = known_training(row.training)
    return known is not None and row.target == known.target


def _to_target(
    table: _Table, path: Path, reached: Sequence[TargetRow], left_out: list[LeftOut]
) -> Iterator[FoundRun]:
    by_training: dict[Training, list[TargetRow]] = {}
    for row in reached:
        by_training.setdefault(row.training, []).append(row)
    sha256 = file_sha256(path)
    for epoch in table.rows:
        for row in by_training.get(epoch.training, ()):
            yield _run(table, epoch, row, RecordedFile(path, sha256, 0, _train_name(table)))
    measured = {row.training for row in table.rows}
    for lacking, what in (
        (measured - set(by_training), "no execution that reached the target is known"),
        (set(by_training) - measured, f"its power on {table.gpu} was not measured"),
    ):
        reasons = (f"{table.path}: {trainings}: {what}" for trainings in _by_batch(lacking))
        left_out += [LeftOut(table.path, reason) for reason in reasons]


def _by_batch(trainings: Iterable[Training]) -> list[str]:
    """Return trainings in words, those that differ in the batch size alone together."""
    batches: dict[str, list[str]] = {}
    for one in sorted(trainings, key=lambda one: one.batch_size):
        words = f"{one.network} on {one.dataset}, {one.optimizer}"
        batches.setdefault(words, []).append(str(one.batch_size))
    return [f"{words}, batch {listed(own, 20)}" for words, own in sorted(batches.items())]


def _train_name(table: _Table) -> str:
    return f"segment-000.{table.gpu}.epochs.csv"


def _run(
    table: _Table,
    epoch: EpochRow,
    reached: TargetRow | None = None,
    train: RecordedFile | None = None,
) -> FoundRun:
    """Return a run of one epoch, or of the epochs until a target was reached."""
    known = known_training(epoch.training)
    assert known is not None
    entry = {
        "model": epoch.training.network.lower(),
        "device": table.gpu,
        **({"phase": known.phase} if known.phase else {}),
        "metric_name": known.metric_name,
        **({"seeds": "varied"} if reached else {}),
    }
    point = _point(table, epoch, known, to_target=reached is not None)
    samples = known.samples * ((reached.epochs if reached else None) or 1)
    given: dict[str, Any] = {
        "device_name": GPU_NAMES.get(table.gpu),
        "series": _series(entry, point),
        "label": _label(table, known, point),
        "metric_goal": known.metric_goal,
        "source": _source(table, epoch, reached),
    }
    if reached:
        given["metric_target"] = known.target
        given["updates"] = round(samples / epoch.training.batch_size)
    description = Description(
        where=epoch.where,
        path=table.path,
        entry=entry,
        point=point,
        constant="local_batch_size",
        samples=samples,
        metric=None,
        torch_device="cuda",
        events=None,
        given=given,
    )
    recorded = _recorded(table, epoch, reached, train)
    return FoundRun(description, recorded, 1, (), (SOURCE, table.gpu))


def _point(table: _Table, epoch: EpochRow, known: KnownTraining, to_target: bool) -> dict[str, Any]:
    variant = table.variant(epoch.training)
    return {
        "gpus": 1,
        "local_batch_size": epoch.training.batch_size,
        "dataset_samples": known.samples,
        "epochs": 1,
        **({"variant": variant} if variant else {}),
        **({"protocol": TARGET_PROTOCOL} if to_target else {}),
        "gpu_power_limit_w": epoch.power_limit_w,
    }


def _series(entry: dict[str, Any], point: dict[str, Any]) -> str:
    batch = f"lbs{point['local_batch_size']:04d}"
    parts = [model_key(entry), entry["device"], batch, point.get("variant")]
    return "-".join(filter(None, parts)) + id_suffix(point_of(point))


def _label(table: _Table, known: KnownTraining, point: dict[str, Any]) -> str:
    gpu = GPU_NAMES.get(table.gpu, table.gpu.upper()).removeprefix("NVIDIA ")
    batch, limit = f"LBS {point['local_batch_size']}", f"{point['gpu_power_limit_w']:g} W"
    return ", ".join(filter(None, (known.label, gpu, batch, point.get("variant"), limit)))


def _source(table: _Table, epoch: EpochRow, reached: TargetRow | None) -> str:
    """Return where a run is from; what comes before the last comma is the same of all repeats."""
    what = f"{SOURCE}, {table.gpu}, {epoch.training.network} on {epoch.training.dataset}"
    return f"{what}, run {reached.run}" if reached else what


def _recorded(
    table: _Table, epoch: EpochRow, reached: TargetRow | None, train: RecordedFile | None
) -> Recorded:
    kept = kept_text(epoch, reached) if reached else kept_text(epoch)
    target = recording_name(0, table.gpu)
    files = [RecordedFile(table.path, table.sha256, 0, target, kept=kept)]
    if train is not None and reached is not None:
        files.append(replace(train, kept=kept_text(reached)))
    return Recorded(tuple(files), ((table.gpu,),), {table.gpu: [0]}, ())
