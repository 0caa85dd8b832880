"""Traces: a row a time, a column a sensor, devices in the metadata, whatever the nodes have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from energy_files import read_traces

from scalewatt.energies.stages import STAGES
from scalewatt.energies.traces import Traces, read_devices, write_traces
from scalewatt.recordings.block import sensor_frame

T0 = 1_795_000_000.0
GPUS = [
    {"name": f"CUDA:{i}_POWER", "kind": "gpu", "index": i, "samples": "moving_mean"} for i in (0, 1)
]
CPU = {"name": "cpu_0_package-0", "kind": "cpu", "index": 0, "quantity": "counter"}
MEMORY = {"name": "rated", "kind": "ram", "index": 0, "origin": "estimated"}
TRAIN, VALIDATE = STAGES.index("train"), STAGES.index("validate")


def add(traces: Traces, node: str, sensors: list[dict[str, Any]], n: int) -> np.ndarray:
    """Add a block whose last power has a hole; return the powers."""
    power = 100.0 * np.arange(1, len(sensors) + 1)[:, None] + np.arange(n)
    power[-1, 2] = np.nan
    stages = np.where(np.arange(n) < 5, TRAIN, VALIDATE).astype(np.int8)
    traces.add(0, node, T0 + np.arange(n), power, sensor_frame(sensors), stages)
    return power


def test_each_sensor_of_nodes_that_differ_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    with write_traces(path, configuration="made", repeat=3) as traces:
        first = add(traces, "n1", GPUS, 10)
        add(traces, "n2", [*GPUS, CPU], 8)
        add(traces, "n2", [MEMORY], 4)
    assert [file.name for file in tmp_path.iterdir()] == ["traces.parquet"]
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        wide, devices = file.read().to_pandas(), read_devices(file)
        assert file.num_row_groups == 3
    assert list(wide.columns[5:]) == ["gpu_0", "gpu_1", "cpu_0", "ram_0"]
    assert wide.groupby(["node", "block"], observed=True).size().tolist() == [10, 8, 4]
    on_n1 = wide[wide.node == "n1"]
    assert on_n1["cpu_0"].isna().all() and on_n1["gpu_0"].tolist() == first[0].tolist()
    assert devices["quantity"].tolist() == ["moving_mean"] * 4 + ["mean", None]

    long = read_traces(path).to_pandas()
    assert len(long) == 2 * 10 + 3 * 8 + 4
    keys = ["node", "device_kind", "device_index"]
    sizes = long.groupby(keys, sort=False, observed=True).size()
    assert list(sizes) == [10, 10, 8, 8, 8, 4]
    gpu = long[(long.node == "n1") & (long.device_index == 1)]
    assert gpu["power_w"].isna().tolist() == [i == 2 for i in range(10)]
    assert gpu["stage"].tolist() == ["train"] * 5 + ["validate"] * 5
    starts = long.groupby("node", observed=True)["time"].min()
    assert starts.tolist() == [pd.Timestamp(T0, unit="s", tz="UTC")] * 2


def test_nothing_appears_under_the_name_of_traces_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    with pytest.raises(RuntimeError), write_traces(path) as traces:
        add(traces, "n1", GPUS, 10)
        raise RuntimeError
    with pytest.raises(ValueError, match="expected length 3"), write_traces(path) as traces:
        traces.add(
            *(0, "n1", np.arange(3.0), [np.zeros(2)], sensor_frame(GPUS[:1])),
            np.zeros(3, np.int8),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_samples_has_traces_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    with write_traces(path, configuration="made", repeat=1):
        pass
    assert len(read_traces(path)) == 0
