"""The verdict on a claim: that of all its rows in the table of checks.

The scope of a row says which series, and which of their points, it is checked on:

| scope | what is looked at |
| --- | --- |
| series | the series of each mode on the claim's device, else on every other device that has it |
| named | the same |
| all | every series of the description |
| paper | points of the paper's series, trained as in the paper |
| sizes | FourCastNet's pre-trainings with these GPUs, LBS and GBS, trained as in the paper |
| probe | the probe of 20 epochs |

For a campaign that trained none of the paper's models, reference/portable_checks.csv has the rows, for the
claims whose sentence speaks of trainings in general. Where `model` is `each`, every training of the campaign
(model, phase, device) takes the place of the paper's, and all decide together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from scalewatt.claims.comparisons import COMPARISON_RULES
from scalewatt.claims.evidence import Evidence, Line, Point, unlike_paper
from scalewatt.claims.outcomes import Outcome, Rule, all_of, attempt, combine
from scalewatt.claims.quantities import (
    PROBE_EPOCHS,
    as_in_paper,
    enough,
    in_paper,
    known,
    pretrainings,
    refuse_estimates,
)
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    INCONSISTENCY,
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
    portable_texts,
    read_checks,
)
from scalewatt.claims.runs import RUN_RULES
from scalewatt.claims.settings import SPEC_RULES, unless_departing
from scalewatt.claims.shapes import SERIES_RULES
from scalewatt.claims.traces import TRACE_RULES
from scalewatt.results.tables.published import FULL_SAMPLES

SCOPES = ("series", "named", "all", "paper", "sizes", "probe")
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
    first = checks[0]

    def check_line(line: Line) -> Outcome:
        return _check_points(checks, evidence, line, lambda row: _select(row, evidence, line))

    def check_mode(mode: str) -> Outcome:
        lines = _lines(evidence, first, mode)
        outcome = combine(attempt(line.title, check_line, line) for line in lines)
        if len(lines) == 1 and (lines[0].alike or len(first.modes) > 1):
            return replace(outcome, detail=f"{lines[0].title}: {outcome.detail}")
        return outcome

    return all_of(attempt("", check_mode, mode) for mode in first.modes)


def _lines(evidence: Evidence, check: Check, mode: str) -> Sequence[Line]:
    """Lines of a mode that a check is on; NotTestable without any."""
    if check.scope in ("paper", "probe"):
        return [evidence.line(*check.series, mode, int(check.batch))]
    if check.scope != "all":
        return evidence.anywhere(*check.series, mode)
    lines = evidence.series(*check.series, mode, least=1)
    if not lines:
        raise NotTestable(f"No finished run of {check.model} in a series of mode {mode}.")
    return lines


def _check_points(
    checks: Sequence[Check],
    evidence: Evidence,
    line: Line,
    points_of: Callable[[Check], Sequence[Point]],
) -> Outcome:
    """Combine rows on a line; what one lacks hides no other. If all lack something, the first is named."""

    def check_row(check: Check) -> Outcome:
        return SERIES_RULES[check.rule](check, evidence, line, points_of(check))

    parts = [attempt(check.part, check_row, check) for check in checks]
    if all(outcome.verdict == NOT_TESTABLE for _, outcome in parts):
        return parts[0][1]
    return all_of(parts)


def _select(check: Check, evidence: Evidence, line: Line) -> Sequence[Point]:
    """Points of a line that a check names; NotTestable if they are missing, or trained otherwise."""
    whole = evidence.gpus_per_node(line.device)
    training = check.training
    if check.scope in ("paper", "probe"):
        training = "paper points" if check.n == "last/first" else "paper"
    if re.fullmatch(r"\d+(/(\d+|node))?", check.n):
        counts = [whole if n == "node" else int(n) for n in check.n.split("/")]
        points: Sequence[Point] = _points_at(line, counts)
    elif training == "paper points":
        ids = {point.id for point in in_paper(line)}
        points = [point for point in line.having(*check.columns) if point.id in ids]
        enough(points, f"{line.title}, {check.text}", check.min_points)
    else:
        if check.against == "gpu_hours":  # whatever the number of points: more would not help
            refuse_estimates(line.having(*check.columns))
        at_least = whole if check.n == "node" else 0
        min_points = 1 if training == "paper" else check.min_points
        points = known(line, *check.columns, at_least=at_least, min_points=min_points)
    if training == "paper":
        epochs = PROBE_EPOCHS if check.scope == "probe" else None
        points = [as_in_paper(point, epochs) for point in points]
    return _with_gbs(check, points) if check.gbs else points


def _points_at(line: Line, counts: Sequence[int]) -> list[Point]:
    """Points at these n; NotTestable if one has no result."""
    by_n = {point.gpus: point for point in line.points}
    if missing := [str(n) for n in counts if n not in by_n]:
        raise NotTestable(
            f"{line.title}: no finished run with {' or '.join(missing)} GPUs; {len(missing)} more needed."
        )
    return [by_n[n] for n in counts]


def _with_gbs(check: Check, points: Sequence[Point]) -> Sequence[Point]:
    """Points at a GBS, or up to it; the largest must be among them."""
    size = int(check.gbs.removeprefix("<="))
    if check.gbs == str(size):
        points = [point for point in points if point.gbs == size][:1]
        if not points:
            raise NotTestable(f"No finished run with GBS {size} knows its top-1 error.")
        return points
    points = [point for point in points if point.gbs <= size]
    if len(points) < check.min_points or points[-1].gbs < size:
        batches = ", ".join(str(point.gbs) for point in points) or "none"
        raise NotTestable(
            f"{len(points)} points up to GBS {size} (GBS {batches}); {check.min_points} are needed, one at "
            f"GBS {size}."
        )
    return points


def _check_sizes(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the pre-trainings of a device with these GPUs, LBS and GBS.

    If several have them, with settings that the paper does not state, all decide together.
    """
    check = checks[0]
    sizes = (int(check.n), int(check.batch), int(check.gbs))
    points = [p for p in pretrainings(evidence, check.device) if (p.gpus, p.lbs, p.gbs) == sizes]
    as_paper = [point for point in points if not unlike_paper(point)]
    if not as_paper:
        other = f": {points[0].id} has {', '.join(unlike_paper(points[0]))}" if points else ""
        raise NotTestable(
            f"No finished run of FourCastNet's pre-training on {check.device} as in the paper with GPUs "
            f"{check.n}, LBS {check.batch}, GBS {check.gbs}{other}."
        )
    line = Line("", "", *check.series, "", None)

    def check_point(point: Point) -> Outcome:
        return _check_points(checks, evidence, line, lambda check: [point])

    return combine(attempt(point.id, check_point, point) for point in as_paper)


