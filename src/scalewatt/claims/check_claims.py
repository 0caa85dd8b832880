"""The command `scalewatt claims`: verdicts on all claims, as JSON, a table, Markdown and text."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.cluster import Cluster
from scalewatt.claims.evidence import Evidence
from scalewatt.claims.load_evidence import campaign_evidence, find_campaign, published_evidence
from scalewatt.claims.outcomes import shown
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    INCONSISTENCY,
    NOT_TESTABLE,
    REFERENCE,
    SET_OTHERWISE,
    SET_UP,
    SUPPORTED,
    TESTED,
    UNDECIDED,
    VERDICTS,
    Claim,
    Value,
    listed_claims,
    unlisted_inconsistencies,
)
from scalewatt.claims.verdicts import Verdict, verdict_of
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table_with_csv, write_text
from scalewatt.provenance.versions import claims_hash
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.tables.table_schema import with_metadata
from scalewatt.statistics import holm


def check_claims(
    results: Path, campaign: Path | None, cluster: Cluster | None, out: Path | None
) -> tuple[str, str]:
    """Check all claims; write `out`.{parquet,csv,md,json} where it is given.

    `results` is a campaign's results folder, or `reference`: the published numbers. Returns the
    verdicts as text and as JSON. InputError for what is missing or wrong.
    """
    evidence = _evidence(results, campaign, cluster)
    claims = listed_claims()
    found = verdicts(evidence, claims)
    if out is not None:
        _write(found, evidence, out)
    return as_text(found, claims, evidence), json.dumps(as_json(found), indent=1, allow_nan=False)


def write_claims(evidence: Evidence, out: Path) -> None:
    """Write what the evidence says of all claims to `out`.{parquet,csv,md,json}."""
    _write(verdicts(evidence), evidence, out)


def _write(found: Sequence[Verdict], evidence: Evidence, out: Path) -> None:
    claims = listed_claims()
    write_table_with_csv(as_table(found, claims, evidence), Path(f"{out}.parquet"))
    write_text(Path(f"{out}.md"), as_markdown(found, claims, evidence))
    write_json(Path(f"{out}.json"), as_json(found))


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


LEGEND = (
    "p is the probability of data as far outside of what is claimed, or further, were it true: that of the "
    "least probable part times the number of comparisons (Bonferroni), at most 1."
)
TABLE = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "verdict", "value", "expected", "detail")),
        *((name, pa.string()) for name in ("section", "figure", "kind", "model", "claim")),
        ("p", pa.float64()),
        ("stands", pa.bool_()),
    ]
)
WORDS = {
    SUPPORTED: "Supported",
    CONTRADICTED: "Contradicted",
    UNDECIDED: "Undecided",
    BY_CONSTRUCTION: "Identical by construction",
    SET_UP: "Set up as stated",
    SET_OTHERWISE: "Set up otherwise",
    NOT_TESTABLE: "Not testable",
    INCONSISTENCY: "Inconsistency of the paper, with the reading chosen",
}
MEANINGS = {
    SUPPORTED: "The whole 95 % interval is within what is claimed.",
    CONTRADICTED: "The whole 95 % interval is outside of what is claimed.",
    UNDECIDED: "The interval reaches across a bound.",
    BY_CONSTRUCTION: "No test: a number is compared with itself, or with what was made of it.",
    SET_UP: "No test: the campaign sets, or records, what the paper states.",
    SET_OTHERWISE: "No test: the campaign departs from what the paper states.",
    NOT_TESTABLE: "Something is missing, or too few points are there.",
    INCONSISTENCY: "The paper contradicts itself, or the facts.",
}
PLAIN = {name: words.split(",")[0].lower() for name, words in WORDS.items()} | {
    INCONSISTENCY: "inconsistencies of the paper"
}
"""The verdicts in words, in a sentence."""
OF_SIMULATED = " Simulated: verdicts only show that the engine runs."
FURTHER_WORDS = "Inconsistencies without a row among the claims"


def verdicts(evidence: Evidence, claims: Sequence[Claim] | None = None) -> list[Verdict]:
    """Return the verdict on every claim, in their order; by default on all `listed_claims`."""
    claims = claims or listed_claims()
    return together([verdict_of(claim, evidence) for claim in claims])


def together(found: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts, of which contradictions say whether they stand among all that was tested."""
    tested = [one for one in found if one.verdict in TESTED and one.p is not None]
    stands = dict(
        zip((one.id for one in tested), holm([one.p or 0.0 for one in tested]), strict=True)
    )
    return [
        replace(one, stands=stands.get(one.id, True)) if one.verdict == CONTRADICTED else one
        for one in found
    ]


