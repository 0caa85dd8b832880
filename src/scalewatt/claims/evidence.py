"""What checks look at: a frame of points and the series they are in, runs, traces, specs, provenance.

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

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import VARIED, Campaign, Configuration
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.claims.reference_tables import NotTestable
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.figures.figure_schema import POWER
from scalewatt.results.tables.frames import PUBLISHED, RUN_KEY, frame_of, read_frame, records
from scalewatt.results.tables.published import FULL_SAMPLES, published_configurations
from scalewatt.results.tables.published import GPUS_PER_NODE as PAPER_GPUS_PER_NODE
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import CONFIGURATIONS, ESTIMATE_BOUNDS, RUNS

PAPER_DEVICES = ("a100", "h100")
EPOCHS = {"train": 100, "pretrain": 80, "finetune": 50}
"""The paper's, by phase; PRECISION by model."""
PROBE_EPOCHS = 20
PRECISION = {"resnet50": "torch_default", "fourcastnet": "fp16"}
QUANTITIES = {
    "runtime_h": "run time",
    "gpu_hours": "GPU hours",
    "energy_kwh": "energy",
    "gpu_energy_kwh": "GPU energy",
    "cpu_energy_kwh": "CPU energy",
    "ram_energy_kwh": "RAM energy",
    "gpu_energy_share": "share of GPU energy",
    "cpu_energy_share": "share of CPU energy",
    "ram_energy_share": "share of RAM energy",
    "p_gpuh_kw": "energy per GPU hour",
    "mean_gpu_power_w": "mean GPU power",
    "mean_cpu_socket_power_w": "mean power of a CPU socket",
    "samples_per_gpuh": "samples per GPU hour",
    "passes_per_gpuh": "passes per GPU hour",
    "metric_last": "quality metric",
}
"""What claims are about, and what it is called in a sentence."""
_NUMBERS = [f"{name}_{part}" for name in QUANTITIES for part in ("mean", "sd")]
COLUMNS = [
    *("campaign", "configuration", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "protocol"),
    *("precision", "loader", "channels_last", "compile", *LEVERS, "energy_origin"),
    *("energy_scope", "metric_name", "n_repeats", *ESTIMATE_BOUNDS, *_NUMBERS),
]
"""Columns of the table of configurations that a point has."""
SERIES = ["model", "phase", "device", "mode", "constant", "ids", "title"]

Row = Mapping[str, Any]
Points = pd.DataFrame
"""Points by configuration, whose quantities are columns `<name>_mean`, NaN if unknown."""


# --- quantities, and what their spread is pooled over -------------------------------------------------


def is_of_energy(name: str) -> bool:
    """Whether a quantity is an energy, or follows from one."""
    return any(part in name for part in ("energy", "power", "p_gpuh"))


def is_of_power(name: str) -> bool:
    """Whether a quantity is a power, or a ratio of energies, which rated powers alone can make."""
    return any(part in name for part in ("power", "p_gpuh", "share"))


def is_metric(name: str) -> bool:
    """Whether a quantity is an error of the trained model, of which no spread was published."""
    return name.startswith("metric_")


def prepared(points: Points, is_pooled: bool = True) -> Points:
    """Points with what differs from the paper's training (`unlike`), and the spread of single runs.

    This is the relative one (`_pool`) that the campaign's repeats of the same model and phase tell, and its
    degrees of freedom (`_pool_df`), for each quantity; NaN if they do not tell it, or not `is_pooled`.
    """
    points = points.astype(dict.fromkeys([*_NUMBERS, *ESTIMATE_BOUNDS, "chance"], float))
    columns: dict[str, Any] = {"unlike": [_unlike(point) for point in points.itertuples()]}
    for name in QUANTITIES:
        columns |= _pooled(points, name, is_pooled)
    kept = points.drop(columns=list(columns), errors="ignore")
    return pd.concat([kept, pd.DataFrame(columns, index=points.index)], axis=1).copy()


