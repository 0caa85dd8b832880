"""The verdict on a claim: that of all its rows in the table of checks.

The scope of a row says which series, and which of their points, it is checked on:

| scope | what is looked at |
| --- | --- |
| series | the series of each mode on the claim's device, else on every other device that has it |
| named | the same; those with too few points are named |
| all | every series of the description with at least two planned points, likewise |
| paper | points of the paper's series, trained as in the paper |
| sizes | FourCastNet's pre-trainings with these GPUs, LBS and GBS, trained as in the paper |
| probe | the probe of 20 epochs |

On foreign ground, a campaign that trained none of the paper's models, reference/portable_checks.csv has the
rows, for the claims whose sentence speaks of trainings in general. Where `model` is `each`, every training of
the campaign (model, phase, device) takes the place of the paper's, and all decide together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from scalewatt.claims.comparisons import COMPARISON_RULES
from scalewatt.claims.evidence import (
    Evidence,
    Line,
    Point,
    is_of_energy,
    is_of_power,
    unlike_paper,
)
from scalewatt.claims.outcomes import Outcome, all_of, attempt, combine
from scalewatt.claims.quantities import (
    PROBE_EPOCHS,
    as_in_paper,
    enough,
    in_paper,
    known,
    pretrainings,
    quantity,
    refuse_estimates,
    refuse_unlike,
    values,
    with_unit,
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

# --- rows on series ---------------------------------------------------------------------------------


def _on_series(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the series of each mode: all modes decide together, none may be missing."""

    def of_line(line: Line) -> Outcome:
        return _rows_of(checks, evidence, line, lambda check: _select(check, evidence, line))

    def of_mode(mode: str) -> Outcome:
        lines = evidence.anywhere(*checks[0].series, mode)
        outcome = combine(attempt(line.title, of_line, line) for line in lines)
        if len(lines) == 1 and (lines[0].alike or len(modes) > 1):
            return replace(outcome, detail=f"{lines[0].title}: {outcome.detail}")
        return outcome

    modes = checks[0].modes
    return all_of(attempt("", of_mode, mode) for mode in modes)


def _rows_of(
    checks: Sequence[Check],
    evidence: Evidence,
    line: Line,
    points_of: Callable[[Check], Sequence[Point]],
) -> Outcome:
    """Return what rows on a series say together; what one lacks hides no other. Of all, the first is told."""

    def of_row(check: Check) -> Outcome:
        return SERIES_RULES[check.rule](check, evidence, line, points_of(check))

    parts = [attempt(check.part, of_row, check) for check in checks]
    if all(outcome.verdict == NOT_TESTABLE for _, outcome in parts):
        return parts[0][1]
    return all_of(parts)


def _select(check: Check, evidence: Evidence, line: Line) -> Sequence[Point]:
    """Return the points of a line that a check names; NotTestable if they are missing."""
    whole = evidence.gpus_per_node(line.device)
    if "/" in check.n and check.n not in ("first/last", "last/first"):
        counts = [whole if n == "node" else int(n) for n in check.n.split("/")]
        return _points_at(line, counts, check.quantity)
    if check.training == "paper points":
        points = in_paper(line).having(*check.columns)
        return enough(points, f"{line.title}, {check.text}", check.min_points)
    if check.against == "gpu_hours":  # whatever the number of points: more of them would not help
        refuse_estimates(line.having(*check.columns))
    at_least = whole if check.n == "node" else 0
    if check.training != "paper":
        return known(line, *check.columns, at_least=at_least, min_points=check.min_points)
    points = tuple(map(as_in_paper, known(line, *check.columns, at_least=at_least, min_points=1)))
    if not check.gbs:
        return enough(points, f"{line.title}: {check.text}", check.min_points)
    return _with_gbs(check, points)


def _points_at(line: Line, counts: Sequence[int], name: str) -> list[Point]:
    """Return the points at these n; NotTestable if one has no result, or lacks the quantity."""
    by_n = {point.gpus: point for point in line.points}
    if missing := [str(n) for n in counts if n not in by_n]:
        raise NotTestable(
            f"{line.title}: no finished run with {' or '.join(missing)} GPUs; {len(missing)} more needed."
        )
    for n in counts:
        quantity(by_n[n], name)
    return [by_n[n] for n in counts]


