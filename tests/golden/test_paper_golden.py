"""What is made of frozen run folders stays: energies, tables, points of figures, verdicts."""

from __future__ import annotations

from collections.abc import Mapping

import golden_paper
import pandas as pd
import pytest
from golden_tables import Golden

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Golden, pd.DataFrame]:
    """The tables that today's code makes of the frozen runs."""
    return golden_paper.made(tmp_path_factory.mktemp("frozen") / "project")


@pytest.mark.parametrize("name", golden_paper.goldens())
def test_a_table_of_the_frozen_runs_is_as_it_was(
    made: Mapping[Golden, pd.DataFrame], name: str
) -> None:
    golden = golden_paper.goldens()[name]
    assert golden.differences(made[golden]) == []
