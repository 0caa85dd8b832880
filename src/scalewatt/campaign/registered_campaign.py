"""Campaigns of runs that were made elsewhere, built from the runs that `scalewatt register` wrote.

The campaign file holds what its user decides: labels and figures. All else stands in the runs' folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from scalewatt.campaign.campaign_file import CampaignName, Figures, FileName, Label
from scalewatt.campaign.campaign_types import Campaign, Configuration, Series
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.files import read_json_object
from scalewatt.common.settings import Settings, validated

DATASET = {"name": "registered", "format": "registered"}
"""Stands for the dataset of a run that was made elsewhere."""
OTHER_PROTOCOL = "other"
TARGET_PROTOCOL = "target"
"""Trained until the metric reached a target: repeats differ in samples; epochs is 1 by convention."""
_FIGURE5_PANELS = 4
_TABLE1_ROWS = 1000
"""As many as a campaign file may name."""


class RegisteredFile(Settings):
    """A campaign of runs that were made elsewhere."""

    registered: bool
    """The runs were registered: nothing is trained."""
    name: CampaignName
    """Names the results folder: lower-case letters, digits and hyphens, not ending in -simulated."""
    runs: str | None = None
    """Folder of the runs, relative to this file; without this key ../results/NAME/runs."""
    labels: dict[FileName, Label] = Field(default_factory=dict)
    """Names of series in the legends, instead of those that they were registered with."""
    figures: Figures | None = None
    """Which series or points each figure shows; without this key all."""


@dataclass(frozen=True)
class RegisteredRun:
    """A registered run, by its provenance."""

    folder: Path
    provenance: dict[str, Any]

    @property
    def configuration(self) -> str:
        """Id of its configuration."""
        return self.folder.parent.name

    @property
    def repeat(self) -> int:
        """Which execution of its configuration it is, from 1."""
        return int(self.folder.name)

    @property
    def lines(self) -> dict[str, str]:
        """The series that it is on, its main one first: labels by name."""
        return {line["series"]: line["label"] for line in self.provenance["lines"]}


def runs_folder(file: RegisteredFile, path: Path) -> Path:
    """Folder of a campaign's runs, by its file at `path`."""
    return Path(os.path.normpath(path.parent / (file.runs or f"../results/{file.name}/runs")))


def registered_runs(folder: Path) -> list[RegisteredRun]:
    """Registered runs in a folder, in the order of registration; InputError if there is a trained one."""
    runs = []
    for path in folder.glob("[!.]*/[!.]*/provenance.json"):
        run = RegisteredRun(path.parent, read_json_object(path))
        if not run.provenance.get("registered"):
            raise InputError(f"{path.parent}: is a trained run; allowed: another campaign name")
        runs.append(run)
    return sorted(runs, key=lambda run: (run.provenance["number"], str(run.folder)))


def expand_registered(content: dict[str, Any], path: Path) -> Campaign:
    """Build a registered campaign from its file's content and its runs.

    InputError names `path`, the key and what is allowed; the names in `figures` are not checked here.
    """
    file: RegisteredFile = validated(RegisteredFile, content, str(path))
    folder = runs_folder(file, path)
    runs = registered_runs(folder)
    if not runs:
        raise InputError(f"{path}: {folder} holds no run; register some: docs/recordings.md")
    configurations: dict[str, Configuration] = {}
    repeats: dict[str, int] = {}
    for run in runs:
        id_ = run.configuration
        repeats[id_] = max(run.repeat, repeats.get(id_, 1))
        if id_ not in configurations:
            definition = read_spec(run.folder / "spec.json").definition()
            configurations[id_] = Configuration(id=id_, seeds=run.provenance["seeds"], **definition)
    series = _series(runs, configurations, repeats, file.labels)
    for name in file.labels.keys() - series.keys():
        raise InputError(f"{path}: labels: no series '{name}'; {one_of(name, series)}")
    figures = file.figures.contents() if file.figures else default_figures(series, configurations)
    protocols = {point.protocol for point in configurations.values()}
    return Campaign(
        name=file.name,
        path=path,
        protocol=protocols.pop() if len(protocols) == 1 else "several",
        series=series,
        configurations=dict(sorted(configurations.items())),
        repeats=repeats,
        figures=figures,
        registered=True,
    )


