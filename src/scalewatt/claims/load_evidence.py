"""Gathering the evidence: from a campaign's tables and run folders, or from the published rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.imported_campaign import read_imported
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.claims.evidence.campaign_lines import lines_of, with_points
from scalewatt.claims.evidence.evidence import RUN_COLUMNS, Evidence, Trace, rows_of
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT, read_yaml
from scalewatt.results.figures.figure_schema import POWER
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.read_table import CONFIGURATION_KEY, PUBLISHED, RUN_KEY
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS

PAPER_CAMPAIGN = PROJECT_ROOT / "config.yaml"


def published_evidence() -> Evidence:
    """Return the paper's own numbers, in the series of the paper's campaign."""
    campaign = load_campaign(PAPER_CAMPAIGN)
    return with_points(
        Evidence(
            PUBLISHED,
            published=True,
            lines=lines_of(campaign, records(published_configurations())),
            specs=specs_of(campaign),
            campaign=campaign,
        )
    )


def campaign_evidence(campaign: Campaign, tables: Path) -> Evidence:
    """Return what a campaign's tables (a folder) and the folders of its finished runs say.

    InputError for a table that is missing or wrong.
    """
    configurations = read_frame(
        tables / "configurations.parquet", CONFIGURATIONS, unique=CONFIGURATION_KEY
    )
    runs = read_frame(tables / "runs.parquet", RUNS, unique=RUN_KEY)
    runs = runs.loc[runs["excluded"].isna(), RUN_COLUMNS]
    _check_origins(tables / "configurations.parquet", configurations, runs)
    figure5 = tables / "figure5.parquet"
    traces = read_frame(figure5, POWER) if figure5.exists() else None
    return with_points(
        Evidence(
            campaign.recorded_name,
            lines=lines_of(campaign, rows_of(configurations)),
            runs=runs,
            comparisons=tuple(rows_of(read_frame(tables / "comparisons.parquet", COMPARISONS))),
            traces=() if traces is None else traces_of(traces),
            trace_metadata={} if traces is None else _metadata(traces),
            specs=specs_of(campaign),
            provenance=read_provenances(rows_of(runs[list(RUN_KEY)]), tables.parent),
            campaign=campaign,
            table_metadata=_metadata(configurations),
        )
    )


def _metadata(frame: pd.DataFrame) -> dict[str, Any]:
    return {str(key): value for key, value in frame.attrs.items()}


def _check_origins(path: Path, configurations: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Raise InputError where a configuration's energy has another origin than its runs' has."""
    grouped = runs.dropna(subset=["energy_kwh"]).groupby("configuration")["energy_origin"]
    of_runs = {id_: set(origins) for id_, origins in grouped}
    known = configurations.dropna(subset=["energy_kwh_mean"])
    for place, id_, origin in known[["configuration", "energy_origin"]].itertuples():
        origins = of_runs.get(id_)
        if origins and origins != {origin}:
            raise InputError(
                f"{path}: row {place + 1}: {id_}: energy_origin {origin}; "
                f"expected {', '.join(sorted(map(str, origins)))}, as its runs in runs.parquet have"
            )


def find_campaign(results: Path, given: Path | None, cluster: Cluster | None = None) -> Campaign:
    """Return the campaign of a results folder: the given file, else the project's file of that name.

    InputError where none has the folder's name, or the given one has another.
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
    files = [Path("config.yaml"), *sorted(Path("campaigns").glob("*.yaml"))]
    for path in files:
        if path.exists() and _name(path) in (name, name.removesuffix(SIMULATED)):
            return _load(path, name, cluster)
    raise InputError(
        f"--results {results}: no campaign is named {name} in {', '.join(map(str, files))}; "
        "give its file with --campaign"
    )


def _load(path: Path, name: str, cluster: Cluster | None) -> Campaign:
    """Return the campaign; as it is simulated where the results are, though no cluster says so."""
    campaign = load_campaign(path, cluster)
    simulated = cluster is None and f"{campaign.name}{SIMULATED}" == name
    return replace(campaign, name=name) if simulated else campaign


def specs_of(campaign: Campaign) -> dict[str, RunSpec]:
    """Return the spec of each configuration (its first repeat's)."""
    return {id_: run_spec(campaign, id_, 1) for id_ in campaign.configurations}


def traces_of(table: pd.DataFrame) -> tuple[Trace, ...]:
    """Return the panels of figure 5's table."""
    return tuple(
        Trace(rows[0], tuple(row["time_s"] for row in rows), tuple(row["power_w"] for row in rows))
        for _, panel in table.groupby("panel", sort=False)
        if (rows := rows_of(panel))
    )


def _name(path: Path) -> Any:
    imported = read_imported(path)
    if imported is not None:
        return imported.name
    content = read_yaml(path)
    return content.get("name") if isinstance(content, dict) else None
