"""The table of checks: its columns and ranges, and that its bounds are those of the list of claims."""

from __future__ import annotations

import csv
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from scalewatt.claims.check_claims import as_text, verdicts
from scalewatt.claims.evidence.check_table import (
    BEFORE,
    CHECK_TABLE,
    CHOSEN,
    SPLIT,
    Check,
    Tolerance,
    read_checks,
    tolerances,
)
from scalewatt.claims.evidence.claim_types import (
    BY_CONSTRUCTION,
    SPECIFIED_KINDS,
    TESTED,
    listed_claims,
    read_claims,
)
from scalewatt.claims.evidence.expectations import expected_of
from scalewatt.claims.load_evidence import published_evidence
from scalewatt.claims.rules.run_checks import RULES, SCOPES, checks_of_claims
from scalewatt.claims.rules.series_rules import SERIES_RULES
from scalewatt.claims.verdicts.portable import portable_checks
from scalewatt.common.errors import InputError
from scalewatt.results.tables.table_schema import QUANTITIES

CLAIMS = {claim.id: claim for claim in read_claims()}
CHECKS = [check for checks in read_checks().values() for check in checks]
PORTABLE = [check for checks in portable_checks().values() for check in checks]
ROOT = Path(__file__).parents[2]


def check(**values: str) -> Check:
    """A check with these values, and the first row's otherwise."""
    return replace(CHECKS[0], **values)


@pytest.mark.parametrize(
    ("expects", "bounds"),
    [
        ("0.9..", (0.9, None)),
        ("..0.04", (None, 0.04)),
        ("0.6..0.95", (0.6, 0.95)),
        ("..-0.9", (None, -0.9)),
        ("0..", (0, None)),
        ("52 +- single_run", (46.8, 57.2)),
        ("28 +- about_an_error", (26.5, 29.5)),
        ("0.49 +- share_of_cpu", (0.46, 0.52)),
        ("near_optimal", (0.9, None)),
    ],
)
def test_a_range_has_its_bounds(expects: str, bounds: tuple[float | None, float | None]) -> None:
    assert check(expects=expects).bounds == pytest.approx(bounds)
    assert check(expects=expects).rises == (bounds[0] is not None)


@pytest.mark.parametrize(
    ("expects", "message"),
    [
        ("0.9", "A01: expects '0.9'"),
        ("about 3", "A01: expects 'about 3'"),
        ("", "A01: expects ''"),
        ("3 +-10 %", "A01: expects '3 [+]-10 %'"),
        ("3 +- some", "'some' is no tolerance"),
        ("3 +- near_optimal", "'near_optimal' is no tolerance [+]-x"),
    ],
)
def test_what_is_no_range_is_refused_with_the_claim(expects: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = check(expects=expects).bounds


def test_a_bound_that_a_rule_needs_and_the_table_lacks_is_named() -> None:
    with pytest.raises(InputError, match=r"A01: expects '0.98..' lacks a bound"):
        _ = check(expects="0.98..").high


def test_exact_values_are_json() -> None:
    assert check(expects="[[1979, 2015], [0.5, true]]").value == ((1979, 2015), (0.5, True))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("rule", "no_rule", "A01: rule 'no_rule'; expected"),
        ("scope", "nowhere", "A01: scope 'nowhere'; expected"),
    ],
)
def test_a_rule_or_scope_that_there_is_not_is_named(
    monkeypatch: pytest.MonkeyPatch, column: str, value: str, message: str
) -> None:
    from scalewatt.claims.rules import run_checks

    odd = {"A01": (check(**{column: value}),)}
    monkeypatch.setattr(run_checks, "read_checks", lambda path: odd)
    with pytest.raises(InputError, match=re.escape(message)):
        checks_of_claims.__wrapped__()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claim_checks.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_with_a_fault_is_refused(tmp_path: Path) -> None:
    lines = CHECK_TABLE.read_text(encoding="utf-8").splitlines(keepends=True)
    with pytest.raises(InputError, match="lacks column rule"):
        read_checks(written(tmp_path, "".join(lines).replace("rule", "other", 1)))
    with pytest.raises(InputError, match="must follow each other"):
        read_checks(written(tmp_path, "".join([*lines[:3], lines[1]])))
    with pytest.raises(InputError, match="cannot be read"):
        read_checks(tmp_path / "missing.csv")


