"""The page of a run: its power thinned out without losing extremes, its stages, its words."""

from __future__ import annotations

from itertools import pairwise
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
from scalewatt.energies.tables import TELEMETRY_SCHEMA
from scalewatt.figures import run_page as figure_module
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.results.figures.run_page_table import (
    BINS,
    Band,
    RunPage,
    Span,
    power_by_place,
    read_page,
    read_pages,
)
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


def page_of(files: RunFiles, excluded: str | None = None) -> RunPage:
    return read_page(files.results, files.configuration, files.repeat, excluded)


def with_clocks(files: RunFiles, nodes: list[str], mhz: list[float | None]) -> RunFiles:
    """The run with telemetry: the clock of GPU 0 of each node, a reading a second."""
    rows = [
        {
            "segment": 0,
            "time": round((CLOCK + second) * 1e6),
            **{"node": node, "device_kind": "gpu", "device_index": 0},
            **{"quantity": quantity, "unit": "MHz", "value": value},
        }
        for node in nodes
        for second, value in enumerate(mhz)
        for quantity in ("clock_sm", "temperature")
    ]
    table = pa.Table.from_pylist(rows, TELEMETRY_SCHEMA)
    write_table(table, files.energy.with_suffix(".telemetry.parquet"))
    return files


# --- what a page shows ----------------------------------------------------------------------------


def test_every_sample_of_a_short_run_is_there_device_by_device(tmp_path: Path) -> None:
    rows = [*seconds(10, kind="cpu", watts=50.0), *seconds(10), *seconds(10, index=1, watts=200.0)]
    page = page_of(made(tmp_path, rows))
    assert [one.device for one in page.traces] == [
        ("n1", "gpu", 0),
        ("n1", "gpu", 1),
        ("n1", "cpu", 0),
    ]
    assert page.traces[1].power_w.tolist() == [200.0 + k % 7 for k in range(10)]
    assert page.traces[0].time_s.tolist() == list(range(10))


def test_lost_samples_and_gaps_break_the_line(tmp_path: Path) -> None:
    rows = seconds(10)
    rows[3]["power_w"] = None
    rows[6]["flag"] = "gap"
    (one,) = page_of(made(tmp_path, rows)).traces
    broken = [t for t, w in zip(one.time_s, one.power_w, strict=True) if np.isnan(w)]
    assert broken == [3.0, 6.0]
    assert np.isfinite(one.power_w).sum() == 9


def test_waiting_between_segments_is_left_out_and_told(tmp_path: Path) -> None:
    rows = [*seconds(10), *seconds(10, start=1000, segment=1)]
    events = [event("train", 0, 9), event("train", 1000, 1009, segment=1)]
    page = page_of(made(tmp_path, rows, events))
    first, second = page.segments
    assert (first.start_s, first.end_s, second.start_s, second.end_s) == (0, 9, 9, 18)
    assert second.waited_s == 991
    (one,) = page.traces
    assert np.isnan(one.power_w).sum() == 1 and one.time_s.max() == 18
    assert [(span.start_s, span.end_s) for span in page.spans] == [(0, 9), (9, 18)]
    assert any("(16.5 min) is left out" in said for said in figure_module.note_sentences(page))


def test_devices_of_many_nodes_are_shown_together(tmp_path: Path) -> None:
    rows = [row for n in range(5) for row in seconds(40, node=f"n{n}", watts=100.0 + 10 * n)]
    page = page_of(made(tmp_path, rows))
    assert page.traces == () and len(page.nodes) == 5
    (band,) = page.bands
    assert (band.device_kind, band.devices) == ("gpu", 5)
    assert band.low_w.min() == 100.0 and band.high_w.max() == 146.0
    assert np.nanmean(band.mean_w) == pytest.approx(120 + 3, abs=1)
    assert "Gaps shorter than 2.05 s are not seen." in figure_module.note_sentences(page)[0]


def test_a_long_run_is_thinned_out_and_keeps_its_extremes(tmp_path: Path) -> None:
    rows = seconds(9000)
    rows[4321]["power_w"], rows[77]["power_w"] = 999.0, 1.0
    page = page_of(made(tmp_path, rows, [event("train", 0, 9000)]))
    (one,) = page.traces
    assert len(one.time_s) == 2 * BINS and page.place_s == 7.5
    assert "Gaps shorter than 7.5 s are not seen." in figure_module.note_sentences(page)[0]
    assert (np.nanmin(one.power_w), np.nanmax(one.power_w)) == (1.0, 999.0)
    assert one.time_s[np.nanargmax(one.power_w)] == pytest.approx(4321, abs=9000 / BINS)


POWERS = st.lists(st.one_of(st.none(), st.floats(0, 1000, width=32)), min_size=1, max_size=60)


