"""Descriptions of runs by the user: a YAML file beside each recording, or rows of one CSV table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from scalewatt.campaign.campaign_file import FileName
from scalewatt.campaign.campaign_types import PASS_KEYS, Configuration, check_divides
from scalewatt.campaign.model_registry import Size, model_key, phases_of
from scalewatt.campaign.operating_points import LEVERS, id_parts, point_of
from scalewatt.campaign.registered_campaign import DATASET, OTHER_PROTOCOL, TARGET_PROTOCOL
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.files import csv_rows, parse_json
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
from scalewatt.common.yaml_files import read_yaml
from scalewatt.energies.read import Reading
from scalewatt.recordings.journal import SENSORS, TELEMETRY
from scalewatt.results.columns import METRIC_OF_MODEL

Text = Annotated[str, Field(min_length=1)]
Words = Annotated[str, matching(r"[A-Za-z0-9._]{1,100}", "letters, digits, '.' and '_'")]
Name = Annotated[
    str, matching(r"[a-z0-9][a-z0-9._-]{0,99}", "lower-case letters, digits, '.', '_', '-'")
]
Key = Annotated[str, matching(r"[a-z0-9][a-z0-9_]{0,99}", "lower-case letters, digits and '_'")]
Gpus = Annotated[int, Field(ge=1, le=100_000)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=65_535)]], Field(min_length=1), EachOnce]
Batch = Annotated[int, Field(ge=1, le=10**9)]


class RunWindow(Settings):
    """When a run lasted, in unix seconds."""

    start_s: Number
    end_s: Number


class RunDescription(Settings):
    """The description of one run that was made elsewhere; docs/recordings.md says what the keys mean."""

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
    gpu_indices: Indices | None = None
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
    run: Text | None = None
    round: Annotated[str, BeforeValidator(str)] | None = None
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

    def configuration(self, nodes: int) -> Configuration:
        """Configuration of the run, with all that tells it apart in its id."""
        batch, work = f"n{self.gpus:03d}-lbs{self.batch:04d}", self._work
        on_nodes = [f"nodes{nodes}"] if nodes > 1 else []
        passes = {key: count for key in PASS_KEYS if (count := getattr(self, key)) > 1}
        return Configuration(
            id="-".join([self._key, self.device, batch, work, *on_nodes, *self._extras]),
            model=self.model,
            phase=self.phase,
            device=self.device,
            gpus=self.gpus,
            nodes=nodes,
            ranks_per_node=self.gpus // nodes,
            local_batch_size=self.batch,
            global_batch_size=self.batch * self.replicas,
            dataset=DATASET,
            dataset_fraction="1",
            dataset_samples=self.training_set,
            protocol=self.protocol,
            epochs=self.epochs or 1,
            seeds=self.seeds,
            settings={"precision": self.precision, "variant": self.variant, **passes},
            operating_point=self._operating_point,
        )

    @property
    def main_line(self) -> tuple[str, str]:
        """Name and label of the run's series: model, device, the batch size given, data and epochs."""
        is_local = self.local_batch_size is not None
        kind, size = ("L", self.batch) if is_local else ("G", self.batch * self.replicas)
        batch = f"{kind.lower()}bs{size:04d}"
        name = "-".join([self._key, self.device, batch, self._work, *self._extras])
        model = self.model if self.phase == "train" else f"{self.model} {self.phase}"
        label = ", ".join([model, self.device, f"{kind}BS {size}", *self._extras])
        return self.series or name, self.label or label

    @property
    def _key(self) -> str:
        return model_key(self.model, self.phase)

    @property
    def _work(self) -> str:
        """Samples of the training set and epochs, as ids show them."""
        target = self.protocol == TARGET_PROTOCOL
        return f"s{self.training_set:07d}-{'target' if target else f'e{self.epochs or 1:03d}'}"

    @property
    def _operating_point(self) -> dict[str, float] | None:
        return point_of(self.model_dump(include=set(LEVERS), exclude_none=True))

    @property
    def _extras(self) -> list[str]:
        """GPUs per replica, accumulation, precision, variant, protocol and levers, as ids show them."""
        passes = ((short, getattr(self, key)) for key, short in PASS_KEYS.items())
        is_shown = self.protocol not in (OTHER_PROTOCOL, TARGET_PROTOCOL)
        return [
            *(f"{short}{count}" for short, count in passes if count > 1),
            *filter(None, (self.precision, self.variant)),
            *([f"protocol{self.protocol}"] if is_shown else []),
            *id_parts(self._operating_point),
        ]


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
    def reading(self) -> Reading:
        """What the recording does not say of itself."""
        given = self.given
        return Reading(
            node=given.host,
            time_zone=given.time_zone,
            columns=self.folder / given.columns if given.columns else None,
            run=given.run,
            round=given.round,
            stages=self.folder / given.events if given.events else None,
        )


