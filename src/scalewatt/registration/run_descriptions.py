"""Descriptions of runs by the user: a YAML file beside each recording, or rows of one table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from scalewatt.campaign.campaign_types import (
    PASS_KEYS,
    Configuration,
    check_accumulation,
    check_replicas,
)
from scalewatt.campaign.model_registry import Size, model_key, phases_of
from scalewatt.campaign.operating_points import LEVERS, id_parts, point_of
from scalewatt.campaign.registered_campaign import DATASET, OTHER_PROTOCOL, TARGET_PROTOCOL
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.files import parse_json
from scalewatt.common.settings import (
    Bounds,
    Count,
    EachOnce,
    Number,
    Settings,
    json_schema,
    matching,
    validated,
)
from scalewatt.common.tabular_files import csv_rows
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.tables import Options
from scalewatt.results.columns import METRIC_OF_MODEL

Text = Annotated[str, Field(min_length=1)]
Words = Annotated[str, matching(r"[A-Za-z0-9._]{1,100}", "letters, digits, '.' and '_'")]
Name = Annotated[
    str, matching(r"[a-z0-9][a-z0-9._-]{0,99}", "lower-case letters, digits, '.', '_', '-'")
]
Key = Annotated[str, matching(r"[a-z0-9][a-z0-9_]{0,99}", "lower-case letters, digits and '_'")]
FileName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", "letters, digits, '.', '_' and '-'")
]
Gpus = Annotated[int, Field(ge=1, le=100_000)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=65_535)]], Field(min_length=1), EachOnce]
LARGEST_BATCH = 10**9
Batch = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]


def _as_text(value: Any) -> str:
    """Text of perun's name of a run (a time) or round (a number), which YAML does not read as text."""
    return value.isoformat() if isinstance(value, date) else str(value)


class RunWindow(Settings):
    """When a run lasted, in unix seconds."""

    start_s: Number
    end_s: Number


class RunDescription(Settings):
    """The description of one run that was made elsewhere; docs/register.md says what the keys mean."""

    path: Text | None = None
    """Relative to the table; only in tables."""
    model: Name
    phase: Key = "train"
    device: Name
    device_name: str | None = None
    torch_device: Literal["cuda", "cpu"] = "cuda"
    """ROCm is cuda, as torch has it."""
    gpus: Gpus
    gpus_per_replica: Gpus = 1
    gradient_accumulation_steps: Size = 1
    nodes: Gpus | None = None
    gpu_indices: Indices | Annotated[dict[str, Indices], Field(min_length=1)] | None = None
    local_batch_size: Batch | None = None
    global_batch_size: Batch | None = None
    dataset_samples: Count | None = None
    epochs: Size | None = None
    samples: Annotated[int, Field(ge=1, le=10**15)] | None = None
    metric: Annotated[float, Bounds(ge=-1e100, le=1e100)] | None = None
    metric_goal: Literal["min", "max"] | None = None
    metric_name: Key | None = None
    label: Text | None = None
    series: FileName | None = None
    lines: dict[FileName, Text] = Field(default_factory=dict)
    seeds: Literal["same", "varied"] | None = None
    window: RunWindow | None = None
    run: Annotated[str, BeforeValidator(_as_text)] | None = None
    round: Annotated[str, BeforeValidator(_as_text)] | None = None
    host: FileName | None = None
    time_zone: Text | None = None
    columns: Text | None = None
    events: Text | None = None
    precision: Words | None = None
    variant: Words | None = None
    gpu_clock_mhz: Annotated[float, Bounds(ge=100, le=10_000)] | None = None
    gpu_power_limit_w: Annotated[float, Bounds(ge=10, le=10_000)] | None = None
    cpu_clock_mhz: Annotated[float, Bounds(ge=100, le=20_000)] | None = None
    protocol: Literal["paper", "corrected", "target", "other"] = "other"

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.gpus // self.gpus_per_replica

    @property
    def metric_key(self) -> str | None:
        """Name of the metric, of our models without being given."""
        return self.metric_name or METRIC_OF_MODEL.get(self.model)

    @property
    def batch(self) -> int:
        """Samples per copy of the model and update."""
        return self.local_batch_size or (self.global_batch_size or 0) // self.replicas

    @property
    def training_set(self) -> int:
        """Samples of the training set; `samples` alone are one epoch."""
        return self.dataset_samples or self.samples or 0

    @property
    def trained_samples(self) -> int | None:
        """Samples trained on in the whole run; None if not known."""
        return self.training_set * self.epochs if self.epochs else self.samples


