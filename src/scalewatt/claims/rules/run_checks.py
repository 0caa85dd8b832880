"""The outcome of a claim: that of all its rows in the table of checks.

The scope of a row says which series, and which of their points, it is checked on:

| scope | what is looked at |
| --- | --- |
| series | the series of each mode on the claim's device, else on every other device that has it |
| named | the same; the detail names the series, and those with too few points |
| all | every series of the description with at least two planned points, likewise |
| paper | points of the paper's own series, trained as in the paper |
| sizes | FourCastNet's pre-trainings with these GPUs, LBS and GBS, trained as in the paper |
| probe | the probe of 20 epochs |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from scalewatt.claims.evidence.check_table import Check, read_checks
from scalewatt.claims.evidence.claim_types import (
    NOT_TESTABLE,
    NotTestable,
    Outcome,
)
from scalewatt.claims.evidence.evidence import (
    Evidence,
    Line,
    Point,
    is_of_energy,
    is_of_power,
    unlike_paper,
)
from scalewatt.claims.numbers.decisions import all_of, attempt, combine, enough
from scalewatt.claims.numbers.points import (
    PROBE_EPOCHS,
    as_in_paper,
    in_paper,
    known,
    like,
    named,
    paper_point,
    points_at,
    pretrainings,
    values,
    whole_nodes,
)
from scalewatt.claims.numbers.uncertain_number import refuse_estimates
from scalewatt.claims.rules.device_rules import DEVICE_RULES
from scalewatt.claims.rules.equal_n_rules import EQUAL_N_RULES
from scalewatt.claims.rules.kind_rules import KIND_RULES
from scalewatt.claims.rules.power_rules import POWER_RULES
from scalewatt.claims.rules.regime_rules import REGIME_RULES
from scalewatt.claims.rules.run_rules import RUN_RULES
from scalewatt.claims.rules.series_rules import SERIES_RULES
from scalewatt.claims.rules.spec_rules import SPEC_RULES, unless_departing
from scalewatt.claims.rules.trace_rules import TRACE_RULES
from scalewatt.results.text.number_format import count


def on_series(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the series of each mode: all modes decide together, none may be missing."""

    def of_line(line: Line) -> Outcome:
        return rows_of(checks, evidence, line, lambda check: select(check, evidence, line))

    def of_lines(lines: Iterable[Line]) -> Outcome:
        return combine(attempt(line.title, of_line, line) for line in lines)

    modes = checks[0].modes
    if len(modes) == 1:
        lines = evidence.anywhere(*checks[0].series, modes[0])
        found = of_lines(lines)
        is_alike = lines[0].alike and len(lines) == 1
        return replace(found, detail=f"{lines[0].title}: {found.detail}") if is_alike else found
    parts = []
    for mode in modes:
        try:
            lines = evidence.anywhere(*checks[0].series, mode)
        except NotTestable as missing:
            parts.append((mode, missing.outcome))
        else:
            parts.append(("" if lines[1:] else lines[0].title, of_lines(lines)))
    return all_of(parts)


def rows_of(
    checks: Sequence[Check],
    evidence: Evidence,
    line: Line,
    points_of: Callable[[Check], Sequence[Point]],
) -> Outcome:
    """Return what rows on a series say together; what one lacks hides no other. Of all, the first is told."""

    def of_row(check: Check) -> Outcome:
        return SERIES_RULES[check.rule](check, evidence, line, points_of(check))

    parts = [attempt(check.part, of_row, check) for check in checks]
    if all(one.verdict == NOT_TESTABLE for _, one in parts):
        return parts[0][1]
    return all_of(parts)


