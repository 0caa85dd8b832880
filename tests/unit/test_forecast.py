"""What the scaling model says of a run where others ask it: wall times and the energy budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plan_files import MODEL, UNKNOWN, forecaster, small
from request_files import paper

from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.forecast import Forecaster, check_any, forecaster_of

ID = "resnet50-a100-n016-lbs0016-full"


def test_the_published_run_takes_about_what_is_forecast() -> None:
    spec = run_spec(paper(), ID, 1)
    # 7.1 h (reference/published_results.csv)
    upper_s = forecaster().upper_runtime_s(spec)
    assert 7.1 < upper_s / 3600 < 7.6
    found = estimate(forecaster().runs(spec).runtime_s[:, 0])
    assert upper_s == found.high


def test_the_upper_bound_of_a_configuration_is_the_same_whoever_asks_first() -> None:
    spec = run_spec(paper(), ID, 1)
    alike = replace(spec, configuration=f"{ID}-learningrate0.2")
    orders = [[spec, alike], [alike, spec]]
    found = []
    for order in orders:
        fresh = Forecaster(forecaster().model)
        asked = {one.configuration: fresh.upper_runtime_s(one) for one in order}
        found.append(asked)
        for one in order:
            times_s = fresh.runs(one).runtime_s[:, 0]
            assert asked[one.configuration] == estimate(times_s).high
    assert found[0] == found[1]


def test_an_unknown_run_has_no_forecast() -> None:
    campaign = small({"unknown": UNKNOWN})
    spec = run_spec(campaign, next(iter(campaign.configurations)), 1)
    assert forecaster().upper_runtime_s(spec) is None
    with pytest.raises(InputError, match="no run can be predicted"):
        check_any(campaign, forecaster())


def test_a_relative_path_counts_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = forecaster_of("reference/scaling_model.json")
    assert found is not None and len(found.model.kinds) == 3
    assert found.model.path == str(MODEL)
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "scaling_model.json").write_text("{}")
    with pytest.raises(InputError, match=r"reference/scaling_model\.json: version is None"):
        forecaster_of("reference/scaling_model.json")
    assert forecaster_of(None) is None
