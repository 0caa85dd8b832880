"""Gathering the evidence: from a campaign's tables and run folders, or from the published rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.expand import load_campaign
from scalewatt.campaign.model import Campaign
from scalewatt.campaign.spec import run_spec
from scalewatt.campaign.validation import PROJECT_ROOT, read_yaml
from scalewatt.claims.evidence import Evidence, Row, Trace, lines_of, with_points
from scalewatt.claims.published import published_rows
from scalewatt.errors import InputError
from scalewatt.files import read_json
from scalewatt.results.build import METADATA_KEY
from scalewatt.results.figure_schema import POWER
from scalewatt.results.schema import COMPARISONS, CONFIGURATIONS, RUNS

PAPER_CAMPAIGN = PROJECT_ROOT / "config.yaml"
PUBLISHED = "published"


def published_evidence() -> Evidence:
    """The paper's own numbers, in the series of the paper's campaign."""
    campaign = load_campaign(PAPER_CAMPAIGN)
    rows = published_rows(campaign)
    return with_points(
        Evidence(
            PUBLISHED, lines=lines_of(campaign, rows), specs=specs_of(campaign), campaign=campaign
        )
    )


def campaign_evidence(campaign: Campaign, tables: Path) -> Evidence:
    """What a campaign's tables (a folder) and the folders of its finished runs say.

    InputError for a table that is missing or wrong.
    """
    rows = _read(tables / "configurations.parquet", CONFIGURATIONS)
    runs = [r for r in _read(tables / "runs.parquet", RUNS) if r["excluded"] is None]
    figure5 = tables / "figure5.parquet"
    traces = pq.read_table(figure5) if figure5.exists() else None
    return with_points(
        Evidence(
            campaign.name,
            lines=lines_of(campaign, rows),
            runs=tuple(runs),
            comparisons=tuple(_read(tables / "comparisons.parquet", COMPARISONS)),
            traces=() if traces is None else traces_of(figure5, traces),
            trace_metadata={} if traces is None else _metadata(traces),
            specs=specs_of(campaign),
            provenance=_provenance(runs, tables.parent / "runs"),
            campaign=campaign,
        )
    )


def find_campaign(results: Path, given: Path | None) -> Campaign:
    """The campaign of a results folder: the given file, else the project's file of that name.

    InputError where none has the folder's name, or the given one has another.
    """
    name = results.resolve().name
    if given is not None:
        campaign = load_campaign(given)
        if campaign.name != name:
            raise InputError(
                f"{given}: name: {campaign.name}, but the results are in {results}; expected the "
                f"campaign {name}"
            )
        return campaign
    files = [Path("config.yaml"), *sorted(Path("campaigns").glob("*.yaml"))]
    for path in files:
        if path.exists() and _name(path) == name:
            return load_campaign(path)
    raise InputError(
        f"--results {results}: no campaign is named {name} in {', '.join(map(str, files))}; "
        "give its file with --campaign"
    )


def specs_of(campaign: Campaign) -> dict[str, Row]:
    """The spec of each configuration (its first repeat's)."""
    return {id_: run_spec(campaign, id_, 1) for id_ in campaign.configurations}


def traces_of(path: Path, table: pa.Table) -> tuple[Trace, ...]:
    """The panels of figure 5's table; InputError where it lacks a column."""
    missing = [name for name in POWER.names if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: lacks column {missing[0]}")
    panels: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        panels.setdefault(row["panel"], []).append(row)
    return tuple(
        Trace(rows[0], tuple(r["time_s"] for r in rows), tuple(r["power_w"] for r in rows))
        for rows in panels.values()
    )


def _read(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{path}: is no readable table ({error}); `snakemake tables` writes it"
        ) from error
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: lacks column {missing[0]}")
    return table.to_pylist()


def _provenance(runs: list[dict[str, Any]], folder: Path) -> dict[tuple[str, int], Row]:
    found = {}
    for run in runs:
        path = folder / run["configuration"] / str(run["repeat"]) / "provenance.json"
        if path.exists():
            found[run["configuration"], run["repeat"]] = read_json(path)
    return found


def _metadata(table: pa.Table) -> dict[str, Any]:
    import json

    found = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return found if isinstance(found, dict) else {}


def _name(path: Path) -> Any:
    content = read_yaml(path)
    return content.get("name") if isinstance(content, dict) else None
