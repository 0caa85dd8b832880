"""One of something is told in the singular, and no number as people never write it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from campaign_files import demo
from cost_rows import frame, h100_rows
from plan_files import KNOWN, UNKNOWN, forecaster, small
from request_files import horeka

from scalewatt.cli.campaigns import campaign_table
from scalewatt.figures.cost.cost_points import note_sentences, worded
from scalewatt.figures.figure_data import drawable
from scalewatt.figures.pareto import _open_sentence
from scalewatt.figures.prediction import _lacking
from scalewatt.results.figures.footnotes import notes
from scalewatt.scaling.planning.advise import Advice, Interval, Limits, Setting
from scalewatt.scaling.planning.advise_text import advice_text
from scalewatt.scaling.planning.plan_table import make_plan
from scalewatt.scaling.planning.plan_text import plan_text
from scalewatt.scaling.planning.start_time import Start, StartTimes, start_sentences

ROOT = Path(__file__).parents[2]

# --- campaigns and plans --------------------------------------------------------------------------


def test_a_campaign_of_one_run_is_one_run() -> None:
    name = "resnet50-full-lbs16"
    entry = {"model": "resnet50", "device": "local", "gpus": [1], "local_batch_size": 64}
    found = demo({("series",): {name: entry}, ("figures",): {}})
    assert campaign_table(found).endswith(": 1 series, 1 configuration, 1 run, 1 GPU")


def test_a_campaign_of_one_number_of_gpus_has_no_span() -> None:
    name = "resnet50-full-lbs16"
    entry = {"model": "resnet50", "device": "local", "gpus": [2], "local_batch_size": 64}
    found = demo({("series",): {name: {**entry, "repeats": 3}}, ("figures",): {}})
    assert campaign_table(found).endswith(": 1 series, 1 configuration, 3 runs, 2 GPUs")


def planned(**series: dict[str, Any]) -> str:
    return " ".join(plan_text(make_plan(small(series), horeka(), forecaster())).split())


def test_a_plan_of_one_run_is_one_run() -> None:
    said = planned(known={**KNOWN, "gpus": [4], "repeats": 1})
    assert "all (1 run)" in said


def test_one_missing_run_of_a_plan_is_one() -> None:
    said = planned(known={**KNOWN, "gpus": [4], "repeats": 1}, unknown={**UNKNOWN, "repeats": 1})
    assert "1 of 2 runs is missing: it cannot be predicted" in said
    several = planned(known={**KNOWN, "gpus": [4], "repeats": 1}, unknown=UNKNOWN)
    assert "2 of 3 runs are missing: they cannot be predicted" in several


# --- start times ----------------------------------------------------------------------------------

FIRST = Start("2026-02-01T00:00:00Z", "2026-02-01T01:00:00Z", 10.0, 9.9, 10.1)
BEST = Start("2026-02-01T03:00:00Z", "2026-02-01T04:00:00Z", 0.04, 0.03, 0.05)


def starts(**changes: Any) -> str:
    found = StartTimes("grid.csv", 1, 0, 1, 1, BEST, FIRST, FIRST, 9.96, 9.9, 10.0, told_apart=True)
    return " ".join(start_sentences(replace(found, **changes)))


def test_a_saving_of_nearly_all_is_no_power_of_ten() -> None:
    assert "the best saves 9.96 kg (9.9–10), 99.6 %." in starts()
    assert "e+" not in starts()


def test_one_run_and_one_start_time_are_told_in_the_singular() -> None:
    said = starts(left_out=1)
    assert "By grid.csv, of 1 run, one after the other" in said
    assert "1 run whose energy is not known is not in it" in said
    assert "1 of 1 start time is covered and in time" in said
    said = starts(runs=3, left_out=2, compared=1, considered=4)
    assert "of 3 runs" in said and "2 runs whose energy is not known are not in it" in said
    assert "1 of 4 start times is covered" in said


# --- figures --------------------------------------------------------------------------------------


def test_an_unknown_resolution_of_an_energy_is_no_power_of_ten() -> None:
    made = frame([row | {"energy_resolution": 1.0} for row in h100_rows()])
    points = worded(drawable(made))
    said = " ".join(note_sentences(points, points))
    assert "is known to 100 % or better" in said and "e+" not in said


def test_one_open_point_is_told_in_the_singular() -> None:
    points = pd.DataFrame({"non_dominated": [None, True], "x_name": ["energy_kwh"] * 2})
    assert _open_sentence(points).startswith("Whether 1 of 2 points is optimal in energy")


def test_one_point_that_was_not_predicted_is_told_in_the_singular() -> None:
    points = pd.DataFrame({"reason": ["it is new", "", "it is old", "it is old"]})
    assert _lacking(points) == "Not predicted: it is new (1 point); it is old (2 points)."


def line(*gpus: int) -> dict[str, Any]:
    points = [{"configuration": f"c{n}", "gpus": n, "dataset_samples": 1000} for n in gpus]
    own = {"name": "line", "label": "a line", "model": "resnet50", "phase": "train"}
    return {"figure": "figure2", "campaign": "made", "series": [{**own, "points": points}]}


def rows(*gpus: int) -> list[dict[str, Any]]:
    return [{"configuration": f"c{n}", "excluded": None, "protocol": "paper"} for n in gpus]


def test_n0_is_explained_only_where_a_series_has_a_second_n() -> None:
    words = "n₀ is a series' smallest n"
    assert any(one.startswith(words) for one in notes(line(1, 2), rows(1, 2)))
    assert not any(one.startswith(words) for one in notes(line(1), rows(1)))
    assert not any("speed-up" in one for one in notes(line(1, 2), rows(2)))


# --- advice ---------------------------------------------------------------------------------------


def setting(clock: int, repeats: int | None = 1) -> Setting:
    return Setting(
        f"line-gpuclock{clock}mhz", "line", (), {"gpu_clock_mhz": clock}, "measured", repeats,
        Interval(1.0), Interval(1.0), None, {},
    )  # fmt: skip


def test_advice_counts_runs_in_words() -> None:
    fast, slow = setting(1410), setting(705, repeats=3)
    advice = Advice("line", fast, slow, Interval(0.1), Interval(0.1), (), False, 2)
    said = advice_text([advice], Limits(slowdown=0.1))
    assert "(1 run)" in said and "(3 runs)" in said
    assert "makes it" not in said and "…" not in said


def test_the_smallest_n_of_a_series_is_printed_with_a_subscript() -> None:
    printed = [*(ROOT / "src" / "scalewatt").rglob("*.py"), *(ROOT / "workflow").rglob("*.rst")]
    printed += [*(ROOT / "docs").glob("*.md"), *(ROOT / "src" / "scalewatt").rglob("*.j2")]
    plain = [path.name for path in printed if re.search(r"\bn_?0\b", path.read_text("utf-8"))]
    assert plain == []
