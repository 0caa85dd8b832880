"""Stages: every second belongs to one, on one clock."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from energy_files import codes
from hypothesis import given
from hypothesis import strategies as st
from true_power import checked, estimated

from scalewatt.energies.stages import UNATTRIBUTED, interval_at, segment_events, tile_window
from scalewatt.recordings.stages import EVENTS_SCHEMA


def events(*rows: tuple[str, float, float]) -> pd.DataFrame:
    stages = [{"stage": s, "start_s": a, "end_s": b} for s, a, b in rows]
    return segment_events(pa.Table.from_pylist(stages, EVENTS_SCHEMA), 0)


def seconds(intervals: pd.DataFrame) -> dict[str, float]:
    lengths = intervals["end_s"] - intervals["start_s"]
    return lengths.groupby(intervals["stage"], observed=True).sum().to_dict()


def test_stages_are_clipped_to_the_window_and_the_rest_is_unattributed() -> None:
    stages, flags = tile_window(
        events(("startup", -5, 2), ("train", 2, 6), ("validate", 7, 30)), (0, 10)
    )
    assert seconds(stages) == {"startup": 2, "train": 4, UNATTRIBUTED: 1, "validate": 3}
    assert flags == []
    times = np.array([-1, 0, 2, 6.5, 7, 10, 11.0])
    assert interval_at(stages, times).tolist() == [-1, 0, 1, 2, 3, 3, -1]


def test_overlapping_stages_count_no_second_twice_and_are_flagged() -> None:
    stages, flags = tile_window(events(("train", 0, 6), ("validate", 5, 10)), (0, 10))
    assert seconds(stages) == {"train": 6, "validate": 4}
    assert codes(flags) == {"overlap"}


@given(
    st.lists(st.floats(0.1, 9.0), min_size=1, max_size=12),
    st.lists(st.floats(1.0, 500.0), min_size=30, max_size=30),
    st.floats(-5, 15),
    st.floats(16, 40),
)
def test_stages_sum_to_the_total(
    lengths: list[float], powers: list[float], first: float, last: float
) -> None:
    curve = checked(estimated(np.arange(30.0), np.array(powers))).curve
    edges = np.concatenate(([0.0], np.cumsum(lengths)))
    names = ("train", "validate", "checkpoint")
    rows = [(names[i % 3], edges[i], edges[i + 1] - (i % 2) * 0.05) for i in range(len(lengths))]
    stages, _ = tile_window(events(*rows), (first, last))
    energies_j = curve.between(stages["start_s"], stages["end_s"])
    assert energies_j.sum() == pytest.approx(curve.between(first, last))
    assert sum(seconds(stages).values()) == pytest.approx(last - first)


def test_the_events_of_one_segment_are_sorted_and_an_open_stage_never_ends() -> None:
    rows = [
        {"segment": 1, "stage": "train", "epoch": 0, "start_s": 5.0, "end_s": None},
        {"segment": 0, "stage": "train", "epoch": 0, "start_s": 1.0, "end_s": 2.0},
        {"segment": 1, "stage": "startup", "epoch": None, "start_s": 3.0, "end_s": 5.0},
    ]
    result = segment_events(pa.Table.from_pylist(rows), 1)
    assert [*zip(result["stage"], result["end_s"], strict=True)] == [
        ("startup", 5.0),
        ("train", np.inf),
    ]
