"""What checks look at: points in lines, runs, comparisons, traces, specs and provenance.

A line is a series with the points that have results. Its mode is one of

| mode | constant | dataset |
| --- | --- | --- |
| fd_lbs | LBS | fixed |
| fd_gbs_s, fd_gbs_l | GBS: the smallest of the model, phase and device; any larger | fixed |
| sd_lbs, sd_gbs_s, sd_gbs_l | likewise | scaled with n |
| other | neither (registered runs only) | any |
| probe | epochs fewer than the model's other series have: repeats for their spread | |

and `fd_gbs`, `fd`, `sd` in a question mean all that begin so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.claims.reference_tables import NotTestable
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.published import FULL_SAMPLES
from scalewatt.results.tables.published import GPUS_PER_NODE as PAPER_GPUS_PER_NODE
from scalewatt.results.tables.published_spread import Spread, pooled
from scalewatt.results.tables.repeat_statistics import Summary, summary_of
from scalewatt.results.tables.table_schema import QUANTITIES, RUNS

PAPER_DEVICES = ("a100", "h100")
EPOCHS = {"train": 100, "pretrain": 80, "finetune": 50}
"""The paper's, by phase; PRECISION by model."""
PRECISION = {"resnet50": "torch_default", "fourcastnet": "fp16"}
RUN_COLUMNS = [
    *("configuration", "repeat", "model", "phase", "device", "gpus", "nodes"),
    *("gpus_per_replica", "local_batch_size", "global_batch_size", "dataset_samples", "epochs"),
    *("protocol", "updates", "samples"),
    *("runtime_h", "gpu_hours", "p_gpuh_kw", "energy_origin", "energy_scope", "energy_kwh"),
    *("gpu_energy_kwh", "cpu_energy_kwh", "ram_energy_kwh"),
    *("mean_gpu_power_w", "mean_cpu_socket_power_w", "mean_ram_power_w"),
]
"""Columns of the table `runs` that rules look at."""

Row = Mapping[str, Any]


# --- quantities, and what their spread is pooled over -------------------------------------------------


def is_of_energy(name: str) -> bool:
    """Whether a quantity is an energy, or follows from one."""
    return any(part in name for part in ("energy", "power", "p_gpuh", "carbon", "cost"))


def is_of_power(name: str) -> bool:
    """Whether a quantity is a power, or a ratio of energies, which rated powers alone can make."""
    return is_of_energy(name) and any(part in name for part in ("power", "p_gpuh", "share"))


def is_metric(name: str) -> bool:
    """Whether a quantity is an error of the trained model, of which no spread was published."""
    return name.startswith("metric_")


Key = tuple[str | None, ...]
"""A quantity, model and phase, and what its values share: of an energy the origin, of a metric its name."""


def key_of(row: Row, name: str) -> Key:
    """Key of what a quantity's spread is pooled over, as other trainings scatter otherwise."""
    training = name, row["model"], row["phase"]
    if is_metric(name):
        return *training, row["metric_name"]
    return *training, row["energy_origin"] if is_of_energy(name) else None


def pooled_spreads(points: Iterable[Point]) -> dict[Key, Spread]:
    """Spread of each quantity over points with repeats; of an error only over repeats with varied seeds."""
    repeats: dict[Key, list[Summary]] = {}
    for point in points:
        for name in QUANTITIES:
            if point.varies_seeds or not is_metric(name):
                repeats.setdefault(key_of(point.row, name), []).append(point.stat(name))
    spreads = {key: pooled(summaries) for key, summaries in repeats.items()}
    return {key: spread for key, spread in spreads.items() if spread is not None}


# --- points and lines ---------------------------------------------------------------------------------


def _column(name: str) -> Any:
    """A property: a column of the point's row."""
    return property(lambda point: point.row[name])


