"""Every claim keeps its verdict: on the published rows, on drawn campaigns and on MLPerf's runs."""

from __future__ import annotations

from pathlib import Path

import golden_claims
import pandas as pd
import pytest

needs_mlperf = pytest.mark.skipif(
    golden_claims.MLPERF is None, reason="SCALEWATT_MLPERF names no folder with MLPerf's power logs"
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        "published",
        pytest.param("drawn", marks=[pytest.mark.long, pytest.mark.nightly]),
        pytest.param("mlperf", marks=[pytest.mark.long, needs_mlperf]),
    ],
)
def test_every_claim_has_the_verdict_that_it_had(name: str, tmp_path: Path) -> None:
    table = golden_claims.verdicts(name, tmp_path / "project")
    assert golden_claims.golden(name).differences(table) == []


@pytest.mark.long
def test_the_first_ten_drawn_campaigns_have_the_verdicts_that_they_had(tmp_path: Path) -> None:
    table = pd.DataFrame(golden_claims.drawn(tmp_path, most=10))
    assert golden_claims.golden("drawn").differences(table, only="^0") == []