def test_every_rule_and_scope_is_used() -> None:
    used = {(bool(one.scope), one.rule) for one in (*CHECKS, *PORTABLE)} | {(True, "")}
    assert set(SERIES_RULES) == {rule for of_series, rule in used if of_series} - {""}
    assert {*RULES, "claims"} == {rule for of_series, rule in used if not of_series}
    assert set(SCOPES) == {one.scope for one in CHECKS} - {""}


def test_points_are_asked_for_quantities_that_there_are() -> None:
    for one in CHECKS:
        if one.scope:
            assert set(one.columns) <= set(QUANTITIES), one.id


def test_a_check_is_of_the_claims_models_and_devices() -> None:
    for one in CHECKS:
        claim = CLAIMS[one.id]
        for name, claimed in ((one.model, claim.model), (one.device, claim.device.lower())):
            assert not name or claimed in ("all", "both") or name in claimed, one.id


NUMBER = re.compile(r"\d+(?:\.\d+)?")
SIGNS = ("0..", "1..", "..1")
"""More or less, which is no choice."""
EXACT = {one.id for one in CHECKS if CLAIMS[one.id].kind in SPECIFIED_KINDS} | {"F02"}
"""Claims on settings, whose values are compared as they are."""
LINES = {id_: expected_of(claim) for id_, claim in CLAIMS.items() if id_ in read_checks()}


def numbers_in(text: str) -> set[float]:
    return {float(number) for number in NUMBER.findall(text)}


def test_the_numbers_that_are_compared_are_those_that_the_paper_prints() -> None:
    targets = [one for one in CHECKS if " +- " in one.expects or one.margin == "interval_room"]
    assert len(targets) >= 38
    for one in targets:
        printed = numbers_in(CLAIMS[one.id].value.replace("-", " "))
        wanted = [one.target.value] if " +- " in one.expects else one.bounds
        assert set(wanted) <= printed, one.id


def test_no_bound_decides_without_a_tolerance_that_has_a_name() -> None:
    for one in CHECKS:
        if one.margin:
            assert one.margin in tolerances(), one.id
        if one.expects in ("", *SIGNS, *tolerances()):
            continue
        if " +- " in one.expects:
            assert one.expects.split(" +- ")[1] in tolerances(), one.id
        elif ".." in one.expects:
            assert one.margin in tolerances(), one.id
        else:
            assert one.id in EXACT and one.value is not None, one.id


def test_no_rule_on_claims_holds_a_bound_of_its_own() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "src/scalewatt/claims/rules").glob("*.py")
    ]
    own = re.compile(r"^(?:BOUNDS|MOST_RAM|SAME_SAMPLES|PERIOD|MARGIN)\b", re.MULTILINE)
    assert [name for text in texts for name in own.findall(text)] == []


def test_every_tolerance_is_used_and_has_a_reason_of_its_own() -> None:
    used = {word for one in CHECKS for word in (*one.expects.split(" +- "), one.margin)}
    assert set(tolerances()) <= used
    reasons = [one.reason for one in tolerances().values()]
    assert len(set(reasons)) == len(reasons)
    assert all(len(reason) > 25 for reason in reasons)
    assert not [reason for reason in reasons if re.search("points of room|claim's own$", reason)]


def test_a_tolerance_names_the_claims_that_it_decides() -> None:
    for name, one in tolerances().items():
        by_it = {c.id for c in CHECKS if name in (*c.expects.split(" +- "), c.margin)}
        first = {
            re.split(r"[^A-Z0-9]", part)[0] for part in re.findall(r"\b[A-LT]\d+\b", one.reason)
        }
        assert by_it & first, name


def test_a_tolerance_by_which_published_rows_are_decided_was_chosen_knowing_them() -> None:
    compared = {
        one.id
        for one in verdicts(published_evidence())
        if one.verdict in (*TESTED, BY_CONSTRUCTION)
    }
    for name, one in tolerances().items():
        assert one.chosen in CHOSEN, name
        by_it = {c.id for c in CHECKS if name in (*c.expects.split(" +- "), c.margin)}
        if one.chosen == BEFORE:
            assert by_it & compared == set(), name


# --- what is expected, in words ----------------------------------------------------------------------


