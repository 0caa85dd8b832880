"""What the user says of each run: a YAML file beside it, or rows of one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from scalewatt.campaign.model_registry import PHASES
from scalewatt.campaign.registered_campaign import OTHER_PROTOCOL, Point
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, one_of, read_yaml, schema
from scalewatt.registration.description_tables import shared_rows, table_rows
from scalewatt.results.tables.read_table import check_metric
from scalewatt.results.text.metric_labels import METRIC_OF_MODEL

_POINT_KEYS = ("gpus", "precision", "variant")
_LONGEST = 10**20
_KEPT = ("series", "label", "repeat", "run", "round", "gpu_indices", "nodes", "device_name")


@dataclass(frozen=True)
class Description:
    """One run, as its description says; counts in samples."""

    where: str
    """File and row, for messages."""
    path: Path
    entry: dict[str, Any]
    """model, phase, device, metric_name: what its series says."""
    point: Point
    """What its point in the series says, without nodes."""
    constant: str
    """The batch size that was given: local_batch_size or global_batch_size."""
    samples: int
    """Trained on in the whole run."""
    metric: float | None
    torch_device: str
    events: Path | None
    given: dict[str, Any]
    """The rest, as far as it was given."""


def read_descriptions(paths: Iterable[Path], table: Path | None) -> list[Description]:
    """The descriptions of all runs, checked.

    With a table and no paths: all its rows; with both: the rows of these paths, and for a path
    without a row the YAML file beside it. InputError names the file, the row and the key.
    """
    paths = list(paths)
    if not paths and table is None:
        raise InputError("nothing to register; allowed: paths of recordings, or --table TABLE")
    rows = [(w, table.parent, p, values) for w, p, values in table_rows(table)] if table else []
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
    """Where a path's description may lie: beside it, so nowhere for `/`."""
    if path.name in ("", ".."):
        path = path.resolve()
    return [path.with_name(path.name + ".yaml"), path.with_suffix(".yaml")] if path.name else []


def _beside(path: Path) -> list[Description]:
    if not path.exists():
        raise InputError(f"{path}: does not exist; expected a perun file, a journal or a folder")
    file = next((c for c in _candidates(path) if c.is_file() and c != path), None)
    if file is None:
        names = " or ".join(str(c) for c in _candidates(path) if c != path)
        allowed = f"{names}, or a row of --table" if names else "a row of --table"
        raise InputError(f"{path}: is not described; allowed: {allowed}")
    content = read_yaml(file)
    rows = [(str(file), content)]
    if "runs" in content:
        rows = shared_rows(content, file)
    for where, values in rows:
        if "path" in values:
            raise InputError(f"{where}: path: only in tables; this file describes {path}")
    return [_description(where, path.parent, path, values) for where, values in rows]


def _description(where: str, base: Path, path: Path, values: dict[str, Any]) -> Description:
    """Check one description; paths in it are relative to `base`."""
    values = {k: _as_text(v) if k in ("run", "round") else v for k, v in values.items()}
    root = schema("registration")
    check(values, root, where, root)
    local, constant = _batch_size(values, where)
    dataset_samples, epochs = _work(values, where)
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
        samples=dataset_samples * epochs,
        metric=float(values["metric"]) if "metric" in values else None,
        torch_device=values.get("torch_device", "cuda"),
        events=base / events if events else None,
        given={key: values[key] for key in _KEPT if key in values},
    )


def _as_text(value: Any) -> Any:
    """perun calls runs by their time and rounds by a number, which YAML takes for such."""
    if isinstance(value, date):
        return value.isoformat()
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number and abs(value) < _LONGEST else value


def _entry(values: dict[str, Any], where: str) -> dict[str, Any]:
    model = values["model"]
    phases = PHASES.get(model)
    phase = values.get("phase", "train")
    if phases and phase not in phases:
        raise InputError(f"{where}: phase: '{phase}' of {model}; {one_of(phase, phases)}")
    metric_name = values.get("metric_name", METRIC_OF_MODEL.get(model))
    if metric_name is None and "metric" in values:
        raise InputError(
            f"{where}: missing key 'metric_name', which says what the metric is; allowed: a name with "
            "its unit, such as top1_error_percent"
        )
    check_metric(f"{where}: metric", values.get("metric"), metric_name or "")
    entry = {"model": model, "device": values["device"]}
    if phase != "train":
        entry["phase"] = phase
    if metric_name is not None:
        entry["metric_name"] = metric_name
    return entry


def _batch_size(values: dict[str, Any], where: str) -> tuple[int, str]:
    """The local batch size, and which of the two was given."""
    gpus = values["gpus"]
    local, total = values.get("local_batch_size"), values.get("global_batch_size")
    if local is None and total is None:
        raise InputError(
            f"{where}: no batch size given; allowed: local_batch_size (samples per GPU and update) or "
            "global_batch_size (over all GPUs)"
        )
    if total is None:
        largest = schema("registration")["properties"]["global_batch_size"]["maximum"]
        if values["local_batch_size"] * gpus > largest:
            raise InputError(
                f"{where}: local_batch_size: {local} on {gpus} GPUs is too large; allowed: at most "
                f"{largest} samples per update over all GPUs"
            )
        return int(values["local_batch_size"]), "local_batch_size"
    if total % gpus:
        raise InputError(
            f"{where}: global_batch_size: {total} does not divide by {gpus} GPUs; "
            f"allowed: a multiple of {gpus}"
        )
    if local is not None and local * gpus != total:
        raise InputError(
            f"{where}: global_batch_size: {total} is not local_batch_size {local} on {gpus} GPUs; "
            f"allowed: {local * gpus}, or one of the two keys"
        )
    return total // gpus, "local_batch_size" if local is not None else "global_batch_size"


def _work(values: dict[str, Any], where: str) -> tuple[int, int]:
    """Samples of the training set, and epochs; `samples` alone are one epoch."""
    given = [key for key in ("dataset_samples", "epochs", "samples") if key in values]
    if given == ["samples"]:
        return values["samples"], 1
    if given != ["dataset_samples", "epochs"]:
        raise InputError(
            f"{where}: {' and '.join(given) or 'neither samples nor epochs'} given; allowed: "
            "dataset_samples and epochs, or samples (trained on in the whole run)"
        )
    return values["dataset_samples"], values["epochs"]
