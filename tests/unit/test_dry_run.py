"""A dry run's table of what would be trained."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from campaign_files import ROOT

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.scaling.planning.forecast import Forecaster, forecaster_of
from scalewatt.targets import dry_run
from scalewatt.targets.dry_run import DryRun, remember

J_PER_KWH = 3.6e6
RESOURCES = {"nodes": 2, "runtime": 90, "slurm_partition": "gpu"}


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return load_campaign(ROOT / "config.yaml")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the campaign of a test."""
    yield
    dry_run._REMEMBERED.clear()


def points(campaign: Campaign, name: str) -> list[str]:
    """The configurations of a series."""
    return list(campaign.series[name].points.values())


def told(
    campaign: Campaign, forecaster: Forecaster | None, run: DryRun, what: str = "train"
) -> list[list[str]]:
    """The table's rows below its head, as cells; then what is said of it."""
    remember(campaign, lambda: forecaster, "horeka")
    title, head, *rest = run.lines()
    assert title == f"Would {what}:" and head.split()[0] == "series"
    return [[cell for cell in line.split("  ") if cell] for line in rest]


def test_hours_and_energy_are_medians_of_the_model_times_the_repeats(campaign: Campaign) -> None:
    forecaster = forecaster_of(ROOT / "reference" / "scaling_model.json")
    name = next(iter(campaign.series))
    run = DryRun()
    for configuration in points(campaign, name)[:2]:
        for repeat in (1, 2):
            run.add("train", {"configuration": configuration, "repeat": str(repeat)}, RESOURCES)
    run.add("energy", {"configuration": points(campaign, name)[0], "repeat": "1"}, {})
    row, total, *notes = told(campaign, forecaster, run)
    assert any(
        "scalewatt plan --profile profiles/horeka --campaign" in "".join(one) for one in notes
    )
    assert forecaster is not None
    drawn = [forecaster.runs(run_spec(campaign, one, 1)) for one in points(campaign, name)[:2]]
    hours = sum(2 * float(np.median(one.runtime_s)) / 3600 for one in drawn)
    kwh = sum(2 * float(np.median(one.total_j)) / J_PER_KWH for one in drawn)  # type: ignore[arg-type]
    assert [cell.strip() for cell in row[:2]] == [name, "4"]
    assert float(row[-2]) == pytest.approx(hours, rel=0.01)
    assert float(row[-1]) == pytest.approx(kwh, rel=0.01)
    assert total[0].strip() == "in all" and total[-1] == row[-1]


def test_without_a_model_hours_are_those_asked_for_and_energy_is_not_known(
    campaign: Campaign,
) -> None:
    run = DryRun()
    name = next(iter(campaign.series))
    for configuration in points(campaign, name)[:3]:
        run.add("train", {"configuration": configuration, "repeat": "1"}, RESOURCES)
    row, _, note = told(campaign, None, run)
    assert [cell.strip() for cell in row[-3:]] == ["gpu", "4.5", "–"]
    assert "wall times asked for" in note[0]


def test_a_configuration_of_two_series_is_counted_once(campaign: Campaign) -> None:
    of = [(name, one) for name in campaign.series for one in points(campaign, name)]
    shared = {one for _, one in of if sum(other == one for _, other in of) > 1}
    assert shared, "the paper's campaign shares points"
    run = DryRun()
    for configuration in shared:
        run.add("train", {"configuration": configuration, "repeat": "1"}, RESOURCES)
    *rows, total, _ = told(campaign, None, run)
    assert sum(int(row[1]) for row in rows) == int(total[1]) == len(shared)


def test_simulated_repeats_are_counted_and_unknown_resources_are_dashes(
    campaign: Campaign,
) -> None:
    run = DryRun()
    configuration = points(campaign, next(iter(campaign.series)))[0]
    run.add("simulate_1_2_3", {"configuration": configuration}, {"nodes": "<TBD>"})
    row, *_ = told(campaign, None, run, "simulate")
    assert [cell.strip() for cell in row[1:]] == ["3", "1", "–", "–", "–", "–"]


def test_more_series_than_fit_are_summed_in_one_row(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "MOST_SERIES", 2)
    run = DryRun()
    for name in campaign.series:
        for configuration in points(campaign, name)[-1:]:
            run.add("train", {"configuration": configuration, "repeat": "1"}, RESOURCES)
    first, others, total, _ = told(campaign, None, run)
    assert others[0].strip().endswith("further series")
    assert int(first[1]) + int(others[1]) == int(total[1]) == len(run.trainings)


def test_where_nothing_is_trained_there_is_no_table(campaign: Campaign) -> None:
    run = DryRun()
    run.add("energy", {"configuration": "any", "repeat": "1"}, {})
    remember(campaign, lambda: None, "local")
    assert run.lines() == []