@pytest.mark.parametrize("id_", LINES)
def test_what_is_expected_states_every_bound_that_decides_with_its_name(id_: str) -> None:
    line = LINES[id_]
    assert "{" not in line and "_to_" not in line.replace("fall_to_node", ""), line
    stated = numbers_in(line) | {round(number / 100, 9) for number in numbers_in(line)}
    for one in read_checks()[id_]:
        for name in (*one.expects.split(" +- "), one.margin):
            if name in tolerances():
                assert f"({name})" in line, line
                text = tolerances()[name].expects
                assert numbers_in(text.removeprefix("0..")) <= stated | {1.0}, line
        if one.id in EXACT and one.expects:
            assert numbers_in(one.expects) <= stated, line


def test_what_is_expected_has_one_criterion() -> None:
    """Not an older one of the list of claims beside that of the check."""
    assert LINES["D15"].count("3 ") and "0.04" not in LINES["D15"]
    assert "0.75" not in LINES["E05"] and "0.9 (near_optimal)" in LINES["E05"]
    assert "0.85" not in LINES["H03"] + LINES["L04"]
    assert "R2" not in LINES["A01"] and "sigma" not in LINES["D05"] + LINES["F10"]
    assert LINES["D05"] == (
        "energy with n: Spearman's correlation at least 0.9 (ordered); energies (kWh): rising as a whole, "
        "no step back by more than 2 % (no_step_back)"
    )
    assert "growing" in LINES["F12"] and "1.2" not in LINES["F12"]
    assert LINES["H10"].endswith("above 1 at every common n") and "idle" not in LINES["J02"]


def test_the_list_of_claims_states_what_the_paper_says_and_no_criterion() -> None:
    with open(ROOT / "reference" / "claims.csv", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert not {"tol_same_hardware", "check"} & set(rows[0])
    trends = [
        row for row in rows if row["kind"] == "trend" and row["id"] not in ("D07", "D10", "E07")
    ]
    assert [row["id"] for row in trends if re.search(r"[<>=]|0\.\d", row["value"])] == []


@pytest.mark.parametrize(
    ("id_", "untested"),
    [
        ("A02", "that each training and each device differ is not tested"),
        ("D10", "that the run time is why it falls is not tested"),
        ("F20", "whether the accuracy rises with it is not tested"),
        ("H19", "the accuracy is not tested"),
        ("J06", "over 50 %, is not tested"),
        ("L05", "has no upper bound, and is not tested"),
        ("T9", "are shorter and energies alike is not tested"),
    ],
)
def test_a_sentence_that_is_tested_in_part_says_which_part_is_not(id_: str, untested: str) -> None:
    assert untested in LINES[id_]
    found = {one.id: one for one in verdicts(published_evidence())}
    assert found[id_].expected == LINES[id_]


def test_the_text_says_of_every_test_what_is_expected_and_what_is_not_tested() -> None:
    given = published_evidence()
    found = verdicts(given)
    text = " ".join(as_text(found, listed_claims(), given).split())
    tested = [one for one in found if one.verdict in TESTED]
    assert len(tested) > 20 and "the accuracy is not tested." in text
    for one in tested:
        assert f"Expected: {LINES[one.id]}." in text


def test_the_guide_names_every_column_rule_and_scope() -> None:
    guide = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", guide))
    assert {field.name for field in (*fields(Check), *fields(Tolerance))} <= named
    assert {*SCOPES, *SERIES_RULES, *RULES, "claims"} <= named


def test_the_table_is_sorted_as_the_claims_are() -> None:
    with open(ROOT / "reference" / "claims.csv", encoding="utf-8", newline="") as handle:
        order = [row["id"] for row in csv.DictReader(handle) if row["kind"] != "inconsistency"]
    assert list(read_checks()) == order


@pytest.mark.parametrize(
    ("claim", "within"),
    [
        (
            "K13",
            "drift along n, and each point off the geometric mean, within -9.1 to +10 % (constant)",
        ),
        ("H15", "off the geometric mean, within -4.8 to +5 % (constant_rmse)"),
        ("D17", "off the mean, within ± 1.5 pp (constant_error)"),
        ("D17", "every top-1 error: 28 % ± 1.5 pp (about_an_error)"),
        ("T8", "off 1 by -4.8 to +5 % (equivalent)"),
        ("H16", "off it by at most 10 % (straight) of the rise"),
    ],
)
def test_what_is_expected_has_the_bounds_that_decide_on_their_scale(
    claim: str, within: str
) -> None:
    assert within in expected_of(CLAIMS[claim])


def test_what_is_expected_up_to_a_number_of_gpus_names_that_which_decides() -> None:
    assert f"up to {SPLIT}" in expected_of(CLAIMS["D04"])
