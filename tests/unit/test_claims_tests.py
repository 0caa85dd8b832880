"""What is a test of a claim and what is not, on the published rows; tolerances that agree with each other."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace

import pytest
from campaign_files import ROOT
from claims_study import study

from scalewatt.claims.check_claims import (
    as_json,
    as_table,
    claim_rows,
    counts,
    frozen,
    verdicts,
    with_holm,
)
from scalewatt.claims.evidence import published_evidence
from scalewatt.claims.reference_tables import CONTRADICTED, UNDECIDED, Check, read_checks
from scalewatt.claims.verdicts import Verdict
from scalewatt.provenance.versions import claims_hash
from scalewatt.results.tables.frames import metadata
from scalewatt.results.tables.ratios import MARGIN

CHECKS: list[Check] = [check for checks in read_checks().values() for check in checks]


@pytest.fixture(scope="module")
def published() -> dict[str, Verdict]:
    return {decided.id: decided for decided in verdicts(published_evidence())}


# --- what is a test ---------------------------------------------------------------------------------


ROUNDED = ("F06", "F14", "F15", "F16", "F17")
"""Energies per sample that the text rounds, of the runs whose rows the authors published."""


def test_a_number_said_to_stand_in_a_published_row_does() -> None:
    with open(ROOT / "reference" / "published_results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {"metric_last": "metric_value"}
    stated = [check for check in CHECKS if check.stated_in]
    assert len({check.id for check in stated}) == 22
    for check in stated:
        if check.id in ("D10", *ROUNDED):
            continue  # the ratio of two such numbers, D08 and D09; numbers that the text rounds
        column = columns.get(check.quantity, check.quantity)
        published_numbers = {
            float(r[column]) for r in rows if r["source"] == check.stated_in and r[column]
        }
        assert check.target[0] in published_numbers, check.id


def test_a_contradiction_says_whether_it_stands_among_all_tests(
    published: dict[str, Verdict],
) -> None:
    assert published["K14"].stands is True
    assert {
        decided.stands for decided in published.values() if decided.verdict != CONTRADICTED
    } == {None}
    assert "taken together (Holm, 5 %): K14." in counts(claim_rows(list(published.values())))
    alone, many = (
        with_holm([verdict(0.01), *(verdict(0.4, str(other)) for other in range(others))])
        for others in (0, 9)
    )
    assert alone[0].stands is True and many[0].stands is False


def verdict(p: float, id_: str = "first") -> Verdict:
    return Verdict(id_, CONTRADICTED if p < 0.025 else UNDECIDED, 1.0, "2", "It is.", p=p)


def test_the_json_has_the_keys_that_its_document_names(published: dict[str, Verdict]) -> None:
    (first, *_) = as_json(claim_rows(list(published.values())))
    sentence = " ".join((ROOT / "docs" / "paper" / "claims.md").read_text(encoding="utf-8").split())
    listed = sentence.partition("The JSON has of each claim ")[2].partition(";")[0]
    assert re.findall(r"`(\w+)`", listed) == list(first)


# --- tolerances -------------------------------------------------------------------------------------


def bounds(name: str) -> tuple[float, float]:
    return Check(**vars(CHECKS[0]) | {"expects": name}).bounds


def test_devices_are_equivalent_in_claims_and_in_the_table_of_comparisons_by_one_bound() -> None:
    assert bounds("equivalent") == (-math.inf, MARGIN)


def test_outputs_say_by_which_list_of_tolerances_they_decided() -> None:
    current = claims_hash()
    assert current is not None
    sentence = frozen(published_evidence())[0]
    assert sentence.endswith(f"SHA-256 {current[:16]}.")
    given = published_evidence()
    table = as_table(claim_rows(verdicts(given)), given)
    assert sentence in metadata(table)["notes"]


def test_runs_that_began_with_other_tolerances_are_counted() -> None:
    hashes = [claims_hash(), claims_hash(), "other", None]
    provenance = {("one", n): {"claims_sha256": sha256} for n, sha256 in enumerate(hashes, 1)}
    (sentence,) = frozen(replace(study(), provenance=provenance))
    assert "began with these: 2 of 4;" in sentence
    assert "these: 1; not known: 1." in sentence


# --- single claims ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "others"),
    [("L01", "K03"), ("L02", "K01"), ("L03", "K02"), ("L05", "F03, F12, F13")],
)
def test_a_claim_on_points_that_another_tests_says_so(
    published: dict[str, Verdict], id_: str, others: str
) -> None:
    assert f"Same points as {others}: no independent test." in published[id_].detail
