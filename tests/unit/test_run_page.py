"""The page of a run: its power thinned out without losing extremes, its stages, its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_files import WHOLE, absent, make_run, make_spec, trace, write_traces

from scalewatt.common.files import write_table
from scalewatt.figures import run_page as figure_module
from scalewatt.figures.run_page import BINS, DEVICE, RunPage, power_by_bin, read_pages
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.results.tables.run_row import RunFiles

Row = dict[str, Any]
CLOCK = 1_767_225_600.0
"""When the traces of run_files begin."""


def event(stage: str, start: float, end: float, segment: int = 0) -> Row:
    row = {"segment": segment, "stage": stage, "epoch": None}
    return row | {"start_s": CLOCK + start, "end_s": CLOCK + end}


EVENTS = [event("startup", 0, 2), event("train", 2, 8), event("validate", 8, 10)]


def seconds(
    count: int,
    node: str = "n1",
    kind: str = "gpu",
    index: int = 0,
    watts: float = 100.0,
    **more: Any,
) -> list[Row]:
    """A sample a second."""
    start = more.pop("start", 0)
    return [trace(node, kind, index, start + k, watts + k % 7) | more for k in range(count)]


def made(
    results: Path,
    traces: list[Row],
    events: list[Row] | None = None,
    energy: list[Row] | None = None,
    **spec: Any,
) -> RunFiles:
    files = make_run(results, energy or WHOLE, spec=make_spec(**spec))
    write_traces(files, traces)
    table = pa.Table.from_pylist(EVENTS if events is None else events, EVENTS_SCHEMA)
    write_table(table, files.folder / "events.parquet")
    return files


def page_of(files: RunFiles) -> RunPage:
    return next(read_pages(files.results, files.configuration, [files.repeat], {}))


# --- what a page shows ----------------------------------------------------------------------------


def test_a_short_run_has_places_of_two_samples_device_by_device(tmp_path: Path) -> None:
    rows = [*seconds(10, kind="cpu", watts=50.0), *seconds(10), *seconds(10, index=1, watts=200.0)]
    page = page_of(made(tmp_path, rows))
    assert page.bin_s == 2.0
    devices = page.bands.groupby(["device_kind", "device_index"])
    assert set(devices.groups) == {("gpu", 0), ("gpu", 1), ("cpu", 0)}
    band = devices.get_group(("gpu", 1))
    assert band["time_s"].tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert band["low_w"].tolist() == [200.0, 202.0, 204.0, 200.0, 201.0]
    assert band["mean_w"].tolist() == [200.5, 202.5, 204.5, 203.0, 201.5]
    assert band["high_w"].tolist() == [201.0, 203.0, 205.0, 206.0, 202.0]


def test_waiting_between_segments_is_left_out_and_told(tmp_path: Path) -> None:
    rows = [*seconds(10), *seconds(10, start=1000, segment=1)]
    events = [event("train", 0, 9), event("train", 1000, 1009, segment=1)]
    page = page_of(made(tmp_path, rows, events))
    assert page.segments[["start_s", "end_s"]].to_numpy().tolist() == [[0, 9], [9, 18]]
    assert page.segments["waited_s"].tolist() == [0, 991]
    assert page.bands["time_s"].max() == 17 and page.bands["mean_w"].notna().all()
    assert page.spans[["start_s", "end_s"]].to_numpy().tolist() == [[0, 9], [9, 18]]
    assert "Waiting between segments (16.5 min) is left out." in figure_module.note_sentence(page)


def test_devices_of_many_nodes_are_shown_together(tmp_path: Path) -> None:
    rows = [row for n in range(5) for row in seconds(40, node=f"n{n}", watts=100.0 + 10 * n)]
    page = page_of(made(tmp_path, rows))
    assert page.nodes == 5
    assert set(page.bands["device_kind"]) == {"gpu"} and set(page.bands["device_index"]) == {-1}
    assert page.bands["low_w"].min() == 100.0 and page.bands["high_w"].max() == 146.0
    assert page.bands["mean_w"].mean() == pytest.approx(120 + 3, abs=1)
    assert "Gaps shorter than 2 s are not seen." in figure_module.note_sentence(page)
    label = figure_module.draw(page).axes[1].get_ylabel()
    assert label == "GPU\n(5 on 5 nodes)\npower (W)"


def test_a_long_run_is_thinned_out_and_keeps_its_extremes(tmp_path: Path) -> None:
    rows = seconds(9000)
    rows[4321]["power_w"], rows[77]["power_w"] = 999.0, 1.0
    page = page_of(made(tmp_path, rows, [event("train", 0, 9000)]))
    assert len(page.bands) == BINS and page.bin_s == 9000 / BINS
    assert (page.bands["low_w"].min(), page.bands["high_w"].max()) == (1.0, 999.0)
    peak = page.bands["time_s"][page.bands["high_w"].idxmax()]
    assert peak == pytest.approx(4321, abs=9000 / BINS)


POWERS = st.lists(st.one_of(st.none(), st.floats(0, 1000, width=32)), min_size=1, max_size=60)


@given(POWERS, st.integers(1, 20))
def test_parts_of_the_time_hold_the_least_greatest_and_mean_of_their_samples(
    powers: list[float | None], count: int
) -> None:
    watts = np.array([np.nan if p is None else p for p in powers])
    times = np.arange(len(watts), dtype=float)
    bin_s, half = len(watts) / count, len(watts) // 2
    device = pd.MultiIndex.from_tuples([("n1", "gpu", 0)], names=DEVICE)
    samples = pd.DataFrame(watts[:, None], times, device)
    batches = (rows for rows in (samples[:half], samples[half:]) if len(rows))
    result = power_by_bin(batches, bin_s, count)
    positions = np.minimum((times / bin_s).astype(int), count - 1)
    for position in range(count):
        inside = watts[(positions == position) & np.isfinite(watts)]
        ends = [result[name][position] for name in ("low_w", "mean_w", "high_w")]
        expected = [inside.min(), inside.mean(), inside.max()] if len(inside) else [np.nan] * 3
        assert ends == pytest.approx(expected, nan_ok=True)


# --- how it is drawn ------------------------------------------------------------------------------


def drawn(files: RunFiles) -> Any:
    return figure_module.draw(page_of(files))


def test_a_run_without_any_sensor_has_a_page_that_says_so(tmp_path: Path) -> None:
    nothing = [absent(kind, "train", 10) for kind in ("gpu", "cpu", "ram")]
    files = made(tmp_path, [], energy=nothing)
    assert "Energy not known" in " ".join(figure_module.title_lines(page_of(files)))
    words = [text.get_text() for axes in drawn(files).axes for text in axes.texts]
    assert any("No power of any device" in word for word in words)


def test_each_node_and_kind_has_a_panel_and_unheld_gpus_too(tmp_path: Path) -> None:
    rows = [
        *seconds(10, kind="cpu"),
        *seconds(10),
        *seconds(10, kind="unused_gpu", index=1),
        *seconds(10, node="n2"),
    ]
    labels = [axes.get_ylabel() for axes in drawn(made(tmp_path, rows)).axes[1:]]
    assert [label.split("\n")[:2] for label in labels] == [
        ["GPU", "n1"],
        ["CPU", "n1"],
        ["GPUs not held", "n1"],
        ["GPU", "n2"],
    ]


def test_pages_are_written_for_each_repeat_with_the_same_bytes_again(tmp_path: Path) -> None:
    for repeat in (1, 2):
        made(tmp_path, seconds(10), repeat=repeat)
    name = make_spec().configuration
    written = []
    for _ in range(2):
        figure_module.save_pages(tmp_path, name, [1, 2], {"2": "no"})
        folder = tmp_path / "figures" / "runs" / name
        written.append([(folder / f"{repeat}.svg").read_bytes() for repeat in (1, 2)])
    assert written[0] == written[1]
