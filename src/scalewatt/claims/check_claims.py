"""The command `scalewatt claims`: verdicts on all claims, as JSON, a table, and Markdown."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.cluster import Cluster
from scalewatt.claims.evidence import Evidence, campaign_evidence, find_campaign, published_evidence
from scalewatt.claims.outcomes import shown
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    MEANINGS,
    REFERENCE,
    TESTED,
    Claim,
    Value,
    listed_claims,
    unlisted_inconsistencies,
)
from scalewatt.claims.verdicts import Verdict, verdict_of
from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table_with_csv, write_text
from scalewatt.provenance.versions import claims_hash
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.tables.frames import records, with_metadata
from scalewatt.statistics import holm

LEGEND = (
    "p is the probability of data as far outside of what is claimed, or further, were it true: that of the "
    "least probable part times the number of comparisons (Bonferroni), at most 1."
)
TABLE = schema("claims")


def check_claims(
    results: Path, campaign: Path | None, cluster: Cluster | None, out: Path | None
) -> tuple[str, str]:
    """Check all claims; write `out`.{parquet,csv,md,json} if it is given.

    `results` is a campaign's results folder, or `reference`: the published numbers. Returns the
    verdicts as text and as JSON. InputError for what is missing or wrong.
    """
    evidence = _evidence(results, campaign, cluster)
    rows = claim_rows(verdicts(evidence))
    text, content = as_markdown(rows, evidence), as_json(rows)
    if out is not None:
        write_table_with_csv(as_table(rows, evidence), Path(f"{out}.parquet"))
        write_text(Path(f"{out}.md"), text)
        write_json(Path(f"{out}.json"), content)
    return text, json.dumps(content, indent=1, allow_nan=False)


def _evidence(results: Path, campaign: Path | None, cluster: Cluster | None) -> Evidence:
    if str(results) == REFERENCE.name or results.resolve() == REFERENCE.resolve():
        return published_evidence()
    tables = results / "tables"
    if not tables.is_dir():
        raise InputError(
            f"--results {results}: has no folder tables; expected results/<campaign> (`snakemake "
            f"tables` writes them) or {REFERENCE.name}"
        )
    return campaign_evidence(find_campaign(results, campaign, cluster), tables)


# --- verdicts ---------------------------------------------------------------------------------------


def verdicts(evidence: Evidence, claims: Sequence[Claim] | None = None) -> list[Verdict]:
    """Decide every claim, in their order; by default all `listed_claims`."""
    return with_holm([verdict_of(claim, evidence) for claim in claims or listed_claims()])


def with_holm(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Add to each contradiction whether it stands among all that was tested."""
    tested = {v.id: v.p for v in verdicts if v.verdict in TESTED and v.p is not None}
    stands = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        replace(v, stands=stands.get(v.id, True)) if v.verdict == CONTRADICTED else v
        for v in verdicts
    ]


