"""Figure `phases`: the times of a step's phases, from runs' histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import NAME, epochs, make_run, make_spec

from scalewatt.results.figures.panel_points import planned_lines, rows_of_panels, with_phase_times
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.run_row import read_runs

FIRST = {"step_forward_q25_s": 1.0, "step_forward_median_s": 2.0, "step_forward_q75_s": 4.0}
SECOND = {"step_forward_q25_s": 3.0, "step_forward_median_s": 4.0, "step_forward_q75_s": 8.0}


def test_points_are_medians_between_quartiles_and_the_slowest_rank(tmp_path: Path) -> None:
    """Of a run with 12 and 36 updates in its epochs, and of a repeat that timed no step."""
    first = epochs([1.0], **FIRST, step_forward_slowest_s=5.0)
    second = epochs([1.0], **SECOND, step_forward_slowest_s=9.0, updates=36)
    history = [*first, *(row | {"epoch": 1} for row in second)]
    files = [
        make_run(tmp_path, [], spec=make_spec(repeat=1, epochs=2), history=history),
        make_run(tmp_path, [], spec=make_spec(repeat=2, epochs=1), history=epochs([1.0])),
    ]
    wanted = [[each.configuration, each.repeat] for each in files]
    runs = read_runs(tmp_path, wanted, "made")
    series = [{"name": "s", "label": "s", "points": [{"configuration": NAME}]}]
    lines = planned_lines(series, configurations_of(runs)).assign(published=False)

    points = rows_of_panels("phases", with_phase_times(lines, runs))

    by_name = points.set_index("y_name")[["y", "y_low", "y_high"]]
    known = {name: row.dropna().tolist() for name, row in by_name.iterrows()}
    assert known.pop("step_forward_median_s") == pytest.approx([3.5, 2.5, 7.0])
    assert known.pop("step_forward_slowest_s") == [8.0]
    assert len(known) == 8 and not any(known.values())
