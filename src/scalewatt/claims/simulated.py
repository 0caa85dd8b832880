"""Claims on simulated results: which of them the scaling model decides, and which were put in by hand.

A run's time and whole energy are the model's. A claim about something else stands in BY_HAND with what
it is about; it is not testable where the provenance of the runs that it looks at says that this was put
in by hand. No check sees numbers that were: energies and powers of device kinds, errors that are not
published, and all results of configurations whose costs are assumed are unknown to it. How repeats
scatter was put in by hand as well: a verdict that would be another without it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalewatt.claims.evidence.claim_types import NOT_TESTABLE, SLIP, Claim, Verdict, verdict_of
from scalewatt.claims.evidence.evidence import Evidence, Point, Row
from scalewatt.recordings.series import SIMULATED
from scalewatt.results.tables.published import FULL_SAMPLES
from scalewatt.results.tables.table_schema import PARTS, QUANTITIES
from scalewatt.scaling.simulation.assumptions import SUBJECTS

DOCUMENTED = "docs/simulate.md"
SHARES, PROFILE, METRIC, SCATTER = "device_shares", "power_profile", "metric", "repeat_scatter"
"""Keys of SUBJECTS: by hand in a run whose provenance lists them."""
ASSUMED = "assumed"
"""By hand in a run whose provenance has the sentence of a model that rests on an assumption."""
BATCH, RECORDED, UNTRAINED = "batch", "recorded", "untrained"
"""By hand in every simulated run."""
ALWAYS = {
    BATCH: "in simulated runs an error depends on the global batch size and the samples alone",
    RECORDED: "what is recorded of a node, and how often, is the simulator's",
    UNTRAINED: "nothing was trained or evaluated",
}

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
ON_SCATTER = f"It rests on intervals of repeats, whose scatter was put in by hand ({DOCUMENTED})."

Where = Callable[[Row], bool]


@dataclass(frozen=True)
class ByHand:
    """What a claim is about that the scaling model does not say."""

    subject: str
    """A key of SUBJECTS or ALWAYS, or ASSUMED."""
    what: str
    where: Where = lambda row: True
    """The configurations of the claim's models (rows) that it looks at."""


def _full(least_gbs: int, most_gbs: int) -> Where:
    """Configurations on the whole dataset with a global batch size in this range."""

    def where(row: Row) -> bool:
        whole = row.get("dataset_samples") == FULL_SAMPLES.get(str(row.get("model")), -1)
        return whole and least_gbs <= row["global_batch_size"] <= most_gbs

    return where


def _fine_tuning(row: Row) -> bool:
    return bool(row.get("phase") == "finetune")


def _of(subject: str, about: Mapping[str, str], where: Where | None = None) -> dict[str, ByHand]:
    more = {} if where is None else {"where": where}
    return {id_: ByHand(subject, what, **more) for id_, what in about.items()}


BY_HAND: dict[str, ByHand] = {
    **_of(
        SHARES,
        {
            "B03": "the share of memory",
            "D08": "CPU energy at n = 1, which the shares are chosen to give",
            "D09": "CPU energy at n = 4, which the shares are chosen to give",
            "D10": "CPU energy at n = 1 and n = 4, which the shares are chosen to give",
            "D11": "GPU energy at n = 1, which the shares are chosen to give",
            "D12": "GPU energy at n = 256",
            "D13": "the share of CPUs at n = 1, which the shares are chosen to give",
            "D14": "the share of CPUs at n = 4",
            "D15": "the share of CPUs along n",
            "K05": "mean power of GPUs and of CPU sockets",
            "K06": "the share of memory",
            **dict.fromkeys(
                ("K07", "K09", "K10", "K11", "K12", "K13", "K14", "K15", "K16"),
                "mean power of GPUs",
            ),
        },
    ),
    **_of(
        PROFILE,
        {
            **dict.fromkeys(("J02", "J03", "J04", "J05", "L06"), "how GPU power varies in time"),
            "J06": "what loading data does to power",
        },
    ),
    **_of(METRIC, {"D17": "top-1 errors between GBS 256 and 8192"}, _full(0, 8192)),
    **_of(METRIC, {"D18": "the top-1 error at GBS 65536"}, _full(65536, 65536)),
    **_of(METRIC, {"D19": "top-1 errors between GBS 8192 and 65536"}, _full(0, 65536)),
    **_of(
        METRIC,
        {
            **dict.fromkeys(("F04", "F10", "F11"), "top-1 errors on parts of the dataset"),
            **dict.fromkeys(("H04", "H05", "H06", "H15"), "the Z500 RMSE"),
        },
    ),
    **_of(BATCH, dict.fromkeys(("E03", "E04"), "top-1 errors at constant GBS")),
    **_of(
        ASSUMED,
        dict.fromkeys(("H08", "H09", "H10", "H11"), "time and energy of fine-tuning"),
        _fine_tuning,
    ),
    **_of(
        RECORDED,
        {
            "B01": "the sampling period",
            "B04": "the CPU sockets of a node",
            "C12": "the CPU sockets that are counted on a part of a node",
            "G13": "whether H100 nodes have a sensor of memory",
        },
    ),
    **_of(
        UNTRAINED,
        {
            "B05": "versions of the software",
            "B06": "how a training is parallel",
            "C11": "what the metric is",
            "G05": "the optimizer and its schedule",
        },
    ),
}
"""What each claim is about whose subject simulated runs have by hand. All others are decided by time and
whole energy, by specs, or by identities that hold of any numbers."""