def claim_rows(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Verdicts next to their claims, with the columns of TABLE; `value` is a number or a text."""
    claims = pd.DataFrame(map(vars, listed_claims())).rename(columns={"figure_table": "figure"})
    claims = claims[["id", "section", "figure", "kind", "model", "claim"]]
    decided = pd.DataFrame([asdict(verdict) for verdict in verdicts], dtype=object)
    return decided.merge(claims, on="id").astype(object)[TABLE.names]


def as_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """An object for each row of reference/claims.csv, with the keys of a Verdict (docs/paper/claims.md)."""
    listed = rows[~rows["id"].isin(unlisted_inconsistencies())]
    return records(listed[[field.name for field in fields(Verdict)]])


def as_table(rows: pd.DataFrame, evidence: Evidence) -> pa.Table:
    """The table `claims`, with metadata like those of other tables."""
    shown_values = rows.assign(value=rows["value"].map(_value_text))
    table = pa.Table.from_pandas(shown_values, TABLE, preserve_index=False)
    absent = {name: evidence.table_metadata.get(name, []) for name in ("missing", "excluded")}
    notes = _notes(rows, evidence)
    return with_metadata(table, {"campaign": evidence.source, **absent, "notes": notes})


def _value_text(value: Value) -> str | None:
    return shown(value) if isinstance(value, (int, float)) else value


# --- text -------------------------------------------------------------------------------------------


def by_verdict(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each verdict, or reason why nothing was tested, with its heading and its rows."""
    names = rows["reason"].fillna(rows["verdict"])
    for name in MEANINGS:
        if (names == name).any():
            yield name, name.replace("_", " ").capitalize(), rows[names == name]


def as_markdown(rows: pd.DataFrame, evidence: Evidence) -> str:
    """All verdicts by kind, as lists that are read as they are in a terminal too."""
    blocks = ["# Claims", *_notes(rows, evidence)]
    for name, heading, group in by_verdict(rows):
        blocks += [f"## {heading} ({len(group)})", MEANINGS[name]]
        for row in group.to_dict("records"):
            p = p_text(row["p"], row["stands"])
            expected = f" Expected: {row['expected']}." if name in TESTED else ""
            claim = f"**{row['id']}** {row['claim']}{f' [{p}]' if p else ''}."
            blocks.append(f"- {claim}{expected} {row['detail']}")
    return "\n\n".join(
        textwrap.fill(block, 110, subsequent_indent="  " * block.startswith("- "))
        for block in blocks
    )


def p_text(p: float | None, stands: bool | None) -> str:
    """The p of a test, and whether a contradiction stands; empty if nothing was tested."""
    texts = [] if p is None else [f"p = {p:.2g}"]
    return ", ".join(texts if stands is None else [*texts, stands_text(stands)])


def stands_text(stands: bool) -> str:
    """Whether a contradiction stands, in words."""
    return "stands" if stands else "does not stand"


def _notes(rows: pd.DataFrame, evidence: Evidence) -> list[str]:
    legend = [LEGEND] if rows["verdict"].isin(TESTED).any() else []
    return [basis(evidence), counts(rows), *frozen(evidence), *legend]


def basis(evidence: Evidence) -> str:
    """Whose results the verdicts are on, and of which origin their energies are."""
    if evidence.is_published:
        return (
            "Checked on the paper's own published numbers; their energies are of origin published. What is "
            "tested is whether the paper's statements agree with its own and its authors' numbers. Claims "
            "on configurations and definitions are checked on the specs of campaigns/paper.yaml."
        )
    energies = evidence.points["energy_origin"][evidence.points["energy_kwh_mean"].notna()]
    counts = Counter(energies.map(str))
    origins = ", ".join(f"{origin} ({count})" for origin, count in sorted(counts.items()))
    protocol = f" (protocol {evidence.campaign.protocol})" if evidence.campaign else ""
    sentences = [
        f"Checked on {len(evidence.points)} configurations of campaign {evidence.source}{protocol}; "
        f"configurations by the origin of their energy: {origins or 'none with energy'}."
    ]
    if SIMULATED in counts or any(run.get("simulated") for run in evidence.provenance.values()):
        sentences.append("Simulated: verdicts only show that the engine runs.")
    if excluded := evidence.table_metadata.get("excluded"):
        named = (f"{e['configuration']}/{e['repeat']} ({e['reason']})" for e in excluded)
        sentences.append(f"Excluded runs: {'; '.join(named)}.")
    return " ".join(sentences)


def counts(rows: pd.DataFrame) -> str:
    """How many claims have each verdict, first of those that were tested."""
    listed = rows[~rows["id"].isin(unlisted_inconsistencies())]
    by_name = Counter(listed["reason"].fillna(listed["verdict"]))
    again = {claim.id for claim in listed_claims() if claim.same_points_as}
    is_tested = listed["verdict"].isin(TESTED)
    independent = (is_tested & ~listed["id"].isin(again)).sum()
    stands = rows["id"][rows["stands"].eq(True)]

    def listing(names: Iterable[str]) -> str:
        words = (f"{name.replace('_', ' ')} {by_name[name]}" for name in names if by_name[name])
        return ", ".join(words) or "none"

    return (
        f"Claims: {len(listed)}. Tested: {is_tested.sum()} (independently: {independent}): "
        f"{listing(TESTED)}. "
        f"Contradicted when all tests are taken together (Holm, 5 %): {', '.join(stands) or 'none'}. "
        f"No tests: {listing(name for name in MEANINGS if name not in TESTED)}. "
        f"Inconsistencies without a row among the claims: {len(rows) - len(listed)}."
    )


def frozen(evidence: Evidence) -> list[str]:
    """Which list of claims and tolerances decided, and how many runs began with the same."""
    current = claims_hash()
    if current is None:
        return []
    sentence = f"Claims, checks, tolerances and published rows (reference/): SHA-256 {current[:16]}"
    recorded = Counter(run.get("claims_sha256") for run in evidence.provenance.values())
    if not recorded:
        return [f"{sentence}."]
    same, unknown = recorded[current], recorded[None]
    others = recorded.total() - same - unknown
    return [
        f"{sentence}. Runs that began with these: {same} of {recorded.total()}; with others, whose "
        f"tolerances may have been chosen knowing these: {others}; not known: {unknown}."
    ]
