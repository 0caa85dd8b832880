"""Descriptions of runs by the user: a YAML file beside each, or rows of one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from scalewatt.campaign.campaign_types import PASS_KEYS, check_accumulation, check_replicas
from scalewatt.campaign.model_registry import Size, phases_of
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.registered_campaign import OTHER_PROTOCOL, TARGET_PROTOCOL, Point, Words
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.files import parse_json
from scalewatt.common.settings import (
    STRICT,
    Bounds,
    Count,
    EachOnce,
    Number,
    json_schema,
    matching,
    validated,
)
from scalewatt.common.tabular_files import csv_rows
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.tables import NO_OPTIONS, Options
from scalewatt.results.columns import METRIC_OF_MODEL
from scalewatt.results.text.number_format import count

_POINT_KEYS = ("gpus", *PASS_KEYS, "precision", "variant", *LEVERS)
_LONGEST = 10**20
_KEPT = ("series", "label", "lines", "repeat", "run", "round", "gpu_indices", "nodes", "window")
_SAID = ("device_name", "metric_goal")
Row = dict[str, Any]
Rows = list[tuple[str, Row]]
"""Descriptions, each with where it stands."""


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[
    str, matching(r"[a-z0-9][a-z0-9._-]*", "lower-case letters, digits, '.', '_', '-'")
]
Key = Annotated[str, matching(r"[a-z0-9][a-z0-9_]*", "lower-case letters, digits and '_'")]
FileName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, '.', '_' and '-'")
]
Gpus = Annotated[int, Field(ge=1, le=100_000)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=65_535)]], Field(min_length=1), EachOnce]
LARGEST_BATCH = 10**9
Batch = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]


@with_config(STRICT)
class RunWindow(TypedDict):
    """When a run lasted."""

    start_s: Number
    """Begin of the run in unix seconds."""
    end_s: Number
    """End of the run in unix seconds."""


@with_config(STRICT)
class RunDescription(TypedDict):
    """The description of one run that was made elsewhere."""

    path: NotRequired[Text]
    """Recording: a perun file, a journal, another tool's file, or a folder of them; relative to the file
    that says so. Only in tables."""
    model: Name
    """Name of the model: lower-case letters, digits, '.', '_' and '-'."""
    phase: NotRequired[Key]
    """Phase of the model in lower-case letters; of fourcastnet pretrain or finetune; without this key
    train."""
    device: Name
    """Name of the device in lower-case letters, such as a100."""
    device_name: NotRequired[str]
    """The hardware's own name for the device, shown in figures."""
    torch_device: NotRequired[Literal["cuda", "cpu"]]
    """Where the model computed; on cpu `gpus` counts processes. ROCm is cuda, as torch has it."""
    gpus: Gpus
    """GPUs that the run held, one rank each."""
    gpus_per_replica: NotRequired[Gpus]
    """GPUs that share one copy of the model (tensor, pipeline or context parallel): batch sizes count
    copies."""
    gradient_accumulation_steps: NotRequired[Size]
    """Passes whose gradients a copy of the model adds up for one update; batch sizes count an update."""
    nodes: NotRequired[Gpus]
    """Nodes of the run; by default the hosts in the recording."""
    gpu_indices: NotRequired[Indices | Annotated[dict[str, Indices], Field(min_length=1)]]
    """Indices of the GPUs that the run held: a list such as [0, 1] for every node, or one list per host
    name."""
    local_batch_size: NotRequired[Batch]
    """Samples per GPU and update; per replica where the model is split over several GPUs."""
    global_batch_size: NotRequired[Batch]
    """Samples per update over all GPUs."""
    dataset_samples: NotRequired[Count]
    """Samples in the training set; goes with epochs, but of a training to a target."""
    epochs: NotRequired[Size]
    """Passes over the training set; goes with dataset_samples."""
    samples: NotRequired[Annotated[int, Field(ge=1, le=10**15)]]
    """Samples trained on in the whole run, instead of dataset_samples and epochs; of a training to a
    target beside dataset_samples."""
    metric: NotRequired[Annotated[float, Bounds(ge=-1e100, le=1e100)]]
    """The quality metric after the last epoch."""
    metric_goal: NotRequired[Literal["min", "max"]]
    """Whether a smaller or a larger metric is better; without this key min."""
    metric_name: NotRequired[Key]
    """Name of the metric with its unit, in lower-case letters and '_', such as top1_error_percent."""
    label: NotRequired[Text]
    """The series' name in the legends."""
    series: NotRequired[FileName]
    """The line in the figures that the run belongs to: letters, digits, '.', '_' and '-'."""
    lines: NotRequired[Annotated[dict[str, Text], Field(min_length=1)]]
    """Further lines in the figures through the run's point: labels by name."""
    seeds: NotRequired[Literal["same", "varied"]]
    """same: the repeats of its series had one seed; varied: each had its own."""
    window: NotRequired[RunWindow]
    """When the run lasted: what was recorded outside of it is not of the run."""
    repeat: NotRequired[Annotated[int, Field(ge=1, le=10_000)]]
    """Which execution of its configuration, from 1; by default the next free one."""
    run: NotRequired[str]
    """Which run of a file that holds several: of perun, or a window or row of another tool's."""
    round: NotRequired[str]
    """Which round of that run, where there are several."""
    host: NotRequired[FileName]
    """Name of the node, where another tool's file has none; by default the file's own name."""
    time_zone: NotRequired[Text]
    """Zone of local times that name none in another tool's file, such as Europe/Berlin; by default this
    machine's."""
    columns: NotRequired[Text]
    """YAML file that says what the columns of a CSV are; relative to the file that says so."""
    events: NotRequired[Text]
    """Table of stages (Parquet, CSV or JSON): segment, stage, epoch, start_s, end_s in unix seconds."""
    precision: NotRequired[Words]
    """Precision of the training, such as fp32 or bf16: letters, digits, '.' and '_'."""
    variant: NotRequired[Words]
    """What else sets this configuration apart, in a word: letters, digits, '.' and '_'."""
    gpu_clock_mhz: NotRequired[Annotated[float, Bounds(gt=0, le=10_000)]]
    """Clock that the GPUs were set to, in MHz."""
    gpu_power_limit_w: NotRequired[Annotated[float, Bounds(gt=0, le=10_000)]]
    """Power limit that each GPU was set to, in W."""
    cpu_clock_mhz: NotRequired[Annotated[float, Bounds(gt=0, le=20_000)]]
    """Clock that the CPUs were set to, in MHz."""
    protocol: NotRequired[Literal["paper", "corrected", "target", "other"]]
    """paper: stage_data does not count, evaluation as in the paper; target: trained until the metric
    reached a target, so that repeats differ in samples; other (without this key): the training's own
    (docs/protocols.md)."""