@dataclass(frozen=True)
class Point:
    """A configuration with results: its row of the table `configurations`."""

    row: Row
    modes: tuple[str, ...] = ()
    dataset_total: int | None = None
    """Samples of the whole dataset; null if the campaign does not say."""
    chance: float | None = None
    """Error in percent from which a classifier is no better than chance; null of other models."""
    spreads: Mapping[Key, Spread] = field(default_factory=dict)
    """What the campaign's repeats say of single runs."""
    varies_seeds: bool = False
    """True if each repeat has a seed of its own."""

    id = _column("configuration")
    model = _column("model")
    phase = _column("phase")
    device = _column("device")
    gpus = _column("gpus")
    nodes = _column("nodes")
    lbs = _column("local_batch_size")
    gbs = _column("global_batch_size")
    samples = _column("dataset_samples")
    """Samples of the training set; null if unknown."""
    epochs = _column("epochs")
    n_repeats = _column("n_repeats")
    """Number of runs that the means are of."""
    origin = _column("energy_origin")
    """Measured, estimated, simulated or published; null without energy."""
    scope = _column("energy_scope")
    """Device kinds in the total energy, such as gpu+cpu+ram."""

    def stat(self, name: str) -> Summary:
        """A quantity of `table_schema.QUANTITIES` over the repeats; its mean is null if unknown."""
        return summary_of(self.row, name)

    def spread(self, name: str) -> Spread | None:
        """Spread of a single run, over the campaign's repeats; null if these do not tell it."""
        return self.spreads.get(key_of(self.row, name))

    def mean(self, name: str) -> float | None:
        """Mean of a quantity."""
        return self.stat(name).mean

    @property
    def is_full_size(self) -> bool:
        """Whether it was trained on the paper's dataset, or on a part of that."""
        return self.dataset_total == FULL_SAMPLES.get(self.model, -1)


@dataclass(frozen=True)
class Line:
    """A series and its points that have results, by ascending n."""

    name: str
    label: str
    model: str
    phase: str
    device: str
    mode: str
    constant: int | None
    """The LBS or GBS that is constant along it."""
    points: tuple[Point, ...] = ()
    planned: tuple[int, ...] = ()
    """GPU counts of all its points, with results or without."""
    alike: bool = False
    """True if another series has the same `key`."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Model, phase, device, mode and batch size."""
        return self.model, self.phase, self.device, self.mode, self.constant

    @property
    def title(self) -> str:
        """The line in words; with its name if others have the same."""
        phase = "" if self.phase == "train" else f" {self.phase}"
        words = f"{self.model}{phase} {self.device} {self.mode} {self.constant or ''}".strip()
        return f"{words} ({self.name})" if self.alike else words

    def is_of(
        self,
        model: str | None = None,
        phase: str | None = None,
        device: str | None = None,
        mode: str | None = None,
        constant: int | None = None,
    ) -> bool:
        """Whether this description fits; empty is any, and `mode` may be a beginning (fd, fd_gbs, …)."""
        return (
            (not model or model == self.model)
            and (not phase or phase == self.phase)
            and (not device or device == self.device)
            and (not mode or mode == self.mode or self.mode.startswith(f"{mode}_"))
            and constant in (None, self.constant)
        )

    def point_at(self, gpus: int) -> Point | None:
        """The point at this GPU count, if it has results."""
        return next((point for point in self.points if point.gpus == gpus), None)

    def having(self, *names: str, at_least: int = 0) -> tuple[Point, ...]:
        """Points with n ≥ `at_least` whose quantities of these names are known."""
        return tuple(
            point
            for point in self.points
            if point.gpus >= at_least and all(point.mean(name) is not None for name in names)
        )


@dataclass(frozen=True)
class Trace:
    """One panel of figure 5: power of one GPU against time."""

    row: Row
    """The panel's first row of figure 5's table: configuration, device, gpus, batch sizes, means …"""
    time_s: tuple[float, ...]
    power_w: tuple[float | None, ...]