@dataclass(frozen=True)
class Simulated:
    """One simulated configuration."""

    row: Row
    """Its row of `configurations`, else of a run, else its spec."""
    said: tuple[Row, ...]
    """What the provenance of its runs says under `simulated`; empty where there is none."""

    def by_hand(self, subject: str) -> str | None:
        """What was put in by hand of a subject, in words; null where nothing was.

        Without provenance everything may have been.
        """
        if subject in ALWAYS:
            return ALWAYS[subject]
        if not self.said:
            return SUBJECTS.get(subject, "nothing says whether its costs are assumed")
        found = [
            one.get(ASSUMED) if subject == ASSUMED else (one.get("by_hand") or {}).get(subject)
            for one in self.said
        ]
        return next((text for text in found if text), None)

    @property
    def is_assumed(self) -> bool:
        """Whether its costs are known to be assumed."""
        return bool(self.said) and self.by_hand(ASSUMED) is not None


def simulated_in(evidence: Evidence) -> dict[str, Simulated]:
    """The simulated configurations of the evidence, by their ids."""
    said: dict[str, list[Row]] = {}
    for (id_, _), provenance in evidence.provenance.items():
        if provenance.get("simulated"):
            said.setdefault(id_, []).append(provenance["simulated"])
    rows: dict[str, Row] = {id_: evidence.specs.get(id_, {}) for id_ in said}
    runs = [*evidence.runs, *(trace.row for trace in evidence.traces)]
    for row in [*runs, *(point.row for point in evidence.points)]:
        id_ = row["configuration"]
        if id_ in said or row.get("energy_origin") == SIMULATED:
            rows[id_] = {**rows.get(id_, {}), **row}
    return {id_: Simulated(row, tuple(said.get(id_, ()))) for id_, row in rows.items()}


def verdicts_on(evidence: Evidence, claims: Sequence[Claim]) -> list[Verdict]:
    """The verdict on every claim, in their order; on results that are not simulated by the checks alone."""
    found = simulated_in(evidence)
    if not found:
        return [verdict_of(claim, evidence) for claim in claims]
    seen = without_by_hand(evidence, found)
    assumed = {id_ for id_, one in found.items() if one.is_assumed}
    rest = _without(seen, assumed) if assumed else seen
    bare = without_scatter(rest, found)
    return [_named(_verdict(claim, seen, rest, bare, found, len(assumed))) for claim in claims]


def _verdict(
    claim: Claim,
    evidence: Evidence,
    rest: Evidence,
    bare: Evidence,
    found: Mapping[str, Simulated],
    assumed: int,
) -> Verdict:
    """The verdict by `rest`, the `evidence` without assumed costs; `bare`: without what scatter says."""
    text = by_hand(claim, found)
    if text is not None:
        return Verdict(claim.id, NOT_TESTABLE, None, claim.expected, text)
    first = verdict_of(claim, rest)
    said = [first.detail]
    if first != verdict_of(claim, bare):
        said.append(ON_SCATTER)
    if rest is not evidence and first != verdict_of(claim, evidence):
        said.append(f"Left out: {assumed} configurations whose costs are assumed ({DOCUMENTED}).")
    if claim.id in BY_HAND and BY_HAND[claim.id].subject == METRIC and first.value is not None:
        said.append("It is the published error that simulated runs are made to end at.")
    return replace(first, detail=" ".join(said))