@dataclass(frozen=True)
class Description:
    """One run as it is described; counts in samples."""

    where: str
    """File and row, for messages."""
    path: Path
    entry: dict[str, Any]
    """model, phase, device, metric_name, seeds: what describes its series."""
    point: Point
    """What describes its point in the series, without nodes."""
    constant: str
    """The batch size that was given: local_batch_size or global_batch_size."""
    samples: int | None
    """Trained on in the whole run; None if not known."""
    metric: float | None
    torch_device: str
    events: Path | None
    given: dict[str, Any]
    """The rest, as far as it was given."""
    options: Options = NO_OPTIONS
    """What another tool's file does not say of itself."""


def read_descriptions(paths: Iterable[Path], table: Path | None) -> list[Description]:
    """Read and check the descriptions of all runs.

    With a table and no paths: all its rows; with both: the rows of these paths, and for a path
    without a row the YAML file beside it. InputError names the file, the row and the key.
    """
    paths = list(paths)
    if not paths and table is None:
        raise InputError("nothing to register; allowed: paths of recordings, or --table TABLE")
    rows = [(w, table.parent, p, values) for w, p, values in _table_rows(table)] if table else []
    if not paths:
        return [_description(*row) for row in rows]
    known = {path.resolve() for path in paths}
    beside = {file for path in paths for file in _candidates(path) if file != path}
    found = [_description(*row) for row in rows if row[2].resolve() in known]
    described = {one.path.resolve() for one in found}
    for path in paths:
        # With `runs/*` a shell names the descriptions as well.
        if path.resolve() not in described and path not in beside:
            found += _beside(path)
    return found


def _candidates(path: Path) -> list[Path]:
    """Places of a path's description: beside it, so nowhere for `/`."""
    if path.name in ("", ".."):
        path = path.resolve()
    return [path.with_name(path.name + ".yaml"), path.with_suffix(".yaml")] if path.name else []