def _pooled(points: Points, name: str, is_pooled: bool) -> dict[str, pd.Series]:
    """Spread over repeats of the same origin of an energy; of an error over those with varied seeds alone."""
    keys = ["model", "phase"]
    keys += ["metric_name"] * is_metric(name) + ["energy_origin"] * is_of_energy(name)
    mean, sd = points[f"{name}_mean"], points[f"{name}_sd"]
    counts = (points["n_repeats"] > 1) & mean.ne(0) & mean.notna() & sd.notna() & is_pooled
    if is_metric(name):
        counts &= points["varies_seeds"]
    freedom = (points["n_repeats"] - 1).where(counts, 0).astype(float)
    squares = (freedom * (sd / mean) ** 2).where(counts, 0.0)
    groups = [points[key] for key in keys]
    freedom, squares = (
        s.groupby(groups, dropna=False).transform("sum") for s in (freedom, squares)
    )
    # Repeats that are all equal share their seed: they do not tell what another run would give.
    relative = np.sqrt((squares / freedom).where(squares > 0))
    return {f"{name}_pool": relative, f"{name}_pool_df": freedom}


def _unlike(point: Any) -> str:
    """What keeps a training's numbers from being compared with the paper's; empty: nothing."""
    epochs = PROBE_EPOCHS if point.is_probe else EPOCHS.get(point.phase)
    precision = PRECISION.get(point.model)
    is_full_size = point.dataset_total == FULL_SAMPLES.get(point.model, -1)
    differences = {
        f"dataset of {point.dataset_total or 'unknown'} samples, not the paper's": not is_full_size,
        f"{point.epochs} epochs, not {epochs}": point.epochs != epochs,
        f"protocol {point.protocol or 'unknown'}, not paper": point.protocol != "paper",
        f"precision {point.precision or 'unknown'}, not {precision}": point.precision != precision,
        "synthetic data": point.loader == "synthetic",
    }
    for name in ("channels_last", "compile", *LEVERS):
        value = getattr(point, name)
        differences[name] = not pd.isna(value) and bool(value)
    return ", ".join(text for text, differs in differences.items() if differs)


# --- lines, and all that there is ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Line:
    """A series, or another group of points, with its points that have results, by ascending n."""

    title: str
    model: str
    phase: str
    device: str
    points: Points
    node: int
    """GPUs of a node of the device."""
    is_published: bool
    mode: str = ""
    constant: int | None = None
    """The LBS or GBS that is constant along it."""
    ids: Mapping[int, str] = field(default_factory=dict)
    """Configurations of all its points by n, with results or without."""

    @property
    def closeness(self) -> tuple[int, int]:
        """Number of points that were trained as in the paper, and of all."""
        return int((self.points["unlike"] == "").sum()), len(self.points)

    def is_of(
        self,
        model: str | None = None,
        phase: str | None = None,
        device: str | None = None,
        mode: str | None = None,
        constant: int | None = None,
    ) -> bool:
        """Whether this description fits; empty is any, and `mode` may be a beginning (fd, fd_gbs, …)."""
        wanted = {"model": model, "phase": phase, "device": device, "constant": constant}
        fits = all(getattr(self, name) == value for name, value in wanted.items() if value)
        return fits and (not mode or f"{self.mode}_".startswith(f"{mode}_"))


class Trace(NamedTuple):
    """One panel of figure 5: power of one GPU against time."""

    row: Row
    """The panel's first row of figure 5's table: configuration, device, gpus, batch sizes, means …"""
    powers: pd.Series
    """Power in W by time in s, NaN if unknown."""


