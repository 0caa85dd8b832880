"""Gather the evidence: a campaign's series with their points, from its tables or from the published rows."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import VARIED, Campaign, Configuration
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.claims.evidence import COLUMNS, SERIES, Evidence, Points, Trace, prepared
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.figures.figure_schema import POWER
from scalewatt.results.tables.frames import PUBLISHED, RUN_KEY, frame_of, read_frame, records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS

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
        provenance=read_provenances(records(runs[list(RUN_KEY)]), tables.parent),
        campaign=campaign,
        table_metadata=configurations.attrs,
    )


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
        identity = {"model": each.model, "phase": each.phase, "device": each.device}
        rows.append(
            identity
            | {"kept": each.constant, "data": "sd" if each.is_scaled else "fd"}
            | {"epochs": max(point.epochs for point in points)}
            | {"constant": sizes.pop() if len(sizes) == 1 else None}
            | {"ids": dict(sorted(each.points.items()))}
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
