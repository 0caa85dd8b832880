"""A step whose results changed has another number, so that finished results are made again."""

from __future__ import annotations

from golden_versions import VERSIONS, today, unraised


def test_a_changed_golden_has_a_raised_version() -> None:
    table = today()
    assert unraised(table) == [], "raise the step's number in scalewatt.targets.versions"
    renew = "python tests/golden/make.py versions"
    assert VERSIONS.differences(table) == [], renew


def test_a_golden_that_changes_alone_is_found() -> None:
    table = today()
    table.loc[table.step == "CLAIMS", "sha256"] = "another"
    assert unraised(table) == ["CLAIMS"]
    table.loc[table.step == "CLAIMS", "version"] = "another"
    assert unraised(table) == []