def _beside(path: Path) -> list[Description]:
    if not path.exists():
        raise InputError(f"{path}: does not exist; expected a perun file, a journal or a folder")
    file = next((c for c in _candidates(path) if c.is_file() and c != path), None)
    if file is None:
        names = " or ".join(dict.fromkeys(str(c) for c in _candidates(path) if c != path))
        allowed = f"{names}, or a row of --table" if names else "a row of --table"
        raise InputError(
            f"{path}: is not described; allowed: {allowed}; docs/register.md says what it holds"
        )
    content = read_yaml(file)
    rows = [(str(file), content)]
    if "runs" in content:
        rows = _shared_rows(content, file)
    for where, values in rows:
        if "path" in values:
            raise InputError(f"{where}: path: only in tables; this file describes {path}")
    return [_description(where, path.parent, path, values) for where, values in rows]


def _description(where: str, base: Path, path: Path, values: dict[str, Any]) -> Description:
    """Check one description; paths in it are relative to `base`."""
    values = {k: _as_text(v) if k in ("run", "round") else v for k, v in values.items()}
    validated(RunDescription, values, where)
    local, constant = _batch_size(values, where)
    check_accumulation(local, values.get("gradient_accumulation_steps", 1), where)
    dataset_samples, epochs, samples = _work(values, where)
    point = {
        **{key: values[key] for key in _POINT_KEYS if key in values},
        "local_batch_size": local,
        "dataset_samples": dataset_samples,
        "epochs": epochs,
    }
    if values.get("protocol", OTHER_PROTOCOL) != OTHER_PROTOCOL:
        point["protocol"] = values["protocol"]
    events = values.get("events")
    return Description(
        where=where,
        path=path,
        entry=_entry(values, where),
        point=point,
        constant=constant,
        samples=samples,
        metric=float(values["metric"]) if "metric" in values else None,
        torch_device=values.get("torch_device", "cuda"),
        events=base / events if events else None,
        given=_given(values, point, samples, where),
        options=Options(
            node=values.get("host"),
            time_zone=values.get("time_zone"),
            columns=base / values["columns"] if "columns" in values else None,
            run=values.get("run"),
        ),
    )


def _given(values: dict[str, Any], point: Point, samples: int | None, where: str) -> dict[str, Any]:
    given = {key: values[key] for key in (*_KEPT, *_SAID) if key in values}
    window = given.get("window")
    if window is not None and not window["start_s"] < window["end_s"]:
        raise InputError(f"{where}: window: {window}; allowed: an end_s after start_s")
    if samples != point["dataset_samples"] * point["epochs"]:
        replicas = point["gpus"] // point.get("gpus_per_replica", 1)
        batch = point["local_batch_size"] * replicas
        given["updates"] = None if samples is None else round(samples / batch)
    return given


def _as_text(value: Any) -> Any:
    """Turn perun's name of a run (a time) or round (a number) into text, which YAML reads as such."""
    if isinstance(value, date):
        return value.isoformat()
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number and abs(value) < _LONGEST else value


def _entry(values: dict[str, Any], where: str) -> dict[str, Any]:
    model = values["model"]
    phases, phase = phases_of(model), values.get("phase", "train")
    if phases and phase not in phases:
        raise InputError(f"{where}: phase: '{phase}' of {model}; {one_of(phase, phases)}")
    metric_name = values.get("metric_name", METRIC_OF_MODEL.get(model))
    if metric_name is None and "metric" in values:
        raise InputError(
            f"{where}: missing key 'metric_name', which says what the metric is; allowed: a name with "
            "its unit, such as top1_error_percent"
        )
    entry = {"model": model, "device": values["device"]}
    if phase != "train":
        entry["phase"] = phase
    if metric_name is not None:
        entry["metric_name"] = metric_name
    if "seeds" in values:
        entry["seeds"] = values["seeds"]
    return entry


