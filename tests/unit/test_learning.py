"""Learning curves: energy and time up to each epoch, and how they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from figure_tables import any_table, as_table, draw, legend_of, plotted, with_metadata
from run_files import NAME, epochs, make_run, make_spec, part, run_row

from scalewatt.common.files import write_table
from scalewatt.energies.tables import EPOCHS_SCHEMA
from scalewatt.figures import learning as figure_module
from scalewatt.figures import style
from scalewatt.figures.figure_data import drawable, series_labels
from scalewatt.results.figures.learning_table import run_epochs
from scalewatt.results.tables.frames import records, to_frame
from scalewatt.results.tables.run_row import RunFiles, read_runs
from scalewatt.results.text.captions import caption

Row = dict[str, Any]
KWH = 3.6e6


def epoch_part(
    epoch: int | None, stage: str, seconds: float, energy_j: float | None, kind: str = "gpu"
) -> Row:
    return {
        "configuration": NAME,
        "repeat": 1,
        "epoch": epoch,
        "stage": stage,
        "device_kind": kind,
        "node_s": seconds,
        "energy_j": energy_j,
        "energy_origin": "measured",
    }


def made_run(
    results: Path, energy: list[Row], parts: list[Row], history: list[Row], **spec: Any
) -> RunFiles:
    files = make_run(results, energy, spec=make_spec(**spec), history=history)
    write_table(pa.Table.from_pylist(parts, EPOCHS_SCHEMA), files.epochs)
    return files


def simple(results: Path, **spec: Any) -> RunFiles:
    """Two epochs of 2 and 3 kWh, start-up 1 kWh, staging 4 kWh, shut-down 5 kWh; 100 s each."""
    kwh = {"startup": 1.0, "stage_data": 4.0, "train": 5.0, "shutdown": 5.0}
    energy = [
        part("gpu", stage, 200 if stage == "train" else 100, value * KWH)
        for stage, value in kwh.items()
    ]
    parts = [
        epoch_part(None, "startup", 100, 1 * KWH),
        epoch_part(None, "stage_data", 100, 4 * KWH),
        epoch_part(None, "shutdown", 100, 5 * KWH),
        epoch_part(0, "train", 100, 2 * KWH),
        epoch_part(1, "train", 100, 3 * KWH),
    ]
    return made_run(results, energy, parts, epochs([40.0, 30.0]), **spec)


def epoch_rows(files: RunFiles) -> list[Row]:
    run = files.configuration, files.repeat
    return records(run_epochs(read_runs(files.results, [run], "made")))


# --- the table ------------------------------------------------------------------------------------


def test_energy_and_time_count_from_the_start_to_the_end_of_each_epoch(tmp_path: Path) -> None:
    rows = epoch_rows(simple(tmp_path))
    assert [row["energy_kwh"] for row in rows] == pytest.approx([7.0, 10.0])
    assert [row["time_h"] * 3600 for row in rows] == pytest.approx([300.0, 400.0])
    assert [(row["epoch"], row["metric"]) for row in rows] == [(0, 40.0), (1, 30.0)]


def test_what_a_killed_segment_lost_is_counted_once_in_its_epoch(tmp_path: Path) -> None:
    energy = [
        part("gpu", "startup", 10, 1 * KWH),
        part("gpu", "train", 10, 6 * KWH, discarded_j=2 * KWH),
        part("gpu", "startup", 10, 1 * KWH, segment=1),
        part("gpu", "train", 10, 7 * KWH, segment=1),
        part("gpu", "shutdown", 10, 1 * KWH, segment=1),
    ]
    parts = [
        epoch_part(None, "startup", 20, 2 * KWH),
        epoch_part(None, "shutdown", 10, 1 * KWH),
        epoch_part(0, "train", 5, 4 * KWH),
        epoch_part(1, "train", 12, 5 * KWH),  # 2 kWh of it were lost, in segment 0
        epoch_part(2, "train", 3, 4 * KWH),
    ]
    history = epochs([3.0, 2.0, 1.0])
    history[1]["segment"] = history[2]["segment"] = 1
    files = made_run(tmp_path, energy, parts, history)
    rows = epoch_rows(files)
    assert [row["energy_kwh"] for row in rows] == pytest.approx([5.0, 11.0, 15.0])
    total = run_row(files)["energy_kwh"]
    assert rows[-1]["energy_kwh"] + 1.0 == pytest.approx(total)


def test_unknown_energy_leaves_the_time_known(tmp_path: Path) -> None:
    energy = [part("gpu", "train", 100, None)]
    files = made_run(tmp_path, energy, [epoch_part(0, "train", 100, None)], epochs([1.0]))
    (row,) = epoch_rows(files)
    assert row["energy_kwh"] is None and row["time_h"] == pytest.approx(100 / 3600)


def test_epochs_that_the_recording_does_not_place_have_neither(tmp_path: Path) -> None:
    energy = [part("gpu", "unattributed", 100, 3 * KWH)]
    parts = [epoch_part(None, "unattributed", 100, 3 * KWH)]
    rows = epoch_rows(made_run(tmp_path, energy, parts, epochs([1.0, 2.0])))
    assert {row["energy_kwh"] for row in rows} == {row["time_h"] for row in rows} == {None}


def test_energy_that_a_stage_used_outside_of_its_epochs_is_counted(tmp_path: Path) -> None:
    """A script of one's own: stage("train") to warm up, then stage("train", epoch)."""
    energy = [part("gpu", "train", 300, 6 * KWH), part("gpu", "shutdown", 100, 1 * KWH)]
    parts = [
        epoch_part(None, "train", 100, 1 * KWH),
        epoch_part(0, "train", 100, 2 * KWH),
        epoch_part(1, "train", 100, 3 * KWH),
        epoch_part(None, "shutdown", 100, 1 * KWH),
    ]
    rows = epoch_rows(made_run(tmp_path, energy, parts, epochs([2.0, 1.0])))
    assert [row["energy_kwh"] for row in rows] == pytest.approx([3.0, 6.0])
    assert [row["time_h"] * 3600 for row in rows] == pytest.approx([200.0, 300.0])


