"""Gather the evidence: a campaign's series with their points, from its tables or from the published rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import VARIED, Campaign, Configuration, Series
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.claims.evidence import (
    RUN_COLUMNS,
    Evidence,
    Line,
    Point,
    Row,
    Trace,
    pooled_spreads,
)
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.figures.figure_schema import POWER
from scalewatt.results.tables.frames import PUBLISHED, RUN_KEY, frame_of, read_frame, records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS

GBS = "global_batch_size"
_ALIKE = ["model", "phase", "device", "data", "constant"]
"""What series share whose global batch sizes make regimes."""
PAPER_CAMPAIGN = PROJECT_ROOT / "campaigns" / "paper.yaml"


def published_evidence() -> Evidence:
    """The paper's own numbers, in the series of the paper's campaign."""
    campaign = load_campaign(PAPER_CAMPAIGN)
    lines = lines_of(campaign, records(published_configurations()))
    specs = specs_of(campaign)
    evidence = Evidence(PUBLISHED, published=True, lines=lines, specs=specs, campaign=campaign)
    return with_points(evidence)


def campaign_evidence(campaign: Campaign, tables: Path) -> Evidence:
    """Read a campaign's tables (a folder), and the provenance of its finished runs.

    InputError for a table that is missing or damaged.
    """
    configurations = read_frame(tables / "configurations.parquet", CONFIGURATIONS)
    runs = read_frame(tables / "runs.parquet", RUNS)
    runs = runs.loc[runs["excluded"].isna(), RUN_COLUMNS]
    figure5 = tables / "figure5.parquet"
    traces = read_frame(figure5, POWER) if figure5.exists() else frame_of([], POWER)
    evidence = Evidence(
        campaign.name,
        lines=lines_of(campaign, records(configurations)),
        runs=runs,
        traces=traces_of(traces),
        trace_metadata=traces.attrs,
        specs=specs_of(campaign),
        provenance=read_provenances(records(runs[list(RUN_KEY)]), tables.parent),
        campaign=campaign,
        table_metadata=configurations.attrs,
    )
    return with_points(evidence)


def find_campaign(results: Path, given: Path | None, cluster: Cluster | None = None) -> Campaign:
    """Find the campaign of a results folder: the given file, else the project's file of that name.

    InputError if none has the folder's name, or the given one has another.
    """
    name = results.resolve().name
    if given is not None:
        campaign = _load(given, name, cluster)
        if campaign.name != name:
            raise InputError(
                f"{given}: name: {campaign.name}, but the results are in {results}; expected the "
                f"campaign {name}"
            )
        return campaign
    files = sorted(Path("campaigns").glob("*.yaml"))
    unread = ""
    for path in files:
        try:
            stated = read_yaml(path).get("name")
        except InputError as error:  # somebody may be writing it
            unread += f" (not read: {error})"
            continue
        if stated in (name, name.removesuffix(SIMULATED)):
            return _load(path, name, cluster)
    raise InputError(
        f"--results {results}: no campaign is named {name} in {', '.join(map(str, files))}{unread}; "
        "give its file with --campaign"
    )


def _load(path: Path, name: str, cluster: Cluster | None) -> Campaign:
    """Load a campaign, simulated if the results are, though no cluster says so."""
    campaign = load_campaign(path, cluster, to_run=False).whole
    is_simulated = cluster is None and f"{campaign.name}{SIMULATED}" == name
    return replace(campaign, name=name) if is_simulated else campaign


def specs_of(campaign: Campaign) -> dict[str, RunSpec]:
    """Spec of each configuration's first repeat."""
    return {id_: run_spec(campaign, id_, 1) for id_ in campaign.configurations}


def traces_of(table: pd.DataFrame) -> tuple[Trace, ...]:
    """Panels of figure 5's table."""
    return tuple(
        Trace(rows[0], tuple(row["time_s"] for row in rows), tuple(row["power_w"] for row in rows))
        for _, panel in table.groupby("panel", sort=False)
        if (rows := records(panel))
    )


# --- series with their points ---------------------------------------------------------------------


def lines_of(campaign: Campaign, rows: Sequence[Row]) -> tuple[Line, ...]:
    """All series of a campaign, each with the points that `rows` (of configurations) has."""
    by_id = {row["configuration"]: row for row in rows}
    modes = modes_of(campaign)
    of_point: dict[str, tuple[str, ...]] = {}
    for name, series in campaign.series.items():
        for id_ in series.points.values():
            of_point[id_] = (*of_point.get(id_, ()), modes[name])

    def point(id_: str) -> Point:
        configuration = campaign.configurations[id_]
        total, chance = _total(configuration), _chance(configuration)
        varies = configuration.seeds == VARIED
        return Point(by_id[id_], of_point[id_], total, chance, varies_seeds=varies)

    lines = [
        Line(
            name,
            series.label,
            series.model,
            series.phase,
            series.device,
            modes[name],
            constant_of(campaign, series),
            tuple(point(id_) for _, id_ in sorted(series.points.items()) if id_ in by_id),
            tuple(sorted(series.points)),
        )
        for name, series in campaign.series.items()
    ]
    counts = Counter(line.key for line in lines)
    return tuple(replace(line, alike=counts[line.key] > 1) for line in lines)


def _total(configuration: Configuration) -> int | None:
    """Samples of the whole dataset that a configuration trains on a part of."""
    if configuration.dataset_samples is None or Fraction(configuration.dataset_fraction) == 1:
        return configuration.dataset_samples
    total = configuration.dataset.get("train_samples")
    return None if total is None else int(total)


def _chance(configuration: Configuration) -> float | None:
    """Error of guessing less two standard deviations over the validation set, in percent."""
    classes, samples = configuration.dataset.get("classes"), configuration.validation_samples
    if not classes or not samples:
        return None
    hits = 1 / classes
    return float(100 * (1 - hits - 2 * math.sqrt(hits * (1 - hits) / samples)))


def with_points(evidence: Evidence) -> Evidence:
    """Add `points`: those of all lines, each once, with what the campaign's repeats say of their spread."""
    points = {point.id: point for line in evidence.lines for point in line.points}
    spreads = {} if evidence.published else pooled_spreads(points.values())
    whole = replace(evidence, points=tuple(points.values()))
    return whole.changed(lambda point: replace(point, spreads=spreads))


def modes_of(campaign: Campaign) -> dict[str, str]:
    """Mode of each series (see `evidence`)."""
    series = pd.DataFrame(
        [
            {
                **{name: getattr(each, name) for name in ("model", "phase", "device", "constant")},
                "data": "sd" if each.is_scaled else "fd",
                "epochs": max(campaign.configurations[id_].epochs for id_ in each.points.values()),
                "size": constant_of(campaign, each) or 0,
            }
            for each in campaign.series.values()
        ],
        index=list(campaign.series),
    )
    is_probe = series["epochs"] < series.groupby(["model", "phase"])["epochs"].transform("max")
    sizes = series["size"].mask(is_probe).groupby([series[name] for name in _ALIKE])
    regime = np.where(series["size"] == sizes.transform("min"), "_s", "_l")
    modes = series["data"] + np.where(series["constant"] == GBS, "_gbs" + regime, "_lbs")
    modes = modes.mask(series["constant"] == "neither", "other")
    return dict(modes.mask(is_probe, "probe"))


def constant_of(campaign: Campaign, series: Series) -> int | None:
    """Batch size that all points of a series share, if they do."""
    configurations = (campaign.configurations[id_] for id_ in series.points.values())
    values = {getattr(each, series.constant, None) for each in configurations}
    return values.pop() if len(values) == 1 else None
