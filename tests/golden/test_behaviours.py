"""Every behaviour that a small fault would break names a test that there is."""

from __future__ import annotations

from golden_project import PROJECT
from golden_tables import Golden

BEHAVIOURS = Golden("behaviours.csv", ("id",))


def test_every_behaviour_names_its_test() -> None:
    missing = []
    for row in BEHAVIOURS.read().itertuples():
        file, name = row.test.split("::")
        path = PROJECT / "tests" / file
        if not path.exists() or f"def {name}(" not in path.read_text(encoding="utf-8"):
            missing.append(f"{row.id}: {row.test}")
    assert missing == []