def select(check: Check, evidence: Evidence, line: Line) -> Sequence[Point]:
    """Return the points of a line that a check names; NotTestable if they are missing."""
    if "/" in check.n and check.n not in ("first/last", "last/first"):
        counts = [
            whole_nodes(evidence, line) if n == "node" else int(n) for n in check.n.split("/")
        ]
        return points_at(line, counts, check.quantity)
    if check.training == "paper points":
        points = in_paper(line).having(*check.columns)
        return enough(points, f"{line.title}, {check.text}", check.least)
    if check.against == "gpu_hours":  # whatever the number of points: more of them would not help
        refuse_estimates(line.having(*check.columns))
    at_least = whole_nodes(evidence, line) if check.n == "node" else 0
    if check.training != "paper":
        return known(line, *check.columns, at_least=at_least, least=check.least)
    points = tuple(map(as_in_paper, known(line, *check.columns, at_least=at_least, least=1)))
    if not check.gbs:
        return enough(points, f"{line.title}: {check.text}", check.least)
    return _with_gbs(check, points)


def _with_gbs(check: Check, points: Sequence[Point]) -> Sequence[Point]:
    """Return the points at a GBS, or up to it; the largest must be there."""
    size = int(check.gbs.removeprefix("<="))
    if check.gbs == str(size):
        points = [point for point in points if point.gbs == size][:1]
        if not points:
            raise NotTestable(f"No finished run with GBS {size} knows its top-1 error.")
        return points
    points = [point for point in points if point.gbs <= size]
    if len(points) < check.least or points[-1].gbs < size:
        there = ", ".join(str(point.gbs) for point in points) or "none"
        raise NotTestable(
            f"{len(points)} points up to GBS {size} (GBS {there}); {check.least} are needed, one at "
            f"GBS {size}."
        )
    return points