def _series(
    runs: Iterable[RegisteredRun],
    configurations: Mapping[str, Configuration],
    repeats: Mapping[str, int],
    labels: Mapping[str, str],
) -> dict[str, Series]:
    """Series by name, in the order of registration, their points ascending in GPUs."""
    texts: dict[str, str] = {}
    lines: dict[str, dict[int, Configuration]] = {}
    for run in runs:
        point = configurations[run.configuration]
        for name, label in run.lines.items():
            texts.setdefault(name, label)
            lines.setdefault(name, {}).setdefault(point.gpus, point)
    series = {}
    for name, by_gpus in lines.items():
        points = [by_gpus[gpus] for gpus in sorted(by_gpus)]
        batches = ("local_batch_size", "global_batch_size")
        constant = [key for key in batches if len({getattr(p, key) for p in points}) == 1]
        series[name] = Series(
            name=name,
            label=labels.get(name, texts[name]),
            model=points[0].model,
            phase=points[0].phase,
            device=points[0].device,
            constant=constant[0] if constant else "neither",
            fraction_rule="1" if len({point.dataset_samples for point in points}) == 1 else "n",
            repeats=max(repeats[point.id] for point in points),
            points={point.gpus: point.id for point in points},
        )
    return series


# --- figures that no user chose -------------------------------------------------------------------


def default_figures(
    series: Mapping[str, Series], configurations: Mapping[str, Configuration]
) -> dict[str, dict[str, Any]]:
    """Choose curves and rates of the first two models, the largest points' power, and a table of all points.

    The first model has figures 2 (3 where the dataset grows) and 6, the second 4 and 7. Trainings to a
    target, of any models, share figures 2 and 6, and have a breakdown. Where every series is one operating
    point on one number of GPUs, no curve shows anything: the table alone.
    """
    points: dict[str, dict[str, Any]] = {}  # each configuration once, by its id
    for name, line in series.items():
        for gpus, id_ in line.points.items():
            points.setdefault(id_, {"series": name, "gpus": gpus})
    table = {"table1": {"points": list(points.values())}} if len(points) <= _TABLE1_ROWS else {}
    single = all(len(line.points) == 1 for line in series.values())
    if single and all(point.operating_point for point in configurations.values()):
        return {"operating_points": {"series": list(series)}, **table}
    curves: dict[str, list[str]] = {}
    if all(point.protocol == TARGET_PROTOCOL for point in configurations.values()):
        lines = [name for name, line in series.items() if len(line.points) > 1] or list(series)
        bars = list(dict.fromkeys(point["series"] for point in points.values()))
        curves = {"breakdown": bars, "figure2": lines, "figure6": lines}
    else:
        models = list(dict.fromkeys(line.model for line in series.values()))
        for name, line in series.items():
            first = ("figure3" if line.is_scaled else "figure2", "figure6")
            of_model = dict(zip(models, (first, ("figure4", "figure7")), strict=False))
            for figure in of_model.get(line.model, ()):
                curves.setdefault(figure, []).append(name)
    largest = [{"series": name, "gpus": max(line.points)} for name, line in series.items()]
    figures: dict[str, Any] = {figure: {"series": names} for figure, names in curves.items()}
    figures |= {"figure5": {"points": largest[:_FIGURE5_PANELS]}, **table}
    return dict(sorted(figures.items()))


# --- devices ----------------------------------------------------------------------------------------


def facility_cluster(campaign: Campaign, cluster: Cluster) -> Cluster:
    """Cluster without PUE, carbon and price where not all runs were made on its devices."""
    if campaign.devices() <= set(cluster.devices):
        return cluster
    return cluster.model_copy(update={"pue": None, "carbon_intensity": None, "price": None})


def registered_devices(campaign: Campaign, cluster: Cluster) -> dict[str, Device]:
    """The campaign's devices by name: the cluster's, and any other without rated powers.

    Another cluster's device of the same name may be another machine, so its powers are not used.
    """
    gpus: dict[str, int] = {}
    for made in campaign.configurations.values():
        gpus[made.device] = max(made.ranks_per_node, gpus.get(made.device, 1))
    return {
        name: cluster.devices.get(name) or Device(name=name, gpus_per_node=most, cpus_per_rank=1)
        for name, most in gpus.items()
    }