def _batch_size(values: dict[str, Any], where: str) -> tuple[int, str]:
    """Local batch size, and which of the two was given."""
    per_replica = values.get("gpus_per_replica", 1)
    check_replicas(values["gpus"], per_replica, where)
    replicas = values["gpus"] // per_replica
    held = count(replicas, "GPU" if per_replica == 1 else "replica")
    local, total = values.get("local_batch_size"), values.get("global_batch_size")
    if local is None and total is None:
        raise InputError(
            f"{where}: no batch size given; allowed: local_batch_size (samples per GPU and update) or "
            "global_batch_size (over all GPUs)"
        )
    if total is None:
        if values["local_batch_size"] * replicas > LARGEST_BATCH:
            raise InputError(
                f"{where}: local_batch_size: {local} on {held} is too large; allowed: at most "
                f"{LARGEST_BATCH} samples per update over all GPUs"
            )
        return int(values["local_batch_size"]), "local_batch_size"
    if total % replicas:
        raise InputError(
            f"{where}: global_batch_size: {total} does not divide by {held}; "
            f"allowed: a multiple of {replicas}"
        )
    if local is not None and local * replicas != total:
        raise InputError(
            f"{where}: global_batch_size: {total} is not local_batch_size {local} on {held}; "
            f"allowed: {local * replicas}, or one of the two keys"
        )
    return total // replicas, "local_batch_size" if local is not None else "global_batch_size"


def _work(values: dict[str, Any], where: str) -> tuple[int, int, int | None]:
    """Samples of the training set, epochs, and samples trained on (None: not known).

    `samples` alone are one epoch. A training to a target has one epoch by convention.
    """
    given = [key for key in ("dataset_samples", "epochs", "samples") if key in values]
    if given == ["samples"]:
        return values["samples"], 1, values["samples"]
    if given == ["dataset_samples", "epochs"]:
        return values["dataset_samples"], values["epochs"], values[given[0]] * values["epochs"]
    to_target = values.get("protocol") == TARGET_PROTOCOL
    if to_target and "dataset_samples" in given and "epochs" not in given:
        return values["dataset_samples"], 1, values.get("samples")
    raise InputError(
        f"{where}: {' and '.join(given) or 'neither samples nor epochs'} given; allowed: "
        "dataset_samples and epochs, or samples (trained on in the whole run); of a training to a "
        "target dataset_samples, and samples where they are known"
    )


# --- tables of descriptions: CSV or YAML, one row per run -------------------------------------------


def _table_rows(table: Path) -> list[tuple[str, Path, Row]]:
    """Place of each row in the table, the recording that it describes, and its keys.

    InputError for a table that cannot be read, and for a row without a path.
    """
    if table.suffix not in (".csv", ".yaml", ".yml"):
        raise InputError(f"{table}: is not a table; allowed: .csv, .yaml")
    rows = []
    for where, row in _csv_rows(table) if table.suffix == ".csv" else _yaml_rows(table):
        path = row.get("path")
        if not isinstance(path, str) or not path:
            raise InputError(f"{where}: missing key 'path'; allowed: a recording's path")
        rows.append((where, table.parent / path, row))
    if not rows:
        raise InputError(f"{table}: has no row; expected one for each run")
    return rows


def _csv_rows(table: Path) -> Rows:
    """Rows without their empty cells, each value in the type of its key."""
    return [
        (f"{table}: line {line}", {key: _typed(key, cell) for key, cell in row.items() if cell})
        for line, row in csv_rows(table).items()
    ]


def _shared_rows(content: dict[str, Any], file: Path) -> Rows:
    """Runs listed in a YAML file under `runs`; the keys beside it hold for all of them."""
    runs = content["runs"]
    if not isinstance(runs, list) or not runs or not all(isinstance(r, dict) for r in runs):
        raise InputError(f"{file}: runs: expected a list of descriptions (keys and values)")
    shared = {key: value for key, value in content.items() if key != "runs"}
    return [(f"{file}: runs[{i}]", {**shared, **run}) for i, run in enumerate(runs)]


def _yaml_rows(table: Path) -> Rows:
    content = read_yaml(table)
    if "runs" not in content:
        raise InputError(f"{table}: missing key 'runs'; allowed: a list of descriptions with path")
    return _shared_rows(content, table)


def _typed(key: str, cell: str) -> Any:
    """A cell in the type of its key; text that does not fit is refused later."""
    properties = json_schema(RunDescription)["properties"]
    kind = properties[key].get("type") if key in properties else "string"
    if kind == "string":
        return cell
    try:
        value = parse_json(cell)
    except ValueError:
        return cell
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # a column of integers with empty cells is one of floats
    return value
