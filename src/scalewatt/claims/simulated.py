"""Claims on simulated results: which of them the scaling model decides, and which rest on assumptions.

A run's time and whole energy are the model's. A claim about something else has it in the column `assumed`
of claims.csv; it is not testable where the provenance of the runs that it looks at says that this was
assumed. No check sees numbers that were: energies and powers of device kinds, errors that are not
published, and all results of configurations whose costs are assumed are unknown to it. How repeats
scatter is assumed as well: a verdict that would be another without it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalewatt.claims.evidence.claim_types import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    INCONSISTENCY,
    NOT_TESTABLE,
    TESTED,
    Claim,
    Verdict,
)
from scalewatt.claims.evidence.evidence import Evidence, Point, Row
from scalewatt.claims.evidence.expectations import expected_of
from scalewatt.claims.numbers.decisions import holm
from scalewatt.claims.verdicts.verdict_of_claim import verdict_and_basis, verdict_of
from scalewatt.provenance.versions import SIMULATION_SUBJECTS
from scalewatt.recordings.series import SIMULATED
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import FULL_SAMPLES
from scalewatt.results.tables.table_schema import PARTS, QUANTITIES

DOCUMENTED = "docs/simulate.md"
SHARES, METRIC, SCATTER = "device_shares", "metric", "repeat_scatter"
"""Keys of SIMULATION_SUBJECTS: assumed in a run whose provenance lists them."""
COSTS = "assumed"
"""Assumed in a run whose provenance has the sentence of a model that rests on an assumption."""
ALWAYS = {
    "batch": "in simulated runs an error depends on the global batch size and the samples alone",
    "recorded": "what is recorded of a node, and how often, is the simulator's",
    "untrained": "nothing was trained or evaluated",
}
"""Assumed in every simulated run."""

_OF_DEVICES = (
    "gpu_energy",
    "cpu_energy",
    "ram_energy",
    "gpu_power",
    "cpu_socket_power",
    "ram_power",
)
QUANTITIES_OF = {
    SHARES: [name for name in QUANTITIES if any(part in name for part in _OF_DEVICES)],
    METRIC: [name for name in QUANTITIES if name.startswith("metric_")],
}
"""Quantities of `configurations` that follow from a subject."""

SPREADS = tuple(f"{name}_{part}" for name in QUANTITIES for part in PARTS if part != "mean")
"""Columns of `configurations` that follow from how repeats scatter."""
GIVEN_AGAIN = (
    "The scaling model was calibrated on these configurations, and gives them again: no test. As one it "
    "would read {}."
)
ON_SCATTER = f"It rests on intervals of repeats, whose scatter is assumed ({DOCUMENTED})."


@dataclass(frozen=True)
class Simulated:
    """One simulated configuration."""

    row: Row
    """Its row of `configurations`, else of a run, else its spec."""
    statements: tuple[Row, ...]
    """What the provenance of its runs says under `simulated`; empty if there is none."""

    def assumption(self, subject: str) -> str | None:
        """Return what is assumed of a subject; null if nothing is.

        Without provenance everything may be.
        """
        if subject in ALWAYS:
            return ALWAYS[subject]
        if not self.statements:
            return SIMULATION_SUBJECTS.get(subject, "nothing says whether its costs are assumed")
        found = [
            one.get(COSTS) if subject == COSTS else (one.get("by_hand") or {}).get(subject)
            for one in self.statements
        ]
        return next((text for text in found if text), None)

    @property
    def is_calibrated(self) -> bool:
        """Return True if the scaling model was calibrated on it, or nothing says that it was not."""
        return all(one.get("calibrated", True) for one in self.statements)

    @property
    def is_assumed(self) -> bool:
        """Return True if its costs are known to be assumed."""
        return bool(self.statements) and self.assumption(COSTS) is not None


def simulated_in(evidence: Evidence) -> dict[str, Simulated]:
    """Return the simulated configurations of the evidence, by their ids."""
    statements: dict[str, list[Row]] = {}
    for (id_, _), provenance in evidence.provenance.items():
        if provenance.get("simulated"):
            statements.setdefault(id_, []).append(provenance["simulated"])
    specs = {id_: evidence.specs[id_].as_json() for id_ in statements if id_ in evidence.specs}
    rows: dict[str, Row] = {id_: specs.get(id_, {}) for id_ in statements}
    looked_at = [*(one.row for one in evidence.traces), *(one.row for one in evidence.points)]
    for row in [*records(evidence.runs), *looked_at]:
        id_ = row["configuration"]
        if id_ in statements or row.get("energy_origin") == SIMULATED:
            rows[id_] = {**rows.get(id_, {}), **row}
    return {id_: Simulated(row, tuple(statements.get(id_, ()))) for id_, row in rows.items()}


def verdicts_on(evidence: Evidence, claims: Sequence[Claim]) -> list[Verdict]:
    """Return the verdict on every claim, in their order; the checks alone decide on results that ran."""
    found = simulated_in(evidence)
    if not found:
        return together([verdict_of(claim, evidence) for claim in claims])
    seen = without_assumptions(evidence, found)
    assumed = {id_ for id_, one in found.items() if one.is_assumed}
    rest = seen.changed(lambda p: None if p.id in assumed else p) if assumed else seen
    bare = without_scatter(rest, found)
    calibrated = {id_ for id_, one in found.items() if one.is_calibrated}

    def verdict(claim: Claim) -> Verdict:
        """Return the verdict by `rest`, with sentences on what it rests on."""
        is_measured = False
        text = assumption_of(claim, found)
        if text is not None:
            first = Verdict(claim.id, NOT_TESTABLE, None, expected_of(claim), text)
            sentences = [text]
        else:
            first, looked_at = verdict_and_basis(claim, rest)
            sentences = [first.detail]
            is_measured = bool(looked_at) and looked_at.isdisjoint(found)
            if first != verdict_of(claim, bare):
                sentences.append(ON_SCATTER)
            if assumed and first != verdict_of(claim, seen):
                sentences.append(
                    f"Left out: {len(assumed)} configurations whose costs are assumed ({DOCUMENTED})."
                )
            gives_again = looked_at and looked_at <= calibrated
            given = ""
            if claim.assumed == METRIC and first.value is not None:
                given = "It is the published error that simulated runs are made to end at."
            elif first.verdict in TESTED and first.p is not None and gives_again:
                given = GIVEN_AGAIN.format(first.verdict)
            if given:
                sentences.append(given)
                first = replace(first, verdict=BY_CONSTRUCTION, p=None, chances=None, off=None)
        # The origin is named, unless no simulated result decides the claim or its energies are named already.
        named = f"Origin of the energy: {SIMULATED}." in first.detail
        if first.verdict != INCONSISTENCY and not named and not is_measured:
            sentences.append(f"Origin of the runs: {SIMULATED}.")
        return replace(first, detail=" ".join(sentences))

    return together([verdict(claim) for claim in claims])


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


def assumption_of(claim: Claim, found: Mapping[str, Simulated]) -> str | None:
    """Return why a claim is not testable on these configurations; null if it is."""
    if not claim.assumed:
        return None
    looked_at = [one for one in found.values() if _concerns(claim, one.row)]
    texts = [text for one in looked_at if (text := one.assumption(claim.assumed)) is not None]
    if not texts:
        return None
    what = claim.assumed_about[:1].upper() + claim.assumed_about[1:]
    return f"{what}: assumed in simulated runs, not found by them ({texts[0].rstrip('.')}; {DOCUMENTED})."


def _concerns(claim: Claim, row: Row) -> bool:
    """Return True if a configuration is of a model that the claim names, and of what it is about.

    One whose model is unknown may be.
    """
    model = row.get("model")
    if model is not None and claim.model not in ("", "all") and str(model) not in claim.model:
        return False
    if claim.assumed_where.startswith("gbs"):
        is_whole = row.get("dataset_samples") == FULL_SAMPLES.get(str(model), -1)
        size = int(claim.assumed_where.strip("gbs<="))
        largest = "<" in claim.assumed_where
        gbs = row["global_batch_size"] if is_whole else None
        return gbs is not None and (gbs <= size if largest else gbs == size)
    return not claim.assumed_where or row.get("phase") == claim.assumed_where


def without_assumptions(evidence: Evidence, found: Mapping[str, Simulated]) -> Evidence:
    """Return the evidence whose points do not know what is assumed.

    Runs, which identities are about, stay as they are; so do traces, whose origin checks ask for.
    """

    def seen(point: Point) -> Point:
        one = found.get(point.id)
        subjects = () if one is None else tuple(s for s in QUANTITIES_OF if one.assumption(s))
        names = [name for subject in subjects for name in QUANTITIES_OF[subject]]
        unknown = {f"{name}_{part}": None for name in names for part in PARTS}
        return replace(point, row={**point.row, **unknown}) if unknown else point

    return evidence.changed(seen)


def without_scatter(evidence: Evidence, found: Mapping[str, Simulated]) -> Evidence:
    """Return the evidence that does not know how repeats vary, where their scatter is assumed."""
    ids = {id_ for id_, one in found.items() if one.assumption(SCATTER)}
    unknown = dict.fromkeys(SPREADS)

    def seen(point: Point) -> Point:
        if point.id not in ids:
            return point
        return replace(point, row={**point.row, **unknown}, spreads={})

    return evidence.changed(seen)


def basis_of_simulated(evidence: Evidence) -> str:
    """Return sentences on what simulated results rest on; empty if there are none."""
    found = simulated_in(evidence)
    if not found:
        return ""
    models: dict[str, Any] = {
        f"{statement.get('model')} ({str(statement.get('model_sha256'))[:12]})": None
        for one in found.values()
        for statement in one.statements
    }
    named = f" with the scaling model {', '.join(sorted(models))}" if models else ""
    others = set(map(str, evidence.runs["configuration"]))
    others = (others | {point.id for point in evidence.points}) - set(found)
    start = f"The runs of {len(found)} configurations were not trained: they are"
    if not others:
        start = f"No run was trained: those of all {len(found)} configurations are"
    return (
        f" {start} of origin {SIMULATED}{named}. Verdicts say what follows "
        "from its times and energies, which give again the numbers that it was calibrated on. Claims "
        "on what is assumed are not testable, and the scatter of repeats, on which intervals rest, is "
        f"assumed too ({DOCUMENTED})."
    )
