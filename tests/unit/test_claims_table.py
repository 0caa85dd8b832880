"""The table of checks: its columns and ranges, and that its bounds are those of the list of claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scalewatt.claims.check_claims import verdicts
from scalewatt.claims.evidence import published_evidence
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    REFERENCE,
    SIGNS,
    SPECIFIED_KINDS,
    TESTED,
    Check,
    read_checks,
    read_claims,
    read_rows,
    tolerances,
)
from scalewatt.claims.shapes import SERIES_RULES
from scalewatt.claims.verdicts import RULES, SCOPES

CLAIMS = {claim.id: claim for claim in read_claims()}
VALUES = {row["id"]: row["value"] for row in read_rows(REFERENCE / "claims.csv")}
CHECKS = [check for checks in read_checks().values() for check in checks]
ROOT = Path(__file__).parents[2]


def check(**values: str) -> Check:
    """A check with these values, and the first row's otherwise."""
    return Check(**vars(CHECKS[0]) | values)


NUMBER = re.compile(r"\d+(?:\.\d+)?")
EXACT = {row.id for row in CHECKS if CLAIMS[row.id].kind in SPECIFIED_KINDS} | {"F02"}
"""Claims on settings, whose values are compared as they are."""
LINES = {id_: claim.expected for id_, claim in CLAIMS.items() if id_ in read_checks()}


def numbers_in(text: str) -> set[float]:
    return {float(number) for number in NUMBER.findall(text)}


def test_the_numbers_that_are_compared_are_those_that_the_paper_prints() -> None:
    targets = [row for row in CHECKS if " +- " in row.expects or row.margin == "interval_room"]
    assert len(targets) >= 38
    for row in targets:
        printed = numbers_in(VALUES[row.id].replace("-", " "))
        wanted = [row.target[0]] if " +- " in row.expects else row.bounds
        assert set(wanted) <= printed, row.id


def test_no_bound_decides_without_a_tolerance_that_has_a_name() -> None:
    for row in CHECKS:
        if row.margin:
            assert row.margin in tolerances(), row.id
        if row.expects in ("", *SIGNS, *tolerances()):
            continue
        if " +- " in row.expects:
            assert row.expects.split(" +- ")[1] in tolerances(), row.id
        elif ".." in row.expects:
            assert row.margin in tolerances(), row.id
        else:
            assert row.id in EXACT and row.exact_value is not None, row.id


def test_a_tolerance_by_which_published_rows_are_decided_was_chosen_knowing_them() -> None:
    compared = {
        verdict.id
        for verdict in verdicts(published_evidence())
        if verdict.verdict in TESTED or verdict.reason == BY_CONSTRUCTION
    }
    for name, tolerance in tolerances().items():
        assert tolerance.chosen in ("knowing the published rows", "before any run"), name
        by_it = {c.id for c in CHECKS if name in (*c.expects.split(" +- "), c.margin)}
        if tolerance.chosen == "before any run":
            assert by_it & compared == set(), name


# --- what is expected, in words ----------------------------------------------------------------------


@pytest.mark.parametrize("id_", LINES)
def test_what_is_expected_states_every_bound_that_decides_with_its_name(id_: str) -> None:
    line = LINES[id_]
    assert "{" not in line and "_to_" not in line.replace("fall_to_node", ""), line
    stated = numbers_in(line) | {round(number / 100, 9) for number in numbers_in(line)}
    for row in read_checks()[id_]:
        for name in (*row.expects.split(" +- "), row.margin):
            if name in tolerances():
                assert f"({name})" in line, line
                text = tolerances()[name].expects
                assert numbers_in(text.removeprefix("0..")) <= stated | {1.0}, line
        if row.id in EXACT and row.expects:
            assert numbers_in(row.expects) <= stated, line


def test_the_page_of_rules_names_every_column_and_scope() -> None:
    page = (ROOT / "docs" / "paper" / "claim-rules.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", page))
    assert set(vars(CHECKS[0])) | {*SCOPES, *SERIES_RULES, *RULES} <= named
    assert "|  |" not in page
