"""The table of checks: its columns and ranges, and that its bounds are those of the list of claims."""

from __future__ import annotations

import csv
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from scalewatt.claims.evidence.check_table import CHECK_TABLE, OF_CLAIM, Check, read_checks
from scalewatt.claims.evidence.claim_types import CHECKED_KINDS, read_claims
from scalewatt.claims.rules.run_checks import RULES, SCOPES, checks_of_claims
from scalewatt.claims.rules.series_rules import SERIES_RULES
from scalewatt.common.errors import InputError
from scalewatt.results.tables.table_schema import QUANTITIES

CLAIMS = {claim.id: claim for claim in read_claims()}
CHECKS = [check for checks in read_checks().values() for check in checks]
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
        ("52 +-10 %", (46.8, 57.2)),
        ("28 +-1.5 pp", (26.5, 29.5)),
    ],
)
def test_a_range_has_its_bounds(expects: str, bounds: tuple[float | None, float | None]) -> None:
    assert check(expects=expects).bounds == pytest.approx(bounds)
    assert check(expects=expects).rises == (bounds[0] is not None)


def test_a_range_may_be_the_claims_own_value_and_tolerance() -> None:
    assert check(id="D08", expects=OF_CLAIM).bounds == pytest.approx((17.955, 19.845))


@pytest.mark.parametrize("expects", ["0.9", "about 3", "", "3 +- some"])
def test_what_is_no_range_is_refused_with_the_claim(expects: str) -> None:
    with pytest.raises((InputError, ValueError)):
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
    monkeypatch.setattr(run_checks, "read_checks", lambda: odd)
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
    used = {(bool(one.scope), one.rule) for one in CHECKS} | {(True, "")}
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
OTHERWISE = {
    "A05": "one batch an epoch is the whole tolerance",
    "B02": "1e-6",
    "B05": "versions, in the claim's text",
    "C10": "rounding alone",
    "C11": "the name of a column",
    "H11": "15 % of 1",
    "F18": "5 to 25 %",
    "F07": "the factor's, in the column check",
    "F10": "the rank, in the column check",
}
"""Claims whose bounds claims.csv has in another form."""


SAME_AS = dict.fromkeys(("D16", "E08", "F19"), "A01") | {
    "J05": "J02",
    "K14": "K13",
    "L06": "J03",
}
"""Claims that refer to another one's bounds."""
BY_RESULTS = [c.id for c in CLAIMS.values() if c.kind in CHECKED_KINDS and c.id not in OTHERWISE]


def stated_numbers(id_: str) -> set[float]:
    """Numbers in a claim's value and tolerance, percentages as fractions too."""
    numbers = {float(n) for n in NUMBER.findall(f"{CLAIMS[id_].value} {CLAIMS[id_].tolerance}")}
    return numbers | {round(n / 100, 9) for n in numbers} | {0.0, 1.0}


@pytest.mark.parametrize("id_", BY_RESULTS)
def test_the_bounds_are_those_of_the_list_of_claims(id_: str) -> None:
    stated = stated_numbers(id_)
    if id_ in SAME_AS:
        stated |= stated_numbers(SAME_AS[id_])
    for one in read_checks()[id_]:
        if one.expects not in ("", OF_CLAIM):
            found = {float(n) for n in NUMBER.findall(one.expects.replace("-", " "))}
            assert found <= stated, one.expects


def test_the_guide_names_every_column_rule_and_scope() -> None:
    guide = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", guide))
    assert {field.name for field in fields(Check)} <= named
    assert {*SCOPES, *SERIES_RULES, *RULES, "claims"} <= named


def test_the_table_is_sorted_as_the_claims_are() -> None:
    with open(ROOT / "reference" / "claims.csv", encoding="utf-8", newline="") as handle:
        order = [row["id"] for row in csv.DictReader(handle) if row["kind"] != "inconsistency"]
    assert list(read_checks()) == order
