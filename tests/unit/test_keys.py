"""Every key of campaign and cluster files is on its page, as the schema has it."""

from __future__ import annotations

import runpy

import pytest
from campaign_files import ROOT

KEYS = runpy.run_path(str(ROOT / ".ci" / "site" / "keys.py"))


@pytest.mark.parametrize("kind", KEYS["PAGES"])
def test_the_page_has_the_keys_as_the_schema_has_them(kind: str) -> None:
    page = KEYS["PAGES"][kind].read_text(encoding="utf-8")
    assert KEYS["written"](kind, page) == page, "run: python .ci/site/keys.py"