@given(POWERS, st.integers(1, 20))
def test_parts_of_the_time_hold_the_least_greatest_and_mean_of_their_samples(
    powers: list[float | None], count: int
) -> None:
    watts = np.array([np.nan if p is None else p for p in powers])
    times = np.arange(len(watts), dtype=float)
    place_s, half = len(watts) / count, len(watts) // 2
    samples = pd.DataFrame({"kind": "gpu", "time_s": times, "power_w": watts})
    batches = (own for own in (samples[:half], samples[half:]) if len(own))
    ((_, found),) = power_by_place(batches, ["kind"], place_s, count)
    places = np.minimum((times / place_s).astype(int), count - 1)
    for place in range(count):
        inside = watts[(places == place) & np.isfinite(watts)]
        ends = [found[name][place] for name in ("low_w", "mean_w", "high_w")]
        expected = [inside.min(), inside.mean(), inside.max()] if len(inside) else [np.nan] * 3
        assert ends == pytest.approx(expected, nan_ok=True)


# --- how it is drawn ------------------------------------------------------------------------------


def drawn(files: RunFiles, excluded: str | None = None) -> Any:
    return figure_module.draw(page_of(files, excluded))


def test_the_title_says_energy_origin_scope_coverage_and_time(tmp_path: Path) -> None:
    said = figure_module.title(page_of(made(tmp_path, seconds(10))))
    assert "resnet50-local-n002-lbs0064-full, repeat 1: 2 GPUs on 1 node, NVIDIA A100" in said
    assert (
        "Energy 0.45 kWh measured by the devices' sensors, scope gpu+cpu+ram, coverage 100 %"
        in said
    )
    assert "run time 1 h" in said


def test_a_run_without_any_sensor_has_a_page_that_says_so(tmp_path: Path) -> None:
    nothing = [absent(kind, "train", 10) for kind in ("gpu", "cpu", "ram")]
    files = made(tmp_path, [], energy=nothing)
    assert "so no energy" in figure_module.title(page_of(files))
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


@given(st.lists(st.floats(0.01, 100), min_size=40, max_size=200))
def test_many_stages_are_put_together_without_overlap_and_keep_their_time(
    lengths: list[float],
) -> None:
    ends = np.cumsum(lengths)
    names = ("train", "validate")
    spans = [
        Span(names[k % 2], float(end - length), float(end))
        for k, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]
    total = float(ends[-1])
    shown = figure_module.visible_spans(spans, total)
    assert all(a.end_s <= b.start_s + 1e-9 for a, b in pairwise(shown))
    assert sum(one.end_s - one.start_s for one in shown) == pytest.approx(total)
    for name in names:
        own = sum(s.end_s - s.start_s for s in spans if s.stage == name)
        kept = sum(s.end_s - s.start_s for s in shown if s.stage == name)
        assert abs(own - kept) <= total / BINS * len(spans)


def test_pages_are_written_for_each_repeat_with_the_same_bytes_again(tmp_path: Path) -> None:
    for repeat in (1, 2):
        made(tmp_path, seconds(10), repeat=repeat)
    name = make_spec().configuration
    first = figure_module.save_pages(read_pages(tmp_path, name, [1, 2], {"2": "no"}), tmp_path)
    folder = tmp_path / "figures" / "runs" / name
    assert first == [folder / "1.svg", folder / "2.svg"]
    before = [path.read_bytes() for path in first]
    figure_module.save_pages(read_pages(tmp_path, name, [1, 2], {"2": "no"}), tmp_path)
    assert [path.read_bytes() for path in first] == before
    pages = read_pages(tmp_path, name, [1], {})
    more = figure_module.save_pages(pages, tmp_path, ["pdf", "png"])
    assert sorted(folder.iterdir()) == sorted([*first, *more])


@pytest.mark.parametrize("nodes", [1, 5])
def test_a_clock_that_was_asked_for_is_shown_beside_the_power(tmp_path: Path, nodes: int) -> None:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    samples = [row for name in names for row in seconds(10, node=name)]
    files = made(
        tmp_path,
        samples,
        nodes=nodes,
        gpus=nodes,
        ranks_per_node=1,
        operating_point={"gpu_clock_mhz": 1200.0},
    )
    page = page_of(with_clocks(files, names, [1410.0, None, *[1200.0] * 8]))
    if nodes == 1:
        assert isinstance(page.clocks, tuple)
        (trace_,) = page.clocks
        assert trace_.power_w[0] == 1410 and np.isnan(trace_.power_w[1])
        assert trace_.time_s == pytest.approx(np.arange(10))
    else:
        assert isinstance(page.clocks, Band)
        assert (page.clocks.devices, page.clocks.high_w.max()) == (nodes, 1410)
    figure = figure_module.draw(page)
    labelled = [axes for axes in figure.axes if "GPU clock (MHz)" in axes.get_ylabel()]
    assert labelled == figure.axes[-1:]
    (asked,) = [line for line in labelled[0].lines if line.get_gid() == "asked"]
    assert set(asked.get_ydata()) == {1200.0}
    assert "Dashed: the clock that was asked for." in figure_module.note_sentences(page)
