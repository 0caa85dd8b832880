"""When a campaign would emit least, by a file of carbon intensity."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from campaign_files import PAPER, ROOT
from plan_files import FACILITY, KNOWN, UNKNOWN, facility_cluster, forecaster, small

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.results.carbon.intensity import CarbonIntensity, of_times
from scalewatt.results.tables.derived_quantities import facility_of
from scalewatt.scaling.planning.plan import FINISHED, PlannedRun, Planner
from scalewatt.scaling.planning.start_time import (
    MOST_STARTS,
    Request,
    StartTimes,
    read_request,
    start_sentences,
    start_times,
)

HOUR = 3600.0
DAY = datetime(2026, 2, 1, tzinfo=UTC).timestamp()


def grid(values: list[float], step_h: float = 1) -> CarbonIntensity:
    """One value for each step from DAY."""
    return of_times(
        DAY + step_h * HOUR * np.arange(len(values)), np.array(values), "grid.csv", "made"
    )


def planned(*hours_and_kwh: tuple[Any, Any], **more: Any) -> list[PlannedRun]:
    """Runs of given hours and kWh with PUE, single values or draws."""
    (configuration,) = small({"a": {**KNOWN, "gpus": [4]}}).configurations.values()
    return [
        PlannedRun(
            configuration,
            number + 1,
            {
                "runtime_h": np.atleast_1d(np.asarray(hours, float)),
                "facility_energy_kwh": np.atleast_1d(np.asarray(kwh, float)),
            },
            **{"basis": "predicted", **more},
        )
        for number, (hours, kwh) in enumerate(hours_and_kwh)
    ]


def between(first_h: float, last_h: float, **more: Any) -> Request:
    return Request(DAY + first_h * HOUR, DAY + last_h * HOUR, **more)


def iso(hours: float) -> str:
    return datetime.fromtimestamp(DAY + hours * HOUR, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


VALLEY = [400.0, 400, 300, 100, 100, 300, 400, 400, 400, 400]


def test_the_best_start_is_the_one_whose_hours_emit_least() -> None:
    found = start_times(planned((2, 10)), grid(VALLEY), between(0, 6))
    assert found.best and found.worst and found.first
    assert (found.best.time, found.best.ends) == (iso(3), iso(5))
    assert found.best.carbon_kg == pytest.approx(10 * 0.1)
    assert (found.first.time, found.first.carbon_kg) == (iso(0), pytest.approx(4))
    assert found.worst.carbon_kg == pytest.approx(4)
    assert found.saving_kg == pytest.approx(3) and found.told_apart is True
    assert (found.compared, found.considered) == (7, 7)


def test_a_run_that_begins_between_two_hours_counts_both_by_their_time() -> None:
    found = start_times(planned((1, 10)), grid(VALLEY), between(1.5, 1.5))
    assert found.best and found.best.carbon_kg == pytest.approx(10 * (0.5 * 0.4 + 0.5 * 0.3))


def test_runs_follow_one_another_or_begin_at_once() -> None:
    runs = planned((2, 10), (2, 20))
    steps = grid([100.0, 100, 400, 400])
    after = start_times(runs, steps, between(0, 0))
    together = start_times(runs, steps, between(0, 0, at_once=True))
    assert after.best and after.best.carbon_kg == pytest.approx(10 * 0.1 + 20 * 0.4)
    assert together.best and together.best.carbon_kg == pytest.approx(30 * 0.1)
    assert (after.best.ends, together.best.ends) == (iso(4), iso(2))


def test_a_constant_file_gives_the_constant_and_no_time_is_better() -> None:
    found = start_times(planned((2, 10)), grid([380.0] * 10), between(0, 6))
    assert found.best and found.best.carbon_kg == pytest.approx(10 * 0.38, rel=1e-12)
    assert found.saving_kg == pytest.approx(0, abs=1e-12) and not found.told_apart


def test_the_deadline_is_kept_with_95_percent_probability() -> None:
    draws = np.linspace(1, 3, 200)
    runs = planned((draws, np.full(200, 10.0)))
    free = start_times(runs, grid(VALLEY), between(0, 6))
    bound = start_times(runs, grid(VALLEY), between(0, 6, finish_by_s=DAY + 5 * HOUR))
    assert free.best and free.best.time == iso(3)
    assert bound.best and bound.best.time == iso(2)
    assert bound.compared == 3


def test_times_that_differ_within_the_intervals_cannot_be_told_apart() -> None:
    draws = np.linspace(0.5, 4, 200)
    steps = grid([200.0, 190, 100, 300, 300, 300, 300])
    found = start_times(planned((draws, np.full(200, 10.0))), steps, between(0, 1))
    assert found.told_apart is False
    assert "cannot be told apart" in " ".join(start_sentences(found))


def test_outside_of_the_cover_nothing_is_named() -> None:
    found = start_times(planned((20, 10)), grid(VALLEY), between(0, 6))
    assert found.best is None and found.reason
    assert "grid.csv covers 2026-02-01 00:00 UTC to 2026-02-01 10:00 UTC" in found.reason
    assert "20 h" in start_sentences(found)[0]


def test_a_deadline_that_no_start_keeps_is_said() -> None:
    found = start_times(planned((4, 10)), grid(VALLEY), between(0, 4, finish_by_s=DAY + 3 * HOUR))
    assert found.best is None and found.reason and "keeps the deadline" in found.reason


def test_where_the_earliest_is_not_covered_the_rest_is_compared() -> None:
    found = start_times(planned((2, 10)), grid(VALLEY), between(-2, 6))
    assert found.best and found.best.time == iso(3) and found.first is None
    assert found.compared == 7 and found.considered == 8


def test_finished_runs_do_not_count_and_unknown_ones_are_told() -> None:
    runs = [*planned((2, 10)), *planned((2, 1000), basis=FINISHED)]
    runs.append(replace(runs[0], amounts={}, basis=None))
    found = start_times(runs, grid(VALLEY), between(0, 6))
    assert found.best and found.best.carbon_kg == pytest.approx(1)
    assert (found.runs, found.left_out) == (1, 1)
    assert "1 run whose energy is not known" in start_sentences(found)[-1]
    done = start_times(planned((2, 10), basis=FINISHED), grid(VALLEY), between(0, 6))
    assert done.best is None and done.reason == "all runs have finished"


def test_too_many_start_times_are_refused() -> None:
    many = grid([1.0] * (MOST_STARTS + 5), step_h=1 / 60)
    with pytest.raises(InputError, match=rf"allowed: {MOST_STARTS} at most"):
        start_times(planned((1, 1)), many, between(0, 1000))


REFUSED = {
    "no zone": (["2026-02-01T00:00", "2026-02-02T00:00Z"], None, "names no zone"),
    "no time": (["soon", "2026-02-02T00:00Z"], None, "'soon' is no time"),
    "in no order": (["2026-02-02T00:00Z", "2026-02-01T00:00Z"], None, "earlier time first"),
    "too early": (
        ["2026-02-02T00:00Z", "2026-02-03T00:00Z"],
        "2026-02-01T00:00Z",
        "--finish-by: 2026-02-01T00:00Z is not after",
    ),
    "a deadline alone": (None, "2026-02-01T00:00Z", "--finish-by: is for --start-between"),
}


@pytest.mark.parametrize(("given", "by", "said"), REFUSED.values(), ids=REFUSED)
def test_times_are_refused_by_their_option(given: Any, by: str | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_request(given, by, False)


def test_zones_are_honoured() -> None:
    found = read_request(["2026-02-01T01:00+01:00", "2026-02-01T00:00Z"], None, False)
    assert found == Request(DAY, DAY)


def test_a_planned_campaign_is_compared_with_its_intervals() -> None:
    campaign, cluster = small({"a": KNOWN, "b": UNKNOWN}), facility_cluster()
    runs = Planner(campaign, cluster, forecaster(), facility_of(cluster)).runs()
    night = [400.0 - 300 * (2 <= hour % 24 < 8) for hour in range(24 * 60)]
    found = start_times(runs, grid(night), between(0, 24, at_once=True))
    assert (found.runs, found.left_out) == (9, 2)
    assert found.best and found.first and found.saving_kg
    assert found.best.carbon_kg_low < found.best.carbon_kg < found.best.carbon_kg_high
    assert found.best.carbon_kg == pytest.approx(found.first.carbon_kg - found.saving_kg, rel=0.02)


# --- the command --------------------------------------------------------------------------------


def command(folder: Path, *more: str, **facility: Any) -> list[str]:
    cluster = yaml.safe_load((ROOT / "profiles" / "horeka" / "cluster.yaml").read_text())
    for name in ("pue", "carbon_intensity", "price"):
        cluster.pop(name, None)
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump({**cluster, **facility}))
    between = ["--start-between", "2026-02-01T00:00Z", "2026-02-02T00:00Z"]
    return ["plan", "--campaign", str(PAPER), "--cluster", str(path), *between, *more]


def with_file(folder: Path, hours: int) -> dict[str, Any]:
    rows = (f"{DAY + HOUR * n:.0f},{400 - 300 * (2 <= n % 24 < 8)}" for n in range(hours))
    path = folder / "grid.csv"
    path.write_text("\n".join(["time,g_per_kwh", *rows]))
    return {"carbon_intensity": {"file": str(path), "source": "a test"}}


def test_the_command_prints_and_gives_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facility = {"pue": FACILITY["pue"], **with_file(tmp_path, 24 * 60)}
    assert main(command(tmp_path, "--at-once", "--json", **facility)) == 0
    start = json.loads(capsys.readouterr().out)["start"]
    assert set(start) == set(StartTimes.__dataclass_fields__)
    assert start["best"]["time"].startswith("2026-02-01T") and start["compared"] == 25
    assert main(command(tmp_path, "--at-once", **facility)) == 0
    said = capsys.readouterr().out
    assert "Least CO2e: start at 2026-02-01T" in said and "Waiting in a queue is not" in said
    assert "Carbon over time by grid.csv: a test." in said
    assert "\n\nWhen to start\n  Least CO2e: start at 2026-02-01T" in said


def test_when_to_start_has_a_heading_of_its_own_in_markdown(tmp_path: Path) -> None:
    facility = {"pue": FACILITY["pue"], **with_file(tmp_path, 24 * 60)}
    out = tmp_path / "plan"
    assert main(command(tmp_path, "--at-once", "--out", str(out), **facility)) == 0
    told, _, start = out.with_suffix(".md").read_text().partition("\n\n## When to start\n\n")
    assert start.startswith("Least CO2e: start at 2026-02-01T") and "Least CO2e" not in told
    assert "nominal 90 % intervals" in told and "nominal" not in start, (
        "notes are of the whole plan"
    )


def test_without_a_file_or_a_pue_the_command_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = {"pue": FACILITY["pue"], "carbon_intensity": FACILITY["carbon_intensity"]}
    assert main(command(tmp_path, **constant)) == 1
    assert "has no key 'carbon_intensity.file'" in capsys.readouterr().err
    assert main(command(tmp_path, **with_file(tmp_path, 48))) == 1
    assert "has no key 'pue'" in capsys.readouterr().err


def test_a_campaign_longer_than_the_file_is_said_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facility = {"pue": FACILITY["pue"], **with_file(tmp_path, 48)}
    assert main(command(tmp_path, **facility)) == 1
    assert "When to start cannot be told: grid.csv covers" in capsys.readouterr().out
    assert main(command(tmp_path, "--json", **facility)) == 1
    assert json.loads(capsys.readouterr().out)["start"]["best"] is None
