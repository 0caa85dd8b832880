"""A campaign whose energy budget is used up starts nothing, on a machine without a scheduler too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from workspace import PROJECT, TINY

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.execution import launch
from scalewatt.tracking import energy_used
from scalewatt.tracking.energy_used import check_budget


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """The tiny campaign with a budget of 2 kWh."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(TINY.read_text()), "energy_budget_kwh": 2}))
    return path


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """From now on the campaign has used so many kWh."""

    def use(kwh: float) -> None:
        used = pd.DataFrame({"kwh": [kwh]})
        monkeypatch.setattr(energy_used, "energy_used", lambda *_: used)

    return use


def a_spec(campaign: Path) -> RunSpec:
    loaded = load_campaign(campaign, None)
    return run_spec(loaded, next(id_ for id_ in loaded.configurations if ".finetune" not in id_), 1)


def test_a_training_is_refused_by_name_and_numbers(
    tmp_path: Path,
    campaign: Path,
    use: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(launch, "content_of_prepared", lambda folder: "d" * 64)
    use(2.5)
    spec = a_spec(campaign)
    out = tmp_path / "results" / "runs" / spec.configuration / "1"
    out.mkdir(parents=True)
    (out / "spec.json").write_text(spec.text)
    options = ["--site", str(PROJECT / "config.yaml"), "--work", str(tmp_path / "work")]
    options += ["--out", str(out), "--budget-of", str(campaign)]
    assert main(["train", str(out / "spec.json"), *options]) == 1
    error = capsys.readouterr().err
    assert f"{spec.name}: the campaign's energy budget is used up: 2.5 of 2 kWh" in error


def test_the_budget_counts_as_used_up_from_its_last_kwh_on(
    tmp_path: Path, campaign: Path, use: Callable[[float], None]
) -> None:
    spec = a_spec(campaign)

    def check() -> None:
        work = tmp_path / "work"
        check_budget(load_campaign(campaign, None), {}, tmp_path / "results", work, spec)

    use(1.99)
    check()
    use(2.0)
    with pytest.raises(InputError, match=r"2 of 2 kWh"):
        check()
