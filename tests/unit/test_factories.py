"""What the factories of tests/conftest.py make is what the package reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from energy_files import accounted, gpu
from run_files import make_spec, run_row


def test_a_made_campaign_is_the_demos_with_an_edit(make_campaign: Callable[..., Any]) -> None:
    edited = make_campaign({("models", "resnet50", "epochs"): 2})
    assert {part.epochs for part in edited.configurations.values() if part.model == "resnet50"} == {
        2
    }


def test_a_made_run_has_a_row_with_its_energy(make_run: Callable[..., Any]) -> None:
    row = run_row(make_run())
    assert row["energy_kwh"] == pytest.approx(0.45)


def test_a_made_recording_has_the_energy_of_its_power(make_recording: Callable[..., Path]) -> None:
    folder = make_recording({"CUDA:0_POWER": gpu(41, 100), "CUDA:1_POWER": gpu(41, 150)})
    assert accounted(folder, make_spec()).totals.joules("gpu") == pytest.approx(40 * 250)