def by_hand(claim: Claim, found: Mapping[str, Simulated]) -> str | None:
    """Why a claim is not testable on these configurations; null where it is."""
    entry = BY_HAND.get(claim.id)
    if entry is None:
        return None
    looked_at = [
        one for one in found.values() if _concerns(claim, one.row) and entry.where(one.row)
    ]
    texts = [text for one in looked_at if (text := one.by_hand(entry.subject)) is not None]
    if not texts:
        return None
    what = entry.what[:1].upper() + entry.what[1:]
    return (
        f"{what}: put in by hand in simulated runs, not found by them ({texts[0].rstrip('.')}; "
        f"{DOCUMENTED})."
    )


def _concerns(claim: Claim, row: Row) -> bool:
    """Whether a configuration is of a model that the claim names; one whose model is unknown may be."""
    model = row.get("model")
    return model is None or claim.model in ("", "all") or str(model) in claim.model


def without_by_hand(evidence: Evidence, found: Mapping[str, Simulated]) -> Evidence:
    """The evidence whose points do not know what was put in by hand.

    Runs, which identities are about, stay as they are; so do traces, whose origin checks ask for.
    """

    def seen(point: Point) -> Point:
        one = found.get(point.id)
        subjects = () if one is None else tuple(s for s in QUANTITIES_OF if one.by_hand(s))
        names = [name for subject in subjects for name in QUANTITIES_OF[subject]]
        unknown = {f"{name}_{part}": None for name in names for part in PARTS}
        return replace(point, row={**point.row, **unknown}) if unknown else point

    def whole(row: Row) -> bool:
        """Whether a comparison is of whole energies: of fewer device kinds, it has parts by hand."""
        ids = (row["configuration"], row["baseline"])
        apart = [id_ for id_ in ids if id_ in found and found[id_].by_hand(SHARES)]
        return all(found[id_].row.get("energy_scope") == row["energy_scope"] for id_ in apart)

    lines = tuple(replace(ln, points=tuple(map(seen, ln.points))) for ln in evidence.lines)
    return replace(
        evidence,
        lines=lines,
        points=tuple(map(seen, evidence.points)),
        comparisons=tuple(row for row in evidence.comparisons if whole(row)),
    )


def without_scatter(evidence: Evidence, found: Mapping[str, Simulated]) -> Evidence:
    """The evidence that does not know how repeats vary, where their scatter was put in by hand."""
    ids = {id_ for id_, one in found.items() if one.by_hand(SCATTER)}
    unknown = dict.fromkeys(SPREADS)

    def seen(point: Point) -> Point:
        if point.id not in ids:
            return point
        return replace(point, row={**point.row, **unknown}, spreads={})

    lines = tuple(replace(ln, points=tuple(map(seen, ln.points))) for ln in evidence.lines)
    return replace(
        evidence,
        lines=lines,
        points=tuple(map(seen, evidence.points)),
        comparisons=tuple(
            row for row in evidence.comparisons if not {row["configuration"], row["baseline"]} & ids
        ),
    )


def _without(evidence: Evidence, ids: set[str]) -> Evidence:
    """The evidence without the points of these configurations."""
    lines = tuple(
        replace(line, points=tuple(p for p in line.points if p.id not in ids))
        for line in evidence.lines
    )
    points = tuple(point for point in evidence.points if point.id not in ids)
    return replace(evidence, lines=lines, points=points)


def _named(verdict: Verdict) -> Verdict:
    """The verdict with a detail that names the origin simulated, unless no result decides it."""
    if verdict.verdict == SLIP or f"Origin of the energy: {SIMULATED}." in verdict.detail:
        return verdict
    return replace(verdict, detail=f"{verdict.detail} Origin of the runs: {SIMULATED}.")


def basis_of_simulated(evidence: Evidence) -> str:
    """Sentences on what simulated results rest on; empty where there are none."""
    found = simulated_in(evidence)
    if not found:
        return ""
    models: dict[str, Any] = {
        f"{said.get('model')} ({str(said.get('model_sha256'))[:12]})": None
        for one in found.values()
        for said in one.said
    }
    named = f" with the scaling model {', '.join(sorted(models))}" if models else ""
    others = {str(row["configuration"]) for row in evidence.runs}
    others = (others | {point.id for point in evidence.points}) - set(found)
    start = f"The runs of {len(found)} configurations were not trained: they are"
    if not others:
        start = f"No run was trained: those of all {len(found)} configurations are"
    return (
        f" {start} of origin {SIMULATED}{named}. Verdicts say what follows "
        "from its times and energies, which give again the numbers that it was calibrated on. Claims "
        "on what was put in by hand are not testable, and the scatter of repeats, on which intervals "
        f"rest, was put in by hand too ({DOCUMENTED})."
    )