def no_runs() -> pd.DataFrame:
    """An empty table of runs."""
    return frame_of([], RUNS)[RUN_COLUMNS]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that checks look at."""

    source: str
    """The campaign's name, or `published` for the paper's own numbers."""
    published: bool = False
    points: tuple[Point, ...] = ()
    lines: tuple[Line, ...] = ()
    runs: pd.DataFrame = field(default_factory=no_runs)
    """RUN_COLUMNS of the table `runs` without the excluded ones; empty for the published results."""
    traces: tuple[Trace, ...] = ()
    trace_metadata: Mapping[Any, Any] = field(default_factory=dict)
    """What figure 5's table says of itself."""
    specs: Mapping[str, RunSpec] = field(default_factory=dict)
    """spec.json's content of each configuration that the campaign defines, finished or not."""
    provenance: Mapping[tuple[str, int], Row] = field(default_factory=dict)
    """provenance.json's content of each finished run (configuration, repeat)."""
    campaign: Campaign | None = None
    table_metadata: Mapping[Any, Any] = field(default_factory=dict)
    """What the table of configurations says of itself: missing, excluded, …"""

    def changed(self, change: Callable[[Point], Point]) -> Evidence:
        """The evidence with every point changed."""
        lines = tuple(replace(ln, points=tuple(map(change, ln.points))) for ln in self.lines)
        return replace(self, lines=lines, points=tuple(map(change, self.points)))

    def find(self, *description: Any, **named: Any) -> tuple[Line, ...]:
        """Lines with results that fit a description: the arguments of `Line.is_of`."""
        fitting = (line for line in self.lines if line.is_of(*description, **named))
        return tuple(line for line in fitting if line.points)

    def line(
        self, model: str, phase: str, device: str, mode: str, constant: int | None = None
    ) -> Line:
        """The line of this description; NotTestable if none has results.

        Of several that with the most points as the paper trained, then with the most points.
        """
        lines = self.find(model, phase, device, mode, constant)
        if not lines:
            batch = "" if constant is None else f" {constant}"
            others = sorted({f"{line.device} {line.mode}" for line in self.find(model)})
            raise NotTestable(
                f"No finished run of {model} {phase} on {device} in mode {mode}{batch}; there are "
                f"{', '.join(others) or f'none of {model}'}."
            )
        return max(lines, key=_closeness)

    def series(
        self,
        model: str | None = None,
        phase: str | None = None,
        device: str | None = None,
        mode: str | None = None,
        least: int = 2,
    ) -> tuple[Line, ...]:
        """Lines of this description with `least` planned points; of those alike the one of `line`."""
        alike: dict[tuple[Any, ...], list[Line]] = {}
        for line in self.find(model, phase, device, mode):
            if len(line.planned) >= least:
                alike.setdefault(line.key, []).append(line)
        return tuple(max(lines, key=_closeness) for lines in alike.values())

    def anywhere(self, model: str, phase: str, device: str, mode: str) -> tuple[Line, ...]:
        """For a portable claim, the line on its own device, else one of each other device.

        NotTestable if no device has such a line.
        """
        others = sorted({line.device for line in self.find(model, phase, None, mode)} - {device})
        if self.find(model, phase, device, mode) or not others:
            return (self.line(model, phase, device, mode),)
        return tuple(self.line(model, phase, other, mode) for other in others)

    def gpus_per_node(self, device: str) -> int:
        """GPUs of a node: the paper's on its devices, else the most that one node held."""
        if device in PAPER_DEVICES:
            return PAPER_GPUS_PER_NODE
        per_node = (p.gpus // p.nodes for p in self.points if p.device == device and p.nodes)
        return max(per_node, default=1)


def unlike_paper(point: Point, epochs: int | None = None) -> tuple[str, ...]:
    """What keeps a training's numbers from being compared with the paper's; empty: nothing.

    `epochs`: how many are wanted, by default the paper's of the phase.
    """
    row, differences = point.row, []
    epochs = EPOCHS.get(point.phase) if epochs is None else epochs
    precision = PRECISION.get(point.model)
    if not point.is_full_size:
        samples = point.dataset_total or "unknown"
        differences.append(f"dataset of {samples} samples, not the paper's")
    if point.epochs != epochs:
        differences.append(f"{point.epochs} epochs, not {epochs}")
    if row["protocol"] != "paper":
        differences.append(f"protocol {row['protocol'] or 'unknown'}, not paper")
    if row["precision"] != precision:
        differences.append(f"precision {row['precision'] or 'unknown'}, not {precision}")
    if row["loader"] == "synthetic":
        differences.append("synthetic data")
    differences += [name for name in ("channels_last", "compile", *LEVERS) if row[name]]
    return tuple(differences)


def _closeness(line: Line) -> tuple[int, int]:
    return sum(not unlike_paper(point) for point in line.points), len(line.points)