def as_json(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return a list of objects, one for each row of reference/claims.csv.

    Of each id, verdict, value, expected, detail, p and stands (docs/claims.md); of what was not
    tested the last two are null.
    """
    further = unlisted_inconsistencies()
    return [asdict(one) for one in found if one.id not in further]


def as_table(found: Sequence[Verdict], claims: Sequence[Claim], evidence: Evidence) -> pa.Table:
    """Return the table `claims`: each verdict beside its claim, with metadata like the other tables'."""
    built = pa.Table.from_pylist(
        [
            {**asdict(one), "value": value_text(one.value)}
            | {"section": claim.section, "figure": claim.figure_table, "kind": claim.kind}
            | {"model": claim.model, "claim": claim.claim}
            for one, claim in zip(found, claims, strict=True)
        ],
        schema=TABLE,
    )
    absent = {name: evidence.table_metadata.get(name, []) for name in ("missing", "excluded")}
    return with_metadata(
        built, {"campaign": evidence.source, **absent, "notes": _notes(found, evidence)}
    )


def value_text(value: Value) -> str | None:
    """Return a value to four significant digits."""
    return shown(value) if isinstance(value, (int, float)) else value


def basis(evidence: Evidence) -> str:
    """Return one sentence: whose results they are, and of which origin their energies."""
    if evidence.published:
        return (
            "Checked on the paper's own published numbers; their energies are of origin published. What is "
            "tested is whether the paper's statements agree with its own and its authors' numbers. Claims "
            "on configurations and definitions are checked on the specs of campaigns/paper.yaml."
        )
    counts = Counter(
        point.origin for point in evidence.points if point.mean("energy_kwh") is not None
    )
    origins = ", ".join(f"{origin} ({count})" for origin, count in sorted(counts.items(), key=str))
    excluded = evidence.table_metadata.get("excluded") or []
    named = "; ".join(f"{e['configuration']}/{e['repeat']} ({e['reason']})" for e in excluded)
    left_out = f" Excluded runs: {named}." if named else ""
    return (
        f"Checked on {len(evidence.points)} configurations of campaign {evidence.source}"
        f"{f' (protocol {evidence.campaign.protocol})' if evidence.campaign else ''}; "
        f"configurations by the origin of their energy: {origins or 'none with energy'}."
        f"{OF_SIMULATED if is_simulated(evidence) else ''}{left_out}"
    )


def is_simulated(evidence: Evidence) -> bool:
    """Return True if results are simulated."""
    stated = any(provenance.get("simulated") for provenance in evidence.provenance.values())
    return stated or any(point.origin == SIMULATED for point in evidence.points)


def counts(found: Sequence[Verdict]) -> str:
    """Return a few sentences: how many have each verdict, first of those that were tested."""
    further = unlisted_inconsistencies()
    each = Counter(one.verdict for one in found if one.id not in further)
    again = {claim.id for claim in listed_claims() if claim.same_points_as}
    repeated = sum(one.verdict in TESTED and one.id in again for one in found)
    tested = sum(each[verdict] for verdict in TESTED)

    def of(verdicts: Sequence[str]) -> str:
        return ", ".join(f"{PLAIN[v]} {each[v]}" for v in verdicts if each[v]) or "none"

    return (
        f"Claims: {each.total()}. Tested: {tested} (independently: {tested - repeated}): {of(TESTED)}. "
        "Contradicted when all tests are taken together (Holm, 5 %): "
        f"{', '.join(one.id for one in found if one.stands) or 'none'}. "
        f"No tests: {of([verdict for verdict in VERDICTS if verdict not in TESTED])}. "
        f"{FURTHER_WORDS}: {len(found) - each.total()}."
    )


def frozen(evidence: Evidence) -> list[str]:
    """Return which list of claims and tolerances decided, and whether it is that from before the runs."""
    own = claims_hash()
    if own is None:
        return []
    sentence = f"Claims, checks, tolerances and published rows (reference/): SHA-256 {own[:16]}"
    recorded = Counter(one.get("claims_sha256") for one in evidence.provenance.values())
    if not recorded:
        return [f"{sentence}."]
    same, unknown = recorded[own], recorded[None]
    others = recorded.total() - same - unknown
    return [
        f"{sentence}. Runs that began with these: {same} of {recorded.total()}; with others, whose "
        f"tolerances may have been chosen knowing these: {others}; not known: {unknown}."
    ]


def _notes(found: Sequence[Verdict], evidence: Evidence) -> list[str]:
    """Return what stands above all verdicts."""
    legend = [LEGEND] if any(one.verdict in TESTED for one in found) else []
    return [basis(evidence), counts(found), *frozen(evidence), *legend]


def as_text(found: Sequence[Verdict], claims: Sequence[Claim], evidence: Evidence) -> str:
    """Return all verdicts by kind, for a terminal."""
    of_id = {claim.id: claim for claim in claims}
    lines = list(_notes(found, evidence))
    for words, meaning, chosen in _by_verdict(found):
        lines += ["", f"{words} ({len(chosen)}). {meaning}".rstrip()]
        for one in chosen:
            expected = [f"     Expected: {one.expected}."] if one.verdict in TESTED else []
            p = f" [{said}]" if (said := p_text(one.p, one.stands)) else ""
            for text in (f"{one.id:<4} {of_id[one.id].claim}{p}", *expected, f"     {one.detail}"):
                lines += textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent=" " * 7)
    return "\n".join(lines)