def _with_gbs(check: Check, points: Sequence[Point]) -> Sequence[Point]:
    """Return the points at a GBS, or up to it; the largest must be there."""
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


def _on_named(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the series on the claim's device, else on every other."""
    return _each_line(evidence, evidence.anywhere(*checks[0].series, checks[0].mode), checks)


def _on_all(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check every series of a model and mode, on all devices or one; single points are named."""
    model, phase, device = (name or None for name in checks[0].series)
    lines = evidence.series(model, phase, device, checks[0].mode, least=1)
    if not lines:
        raise NotTestable(f"No finished run of {model} in a series of mode {checks[0].mode}.")
    return _each_line(evidence, lines, checks)


def _each_line(evidence: Evidence, lines: Iterable[Line], checks: Sequence[Check]) -> Outcome:
    """Combine the checks of every line that has enough points with the first one's quantity.

    Lines with fewer are named; they decide nothing if another has enough. NotTestable if no line has
    enough points, or none has the quantity.
    """
    name, min_points = checks[0].columns[0], checks[0].min_points

    def there(line: Line) -> Sequence[Point]:
        whole = evidence.gpus_per_node(line.device) if checks[0].n == "node" else 0
        return line.having(name, at_least=whole)

    counted = sorted(((line, there(line)) for line in lines), key=lambda pair: -len(pair[1]))
    if is_of_power(name):
        refuse_estimates([point for _, points in counted for point in points])
    enough(counted[0][1], f"{counted[0][0].title} ({with_unit(name)})", min_points)

    def of_line(line: Line, points: Sequence[Point]) -> Outcome:
        if is_of_energy(name):
            refuse_unlike(points)
        return all_of(
            attempt(check.part, SERIES_RULES[check.rule], check, evidence, line, points)
            for check in checks
        )

    ready = [(line, points) for line, points in counted if len(points) >= min_points]
    outcome = combine(attempt(line.title, of_line, line, points) for line, points in ready)
    few = [f"{line.title} ({len(points)})" for line, points in counted if len(points) < min_points]
    rest = f" Too few points: {', '.join(few)}; {min_points} are needed." if few else ""
    alone = f"{ready[0][0].title}: " if len(ready) == 1 else ""
    return replace(outcome, detail=alone + outcome.detail + rest)


def _on_paper(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check points of the paper's own series: one of n GPUs, those of whole nodes, or its ends."""
    (check,) = checks
    line = evidence.line(*check.series, check.mode, int(check.batch))
    points: Sequence[Point]
    if check.n == "last/first":
        points = in_paper(line).points
        values(points, check.quantity)
        enough(points, line.title, check.min_points)
    elif check.n == "node":
        whole = evidence.gpus_per_node(line.device)
        points = tuple(map(as_in_paper, known(line, *check.columns, at_least=whole)))
    else:
        point = line.at(int(check.n))
        if point is None:
            raise NotTestable(f"{line.title}: no finished run with {check.n} GPUs.")
        points = [as_in_paper(point)]
    return SERIES_RULES[check.rule](check, evidence, line, points)


def _on_sizes(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the pre-trainings of a device with these GPUs, LBS and GBS.

    Of several, with settings that the paper does not state, all decide together. NotTestable says
    what is missing.
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

    def of_point(point: Point) -> Outcome:
        return _rows_of(checks, evidence, line, lambda check: [point])

    return combine(attempt(point.id, of_point, point) for point in as_paper)


def _on_probe(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the probe of the paper's FourCastNet: 20 epochs."""
    (check,) = checks
    line = evidence.line(*check.series, "probe")
    sizes = (int(check.n), int(check.batch))
    probe = next((p for p in line.points if (p.gpus, p.lbs) == sizes), None)
    if probe is None:
        raise NotTestable(f"No finished probe with GPUs {check.n}, LBS {check.batch}.")
    return SERIES_RULES[check.rule](check, evidence, line, [as_in_paper(probe, PROBE_EPOCHS)])


# --- all rows of a claim ------------------------------------------------------------------------------

OTHER_CLAIMS = "claims"
"""The rule of a claim that holds where others do: `quantity` names them."""
SCOPES: dict[str, Callable[[Evidence, Sequence[Check]], Outcome]] = {
    "series": _on_series,
    "named": _on_named,
    "all": _on_all,
    "paper": _on_paper,
    "sizes": _on_sizes,
    "probe": _on_probe,
}
"""How the rows of each scope are checked; without one, by a rule of their own."""
RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    **COMPARISON_RULES,
    **RUN_RULES,
    **SPEC_RULES,
    **TRACE_RULES,
}
"""Rules that look at more than the points of one series, by the name that the table calls them."""
SETTINGS = {*SPEC_RULES, "profiles"}
"""Rules on what a campaign sets: one that is none of the paper's departs by its choice."""
COUNTS = {"updates_per_epoch"}
"""Rules on what follows from settings alone."""
EACH = "each"
"""In place of a model: every training of the campaign."""


def check_claim(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what the rows of a claim say together; NotTestable as its rules raise it."""
    groups = [list(rows) for _, rows in groupby(checks, key=lambda check: check.selector)]
    if len(groups) > 1:
        return all_of(attempt("", _together, rows, evidence) for rows in groups)
    outcome = _together(checks, evidence)
    if checks[0].rule in SETTINGS:
        return unless_departing(outcome, evidence, checks[0].model)
    return outcome


def _together(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what rows on the same points say together."""
    if checks[0].scope:
        return SCOPES[checks[0].scope](evidence, checks)
    if checks[0].rule == OTHER_CLAIMS:
        others = checks[0].quantity.split(";")
        return all_of(attempt(id_, check_claim, read_checks()[id_], evidence) for id_ in others)
    (check,) = checks
    return RULES[check.rule](evidence, check)


def is_foreign(evidence: Evidence) -> bool:
    """Return True if a campaign has results, and none of them of a model of the paper's."""
    return bool(evidence.points) and all(p.model not in FULL_SAMPLES for p in evidence.points)


def _check_rows(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Check the rows of a claim; where `model` is EACH on every training, all of which decide together.

    A training that lacks something is named and does not decide. NotTestable without any point.
    """
    if all(check.model != EACH for check in checks):
        return check_claim(checks, evidence)
    trainings = sorted({(p.model, p.phase, p.device) for p in evidence.points})

    def of_training(model: str, phase: str, device: str) -> Outcome:
        rows = [replace(check, model=model, phase=phase, device=device) for check in checks]
        return check_claim(rows, evidence)

    return combine(
        attempt(" ".join(name for name in training if name != "train"), of_training, *training)
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
    """Of a contradiction: True if it is one too when all tested claims are taken together (Holm)."""


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim; one without a check is an inconsistency, or not testable.

    The detail says of which origin the energies are that the check looked at, unless they are measured
    or the paper's; which claims are tested on the same points; and what stands in for the paper's trainings.
    """
    checks = read_checks().get(claim.id)
    portable = read_checks(PORTABLE_TABLE).get(claim.id) if is_foreign(evidence) else None
    if checks is None and claim.kind == "inconsistency":
        row = inconsistencies().get(claim.id)
        reading = claim.note if row is None else row.text
        return Verdict(claim.id, INCONSISTENCY, None, "nothing: an inconsistency", reading)
    if checks is None:
        return Verdict(
            claim.id, NOT_TESTABLE, None, claim.expected, "There is no check for this claim."
        )
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
    """Return the outcome with the verdict of what it is: only what data could refute is supported.

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
    """Return it with a capital, unless it begins with a name, or an id that begins with one."""
    first = re.split(r"[ ,:;.-]", detail, maxsplit=1)[0]
    return detail if first in names else detail[:1].upper() + detail[1:]
