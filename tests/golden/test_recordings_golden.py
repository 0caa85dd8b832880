"""Energies and samples of recordings stay as they were read."""

from __future__ import annotations

import golden_recordings
import pytest

pytestmark = pytest.mark.slow
VARIABLES = golden_recordings.VARIABLES


@pytest.fixture(params=("tests", *VARIABLES))
def folder(request: pytest.FixtureRequest) -> str:
    """The name of a folder of recordings that is there."""
    name = str(request.param)
    if name not in golden_recordings.FOLDERS:
        pytest.skip(f"{VARIABLES[name]} names no folder of recordings")
    return name


def test_every_recording_has_the_energy_that_it_had(folder: str) -> None:
    table, _ = golden_recordings.tables_of(folder)
    assert golden_recordings.energies(folder).differences(table) == []


def test_every_sensor_of_a_recording_has_the_samples_that_it_had(folder: str) -> None:
    _, table = golden_recordings.tables_of(folder)
    assert golden_recordings.samples(folder).differences(table) == []