# --- the figure -----------------------------------------------------------------------------------


def places(table: pa.Table, cost: str, **only: Any) -> pd.DataFrame:
    """The places of curves of the rows that have some values."""
    rows = drawable(to_frame(table)).assign(drawn_origin=None)
    for name, value in only.items():
        rows = rows[rows[name] == value]
    return figure_module.curves(rows, cost)


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        ([1, 1], "Curves are single runs;"),
        ([1, 3], "Curves are means over repeats, thin lines the repeats; some are single runs;"),
        ([3, 3], "Curves are means over repeats, thin lines the repeats; the smallest"),
    ],
)
def test_the_caption_says_which_curves_are_single_runs(repeats: list[int], words: str) -> None:
    rows = pd.DataFrame({"configuration": ["a", "b"], "n_repeats": repeats})
    assert words in " ".join(caption(rows, "learning"))


def mean_of(*runs: list[int]) -> list[tuple[float, float]]:
    """The mean curve of runs that have values in these epochs: x is the epoch, y ten times it."""
    rows = [
        {"configuration": "c", "series": "s", "gpus": 1, "drawn_origin": None}
        | {"repeat": repeat, "epoch": epoch, "x": float(epoch), "y": 10.0 * epoch}
        for repeat, epochs in enumerate(runs, 1)
        for epoch in epochs
    ]
    mean = figure_module.mean_curves(pd.DataFrame(rows), pd.Series({"c": len(runs)}))
    return list(zip(mean["x"], mean["y"], strict=True))


def test_the_mean_is_over_the_same_epochs_of_all_runs_and_ends_where_one_lacks_a_value() -> None:
    full, gap = [1, 2, 3, 4, 5], [1, 2, 4, 5]
    assert mean_of(full, gap) == [(1.0, 10.0), (2.0, 20.0)]
    # Epochs of which no run has a value end nothing.
    assert mean_of(gap, gap) == [(float(epoch), 10.0 * epoch) for epoch in gap]
    assert mean_of(full, full[1:]) == []
    assert mean_of(full, []) == []


def test_a_series_has_the_colour_of_its_place_in_the_campaign_in_every_figure_and_chart() -> None:
    learned, chosen = any_table("learning"), any_table("pareto")
    names = list(dict.fromkeys(learned["series"].to_pylist()))
    # Of a campaign with three series before these, which are in no figure.
    made = {"series": [{"name": name, "place": at} for at, name in enumerate(names, 3)]}
    colours = {name: style.COLOURS[(3 + at) % len(style.COLOURS)] for at, name in enumerate(names)}
    for figure, table in (("learning", learned), ("pareto", chosen)):
        stated = with_metadata(table, {"figure": figure, "campaign": "paper"}, definition=made)
        frame = to_frame(stated)
        labels = {label: name for name, label in series_labels(drawable(frame)).items()}
        drawn = draw(figure, stated)
        handles = legend_of(drawn).items()
        result = {labels[text]: h.get_color() for text, h in handles if text in labels}
        assert result == colours


def test_a_run_that_diverged_ends_where_its_metric_does() -> None:
    rows = any_table("learning", epochs=5).to_pylist()
    diverged = [row | ({"metric": None} if row["epoch"] >= 2 else {}) for row in rows]
    table = as_table(diverged, "learning")
    epochs = places(table, "time_h", gpus=256)
    mean = figure_module.mean_curves(epochs, epochs.groupby("configuration")["repeat"].nunique())
    assert set(mean.groupby("configuration").size()) == {2}
    assert plotted("learning", table).num_rows == table.num_rows * 2 / 5
