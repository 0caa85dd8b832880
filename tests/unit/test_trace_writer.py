"""Traces written device by device, where some have many samples and some have few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.accounting.node_energy import node_kinds
from scalewatt.energies.accounting.run_inputs import PlannedRun
from scalewatt.energies.integration.stage_intervals import tile_window
from scalewatt.energies.traces.trace_writer import TraceCollector, TraceWriter
from scalewatt.recordings.series import SensorSeries

T0 = 1_795_000_000.0


def node(name: str, samples: int, seed: int) -> list[SensorSeries]:
    """Return two GPUs that share their times, a counter, and a memory with few samples of its own."""
    random = np.random.default_rng(seed)
    time_s = T0 + np.arange(samples) + 1e-3 * random.random(samples)
    power_w = [300 + 20 * random.standard_normal(samples) for _ in range(2)]
    power_w[1][100:105] = np.nan
    counter_j = np.cumsum(100 + random.random(samples))
    gpus = [
        SensorSeries(name, f"CUDA:{i}_POWER", "gpu", i, "power", time_s, watts, uuid=f"GPU-{i}")
        for i, watts in enumerate(power_w)
    ]
    cpu = SensorSeries(name, "cpu_0_package-0", "cpu", 0, "counter", time_s, counter_j)
    few = 50 + 5 * random.random(300)
    return [*gpus, cpu, SensorSeries(name, "ram_0_dram", "ram", 0, "power", time_s[:300], few)]


def test_the_file_holds_the_same_samples_as_memory_does(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    collector = TraceCollector("NVIDIA A100")
    with TraceWriter(path, PlannedRun("made", 3), "NVIDIA A100") as writer:
        for place, samples in enumerate((20_000, 400, 20_000, 300)):
            name = f"n{place}"
            window = T0, T0 + samples
            stages = [
                {"stage": stage, "epoch": 0, "start_s": T0 + begin, "end_s": T0 + end}
                for stage, begin, end in (("train", 5, 150), ("validate", 150, samples - 20))
            ]
            intervals = tile_window(stages, window)[0]
            # Two nodes of one clock, and one that is ahead of it.
            clock = NodeClock(name, (T0,), (0.5,)) if place == 2 else NodeClock(name)
            for kind in node_kinds(name, node(name, samples, place), powers={}, period_s=1.0):
                for sink in (writer, collector):
                    sink.add(0, kind, intervals, clock)
    found = pq.read_table(path, page_checksum_verification=True)
    expected = collector.table()
    assert found.schema.equals(expected.schema)
    assert len(found) == 3 * (20_000 + 400 + 20_000 + 300) + 4 * 300
    words = [field.name for field in found.schema if pa.types.is_dictionary(field.type)]
    for name in found.schema.names:
        ours, theirs = found[name], expected[name]
        if name in words:
            ours, theirs = ours.cast(pa.string()), theirs.cast(pa.string())
        assert ours.combine_chunks().equals(theirs.combine_chunks()), name
    assert set(found["flag"].unique().to_pylist()) >= {"", "missing_samples"}