def on_named(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the series on the claim's device, else on every other, and name each."""
    lines = evidence.anywhere(*checks[0].series, checks[0].mode)
    return each_line(evidence, lines, checks)


def on_all(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check every series of a model and mode, on all devices or one; single points are named."""
    model, phase, mode = checks[0].model, checks[0].phase, checks[0].mode
    lines = evidence.series(model, phase or None, checks[0].device or None, mode, least=1)
    if not lines:
        raise NotTestable(f"No finished run of {model} in a series of mode {mode}.")
    return each_line(evidence, lines, checks)


def each_line(evidence: Evidence, lines: Iterable[Line], checks: Sequence[Check]) -> Outcome:
    """Combine the checks of every line that has enough points with the first one's quantity.

    Lines with fewer are named; they decide nothing if another has enough. NotTestable if no line has
    enough points, or none has the quantity.
    """
    name, least = checks[0].quantity, checks[0].least

    def there(line: Line) -> Sequence[Point]:
        at_least = whole_nodes(evidence, line) if checks[0].n == "node" else 0
        return line.having(name, at_least=at_least)

    counted = sorted(((line, there(line)) for line in lines), key=lambda one: -len(one[1]))
    if is_of_power(name):
        refuse_estimates([point for _, points in counted for point in points])
    if len(counted[0][1]) < least:
        enough(counted[0][1], f"{counted[0][0].title} ({named(name)})", least)

    def of_line(line: Line, points: Sequence[Point]) -> Outcome:
        if is_of_energy(name):
            like(points)
        return all_of(
            (c.part, attempt("", SERIES_RULES[c.rule], c, evidence, line, points)[1])
            for c in checks
        )

    ready = [(line, points) for line, points in counted if len(points) >= least]
    found = combine(attempt(line.title, of_line, line, points) for line, points in ready)
    few = [f"{line.title} ({len(points)})" for line, points in counted if len(points) < least]
    rest = f" Too few points: {', '.join(few)}; {least} are needed." if few else ""
    alone = f"{ready[0][0].title}: " if len(ready) == 1 else ""
    return replace(found, detail=alone + found.detail + rest)


def on_paper(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check points of the paper's own series: one of n GPUs, those of whole nodes, or its ends."""
    (check,) = checks
    constant = int(check.batch)
    line = evidence.line(*check.series, check.mode, constant)
    points: Sequence[Point]
    if check.n == "last/first":
        line = in_paper(line)
        points = line.points
        values(points, check.quantity)
        enough(points, line.title, check.least)
    else:
        counts = [int(check.n)] if check.n != "node" else []
        if not counts:
            own = known(line, *check.columns, at_least=whole_nodes(evidence, line))
            counts = [point.gpus for point in own]
        points = [paper_point(evidence, check.series, check.mode, n, constant) for n in counts]
    return SERIES_RULES[check.rule](check, evidence, line, points)


def on_sizes(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the pre-trainings of a device with these GPUs, LBS and GBS.

    Of several, with settings that the paper does not state, all decide together. NotTestable says
    what is missing.
    """
    gpus, lbs, gbs = sizes = tuple(int(n) for n in (checks[0].n, checks[0].batch, checks[0].gbs))
    there = [
        point
        for point in pretrainings(evidence, checks[0].device)
        if (point.gpus, point.lbs, point.gbs) == sizes
    ]
    own = [point for point in there if not unlike_paper(point)]
    if not own:
        other = f": {there[0].id} has {', '.join(unlike_paper(there[0]))}" if there else ""
        raise NotTestable(
            f"No finished run of FourCastNet's pre-training on {checks[0].device} as in the paper with "
            f"{count(gpus, 'GPU')}, LBS {lbs}, GBS {gbs}{other}."
        )

    def of_point(point: Point) -> Outcome:
        line = Line("", "", *checks[0].series[:2], checks[0].device, "", None)
        return rows_of(checks, evidence, line, lambda check: [point])

    return combine(attempt(point.id, of_point, point) for point in own)


def on_probe(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the probe of the paper's FourCastNet: 20 epochs."""
    (check,) = checks
    line = evidence.line(*check.series, "probe")
    sizes = (int(check.n), int(check.batch))
    probe = next((p for p in line.points if (p.gpus, p.lbs) == sizes), None)
    if probe is None:
        raise NotTestable(f"No finished probe at {count(int(check.n), 'GPU')}, LBS {check.batch}.")
    return SERIES_RULES[check.rule](check, evidence, line, [as_in_paper(probe, PROBE_EPOCHS)])


OTHER_CLAIMS = "claims"
"""The rule of a claim that holds where others do: `quantity` names them."""
SCOPES: dict[str, Callable[[Evidence, Sequence[Check]], Outcome]] = {
    "series": on_series,
    "named": on_named,
    "all": on_all,
    "paper": on_paper,
    "sizes": on_sizes,
    "probe": on_probe,
}
"""How the rows of each scope are checked; without one, by a rule of their own."""

RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    **DEVICE_RULES,
    **EQUAL_N_RULES,
    **KIND_RULES,
    **POWER_RULES,
    **REGIME_RULES,
    **RUN_RULES,
    **SPEC_RULES,
    **TRACE_RULES,
}
"""Rules that look at more than the points of one series, by the name that the table calls them."""
SETTINGS = {*SPEC_RULES, "profiles"}
"""Rules on what a campaign sets: one that is none of the paper's departs by its own choice."""
COUNTS = {"updates_per_epoch"}
"""Rules on what follows from settings alone."""
IDENTITIES = {"population_spread", "sum_of_parts", "sum_of_powers"}
"""Rules on numbers of the same samples, which agree if the program's arithmetic is right."""


def check_claim(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what the rows of a claim say together; NotTestable as of its rules."""
    groups = [list(rows) for _, rows in groupby(checks, key=lambda check: check.selector)]
    if len(groups) > 1:
        return all_of(attempt("", _together, rows, evidence) for rows in groups)
    found = _together(checks, evidence)
    if checks[0].rule in SETTINGS:
        found = unless_departing(found, evidence, checks[0].model)
    return found


def _together(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what rows on the same points say together."""
    if checks[0].scope:
        return SCOPES[checks[0].scope](evidence, checks)
    if checks[0].rule == OTHER_CLAIMS:
        others = checks[0].quantity.split(";")
        return all_of(attempt(id_, check_claim, read_checks()[id_], evidence) for id_ in others)
    (check,) = checks
    return RULES[check.rule](evidence, check)
