"""Specs, targets and the versions of steps stay as they were, and so do the tests of all behaviours."""

from __future__ import annotations

from pathlib import Path

import golden_specs
import golden_targets
import pytest
from golden_project import PROJECT
from golden_tables import Golden
from golden_versions import VERSIONS, today, unraised

BEHAVIOURS = Golden("behaviours.csv", ("id",))


@pytest.mark.slow
def test_the_specs_of_all_campaigns_have_the_hashes_that_they_had() -> None:
    """Whoever has finished runs would train them again."""
    ((golden, table),) = golden_specs.made().items()
    assert golden.differences(table) == []


@pytest.mark.slow
def test_every_target_keeps_its_name(tmp_path: Path) -> None:
    """Scripts and people know these names."""
    known = set(golden_targets.TARGETS.read().target)
    assert known - set(golden_targets.targets(tmp_path / "project")) == set()


def test_a_changed_golden_has_a_raised_version() -> None:
    """Finished results of a step whose results changed are made again."""
    table = today()
    assert unraised(table) == [], "raise the step's number in scalewatt.targets.versions"
    assert VERSIONS.differences(table) == [], "python tests/golden/make.py versions"


def test_a_golden_that_changes_alone_is_found() -> None:
    table = today()
    table.loc[table.step == "CLAIMS", "sha256"] = "another"
    assert unraised(table) == ["CLAIMS"]
    table.loc[table.step == "CLAIMS", "version"] = "another"
    assert unraised(table) == []


def test_every_behaviour_names_its_test() -> None:
    """A small fault would break each behaviour, and its test finds it."""
    missing = []
    for row in BEHAVIOURS.read().itertuples():
        file, name = row.test.split("::")
        path = PROJECT / "tests" / file
        if not path.exists() or f"def {name}(" not in path.read_text(encoding="utf-8"):
            missing.append(f"{row.id}: {row.test}")
    assert missing == []