@dataclass(frozen=True)
class Description:
    """A run as it is described."""

    where: str
    """File and row, for messages."""
    path: Path
    folder: Path
    """What paths in the description are relative to."""
    given: RunDescription

    @property
    def options(self) -> Options:
        """What another tool's file does not say of itself."""
        given = self.given
        columns = self.folder / given.columns if given.columns else None
        return Options(given.host, given.time_zone, columns, given.run)

    def configuration(self, nodes: int) -> Configuration:
        """Configuration of the run, with all that tells it apart in its id."""
        given = self.given
        return Configuration(
            id="-".join(
                [
                    *(model_key(given.model, given.phase), given.device),
                    f"n{given.gpus:03d}-lbs{given.batch:04d}",
                    self._work,
                    *([f"nodes{nodes}"] if nodes > 1 else []),
                    *self._extras,
                ]
            ),
            model=given.model,
            phase=given.phase,
            device=given.device,
            gpus=given.gpus,
            nodes=nodes,
            ranks_per_node=given.gpus // nodes,
            local_batch_size=given.batch,
            global_batch_size=given.batch * given.replicas,
            dataset=DATASET,
            dataset_fraction="1",
            dataset_samples=given.training_set,
            protocol=given.protocol,
            epochs=given.epochs or 1,
            seeds=given.seeds,
            settings={
                "precision": given.precision,
                "variant": given.variant,
                **{key: getattr(given, key) for key in PASS_KEYS if getattr(given, key) > 1},
            },
            operating_point=self._operating_point,
        )

    @property
    def series(self) -> str:
        """Name of the run's series: model, device, the batch size given, data, epochs."""
        batch = "{}bs{:04d}".format(*self._batch).lower()
        model = model_key(self.given.model, self.given.phase)
        return "-".join([model, self.given.device, batch, self._work, *self._extras])

    @property
    def label(self) -> str:
        """The series' name in the legends."""
        phase = [] if self.given.phase == "train" else [self.given.phase]
        model, batch = " ".join([self.given.model, *phase]), "{}BS {}".format(*self._batch)
        return self.given.label or ", ".join([model, self.given.device, batch, *self._extras])

    @property
    def _batch(self) -> tuple[str, int]:
        """The batch size that was given: local (L) or global (G)."""
        given = self.given
        is_local = given.local_batch_size is not None
        return ("L", given.batch) if is_local else ("G", given.batch * given.replicas)

    @property
    def _work(self) -> str:
        """Samples of the training set and epochs, as ids show them."""
        target = self.given.protocol == TARGET_PROTOCOL
        epochs = "target" if target else f"e{self.given.epochs or 1:03d}"
        return f"s{self.given.training_set:07d}-{epochs}"

    @property
    def _operating_point(self) -> dict[str, float] | None:
        given = self.given.model_dump(include=set(LEVERS), exclude_none=True)
        return point_of(given)

    @property
    def _extras(self) -> list[str]:
        """GPUs per replica, accumulation, precision, variant, protocol and levers, as ids show them."""
        given = self.given
        passes = ((short, getattr(given, key)) for key, short in PASS_KEYS.items())
        is_shown = given.protocol not in (OTHER_PROTOCOL, TARGET_PROTOCOL)
        return [
            *(f"{short}{count}" for short, count in passes if count > 1),
            *filter(None, (given.precision, given.variant)),
            *([f"protocol{given.protocol}"] if is_shown else []),
            *id_parts(self._operating_point),
        ]


# --- checks ---------------------------------------------------------------------------------------


def describe(where: str, folder: Path, path: Path, values: dict[str, Any]) -> Description:
    """Check the description of the recording at `path`; InputError begins with `where`."""
    given: RunDescription = validated(RunDescription, values, where)
    phases = phases_of(given.model)
    if phases and given.phase not in phases:
        raise InputError(
            f"{where}: phase: '{given.phase}' of {given.model}; {one_of(given.phase, phases)}"
        )
    if given.metric is not None and given.metric_key is None:
        raise InputError(
            f"{where}: missing key 'metric_name', which says what the metric is; allowed: a name with "
            "its unit, such as top1_error_percent"
        )
    low, high = _metric_range(given.metric_key or "")
    if given.metric is not None and not low <= given.metric <= high:
        expected = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
        raise InputError(
            f"{where}: metric is {given.metric:g}, but {given.metric_key} is {expected}; expected: a metric "
            "in that range"
        )
    if given.window and not given.window.start_s < given.window.end_s:
        raise InputError(f"{where}: window: ends before it starts; allowed: an end_s after start_s")
    check_replicas(given.gpus, given.gpus_per_replica, where)
    _check_batch_size(given, where)
    check_accumulation(given.batch, given.gradient_accumulation_steps, where)
    _check_work(given, where)
    return Description(where, path, folder, given)


def _metric_range(name: str) -> tuple[float, float]:
    """Least and largest value of a metric of this name; infinite where unknown."""
    words = name.split("_")
    if "percent" in words and re.search(r"accuracy|top\d", name):
        return 0.0, 100.0
    return (0.0 if {"rmse", "mse", "mae"} & {*words} else -math.inf), math.inf


