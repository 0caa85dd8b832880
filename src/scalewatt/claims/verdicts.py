"""The verdict on a claim: that of all its rows in the table of checks.

The scope of a row says which series, and which of their points, it is checked on:

| scope | what is looked at |
| --- | --- |
| series | the series of each mode on the claim's device, else on every other device that has it |
| all | every series of the description |
| paper | the paper's series |
| sizes | FourCastNet's pre-trainings with these GPUs, LBS and GBS, trained as in the paper |
| probe | the probe of 20 epochs |
| trainings, models | all points of each model, phase and device; of each model and device |
| devices | all points of the claim's device, else of each other device |

For a campaign that trained none of the paper's models, reference/portable_checks.csv has the rows, for the
claims whose sentence speaks of trainings in general. Where `model` is `each`, every training of the campaign
(model, phase, device) takes the place of the paper's, and all decide together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from scalewatt.claims.comparisons import COMPARISON_RULES
from scalewatt.claims.evidence import Evidence, Line, Points
from scalewatt.claims.outcomes import Outcome, Rule, all_of, attempt, combine
from scalewatt.claims.quantities import P, in_papers_scope, known, refuse_estimates, require_paper
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    INCONSISTENCY,
    NO_TEST,
    NOT_TESTABLE,
    PORTABLE_TABLE,
    SET_OTHERWISE,
    SET_UP,
    SPECIFIED_KINDS,
    SUPPORTED,
    TESTED,
    UNDECIDED,
    Check,
    Claim,
    NotTestable,
    Value,
    inconsistencies,
    read_checks,
)
from scalewatt.claims.settings import RUN_RULES, SPEC_RULES, unless_departing
from scalewatt.claims.shapes import SERIES_RULES
from scalewatt.claims.traces import TRACE_RULES
from scalewatt.results.tables.published import FULL_SAMPLES

GROUPS = {
    "trainings": ["model", "phase", "device"],
    "models": ["model", "device"],
    "devices": ["device"],
}
"""What the points of a group share, by scope."""
SCOPES = ("series", "all", "paper", "sizes", "probe", *GROUPS)
RULES: dict[str, Rule] = {**COMPARISON_RULES, **RUN_RULES, **SPEC_RULES, **TRACE_RULES}
"""Rules that look at more than the points of one series, by the name that the table calls them."""
OTHER_CLAIMS = "claims"
"""The rule of a claim that holds where others do: `quantity` names them."""
SETTINGS = {*SPEC_RULES, "profiles"}
"""Rules on what a campaign sets: one that is none of the paper's departs by its choice."""
COUNTS = {"updates_per_epoch"}
"""Rules on what follows from settings alone."""
EACH = "each"
"""In place of a model: every training of the campaign."""


# --- rows on series ---------------------------------------------------------------------------------