# --- all rows of a claim ------------------------------------------------------------------------------


def check_claim(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """What the rows of a claim say together; NotTestable if something is missing."""
    groups = [list(rows) for _, rows in groupby(checks, key=lambda check: check.selector)]
    if len(groups) > 1:
        return all_of(attempt("", _check_group, rows, evidence) for rows in groups)
    outcome = _check_group(checks, evidence)
    if checks[0].rule in SETTINGS:
        return unless_departing(outcome, evidence, checks[0].model)
    return outcome


def _check_group(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """What rows on the same points say together."""
    check = checks[0]
    if check.scope:
        return (_check_sizes if check.scope == "sizes" else _check_series)(evidence, checks)
    if check.rule == OTHER_CLAIMS:
        others = check.quantity.split(";")
        return all_of(attempt(id_, check_claim, read_checks()[id_], evidence) for id_ in others)
    return RULES[check.rule](evidence, check)


def _check_rows(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Check the rows of a claim; if `model` is EACH on every training, all of which decide together."""
    if all(check.model != EACH for check in checks):
        return check_claim(checks, evidence)
    trainings = sorted({(p.model, p.phase, p.device) for p in evidence.points})

    def check_training(model: str, phase: str, device: str) -> Outcome:
        rows = [replace(check, model=model, phase=phase, device=device) for check in checks]
        return check_claim(rows, evidence)

    return combine(
        attempt(" ".join(name for name in training if name != "train"), check_training, *training)
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


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim; one without a check is an inconsistency, or not testable.

    The detail names the origin of the energies that the check looked at, unless they are measured or the
    paper's; which claims are tested on the same points; and what stands in for the paper's trainings.
    """
    checks = read_checks().get(claim.id)
    is_foreign = evidence.points and all(p.model not in FULL_SAMPLES for p in evidence.points)
    portable = read_checks(PORTABLE_TABLE).get(claim.id) if is_foreign else None
    if checks is None and claim.kind == "inconsistency":
        row = inconsistencies().get(claim.id)
        reading = claim.note if row is None else row.text
        return Verdict(claim.id, INCONSISTENCY, None, "nothing: an inconsistency", reading)
    if checks is None:
        reason = "There is no check for this claim."
        return Verdict(claim.id, NOT_TESTABLE, None, claim.expected, reason)
    outcome = _classed(claim, checks, attempt("", _check_rows, portable or checks, evidence)[1])
    expected, stands_in = portable_texts()[claim.id] if portable else (claim.expected, "")
    names = {name for line in evidence.lines for name in (line.model, line.device)}
    sentences = [_capitalised(outcome.detail, names)]
    if outcome.verdict in TESTED:
        if claim.same_points_as:
            others = claim.same_points_as.replace(";", ", ")
            sentences.append(f"Same points as {others}: no independent test.")
        sentences.append(stands_in)
    if other := sorted(outcome.origins - {"measured", "published"}):
        sentences.append(f"Origin of the energy: {', '.join(other)}.")
    detail = " ".join(filter(None, sentences))
    return Verdict(claim.id, outcome.verdict, outcome.value, expected, detail, outcome.p)


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
        outcome = replace(outcome, verdict=NOT_TESTABLE)
    return outcome if outcome.verdict in TESTED else replace(outcome, p=None)


def _capitalised(detail: str, names: set[str]) -> str:
    """A sentence with a capital, unless it begins with a name, or an id that begins with one."""
    first = re.split(r"[ ,:;.-]", detail, maxsplit=1)[0]
    return detail if first in names else detail[:1].upper() + detail[1:]