def no_points() -> Points:
    """A frame without points."""
    more = ["dataset_total", "chance", "varies_seeds", "is_probe"]
    return prepared(pd.DataFrame(columns=[*COLUMNS, *more]))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that checks look at."""

    source: str
    """The campaign's name, or `published` for the paper's own numbers."""
    is_published: bool = False
    points: Points = field(default_factory=no_points)
    """A row per configuration that is in a series and has results (see `prepared`)."""
    series: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=SERIES))
    """A row per series, by name."""
    runs: pd.DataFrame = field(default_factory=lambda: frame_of([], RUNS))
    """The table `runs` without the excluded ones; empty for the published results."""
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

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """All series, with results or without."""
        lines, known = [], set(self.points.index)
        for *names, constant, ids, title in self.series[SERIES].itertuples(index=False):
            points = self.points.loc[[id_ for id_ in ids.values() if id_ in known]]
            size = None if pd.isna(constant) else int(constant)
            lines.append(self.group(points, title, *names, constant=size, ids=ids))
        return tuple(lines)

    def group(
        self,
        points: Points,
        title: str,
        model: str,
        phase: str,
        device: str,
        mode: str = "",
        **more: Any,
    ) -> Line:
        """Points of this device as a line."""
        node = self.gpus_per_node(device)
        return Line(title, model, phase, device, points, node, self.is_published, mode, **more)

    def find(self, *description: Any) -> list[Line]:
        """Lines with results that fit a description: the arguments of `Line.is_of`."""
        return [line for line in self.lines if line.is_of(*description) and len(line.points)]

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
        return max(lines, key=lambda line: line.closeness)

    def distinct(self, *description: Any) -> list[Line]:
        """Lines of a description; of those alike the one that `line` chooses."""
        alike: dict[tuple[Any, ...], list[Line]] = {}
        for line in self.find(*description):
            key = (line.model, line.phase, line.device, line.mode, line.constant)
            alike.setdefault(key, []).append(line)
        return [max(lines, key=lambda line: line.closeness) for lines in alike.values()]

    def anywhere(self, model: str, phase: str, device: str, *modes: str) -> list[list[Line]]:
        """Lines of all these modes on the claim's device, else on each other device that has them.

        NotTestable if no device does.
        """
        having = [{ln.device for ln in self.find(model, phase, None, mode)} for mode in modes]
        devices = set.intersection(*having)
        chosen = [device] if device in devices or not devices else sorted(devices)
        return [[self.line(model, phase, each, mode) for mode in modes] for each in chosen]

    def node_sizes(self, rows: pd.DataFrame) -> pd.Series:
        """GPUs of a node of each row's device, float64 even without rows."""
        return rows["device"].map(self.gpus_per_node).astype("float64")

    def gpus_per_node(self, device: str) -> int:
        """GPUs of a node: the paper's on its devices, else the most that one node held."""
        if device in PAPER_DEVICES:
            return PAPER_GPUS_PER_NODE
        points = self.points[(self.points["device"] == device) & self.points["nodes"].gt(0)]
        return max((points["gpus"] // points["nodes"]).astype(int), default=1)


# --- gathered from tables, or from the published rows -----------------------------------------------

GBS = "global_batch_size"
_ALIKE = ["model", "phase", "device", "data", "kept"]
"""What series share whose global batch sizes make regimes."""
PAPER_CAMPAIGN = PROJECT_ROOT / "campaigns" / "paper.yaml"


def published_evidence() -> Evidence:
    """The paper's own numbers, in the series of the paper's campaign."""
    campaign = load_campaign(PAPER_CAMPAIGN)
    series = series_of(campaign)
    points = points_of(campaign, series, published_configurations())
    return Evidence(
        PUBLISHED,
        is_published=True,
        points=prepared(points, is_pooled=False),
        series=series,
        specs=specs_of(campaign),
        campaign=campaign,
    )


def campaign_evidence(campaign: Campaign, tables: Path) -> Evidence:
    """Read a campaign's tables (a folder), and the provenance of its finished runs.

    InputError for a table that is missing or damaged.
    """
    configurations = read_frame(tables / "configurations.parquet", CONFIGURATIONS)
    runs = read_frame(tables / "runs.parquet", RUNS)
    runs = runs[runs["excluded"].isna()]
    figure5 = tables / "figure5.parquet"
    traces = read_frame(figure5, POWER) if figure5.exists() else frame_of([], POWER)
    series = series_of(campaign)
    return Evidence(
        campaign.name,
        points=points_of(campaign, series, configurations),
        series=series,
        runs=runs,
        traces=traces_of(traces),
        trace_metadata=traces.attrs,
        specs=specs_of(campaign),
        provenance=read_provenances(records(runs[RUN_KEY]), tables.parent),
        campaign=campaign,
        table_metadata=configurations.attrs,
    )


def find_campaign(results: Path, given: Path | None, cluster: Cluster | None = None) -> Campaign:
    """Find the campaign of a results folder: the given file, else the project's file of that name.

    InputError if none has the folder's name, or the given one has another.
    """
    name = results.resolve().name
    campaign = load_campaign(given or _file_of(name, results), cluster, to_run=False).whole
    if cluster is None and f"{campaign.name}{SIMULATED}" == name:
        campaign = replace(campaign, name=name)
    if given is not None and campaign.name != name:
        raise InputError(
            f"{given}: name: {campaign.name}, but the results are in {results}; expected the campaign {name}"
        )
    return campaign


def _file_of(name: str, results: Path) -> Path:
    """The project's campaign file of this name, simulated or not."""
    files, unread = sorted(Path("campaigns").glob("*.yaml")), ""
    for path in files:
        try:
            if read_yaml(path).get("name") in (name, name.removesuffix(SIMULATED)):
                return path
        except InputError as error:  # somebody may be writing it
            unread += f" (not read: {error})"
    raise InputError(
        f"--results {results}: no campaign is named {name} in {', '.join(map(str, files))}{unread}; "
        "give its file with --campaign"
    )


def specs_of(campaign: Campaign) -> dict[str, RunSpec]:
    """Spec of each configuration's first repeat."""
    return {id_: run_spec(campaign, id_, 1) for id_ in campaign.configurations}


def traces_of(table: pd.DataFrame) -> tuple[Trace, ...]:
    """Panels of figure 5's table."""
    return tuple(
        Trace(records(panel.head(1))[0], panel.set_index("time_s")["power_w"].astype("float64"))
        for _, panel in table.groupby("panel", sort=False)
    )


# --- series and points ----------------------------------------------------------------------------


def series_of(campaign: Campaign) -> pd.DataFrame:
    """The series of a campaign by name: columns SERIES, of which `evidence` describes the modes."""
    configurations = campaign.configurations
    rows = []
    for each in campaign.series.values():
        points = [configurations[id_] for id_ in each.points.values()]
        sizes = {getattr(point, each.constant, None) for point in points}
        rows.append(
            {
                **{"model": each.model, "phase": each.phase, "device": each.device},
                **{"kept": each.constant, "data": "sd" if each.is_scaled else "fd"},
                "epochs": max(point.epochs for point in points),
                "constant": sizes.pop() if len(sizes) == 1 else None,
                "ids": dict(sorted(each.points.items())),
            }
        )
    series = pd.DataFrame(rows, list(campaign.series)).astype({"constant": float})
    is_probe = series["epochs"] < series.groupby(["model", "phase"])["epochs"].transform("max")
    alike = series["constant"].fillna(0).mask(is_probe).groupby([series[key] for key in _ALIKE])
    regime = np.where(series["constant"].fillna(0) == alike.transform("min"), "_s", "_l")
    modes = series["data"] + np.where(series["kept"] == GBS, "_gbs" + regime, "_lbs")
    series["mode"] = modes.mask(series["kept"] == "neither", "other").mask(is_probe, "probe")
    return series.assign(title=_titles(series))[SERIES]


def _titles(series: pd.DataFrame) -> pd.Series:
    """Series in words; with their names where several would have the same."""
    phases = series["phase"].where(series["phase"] != "train", "")
    sizes = [("" if pd.isna(size) else str(int(size))) for size in series["constant"]]
    words = zip(series["model"], phases, series["device"], series["mode"], sizes, strict=True)
    titles = pd.Series([" ".join(filter(None, each)) for each in words], series.index)
    return titles.mask(titles.duplicated(keep=False), titles + " (" + series.index + ")")


def points_of(campaign: Campaign, series: pd.DataFrame, rows: pd.DataFrame) -> Points:
    """Points of a campaign's series that `rows` (of the table of configurations) has."""
    table = pd.DataFrame(records(rows[COLUMNS]), columns=COLUMNS)
    table = table.set_index("configuration", drop=False).rename_axis(None)
    planned = dict.fromkeys(id_ for ids in series["ids"] for id_ in ids.values())
    points = table.loc[[id_ for id_ in planned if id_ in table.index]]
    defined = [campaign.configurations[id_] for id_ in points.index]
    probes = {id_ for ids in series["ids"][series["mode"] == "probe"] for id_ in ids.values()}
    return prepared(
        points.assign(
            dataset_total=pd.Series(map(_total, defined), points.index, dtype=object),
            chance=pd.Series(map(_chance, defined), points.index, dtype=float),
            varies_seeds=[configuration.seeds == VARIED for configuration in defined],
            is_probe=points.index.isin(probes),
        )
    )


def _total(configuration: Configuration) -> int | None:
    """Samples of the whole dataset that a configuration trains on a part of."""
    if configuration.dataset_samples is None or Fraction(configuration.dataset_fraction) == 1:
        return configuration.dataset_samples
    total = configuration.dataset.get("train_samples")
    return None if total is None else int(total)


def _chance(configuration: Configuration) -> float:
    """Error of guessing less two standard deviations over the validation set, in percent; else NaN."""
    classes, samples = configuration.dataset.get("classes"), configuration.validation_samples
    if not classes or not samples:
        return math.nan
    hits = 1 / classes
    return float(100 * (1 - hits - 2 * math.sqrt(hits * (1 - hits) / samples)))
