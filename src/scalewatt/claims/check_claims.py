"""The command `scalewatt claims`: what results say of each claim of the paper."""

from __future__ import annotations

import json
from pathlib import Path

from scalewatt.campaign.cluster import given_cluster
from scalewatt.claims.evidence.claim_types import REFERENCE, listed_claims
from scalewatt.claims.evidence.evidence import Evidence
from scalewatt.claims.load_evidence import campaign_evidence, find_campaign, published_evidence
from scalewatt.claims.output import as_json, as_markdown, as_table, as_text, verdicts
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table_with_csv, write_text


def check_claims(
    results: Path, campaign: Path | None, cluster: str | None, out: Path | None
) -> tuple[str, str]:
    """Check all claims; write `out`.{parquet,csv,md,json} where it is given.

    `results` is a campaign's results folder, or `reference`: the published numbers. Returns the
    verdicts as text and as JSON. InputError for what is missing or wrong.
    """
    evidence = _evidence(results, campaign, cluster)
    claims = listed_claims()
    found = verdicts(evidence, claims)
    if out is not None:
        write_claims(evidence, out)
    return as_text(found, claims, evidence), json.dumps(as_json(found), indent=1, allow_nan=False)


def write_claims(evidence: Evidence, out: Path) -> None:
    """Write what the evidence says of all claims to `out`.{parquet,csv,md,json}."""
    claims = listed_claims()
    found = verdicts(evidence, claims)
    write_table_with_csv(as_table(found, claims, evidence), out.with_name(f"{out.name}.parquet"))
    write_text(out.with_name(f"{out.name}.md"), as_markdown(found, claims, evidence))
    write_json(out.with_name(f"{out.name}.json"), as_json(found))


def _evidence(results: Path, campaign: Path | None, cluster: str | None) -> Evidence:
    if str(results) == REFERENCE.name or results.resolve() == REFERENCE.resolve():
        return published_evidence()
    tables = results / "tables"
    if not tables.is_dir():
        raise InputError(
            f"--results {results}: has no folder tables; expected results/<campaign> (`snakemake "
            f"tables` writes them) or {REFERENCE.name}"
        )
    given = None if cluster is None else given_cluster(cluster)
    return campaign_evidence(find_campaign(results, campaign, given), tables)
