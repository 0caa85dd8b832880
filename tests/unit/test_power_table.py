"""The points of Figure 5: which device, its samples or windows, its means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_files import NAME, WHOLE, device, make_run, make_spec, trace, write_traces

from scalewatt.common.files import write_table
from scalewatt.energies.tables import DEVICES_SCHEMA
from scalewatt.results.build import write_figure_table
from scalewatt.results.figures.figure_schema import POWER

Row = dict[str, Any]


def definition(names: list[str], **more: Any) -> Row:
    return {
        "figure": "figure5",
        "campaign": "made",
        "runs": [[name, 1] for name in sorted(set(names))],
        "missing": [],
        "points": [{"label": name, "configuration": name} for name in names],
        **more,
    }


def written(results: Path, made: Row) -> Any:
    write_figure_table(made, results, results / "figure5.parquet")
    return pq.read_table(results / "figure5.parquet")


def power_rows(
    results: Path, traces: list[Row], energy: list[Row] | None = None, **more: Any
) -> list[Row]:
    write_traces(make_run(results, energy or WHOLE), traces)
    result = written(results, definition([NAME], **more))
    assert result.schema.equals(POWER)
    rows: list[Row] = result.to_pylist()
    return rows


def test_figure5_shows_the_first_gpu_from_the_start_of_training(tmp_path: Path) -> None:
    traces = []
    for second in range(0, 401, 10):
        stage = "startup" if second < 50 else "train"
        traces += [
            trace("n1", "gpu", 0, second, 200.0 + second, stage),
            trace("n1", "gpu", 1, second, 90.0, stage),
            trace("n2", "gpu", 0, second, 80.0, stage),
            trace("n1", "cpu", 0, second, 70.0, stage),
            trace("n1", "unused_gpu", 2, second, 30.0, stage),
        ]
    rows = power_rows(tmp_path, traces[::-1])  # in any order
    assert [r["time_s"] for r in rows] == [float(t) for t in range(0, 301, 10)]
    assert [r["power_w"] for r in rows] == [250.0 + t for t in range(0, 301, 10)]
    assert {r["device_kind"] for r in rows} == {"gpu"}
    assert {(r["panel"], r["label"], r["gpus"]) for r in rows} == {("A", NAME, 2)}
    # the means are of the whole run: this device's, and all GPUs' that the run held
    assert {r["mean_power_w"] for r in rows} == {400.0}
    assert rows[0]["mean_power_all_w"] == pytest.approx((400 + 90 + 80) / 3)


def test_means_are_over_the_known_time_of_the_energy_account(tmp_path: Path) -> None:
    files = make_run(tmp_path, WHOLE)
    write_traces(files, [trace("n1", "gpu", 0, t, 100.0) for t in range(3)])
    position: Row = {"segment": 0, "node": "n1", "device_kind": "gpu", "stage": "train"}
    devices = [
        device(**position, device_index=0, recorded_j=4000.0, covered_s=20.0),
        device(**position | {"segment": 1}, device_index=0, recorded_j=300.0, covered_s=3.0),
        device(**position, device_index=1, recorded_j=100.0, covered_s=2.0),
        device(**position | {"device_kind": "cpu"}, device_index=0, recorded_j=9e9),
    ]
    write_table(pa.Table.from_pylist(devices, DEVICES_SCHEMA), files.devices)
    first, *_ = written(tmp_path, definition([NAME])).to_pylist()
    assert first["mean_power_w"] == pytest.approx(4300 / 23)
    assert first["mean_power_all_w"] == pytest.approx(4400 / 25)


def test_windows_have_the_means_of_their_samples_and_gaps_where_most_is_unknown(
    tmp_path: Path,
) -> None:
    powers = [100.0, 40.0, None, 60.0, None, None, 80.0, 20.0]
    traces = [trace("n1", "cpu", 0, t, w) for t, w in enumerate(powers)]
    rows = power_rows(tmp_path, traces, WHOLE[2:], options={"power_window_s": 2.0})
    shown = [(1.0, 70.0), (3.0, 60.0), (5.0, None), (7.0, 50.0)]
    assert [(r["time_s"], r["power_w"]) for r in rows] == shown


def test_figure5_begins_with_the_first_segment_that_trained(tmp_path: Path) -> None:
    dead = [trace("n0", "gpu", 0, s, 40.0, "startup") for s in range(3)]
    first = [{**trace("n1", "gpu", 0, 10.0 + s, 100.0 + s), "segment": 1} for s in range(5)]
    later = [{**trace("n0", "gpu", 0, 100.0 + s, 300.0), "segment": 2} for s in range(7)]
    rows = power_rows(tmp_path, [*dead, *first, *later])
    assert [row["power_w"] for row in rows] == [100.0 + s for s in range(5)]


def test_figure5_takes_the_first_run_that_is_not_excluded(tmp_path: Path) -> None:
    for repeat in (1, 2, 3):
        files = make_run(tmp_path, WHOLE, spec=make_spec(repeat=repeat))
        write_traces(files, [trace("n1", "gpu", 0, 0, 10.0 * repeat)])
    made = definition([NAME]) | {"runs": [[NAME, repeat] for repeat in (3, 2, 1)]}
    made["excluded"] = [{"configuration": NAME, "repeat": 1, "reason": "another job on the node"}]
    assert written(tmp_path, made)["power_w"].to_pylist() == [20.0]


def test_power_known_in_start_up_alone_breaks_nothing(tmp_path: Path) -> None:
    """A killed first segment with powers, and a second one whose training has none."""
    traces = [trace("n1", "gpu", 0, t, 60.0, "startup") for t in range(5)]
    traces += [trace("n1", "gpu", 0, t, None) | {"segment": 1} for t in range(10, 15)]
    (row,) = power_rows(tmp_path / "none", traces)
    assert (row["time_s"], row["power_w"], row["mean_power_w"]) == (0.0, None, None)
    traces += [trace("n1", "gpu", 0, 9, 70.0, "startup") | {"segment": 1}]
    rows = power_rows(tmp_path / "before", traces)
    assert [row["time_s"] for row in rows] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert {row["power_w"] for row in rows} == {None}
