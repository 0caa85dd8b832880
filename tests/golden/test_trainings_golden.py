"""Small trainings on 1, 2 and 4 ranks learn what they learned, under both protocols."""

from __future__ import annotations

from collections.abc import Mapping

import golden_trainings
import pandas as pd
import pytest
from golden_tables import Golden
from golden_trainings import HISTORIES, WEIGHTS

pytestmark = [
    *(pytest.mark.slow, pytest.mark.long, pytest.mark.nightly),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Golden, pd.DataFrame]:
    """Histories and weights of trainings by today's code."""
    return golden_trainings.made(tmp_path_factory.mktemp("trained") / "project")


def is_same_machine() -> bool:
    """True where processor and torch round as those that the goldens were made with."""
    return set(WEIGHTS.read().machine) == {golden_trainings.machine()}


def test_every_training_has_the_history_that_it_had(made: Mapping[Golden, pd.DataFrame]) -> None:
    # ResNet50's losses are so large here that rounding decides them.
    only = "" if is_same_machine() else "fourcastnet"
    assert HISTORIES.differences(made[HISTORIES], only) == []


def test_every_training_ends_with_the_weights_that_it_had(
    made: Mapping[Golden, pd.DataFrame],
) -> None:
    if not is_same_machine():
        pytest.skip("the weights are known for another processor or torch, which round otherwise")
    assert WEIGHTS.differences(made[WEIGHTS]) == []
