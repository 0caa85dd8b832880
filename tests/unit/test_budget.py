"""A campaign whose energy budget is used up starts no training, on a machine without a scheduler too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.run_files.attempt_log import attempt_path
from scalewatt.run_files.progress_files import note_position
from scalewatt.scheduling.submissions import Submissions
from scalewatt.tracking import energy_used as spent
from scalewatt.tracking.budget import budgeted_submissions, check_budget
from scalewatt.tracking.energy_used import EnergyUsed

TINY = Path(__file__).parents[1] / "factories" / "tiny.yaml"
LOCAL = str(Path(__file__).parents[2] / "profiles" / "local" / "cluster.yaml")


@pytest.fixture()
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny campaign with a budget of 2 kWh, of which 2.5 are spent."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(TINY.read_text()), "energy_budget_kwh": 2}))
    monkeypatch.setattr(
        spent, "energy_used_kwh", lambda *_: EnergyUsed(2.5, 1.0, {"measured": 2.5}, ())
    )
    return path


def test_a_training_is_refused_and_its_attempt_noted(
    tmp_path: Path, campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_campaign(campaign, None)
    spec = run_spec(loaded, next(iter(loaded.configurations)), 1)
    out = tmp_path / "results" / "runs" / spec.configuration / "1"
    out.mkdir(parents=True)
    (out / "spec.json").write_text(spec.text)
    place = ["--cluster", LOCAL, "--work", str(tmp_path / "work"), "--out", str(out)]
    code = main(["train", str(out / "spec.json"), *place, "--budget-of", str(campaign)])
    assert code == 1
    said = capsys.readouterr().err
    assert f"{spec.configuration} repeat 1: the campaign's energy budget is used up" in said
    assert "2.5 of 2 kWh" in said
    assert json.loads(attempt_path(tmp_path / "work", spec).read_text())["code"] == 64


def test_a_run_that_is_trained_is_still_published(tmp_path: Path, campaign: Path) -> None:
    loaded = load_campaign(campaign, None)
    spec = run_spec(loaded, next(iter(loaded.configurations)), 1)
    path = tmp_path / "spec.json"
    path.write_text(spec.text)
    submissions = Submissions(tmp_path / "work", 3, 2.0, lambda: 2.5)
    assert submissions.refusal(path) is not None
    workdir = tmp_path / "work" / f"{spec.key}-01234567"
    workdir.mkdir(parents=True)
    (workdir / "result.json").write_text("{}")
    assert submissions.refusal(path) is None


def test_what_a_job_has_spent_is_counted_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    kwh = [1.0, 2.5]
    submissions = Submissions(tmp_path, 3, 2.0, lambda: kwh.pop(0))
    assert submissions.over_budget() is None
    submissions.forget_energy_used()
    assert "2.5 of 2 kWh" in submissions.over_budget()


# --- by the scaling model ------------------------------------------------------------------------


def test_a_training_that_would_exceed_the_budget_is_refused(
    tmp_path: Path, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        spent, "energy_used_kwh", lambda *_: EnergyUsed(1.5, 1.0, {"measured": 1.5}, ())
    )
    loaded = load_campaign(campaign, None)
    spec = run_spec(loaded, next(iter(loaded.configurations)), 1)
    place = loaded, {}, tmp_path / "results", tmp_path / "work", spec
    check_budget(*place)
    check_budget(*place, lambda _: 0.5)
    with pytest.raises(InputError) as caught:
        check_budget(*place, lambda _: 0.6)
    said = str(caught.value)
    assert said.startswith(f"{spec.configuration} repeat 1: it would exceed")
    assert "1.5 kWh are used" in said and "this one 0.6: 2.1 of 2 kWh" in said


def test_of_a_run_that_is_half_done_half_is_still_to_come(tmp_path: Path, campaign: Path) -> None:
    loaded = load_campaign(campaign, None)
    spec = run_spec(loaded, next(iter(loaded.configurations)), 1)
    work = tmp_path / "work"
    given = loaded, {}, tmp_path / "results", work, 0
    submissions = budgeted_submissions(*given, lambda _: 10.0)
    assert submissions.still_kwh(spec) == 10
    workdir = work / f"{spec.key}-01234567"
    workdir.mkdir(parents=True)
    note_position(workdir, updates=spec.updates // 2, epoch=1, step=0)
    done = spec.updates // 2 / spec.updates
    assert submissions.still_kwh(spec) == pytest.approx(10 * (1 - done))
    assert budgeted_submissions(*given).still_kwh(spec) is None


def test_the_budget_knows_every_run_of_the_campaign(tmp_path: Path, campaign: Path) -> None:
    loaded = load_campaign(campaign, None)
    found = budgeted_submissions(loaded, {}, tmp_path / "results", tmp_path / "work", 0).specs()
    assert len(found) == len(list(loaded.runs()))
    assert all(spec.key == key for key, spec in found.items())
