"""No run's spec changes unseen: whoever has finished runs would train them again."""

from __future__ import annotations

import golden_specs
import pytest


@pytest.mark.slow
def test_the_specs_of_all_campaigns_have_the_hashes_that_they_had() -> None:
    ((golden, table),) = golden_specs.made().items()
    assert golden.differences(table) == []
