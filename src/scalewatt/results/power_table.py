"""The points of Figure 5: one device's power over the first minutes of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scalewatt.results.figure_schema import POWER, panel_letter
from scalewatt.results.runs import RunFiles
from scalewatt.results.schema import table

Row = dict[str, Any]

NO_STAGE = "unattributed"
POWER_TRACE_S = 300.0
"""Length of Figure 5's power traces."""


def power(definition: dict[str, Any], configurations: list[Row], results: Path) -> pa.Table:
    """Figure 5: one device's power over the first 300 s of training, and the means over the run.

    The device is the first GPU (of the first node) of each configuration's first run; where a run
    has no GPU, the first CPU.
    """
    by_id = {row["configuration"]: row for row in configurations}
    repeats = dict(definition["runs"])
    tables = []
    for index, point in enumerate(definition["points"]):
        row = by_id.get(point["configuration"])
        if row is None:
            continue
        traces = pq.read_table(
            RunFiles(results, row["configuration"], repeats[row["configuration"]]).traces
        )
        tables.append(_power_panel(panel_letter(index), point["label"], row, traces))
    return pa.concat_tables(tables) if tables else POWER.empty_table()


def _power_panel(letter: str, label: str, row: Row, traces: pa.Table) -> pa.Table:
    known = traces.filter(pc.is_valid(traces["power_w"]))
    kinds = set(known["device_kind"].unique().to_pylist())
    kind = "gpu" if "gpu" in kinds else "cpu"
    known = known.filter(pc.equal(known["device_kind"].cast(pa.string()), kind))
    if not len(known):
        return POWER.empty_table()
    # The start of training: the first node of the first segment (another may be elsewhere).
    first = pc.min(known["segment"])
    begin = known.filter(pc.equal(known["segment"], first))
    nodes = sorted(begin["node"].unique().to_pylist())
    of_first_node = begin.filter(pc.equal(begin["node"].cast(pa.string()), nodes[0]))
    index = pc.min(of_first_node["device_index"])
    # Lost samples stay, as unknown: the line has a gap there.
    chosen = (
        (pc.field("node") == nodes[0])
        & (pc.field("segment") == first)
        & (pc.field("device_kind") == kind)
        & (pc.field("device_index") == index)
    )
    own = traces.filter(chosen).sort_by("time")
    training = own.filter(pc.equal(own["stage"].cast(pa.string()), "train"))
    if not len(training) and pc.any(pc.not_equal(own["stage"].cast(pa.string()), NO_STAGE)).as_py():
        return POWER.empty_table()
    # A run made elsewhere may not say when training began: all of its recording is shown.
    start = (training if len(training) else own)["time"][0].as_py()
    seconds = [(t - start).total_seconds() for t in own["time"].to_pylist()]
    watts = own["power_w"].to_pylist()
    mean_own, mean_all = pc.mean(own["power_w"]).as_py(), pc.mean(known["power_w"]).as_py()
    origin = own["energy_origin"][0].as_py()
    copied = (
        "configuration",
        "device",
        "device_name",
        "gpus",
        "local_batch_size",
        "global_batch_size",
    )
    fixed = {name: row[name] for name in copied}
    return table(
        [
            {
                "figure": "figure5",
                "panel": letter,
                "label": label,
                **fixed,
                "time_s": t,
                "power_w": w,
                "mean_power_w": mean_own,
                "mean_power_all_w": mean_all,
                "device_kind": kind,
                "energy_origin": origin,
            }
            for t, w in zip(seconds, watts, strict=True)
            if 0 <= t <= POWER_TRACE_S
        ],
        POWER,
    )