def as_markdown(found: Sequence[Verdict], claims: Sequence[Claim], evidence: Evidence) -> str:
    """Return all verdicts by kind, one table each."""
    of_id = {claim.id: claim for claim in claims}
    lines = ["# Claims"]
    lines += [line for note in _notes(found, evidence) for line in ("", note)]
    heads = ["id", "claim", "p", "value", "expected", "what was found"]
    for words, meaning, chosen in _by_verdict(found):
        lines += ["", f"## {words} ({len(chosen)})", "", *([meaning, ""] if meaning else [])]
        lines += [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        for one in chosen:
            p, value = p_text(one.p, one.stands) or "–", value_text(one.value) or "–"
            cells = [one.id, of_id[one.id].claim, p, value, one.expected, one.detail]
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def p_text(p: float | None, stands: bool | None) -> str:
    """Return p of a test, and of a contradiction whether it stands; empty where nothing was tested."""
    says = [] if p is None else [f"p = {p:.2g}"]
    if stands is not None:
        says.append(stands_text(stands))
    return ", ".join(says)


def stands_text(stands: bool) -> str:
    """Return whether a contradiction stands, in words."""
    return "stands" if stands else "does not stand"


def _by_verdict(found: Sequence[Verdict]) -> list[tuple[str, str, list[Verdict]]]:
    """Return the verdicts under headings, with what these mean; those without a row last; none empty."""
    further = unlisted_inconsistencies()
    own = [one for one in found if one.id not in further]
    groups = [
        (WORDS[name], MEANINGS[name], [one for one in own if one.verdict == name])
        for name in VERDICTS
    ]
    groups.append((FURTHER_WORDS, "", [one for one in found if one.id in further]))
    return [group for group in groups if group[2]]