def _check_batch_size(given: RunDescription, where: str) -> None:
    local, total, replicas = given.local_batch_size, given.global_batch_size, given.replicas
    if local is None and total is None:
        raise InputError(
            f"{where}: no batch size given; allowed: local_batch_size (samples per GPU and update) or "
            "global_batch_size (over all GPUs)"
        )
    if total is not None and (total % replicas or local not in (None, total // replicas)):
        allowed = (
            f"a multiple of {replicas}" if local is None else f"{local * replicas}, or one key"
        )
        raise InputError(f"{where}: global_batch_size: {total}; allowed: {allowed}")
    if given.batch * replicas > LARGEST_BATCH:
        raise InputError(
            f"{where}: local_batch_size: {given.batch} times {replicas}; allowed: at most {LARGEST_BATCH} "
            "samples per update"
        )


def _check_work(given: RunDescription, where: str) -> None:
    """Raise InputError unless the samples of the training set and the epochs follow."""
    keys = ("dataset_samples", "epochs", "samples")
    names = [key for key in keys if getattr(given, key) is not None]
    allowed = [["dataset_samples", "epochs"], ["samples"]]
    if given.protocol == TARGET_PROTOCOL:  # has one epoch by convention
        allowed += [["dataset_samples"], ["dataset_samples", "samples"]]
    if names not in allowed:
        raise InputError(
            f"{where}: {' and '.join(names) or 'neither samples nor epochs'} given; allowed: "
            "dataset_samples and epochs, or samples (trained on in the whole run); of a training to a "
            "target dataset_samples, and samples where they are known"
        )


# --- files ----------------------------------------------------------------------------------------


def read_descriptions(paths: Iterable[Path], table: Path | None) -> list[Description]:
    """Read and check the descriptions of all runs: rows of a table, or the YAML file beside each path.

    InputError names the file, the row and the key.
    """
    paths = list(paths)
    if bool(paths) is bool(table):
        raise InputError("expected either paths of recordings, or --table TABLE")
    if table:
        return _table_rows(table)
    # With `runs/*` a shell names the descriptions as well.
    descriptions = {file for path in paths for file in _candidates(path)}
    return [row for path in paths if path not in descriptions for row in _described_beside(path)]


def _candidates(path: Path) -> list[Path]:
    """Where the description of a recording may be: beside it."""
    names = (f"{path.name}.yaml", f"{path.stem}.yaml")
    return [path.parent / name for name in dict.fromkeys(names) if name != path.name]


def _described_beside(path: Path) -> list[Description]:
    if not path.exists():
        raise InputError(f"{path}: does not exist; expected a perun file, a journal or a folder")
    file = next(filter(Path.is_file, _candidates(path)), None)
    if file is None:
        allowed = " or ".join([*map(str, _candidates(path)), "a row of --table"])
        raise InputError(
            f"{path}: is not described; allowed: {allowed}; docs/register.md says what it holds"
        )
    content = read_yaml(file)
    rows = _shared_rows(content, file) if "runs" in content else {str(file): content}
    for where, values in rows.items():
        if "path" in values:
            raise InputError(f"{where}: path: only in tables; this file describes {path}")
    return [describe(where, path.parent, path, values) for where, values in rows.items()]


def _table_rows(table: Path) -> list[Description]:
    """Descriptions of a table, CSV or YAML, a row for each run."""
    if table.suffix not in (".csv", ".yaml", ".yml"):
        raise InputError(f"{table}: is not a table; allowed: .csv, .yaml")
    if table.suffix == ".csv":  # an empty cell is a key not given
        rows = {
            f"{table}: line {line}": {key: _typed(key, cell) for key, cell in row.items() if cell}
            for line, row in csv_rows(table).items()
        }
    else:
        rows = _shared_rows(read_yaml(table), table)
    if not rows:
        raise InputError(f"{table}: has no row; expected one for each run")
    for where, row in rows.items():
        if not isinstance(row.get("path"), str) or not row["path"]:
            raise InputError(f"{where}: missing key 'path'; allowed: a recording's path")
    return [describe(w, table.parent, table.parent / row["path"], row) for w, row in rows.items()]


def _shared_rows(content: dict[str, Any], file: Path) -> dict[str, dict[str, Any]]:
    """Runs listed in a YAML file under `runs`, by where they stand; the keys beside hold for all of them."""
    runs = content.get("runs")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise InputError(f"{file}: runs: expected a list of descriptions (keys and values)")
    shared = {key: value for key, value in content.items() if key != "runs"}
    return {f"{file}: runs[{i}]": {**shared, **run} for i, run in enumerate(runs)}


def _typed(key: str, cell: str) -> Any:
    """A cell in the type of its key; text that does not fit is refused later."""
    schema = json_schema(RunDescription)["properties"].get(key, {"type": "string"})
    kinds = {kind.get("type") for kind in (schema, *schema.get("anyOf", ()))}
    if "string" in kinds:
        return cell
    try:
        value = parse_json(cell)
    except ValueError:
        return cell
    # A column of integers with empty cells is one of floats.
    is_whole = "integer" in kinds and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value