# --- checks ---------------------------------------------------------------------------------------


def describe(where: str, folder: Path, path: Path, values: dict[str, Any]) -> Description:
    """Check the description of the recording at `path`; InputError begins with `where`."""
    given: RunDescription = validated(RunDescription, values, where)
    check_divides("gpus_per_replica", given.gpus_per_replica, given.gpus, where)
    for problem in _contradictions(given):
        raise InputError(f"{where}: {problem}")
    steps = given.gradient_accumulation_steps
    check_divides("gradient_accumulation_steps", steps, given.batch, where)
    return Description(where, path, folder, given)


def _contradictions(given: RunDescription) -> Iterator[str]:
    """Yield what of a description does not fit together, or lacks."""
    phases = phases_of(given.model)
    if phases and given.phase not in phases:
        yield f"phase: '{given.phase}' of {given.model}; {one_of(given.phase, phases)}"
    if given.metric is not None and given.metric_key is None:
        yield "missing key 'metric_name'; expected a name with its unit, such as top1_error_percent"
    if given.window and given.window.start_s >= given.window.end_s:
        yield "window: ends before it starts; expected an end_s after start_s"
    if given.torch_device == "cpu" and given.gpu_indices is not None:
        yield "gpu_indices: given, but torch_device is cpu; expected one of them"

    local, total, replicas = given.local_batch_size, given.global_batch_size, given.replicas
    if local is None and total is None:
        yield "no batch size given; expected local_batch_size (of one GPU) or global_batch_size"
    if total is not None and (total % replicas or local not in (None, total // replicas)):
        expected = (
            f"a multiple of {replicas}" if local is None else f"{local * replicas}, or one key"
        )
        yield f"global_batch_size: {total}; expected {expected}"

    keys = ("dataset_samples", "epochs", "samples")
    names = [key for key in keys if getattr(given, key) is not None]
    allowed = [["dataset_samples", "epochs"], ["samples"]]
    if given.protocol == TARGET_PROTOCOL:  # has one epoch by convention
        allowed += [["dataset_samples"], ["dataset_samples", "samples"]]
    if names not in allowed:
        yield (
            f"{' and '.join(names) or 'neither samples nor epochs'} given; expected dataset_samples and "
            "epochs, or samples (trained on in the whole run); of a training to a target dataset_samples, "
            "and samples if they are known"
        )


# --- files ----------------------------------------------------------------------------------------


def read_descriptions(paths: Iterable[Path], table: Path | None) -> list[Description]:
    """Read and check the descriptions of all runs: rows of a table, or the YAML file beside each path.

    InputError names the file, the row and the key. In a table, an empty cell is a key not given.
    """
    paths, described = list(paths), []
    if bool(paths) is bool(table):
        raise InputError("expected either paths of recordings, or --table TABLE")
    for line, row in csv_rows(table).items() if table else ():
        where = f"{table}: line {line}"
        if not row.get("path"):
            raise InputError(f"{where}: missing key 'path'; expected a recording's path")
        values = {key: _typed(key, cell) for key, cell in row.items() if cell}
        folder = Path(str(table)).parent
        described.append(describe(where, folder, folder / row["path"], values))
    # With `runs/*` a shell names what stands beside recordings as well.
    for path in (path for path in paths if not path.name.endswith((".yaml", SENSORS, TELEMETRY))):
        file = path.parent / f"{path.name}.yaml"
        if missing := [each for each in (path, file) if not each.exists()]:
            raise InputError(
                f"{missing[0]}: does not exist; expected a recording and its description"
            )
        content = read_yaml(file)
        if "path" in content:
            raise InputError(f"{file}: path: only in tables; this file describes {path}")
        described.append(describe(str(file), path.parent, path, content))
    if not described:
        raise InputError(f"{table or paths[0]}: names no recording; expected one for each run")
    return described


def _typed(key: str, cell: str) -> Any:
    """A cell in the type of its key; text that does not fit is refused later."""
    schema = json_schema(RunDescription)["properties"].get(key, {"type": "string"})
    kinds = {kind.get("type") for kind in (schema, *schema.get("anyOf", ()))}
    try:
        value = cell if "string" in kinds else parse_json(cell)
    except ValueError:
        return cell
    # A column of integers with empty cells is one of floats.
    is_whole = "integer" in kinds and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value
