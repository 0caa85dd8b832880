"""Gathering the evidence: from a campaign's tables and run folders, or from the published rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.imported_campaign import read_imported
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.claims.evidence.evidence import Evidence, Row, Trace, lines_of, with_points
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT, read_yaml
from scalewatt.results.figures.figure_schema import POWER
from scalewatt.results.tables.metadata import metadata
from scalewatt.results.tables.published import published_configurations
from scalewatt.results.tables.read_table import CONFIGURATION_KEY, PUBLISHED, RUN_KEY, read_checked
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS

PAPER_CAMPAIGN = PROJECT_ROOT / "config.yaml"


def published_evidence() -> Evidence:
    """The paper's own numbers, in the series of the paper's campaign."""
    campaign = load_campaign(PAPER_CAMPAIGN)
    rows = published_configurations()
    return with_points(
        Evidence(
            PUBLISHED,
            published=True,
            lines=lines_of(campaign, rows),
            specs=specs_of(campaign),
            campaign=campaign,
        )
    )


def campaign_evidence(campaign: Campaign, tables: Path) -> Evidence:
    """What a campaign's tables (a folder) and the folders of its finished runs say.

    InputError for a table that is missing or wrong.
    """
    rows = read_checked(tables / "configurations.parquet", CONFIGURATIONS, unique=CONFIGURATION_KEY)
    runs = [
        row
        for row in read_checked(tables / "runs.parquet", RUNS, unique=RUN_KEY).to_pylist()
        if row["excluded"] is None
    ]
    _check_origins(tables / "configurations.parquet", rows.to_pylist(), runs)
    comparisons = read_checked(tables / "comparisons.parquet", COMPARISONS)
    figure5 = tables / "figure5.parquet"
    traces = read_checked(figure5, POWER) if figure5.exists() else None
    return with_points(
        Evidence(
            campaign.recorded_name,
            lines=lines_of(campaign, rows.to_pylist()),
            runs=tuple(runs),
            comparisons=tuple(comparisons.to_pylist()),
            traces=() if traces is None else traces_of(traces),
            trace_metadata={} if traces is None else metadata(traces),
            specs=specs_of(campaign),
            provenance=read_provenances(runs, tables.parent),
            campaign=campaign,
            table_metadata=metadata(rows),
        )
    )


def _check_origins(path: Path, rows: Sequence[Row], runs: Sequence[Row]) -> None:
    """InputError where a configuration's energy has another origin than its runs' has."""
    of_runs: dict[str, set[str]] = {}
    for run in runs:
        if run["energy_kwh"] is not None:
            of_runs.setdefault(run["configuration"], set()).add(run["energy_origin"])
    for number, row in enumerate(rows, 1):
        origins = of_runs.get(row["configuration"])
        if origins and row["energy_kwh_mean"] is not None and origins != {row["energy_origin"]}:
            raise InputError(
                f"{path}: row {number}: {row['configuration']}: energy_origin {row['energy_origin']}; "
                f"expected {', '.join(sorted(map(str, origins)))}, as its runs in runs.parquet have"
            )


def find_campaign(results: Path, given: Path | None, cluster: Cluster | None = None) -> Campaign:
    """The campaign of a results folder: the given file, else the project's file of that name.

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
    """The campaign; as it is simulated where the results are, though no cluster says so."""
    campaign = load_campaign(path, cluster)
    simulated = cluster is None and f"{campaign.name}{SIMULATED}" == name
    return replace(campaign, name=name) if simulated else campaign


def specs_of(campaign: Campaign) -> dict[str, Row]:
    """The spec of each configuration (its first repeat's)."""
    return {id_: run_spec(campaign, id_, 1) for id_ in campaign.configurations}


def traces_of(table: pa.Table) -> tuple[Trace, ...]:
    """The panels of figure 5's table."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        panels.setdefault(row["panel"], []).append(row)
    return tuple(
        Trace(rows[0], tuple(r["time_s"] for r in rows), tuple(r["power_w"] for r in rows))
        for rows in panels.values()
    )


def _name(path: Path) -> Any:
    imported = read_imported(path)
    if imported is not None:
        return imported.name
    content = read_yaml(path)
    return content.get("name") if isinstance(content, dict) else None