def _check_series(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check rows on the series of their scope: all modes decide together, none may be missing."""

    def check_line(line: Line) -> Outcome:
        """Combine rows; what one lacks hides no other. If all lack something, the first is named."""
        parts = [attempt("", check_row, line, check) for check in checks]
        if all(outcome.verdict == NOT_TESTABLE for _, outcome in parts):
            return parts[0][1]
        return all_of(parts)

    def check_row(line: Line, check: Check) -> Outcome:
        points, remark = _select(check, line), ""
        if check.training and check.column in ("energy_kwh", P):
            points, remark = in_papers_scope(points)
        check = Check(**vars(check) | {"text": f"{check.text}{remark}"})
        return SERIES_RULES[check.rule](check, evidence, line, points)

    def check_mode(mode: str) -> Outcome:
        lines = _lines(evidence, checks[0], mode)
        return combine(attempt(line.title, check_line, line) for line in lines)

    return all_of(attempt("", check_mode, mode) for mode in checks[0].modes)


def _lines(evidence: Evidence, check: Check, mode: str) -> Sequence[Line]:
    """Series of a mode, or groups of points, that a check is on; NotTestable without any."""
    if check.scope in ("paper", "probe"):
        return [evidence.line(*check.series, mode, int(check.batch))]
    if check.scope == "series":
        return [line for (line,) in evidence.anywhere(*check.series, mode)]
    if check.scope == "all":
        lines = evidence.distinct(*check.series, mode)
        lines = lines if mode else [ln for ln in lines if ln.mode not in ("probe", "other")]
    else:
        lines = _groups(evidence, check)
    if not lines:
        what = " ".join(filter(None, (*check.series, mode))) or "any training"
        raise NotTestable(f"No finished run of {what} as it is asked for.")
    return lines


def _groups(evidence: Evidence, check: Check) -> list[Line]:
    """Groups of points of the check's model, phase and device, whatever their series."""
    points = evidence.points
    wanted = {"model": check.model, "phase": check.phase, "device": check.device}
    if check.scope == "devices":
        points = points.dropna(subset=[f"{check.quantity}_mean"])
        if not points["device"].eq(check.device).any():
            wanted["device"] = ""
    if check.scope == "sizes":
        points = points[~points["is_probe"].astype(bool)]
        wanted |= {"gpus": int(check.n), "local_batch_size": int(check.batch)}
        wanted["global_batch_size"] = int(check.gbs)
    for name, value in wanted.items():
        points = points[points[name] == value] if value else points
    if check.scope == "sizes" and (points["unlike"] == "").any():
        points = points[points["unlike"] == ""]
    keys = GROUPS.get(check.scope, ["configuration"])
    groups = points.sort_values("gpus", kind="stable").groupby(keys, sort=False)
    lines = []
    for names, group in groups:
        title = " ".join(str(key) for key in names if key != "train")
        device = str(group["device"].iloc[0])
        lines.append(evidence.group(group, title, check.model, check.phase, device))
    return lines


def _select(check: Check, line: Line) -> Points:
    """Points of a line that a check names; NotTestable if they are missing, or trained otherwise."""
    points = line.points
    for condition in check.n.split():
        if condition.isdigit():
            points = points[points["gpus"] == int(condition)]
            if points.empty:
                raise NotTestable(f"{line.title}: no finished run with {condition} GPUs.")
        elif condition == "node":
            points = points[points["gpus"] >= line.node]
        elif condition.startswith(">="):
            points = points[points["gpus"] >= int(condition[2:])]
        elif condition.startswith("<="):
            points = points[points["gpus"] <= int(condition[2:])]
    if check.training == "paper points" and (points["unlike"] == "").any():
        points = points[points["unlike"] == ""]
    elif check.training:
        points = require_paper(points)
    if check.against == "gpu_hours":  # whatever the number of points: more would not help
        refuse_estimates(points)
    is_single = check.n.isdigit() or check.training == "paper"
    least = 1 if is_single else int(check.least or 3)
    points = known(points, line.title, *check.columns, min_points=least)
    return _with_gbs(check, points) if check.gbs and check.scope != "sizes" else points


def _with_gbs(check: Check, points: Points) -> Points:
    """Points at a GBS, or up to it; the largest must be among them."""
    size, sizes = int(check.gbs.removeprefix("<=")), points["global_batch_size"]
    if not sizes.eq(size).any():
        raise NotTestable(f"No finished run with GBS {size} knows its top-1 error; 1 more needed.")
    if check.gbs == str(size):
        return points[sizes == size].head(1)
    points, least = points[sizes <= size], int(check.least or 3)
    if len(points) < least:
        raise NotTestable(f"{len(points)} points up to GBS {size}; {least} are needed.")
    return points


# --- all rows of a claim ------------------------------------------------------------------------------


def check_claim(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """What the rows of a claim say together; NotTestable if something is missing."""
    # Rows of a scope that look at the same points go together; each other row is for itself.
    keyed = groupby(enumerate(checks), lambda row: row[1].selector if row[1].scope else row[0])
    groups = [[check for _, check in rows] for _, rows in keyed]
    outcome = all_of(attempt("", _check_group, rows, evidence) for rows in groups)
    if checks[0].rule in SETTINGS:
        return unless_departing(outcome, evidence, checks[0].model)
    return outcome


def _check_group(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """What rows on the same points say together."""
    check = checks[0]
    if check.scope:
        return _check_series(evidence, checks)
    if check.rule == OTHER_CLAIMS:
        others = check.quantity.split(";")
        return all_of(attempt(id_, check_claim, read_checks()[id_], evidence) for id_ in others)
    return RULES[check.rule](evidence, check)


def _check_rows(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Check the rows of a claim; if `model` is EACH on every training, all of which decide together."""
    if all(check.model != EACH for check in checks):
        return check_claim(checks, evidence)

    def check_training(training: dict[str, str]) -> Outcome:
        return check_claim([Check(**vars(check) | training) for check in checks], evidence)

    keys = GROUPS["trainings"]
    trainings = evidence.points[keys].drop_duplicates().sort_values(keys).to_dict("records")
    return combine(
        attempt(" ".join(n for n in training.values() if n != "train"), check_training, training)
        for training in trainings
    )


# --- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim, with the value and p of its outcome."""

    id: str
    verdict: str
    value: Value
    expected: str
    detail: str
    p: float | None = None
    stands: bool | None = None
    """Of a contradiction: whether it is one too when all tested claims are taken together (Holm)."""
    reason: str | None = None
    """Of NO_TEST: why nothing was tested."""


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim; one without a check is an inconsistency, or not testable.

    The detail names the origin of the energies that the check looked at, unless they are measured or the
    paper's; which claims are tested on the same points; and what stands in for the paper's trainings.
    """
    checks, expected, stands_in = read_checks().get(claim.id), claim.expected, ""
    if checks is None:
        row = inconsistencies()[claim.id]
        shows = "Shows nowhere" if row.shows_in == "nowhere" else f"Shows in {row.shows_in}"
        expected, detail = "nothing: an inconsistency", f"{row.reading} {shows}."
        return Verdict(claim.id, NO_TEST, None, expected, detail, reason=INCONSISTENCY)
    is_foreign = len(evidence.points) and not evidence.points["model"].isin(FULL_SAMPLES).any()
    if is_foreign and (portable := read_checks(PORTABLE_TABLE).get(claim.id)):
        checks, expected, stands_in = portable, portable[0].expected, portable[0].stands_in
    outcome = _classed(claim, checks, attempt("", _check_rows, checks, evidence)[1])
    sentences, is_test = [outcome.detail], outcome.verdict in TESTED
    if is_test and claim.same_points_as:
        others = claim.same_points_as.replace(";", ", ")
        sentences.append(f"Same points as {others}: no independent test.")
    if is_test and stands_in:
        sentences.append(stands_in)
    if other := sorted(outcome.origins - {"measured", "published"}):
        sentences.append(f"Origin of the energy: {', '.join(other)}.")
    verdict = Verdict(claim.id, outcome.verdict, outcome.value, expected, " ".join(sentences))
    if is_test or outcome.verdict == NOT_TESTABLE:
        return replace(verdict, p=outcome.p if is_test else None)
    return replace(verdict, verdict=NO_TEST, reason=outcome.verdict)


def _classed(claim: Claim, checks: Sequence[Check], outcome: Outcome) -> Outcome:
    """The outcome with the verdict of what it is: only what data could refute is supported.

    What a campaign sets is set up as stated. Where no number was compared with a bound, nothing was tested.
    """
    rules = {check.rule for check in checks}
    is_setting = claim.kind in SPECIFIED_KINDS or rules & {*SETTINGS, *COUNTS}
    if outcome.verdict == SUPPORTED and is_setting:
        return replace(outcome, verdict=SET_UP)
    if outcome.verdict == CONTRADICTED and rules & SETTINGS:
        return replace(outcome, verdict=SET_OTHERWISE)
    if outcome.verdict == UNDECIDED and outcome.p is None:
        return replace(outcome, verdict=NOT_TESTABLE)
    return outcome
