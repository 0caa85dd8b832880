"""A campaign over clocks whose runs follow a law, with repeats that scatter, and its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from campaign_files import DEMO, edited
from run_files import epochs, make_run, part

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.results.build import write_figure_table

SERIES = "resnet50-full-lbs16"
CLOCKS = (705, 930, 1005, 1155, 1410)
GPUS = (1, 2)
SAMPLES = 5 * 1437
FIGURE = "operating_points"


def campaign(clocks: tuple[int, ...] = CLOCKS, **keys: Any) -> Campaign:
    """The demo's first series at several clocks, and no other series."""
    content = edited({}, DEMO)
    entry = {**content["series"][SERIES], "gpus": list(GPUS), "repeats": 3, **keys}
    content["series"] = {
        f"{SERIES}-gpuclock{clock}mhz": {
            **entry,
            "gpu_clock_mhz": clock,
            "label": f"LBS 16, GPU clock {clock} MHz",
        }
        for clock in clocks
    }
    content["figures"] = {FIGURE: {"series": list(content["series"])}}
    return expand(content, Path("levers.yaml"), known_devices())


def train_s(clock_mhz: float, gpus: int) -> float:
    """A part of the time follows the clock, another does not."""
    return (100 + 200 * 1410 / clock_mhz) / gpus


def power_w(clock_mhz: float) -> float:
    """The power of a GPU at a clock."""
    return 80 + 320 * (clock_mhz / 1410) ** 3


def energy_j(clock_mhz: float, gpus: int) -> float:
    """The energy of all GPUs by the law."""
    return gpus * power_w(clock_mhz) * train_s(clock_mhz, gpus)


def made(
    results: Path,
    of: Campaign,
    scatter: float = 0.004,
    flags: dict[str, str] | None = None,
    with_cpu: tuple[int, ...] = (),
) -> None:
    """Write the folders of all runs; repeat 1 is below the law, 2 on it, 3 above it, by `scatter`.

    `flags`: of runs by their name; `with_cpu`: clocks whose nodes have a sensor of their CPUs too.
    """
    for run in of.runs():
        spec = run_spec(of, *run)
        clock = (spec.operating_point or {}).get("gpu_clock_mhz", 1410.0)
        factor = 1 + scatter * (spec.repeat - 2)
        seconds = train_s(clock, spec.gpus) * factor
        row = part(
            "gpu", "train", seconds, energy_j(clock, spec.gpus) * factor, devices=spec.gpus,
            flags=tuple(code for id_, code in (flags or {}).items() if id_ == spec.name),
        ) | {"configuration": spec.configuration, "repeat": spec.repeat}  # fmt: skip
        history = epochs([40.0, 30.0, 20.0, 15.0, 12.0], samples=1437, train_s=seconds / 5)
        cpu = part("cpu", "train", seconds, 1000.0) | {
            n: row[n] for n in ("configuration", "repeat")
        }
        make_run(results, [row, *([cpu] if clock in with_cpu else [])], spec=spec, history=history)


def table(results: Path, of: Campaign, **facility: float) -> pd.DataFrame:
    """The figure's table, through its file, of the runs that are there."""
    runs = [[*run] for run in of.runs()]
    runs = [run for run in runs if Path(results, "runs", run[0], str(run[1])).is_dir()]
    definition = table_definition(of, FIGURE, runs) | ({"facility": facility} if facility else {})
    out = results / "tables" / f"{FIGURE}.parquet"
    write_figure_table(definition, results, out)
    return pq.read_table(out).to_pandas()
